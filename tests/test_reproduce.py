"""The paper, reproduced: the ten functions as they are defined, records that survive a kill, pages of what there is."""

import json
import os

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cofrnet.cli import app
from cofrnet.datasets import FUNCTIONS
from cofrnet.reproduce import PARTS, Records, data_tables, functions, run
from cofrnet.reproduce.claims import CHANGES
from cofrnet.reproduce.nam import NAM
from cofrnet.reproduce.page import write_pages

MINIMA = {
    "Beale": ((3, 0.5), 0),
    "Goldstein-Price": ((0, -1), 3),
    "Booth": ((1, 3), 0),
    "Cross-in-tray": ((1.34941, -1.34941), -2.06261),
    "Three-hump camel": ((0, 0), 0),
    "Himmelblau": ((3, 2), 0),
    "Bukin N.6": ((-10, 1), 0),
    "Matyas": ((0, 0), 0),
    "Lévi N.13": ((1, 1), 0),
    "Rosenbrock": ((1, 1), 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_their_known_minima(name):
    function = FUNCTIONS[name]
    at, least = MINIMA[name]
    assert function.value(*map(float, at)) == pytest.approx(least, abs=1e-4)
    X, y = function.sample(2000, seed=0)
    assert (y >= least - 1e-9).all()
    for (low, high), column, own in zip(function.box, X.T, at, strict=True):
        assert low <= column.min() < column.max() <= high
        assert low <= own <= high
    np.testing.assert_array_equal(function.sample(5, seed=1)[0], function.sample(5, seed=1)[0])


def test_every_function_has_a_printed_value():
    assert set(functions.PAPER) == set(FUNCTIONS)
    assert {functions.depth_of(f) for f in FUNCTIONS.values()} == {2, 4, 6, 8}


@pytest.mark.parametrize("depth", [2, 4, 6, 8])
def test_the_width_of_the_mlp_is_the_nearest_in_count(depth):
    ladder = 3 * (depth + 1) + 1
    counts = {width: 3 * width + depth * width**2 + width for width in range(1, 10)}
    chosen = counts[functions.width_of(depth)]
    assert all(abs(chosen - ladder) <= abs(count - ladder) for count in counts.values())


def test_a_ladder_learns_a_quadratic_function_as_the_paper_could_not():
    found = functions.fit_function("Matyas", "CoFrNet-F, ours", seed=0)
    assert found["train"] < functions.PAPER["Matyas"][0] / 5
    assert found["fresh"] < functions.PAPER["Matyas"][0] / 5
    assert found["parameters"] == 13


def test_the_series_of_matyas_has_its_coefficients():
    for term in functions.coefficients("Matyas")["terms"]:
        assert term["found"] == pytest.approx(term["true"], abs=0.02 * 0.54)


def test_the_slopes_of_the_mlp_are_those_of_autograd():
    network = functions._MLP(depth=2, width=2, second_order=True)
    network.fit(*FUNCTIONS["Booth"].sample(50, seed=0), FUNCTIONS["Booth"], seed=0)
    assert network.theta.shape == (1, network.n_parameters)
    X, y = FUNCTIONS["Booth"].sample(50, seed=0)
    assert functions.mape(network.predict(X), y) < 20


def test_records_are_kept_and_a_torn_line_is_forgotten(tmp_path):
    records = Records(tmp_path / "new" / "r.jsonl")
    records.add({"a": 1, "b": "x"}, {"value": 2.0})
    with records.path.open("a") as file:
        file.write('{"what": {"a": 2')
    again = Records(records.path)
    assert {"b": "x", "a": 1} in again
    assert {"a": 2} not in again
    assert again.results(a=1) == [{"a": 1, "b": "x", "value": 2.0}]
    line = json.loads(records.path.read_text().splitlines()[0])
    assert "torch" in line["versions"]


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    asked = []

    def fake(function, method, seed):
        asked.append((function, method, seed))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return {"train": 1.0, "fresh": 2.0}

    monkeypatch.setattr(functions, "fit_function", fake)
    with pytest.raises(KeyboardInterrupt):
        run("synperf", tmp_path, seeds=1)
    told = []
    records = run("synperf", tmp_path, seeds=1, done=lambda i, n, what: told.append((i, n)))
    total = len(FUNCTIONS) * len(functions.METHODS)
    assert len(records) == total
    assert len(asked) == total + 1
    assert told[0] == (4, total)
    assert told[-1] == (total, total)


def test_pages_show_what_there_is(tmp_path):
    records = Records(tmp_path / "synperf.jsonl")
    for name in FUNCTIONS:
        for i, method in enumerate(functions.METHODS):
            records.add({"function": name, "method": method, "seed": 0}, {"train": 1.0 + i, "fresh": 2.0 + i})
    tables = Records(tmp_path / "realexp.jsonl")
    rng = np.random.default_rng(0)
    for method, level in (("CoFrNet-S", 0.9), ("EBM", 0.8), ("boosted trees", 0.95)):
        for split in range(5):
            what = {"table": "magic", "method": method, "split": split}
            tables.add(what, {"accuracy": level + 0.001 * rng.normal(), "seconds": 1.0})
    markdown, page = write_pages(tmp_path, tmp_path / "docs")
    text = markdown.read_text()
    assert "| Matyas | 7.31 | 15.53 |" in text
    assert "**CoFrNet-S" not in text
    row = next(line for line in text.splitlines() if line.startswith("| CoFrNet-S "))
    assert "**0.9" in row
    assert "**" not in next(line for line in text.splitlines() if line.startswith("| EBM "))
    assert "**" not in next(line for line in text.splitlines() if line.startswith("| boosted trees "))
    assert "<table>" in page.read_text()
    assert "worse than the paper's on" in text


def test_command(tmp_path):
    options = ["--results", str(tmp_path / "r"), "--docs", str(tmp_path / "d")]
    result = CliRunner().invoke(app, ["reproduce", "figure3", *options])
    assert result.exit_code == 0, result.output
    assert "Matyas" in (tmp_path / "d" / "reproduction.md").read_text()
    assert len(Records(tmp_path / "r" / "figure3.jsonl")) == 2


def test_nam_learns_an_additive_function():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = (np.abs(X[:, 0]) + np.sin(X[:, 1]) > 0.8).astype(int)
    model = NAM(hidden=(16, 16), epochs=40).fit(X[:1000], y[:1000])
    assert (model.predict_proba(X[1000:]).argmax(1) == y[1000:]).mean() > 0.9


def test_all_that_is_asked_for_can_be_named():
    for part in PARTS.values():
        assert next(part.tasks_of()) is not None
    for settings in CHANGES.values():
        for given in settings.values():
            from cofrnet import CoFrNetClassifier

            CoFrNetClassifier(**given)


@pytest.mark.skipif(
    "COFRNET_DATA" not in os.environ, reason="needs the data files, in the folder that COFRNET_DATA names"
)
def test_splits_are_the_same_for_all_and_do_not_overlap():
    X, y, X_val, _, X_test, y_test = data_tables.rows_of("credit_card, balanced", 0)
    assert y_test.mean() == pytest.approx(0.5, abs=0.01)
    indices = [set(part.index) for part in (X, X_val, X_test)]
    total = sum(map(len, indices))
    assert len(set.union(*indices)) == total
    assert [len(part) / total for part in indices] == pytest.approx([0.65, 0.05, 0.30], abs=0.01)
    assert y.mean() == pytest.approx(0.5, abs=0.01)


def test_rows_without_weight_do_not_count_for_the_absolute_error():
    from cofrnet import CoFrNetRegressor

    X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    weight = np.r_[np.ones(120), np.zeros(80)]
    y = np.where(weight > 0, X[:, 0] ** 2, 100.0)
    given = {"variant": "F", "n_ladders": 2, "depth": 2, "solver": "least_squares", "early_stopping": False}
    model = CoFrNetRegressor(**given, loss="absolute_error", random_state=0).fit(X, y, sample_weight=weight)
    assert np.abs(model.predict(X) - y)[:120].mean() < 0.02


def test_least_absolute_error_is_less_absolute_error():
    from cofrnet import CoFrNetRegressor

    torch.manual_seed(0)
    X, y = FUNCTIONS["Cross-in-tray"].sample(200, seed=0)
    given = {"variant": "F", "n_ladders": 1, "depth": 2, "solver": "least_squares", "early_stopping": False}
    squared, absolute = (
        CoFrNetRegressor(**given, loss=loss, random_state=0).fit(X, y) for loss in ("squared_error", "absolute_error")
    )
    assert np.abs(absolute.predict(X) - y).mean() < np.abs(squared.predict(X) - y).mean()


def test_images_are_told_from_what_the_experiment_kept(tmp_path):
    from cofrnet.reproduce import pictures

    assert pictures.section(tmp_path, tmp_path) == []
    assert pictures.summary(tmp_path) == []
    common = {"parameters": 1000, "epochs": 2, "fit_seconds": 90.0}
    found = {"conv": 0.5, "ReLU": 0.6, "pixels D": 0.3, "pixels DL": 0.25}
    lines = [json.dumps({"method": name, "accuracy": value, **common}) for name, value in found.items()]
    (tmp_path / "images.jsonl").write_text("\n".join([lines[0].replace("0.5", "0.1"), *lines]) + "\n")
    said = "\n".join(pictures.section(tmp_path, tmp_path))
    assert "| CoFrNet-DL over the pixels | 0.87 | 0.2500 | 1,000 | 2 | 2 min |" in said
    assert "0.5000" in said  # the last run of a method counts
    assert "0.1000" not in said
    assert "gallery" not in said
    assert "convolutional ladders 0.500" in pictures.summary(tmp_path)[0]

"""Predictions of files by numpy alone: the same numbers as of their estimators, and nothing heavy loaded."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from typer.testing import CliRunner

from cofrnet import CoFrNetClassifier, CoFrNetRegressor, load
from cofrnet.cli import app
from cofrnet.estimators.scoring import TableScorer
from cofrnet.tables import reading

FEW = {"random_state": 0, "max_epochs": 2}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 900
    frame = pd.DataFrame(
        {
            "size": rng.lognormal(sigma=2, size=n),
            "age": rng.integers(0, 90, n),
            "rooms": np.where(rng.random(n) < 0.2, np.nan, rng.integers(1, 7, n)),
            "share": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
            "colour": rng.choice(["red", "blue", "green", None], n),
            "member": rng.random(n) < 0.5,
            "day": pd.Timestamp("2021-03-04") + pd.to_timedelta(rng.integers(0, 900, n), unit="h"),
        }
    )
    score = np.log(frame["size"]) + frame["share"].fillna(2) + (frame["colour"] == "red") + 0.01 * frame["age"]
    score += 3 * (frame["rooms"] == 4)
    return frame, score.to_numpy()


def saved(model, folder):
    return model.save(folder / "m.cofrnet")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_members": 3},
        {"pole": "clamp"},
        {"variant": "D"},
        {"variant": "F", "depth": 2},
        {"depth": 1},
        {"scaling": "standard"},
        {"ladders_per_feature": 1, "n_ladders": 1},
    ],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_those_of_the_estimator(table, tmp_path, settings, classes):
    X, score = table
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    model = CoFrNetClassifier(**FEW, **settings).fit(X, y)
    scorer = TableScorer.read(saved(model, tmp_path))
    rows = pa.Table.from_pandas(X, preserve_index=False)
    assert scorer is not None
    np.testing.assert_allclose(scorer.predict_proba(rows), model.predict_proba(X), atol=2e-6)
    sure = np.sort(model.predict_proba(X))
    sure = sure[:, -1] - sure[:, -2] > 1e-4
    assert (scorer.predict(rows)[sure] == model.predict(X)[sure]).all()


@pytest.mark.parametrize("targets", [1, 2])
def test_predictions_are_those_of_the_estimator(table, tmp_path, targets):
    X, score = table
    y = score if targets == 1 else np.stack([100 * score, -score], axis=1)
    model = CoFrNetRegressor(solver="adamw", **FEW).fit(X, y)
    scorer = TableScorer.read(saved(model, tmp_path))
    found = scorer.predict(pa.Table.from_pandas(X, preserve_index=False))
    assert found.shape == y.shape
    np.testing.assert_allclose(found, model.predict(X), atol=1e-5 * np.abs(y).max())


def test_models_solved_in_float64_are_scored_in_it(tmp_path):
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    y = X["a"] * X["b"]
    model = CoFrNetRegressor(solver="least_squares", variant="F", n_ladders=2, random_state=0).fit(X, y)
    scorer = TableScorer.read(saved(model, tmp_path))
    rows = pa.Table.from_pandas(X, preserve_index=False)
    expected = model.predict(X)
    assert model.model_.head.dtype == torch.float64
    np.testing.assert_allclose(scorer.predict(rows), expected, atol=3e-6)  # whose inputs are float32
    assert (scorer.predict(rows.select(["b", "a"])) == scorer.predict(rows)).all()  # columns by their names


@pytest.mark.parametrize("settings", [{"variant": "DL", "n_ladders": 3}, {"interactions": 1}])
def test_other_ladders_are_left_to_the_estimator(table, tmp_path, settings):
    X, score = table
    path = saved(CoFrNetClassifier(**FEW, **settings).fit(X, score > 0), tmp_path)
    assert TableScorer.read(path) is None
    assert load(path) is not None


def test_models_of_arrays_are_left_to_the_estimator(table, tmp_path):
    X, score = table
    path = saved(CoFrNetClassifier(**FEW).fit(X[["size", "age"]].to_numpy(), score > 0), tmp_path)
    assert TableScorer.read(path) is None


HEAVY = ["torch", "sklearn", "numba", "scipy", "pandas", "narwhals", "rich"]


@pytest.mark.parametrize(
    ("columns", "unwanted"),
    [
        (["size", "age", "share", "colour", "member", "day"], HEAVY),
        (["size", "age"], [*HEAVY, "pyarrow.compute", "pyarrow.parquet", "pyarrow.json"]),
    ],
)
def test_the_command_loads_nothing_heavy(table, tmp_path, columns, unwanted):
    X, score = table
    X = X[columns]
    path = saved(CoFrNetClassifier(**FEW).fit(X, np.where(score > 0, "high", "low")), tmp_path)
    X.to_csv(tmp_path / "rows.csv", index=False)
    code = f"""
import sys
from cofrnet.cli import main
sys.argv = ["cofrnet", "predict", {str(path)!r}, {str(tmp_path / "rows.csv")!r}, "-o", {str(tmp_path / "out.csv")!r}]
try:
    main()
except SystemExit as end:
    print(end.code, [name for name in {unwanted} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    written = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(written["probability_low"], load(path).predict_proba(X)[:, 1], atol=2e-6)


@pytest.mark.parametrize("settings", [{}, {"interactions": 1}])
@pytest.mark.parametrize("target", ["class", "number", "numbers"])
def test_a_table_without_rows_has_predictions_without_rows(table, tmp_path, settings, target):
    X, score = table
    y = {"class": score > 0, "number": score, "numbers": np.stack([score, -score], 1)}[target]
    kind = CoFrNetClassifier if target == "class" else CoFrNetRegressor
    path = saved(kind(**FEW, **settings).fit(X, y), tmp_path)
    X.head(0).to_csv(tmp_path / "rows.csv", index=False)
    done = CliRunner().invoke(app, ["predict", str(path), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")])
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "out.csv")
    assert len(written) == 0
    expected = {
        "class": ["prediction", "probability_False", "probability_True"],
        "number": ["prediction"],
        "numbers": ["prediction_0", "prediction_1"],
    }
    assert written.columns.tolist() == expected[target]


def test_dates_in_several_parts(table, tmp_path, monkeypatch):
    """By several threads at once, from years that are far away, and without a time zone or with one."""
    X, score = table
    days = pd.Series(pd.date_range("2020-01-01", periods=len(X)).astype(str))
    days[5] = "9999-12-31"
    X = X.assign(when=days)
    fitted = X.assign(when=pd.to_datetime(days.where(days != "9999-12-31")))
    path = saved(CoFrNetClassifier(**FEW).fit(fitted, score > 0), tmp_path)
    X.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setattr(reading, "BLOCK", 4096)
    done = CliRunner().invoke(
        app, ["predict", str(path), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv"), "--threads", "4"]
    )
    assert done.exit_code == 0, done.output
    last = fitted.assign(when=fitted["when"].fillna(fitted["when"].max()))  # beyond the range counts as its end
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "out.csv")["probability_True"], load(path).predict_proba(last)[:, 1], atol=2e-6
    )

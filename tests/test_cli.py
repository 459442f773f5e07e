import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import typer
from typer.testing import CliRunner

import cofrnet
from cofrnet.cli import COMMANDS, app, output
from cofrnet.cli.columns import describe, meant_otherwise, target_task
from cofrnet.tables import read_table

FAST = ["--set", "max_epochs=3", "--set", "n_ladders=4", "--set", "ladders_per_feature=2"]


@pytest.fixture(autouse=True)
def same_threads():
    """--threads is for a process of its own: here it is taken back."""
    before, threads = dict(os.environ), torch.get_num_threads()
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)
    torch.set_num_threads(threads)


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"cofrnet {cofrnet.__version__}\n"


def test_help_names_the_commands(run):
    for arguments in (["--help"], ["-h"]):
        result = run(*arguments)
        assert result.exit_code == 0
        names = {command.name or command.callback.__name__ for command in app.registered_commands}
        assert {"fit", "predict", "evaluate", "plot", "report", "formula", "export", "info", "tune", "demo"} <= names
        for name in (*names, "explain"):
            assert name in result.stdout


def test_usage_errors_exit_with_2(run):
    result = run("demo", "--rows", "3")
    assert result.exit_code == 2
    assert "--rows" in result.stderr
    assert "100" in result.stderr
    assert run("nonsense").exit_code == 2


def test_demo_writes_what_it_prints(run, tmp_path):
    result = run("demo", "--out", tmp_path / "new" / "folder", "--epochs", 12)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "new" / "folder"
    path = folder / "results.json"
    for name in ("results.json", "waveform.cofrnet", "report.html"):
        assert str(folder / name) in result.stdout.replace("\n", "")
        assert (folder / name).exists()
    assert "noise 1" in (folder / "report.html").read_text()
    methods = json.loads(path.read_text())["methods"]
    bayes, ours, linear = (methods[name] for name in ("Bayes rule (the limit)", "CoFrNet", "logistic regression"))
    assert bayes["accuracy"] >= max(ours["accuracy"], linear["accuracy"])
    assert bayes["log_loss"] <= min(ours["log_loss"], linear["log_loss"])
    assert ours["accuracy"] > 0.85
    for quality in methods.values():
        assert f"{quality['accuracy']:.3f}" in result.stdout


def test_demo_is_repeatable(run, tmp_path):
    def results(folder):
        assert run("demo", "-o", tmp_path / folder, "--epochs", 2, "--rows", 500).exit_code == 0
        values = json.loads((tmp_path / folder / "results.json").read_text())
        values.pop("fit_seconds")
        return values

    assert results("one") == results("two")


def test_text_of_any_script_is_told_as_it_is(capsys, monkeypatch):
    output.tell("prix\u00a0m² \u3000東京 می\u200cخواهم 👩\u200d🔬 [red]x[/] \x1b[31m")
    assert capsys.readouterr().out == "prix\u00a0m² \u3000東京 می\u200cخواهم 👩\u200d🔬 [red]x[/] \ufffd[31m\n"
    output.print_table(["[b]a\x1b[31m"], [["tail\\"], ["\x1b]0;x"]], title="\x1b[2J")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[b]a" in shown
    assert "tail\\ " in shown
    monkeypatch.setenv("WORLD_SIZE", "")
    output.say("one process")
    assert capsys.readouterr().err == "one process\n"
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    output.tell("once is enough")
    output.warn("once is enough")
    output.fail("this process has none")
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "error: this process has none\n")


def test_every_command_is_found_where_it_is_said_to_be():
    group = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)
    for name, module in COMMANDS.items():
        code = f"import sys; sys.argv = ['cofrnet', {name!r}, '--help']; from cofrnet.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "Usage" in done.stdout, (name, module)


@pytest.mark.parametrize(
    ("module", "name"), [("cofrnet.datasets", "waveform"), ("cofrnet.training.members", "MemberSteps.over")]
)
def test_interrupt_exits_with_130(tmp_path, module, name):
    """Before the fit, and in it."""
    code = f"""
import cofrnet.cli, importlib, signal, sys
place = importlib.import_module({module!r})
*path, last = {name!r}.split(".")
for part in path:
    place = getattr(place, part)
before = getattr(place, last)
def interrupted(*arguments, **options):
    signal.raise_signal(signal.SIGINT)
    return before(*arguments, **options)
setattr(place, last, interrupted)
sys.argv = ["cofrnet", "demo", "--epochs", "100000"]
cofrnet.cli.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=120,
        env=os.environ,
    )
    assert result.returncode == 130, result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------- a table


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A messy table in a file: numbers, categories, flags, dates, gaps, an identifier, a target of text."""
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "id": np.arange(n) + 1000,
            "age": rng.integers(18, 80, n).astype(float),
            "city": rng.choice(["Bern", "Oslo", "Rome"], n),
            "member": rng.random(n) > 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    score = (frame["age"] - 50) / 10 + 2 * (frame["city"] == "Bern") + rng.normal(size=n)
    frame["bought"] = np.where(score > 0, "yes", "no")
    frame["spent"] = 100 * score
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(data):
    path = data.parent / "model.cofrnet"
    arguments = ["fit", data, "-t", "bought", "--drop", "id", "--drop", "spent", "-o", path, *FAST]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return path


def test_fit_tells_what_it_decided(run, data, tmp_path):
    out = tmp_path / "m.cofrnet"
    result = run("fit", data, "--target", "bought", "-o", out, "--test", "0.25", *FAST)
    assert result.exit_code == 0, result.output
    for name, kind in (("age", "number"), ("city", "category"), ("member", "true/false"), ("since", "date")):
        assert any(name in line and kind in line for line in result.stdout.splitlines()), name
    assert "classification, 2 classes, because its values are text" in result.stdout
    assert "column 'id' looks like an identifier" in result.stderr
    assert "--drop id" in result.stderr
    assert "accuracy" in result.stdout
    assert str(out) in result.stdout.replace("\n", "")
    assert cofrnet.load(out).target_name_ == "bought"


def test_fit_for_machines_and_again(run, data, tmp_path):
    options = ["-t", "spent", "--drop", "id", "--drop", "bought", "--json", "--test", "0.2", "--seed", "3"]
    found = []
    for name in ("a.cofrnet", "b.cofrnet"):
        result = run("fit", data, *options, "-o", tmp_path / name, *FAST, "--threads", "1")
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout))
    assert found[0]["task"] == "regression"
    assert found[0]["rows"] == 320
    assert found[0]["test"] == found[1]["test"]
    assert {column["name"]: column["kind"] for column in found[0]["columns"]}["since"] == "date"
    first, second = (cofrnet.load(tmp_path / name).model_.head for name in ("a.cofrnet", "b.cofrnet"))
    assert (first == second).all()


@pytest.mark.parametrize("out", ["-", "p.csv", "p.parquet", "p.jsonl", "p.csv.gz"])
def test_predictions_are_those_of_the_model(run, data, model, tmp_path, out):
    where = out if out == "-" else tmp_path / out
    result = run("predict", model, data, "--keep", "id", "-o", where)
    assert result.exit_code == 0, result.output
    if out == "-":
        (tmp_path / "p.csv").write_text(result.stdout)
        where = tmp_path / "p.csv"
    found = read_table(where).to_pandas()
    estimator, frame = cofrnet.load(model), pd.read_csv(data, parse_dates=["since"])
    X = frame[estimator.feature_names_in_]
    assert found["id"].astype(int).tolist() == frame["id"].tolist()
    np.testing.assert_allclose(found[["probability_no", "probability_yes"]], estimator.predict_proba(X), atol=1e-6)
    assert (found["prediction"].to_numpy().astype(str) == estimator.predict(X)).all()


def test_predict_reads_standard_input(data, model):
    command = [sys.executable, "-m", "cofrnet", "predict", str(model), "-"]
    result = subprocess.run(command, input=data.read_bytes(), capture_output=True, check=True, timeout=120)
    lines = result.stdout.decode().splitlines()
    assert len(lines) == 401
    assert lines[0] == '"prediction","probability_no","probability_yes"'
    assert result.stderr == b""


def test_evaluate(run, data, model):
    result = run("evaluate", model, data, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    estimator, frame = cofrnet.load(model), pd.read_csv(data, parse_dates=["since"])
    metrics = {m["name"]: m for m in found["metrics"]}
    accuracy = estimator.score(frame[estimator.feature_names_in_], frame["bought"])
    assert metrics["accuracy"]["value"] == pytest.approx(accuracy)
    assert metrics["accuracy"]["low"] < accuracy < metrics["accuracy"]["high"]
    text = run("evaluate", model, data)
    assert "95 % interval" in text.stdout
    assert "predicted yes" in text.stdout


def test_explain_globally_and_locally(run, data, model, tmp_path):
    text = run("explain", "global", model)
    assert text.exit_code == 0, text.output
    assert "age" in text.stdout
    assert len(json.loads(run("explain", "global", model, data, "--json").stdout)["curves"]) == 4
    local = run("explain", "local", model, data, "--rows", "0,5-6", "--json")
    found = json.loads(local.stdout)
    assert np.shape(found["values"]) == (3, 1, 4)
    sums = np.sum(found["values"], axis=2) + found["base_values"]
    np.testing.assert_allclose(sums, found["scores"], atol=1e-3)
    assert run("explain", "local", model, data, "-o", tmp_path / "all.parquet").exit_code == 0
    assert read_table(tmp_path / "all.parquet").num_rows == 400
    assert run("explain", "global", model, "-o", tmp_path / "g.json").exit_code == 0
    assert "importances" in json.loads((tmp_path / "g.json").read_text())
    assert run("explain", "local", model, data, "--rows", "x").exit_code == 2
    beyond = run("explain", "local", model, data, "--rows", "400")
    assert beyond.exit_code == 1
    assert "from 0 to 399; got 400" in beyond.stderr


@pytest.mark.parametrize("options", [[], ["--feature", "age"], ["--pair", "age", "city"], ["--row", "3"], ["--curves"]])
def test_plot(run, data, model, tmp_path, options):
    out = tmp_path / "new" / "p.png"
    result = run("plot", model, data, *options, "-o", out)
    assert result.exit_code == 0, result.output
    assert out.read_bytes().startswith(b"\x89PNG")


def test_report(run, data, model, tmp_path):
    result = run("report", model, data, "-o", tmp_path / "r.html", "--title", "People")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "r.html").read_text()
    assert "<h1>People</h1>" in text
    assert "How good it is" in text
    no_target = data.parent / "no-target.csv"
    pd.read_csv(data).drop(columns="bought").to_csv(no_target, index=False)
    result = run("report", model, no_target, "-o", tmp_path / "s.html")
    assert "DATA has no target" in result.stderr
    assert "How good it is" not in (tmp_path / "s.html").read_text()
    assert run("report", model, "-o", tmp_path / "t.html").exit_code == 0


@pytest.mark.parametrize("format", ["latex", "sympy", "python", "c", "javascript", "sql", "series"])
def test_formula(run, model, tmp_path, format):  # noqa: A002
    printed = run("formula", model, "--format", format)
    assert printed.exit_code == 0, printed.output
    assert "age" in printed.stdout
    assert run("formula", model, "-f", format, "-o", tmp_path / "f").exit_code == 0
    assert (tmp_path / "f").read_text() == printed.stdout


def test_export(run, model, tmp_path):
    import onnxruntime

    result = run("export", model, "-o", tmp_path / "m.onnx")
    assert result.exit_code == 0, result.output
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    assert [given.name for given in session.get_inputs()] == ["age", "city", "member", "since"]
    assert run("export", model, "--format", "torch", "-o", tmp_path / "m.pt2").exit_code == 0
    assert (tmp_path / "m.pt2").stat().st_size > 1000


def test_targets_of_every_kind_can_be_evaluated(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    targets = {"bool": x > 0, "int": (x > 0).astype(int), "text": np.where(x > 0, "a", "b"), "number": x}
    for name, y in targets.items():
        frame = pd.DataFrame({"x": x, "noise": rng.normal(size=200), "y": y}).astype({"y": object})
        frame.loc[:5, "y"] = None
        data, model = tmp_path / f"{name}.csv", tmp_path / f"{name}.cofrnet"
        frame.to_csv(data, index=False)
        assert run("fit", data, "-t", "y", "-o", model, *FAST).exit_code == 0
        result = run("evaluate", model, data, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["n_rows"] == 194


def test_models_of_arrays_read_columns_by_position(run, tmp_path):
    rng = np.random.default_rng(0)
    X = np.empty((100, 2), dtype=object)
    X[:, 0], X[:, 1] = rng.normal(size=100), rng.choice(["u", "v"], 100)
    model = cofrnet.CoFrNetRegressor(max_epochs=2, random_state=0).fit(X, X[:, 0].astype(float))
    model.save(tmp_path / "m.cofrnet")
    pd.DataFrame(X, columns=["first", "second"]).to_csv(tmp_path / "a.csv", index=False)
    result = run("predict", tmp_path / "m.cofrnet", tmp_path / "a.csv", "-o", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(read_table(tmp_path / "p.csv")["prediction"], model.predict(X), atol=1e-6)


def test_what_is_kept_stays_as_it_is(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60)})
    frame["zip"] = ["00001", "12345678901234567891", "NA", "2024-03-10T12:00:00+02:00"] * 15
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert (
        run(
            "fit", tmp_path / "a.csv", "-t", "y", "--drop", "zip", "--drop", "zip", "-o", tmp_path / "m", *FAST
        ).exit_code
        == 0
    )
    assert (
        run(
            "predict", tmp_path / "m", tmp_path / "a.csv", "--keep", "zip", "--keep", "zip", "-o", tmp_path / "p.csv"
        ).exit_code
        == 0
    )
    found = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert found["zip"].tolist() == frame["zip"].tolist()
    assert list(found.columns) == ["zip", "prediction"]


@pytest.fixture
def codes(tmp_path):
    """A table in CSV, all of it text: zeros before numbers, blanks, gaps of every sign, a time of day."""
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame(
        {
            "zip": [f"{i % 30:05d}" for i in range(n)],
            "x": [f" {v:.3f}" for v in rng.normal(size=n)],
            "time": [f"{i % 24:02d}:30:00" for i in range(n)],
            "code": rng.choice(["7", "12", "?", "None"], n),
            "note": [f"word{i % 7} note{i % 5}" if i % 3 else "NA" for i in range(n)],
        }
    )
    frame.loc[5, "x"] = "?"
    frame["y"] = np.where(frame["code"] == "7", "007", np.where(rng.random(n) > 0.5, "0010", "11"))
    frame.loc[[3, 50], "y"] = ["", "?"]
    frame.to_csv(tmp_path / "codes.csv", index=False)
    return frame


def as_text(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def test_what_is_kept_stays_as_it_is_also_if_the_model_reads_it(run, codes, tmp_path):
    data, kept = tmp_path / "codes.csv", ["x", "zip", "time", "code"]
    assert run("fit", data, "-t", "y", "--drop", "note", "-o", tmp_path / "m", *FAST).exit_code == 0
    options = [word for name in kept for word in ("--keep", name)]
    assert run("predict", tmp_path / "m", data, *options, "-o", tmp_path / "p.csv").exit_code == 0
    assert run("predict", tmp_path / "m", data, "-o", tmp_path / "q.csv").exit_code == 0
    found, alone = as_text(tmp_path / "p.csv"), as_text(tmp_path / "q.csv")
    pd.testing.assert_frame_equal(found[kept], codes[kept])
    pd.testing.assert_frame_equal(found.drop(columns=kept), alone)


def test_what_is_kept_of_a_model_of_arrays_stays_as_it_is(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    cofrnet.CoFrNetRegressor(max_epochs=2, random_state=0).fit(X, X[:, 0]).save(tmp_path / "m")
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(id="007", y=X[:, 0])
    frame.drop(columns="y").to_csv(tmp_path / "a.csv", index=False)
    assert run("predict", tmp_path / "m", tmp_path / "a.csv", "--keep", "id", "-o", tmp_path / "p.csv").exit_code == 0
    assert as_text(tmp_path / "p.csv")["id"].tolist() == ["007"] * 60
    frame.drop(columns="id").to_csv(tmp_path / "b.csv", index=False)
    assert run("evaluate", tmp_path / "m", tmp_path / "b.csv", "--target", "y").exit_code == 0
    assert "must have a column 'z'" in run("evaluate", tmp_path / "m", tmp_path / "b.csv", "--target", "z").stderr


def test_gaps_are_gaps_in_every_format(run, codes, tmp_path):
    """A model of CSV has ? and None missing; one of Parquet has them as levels, and keeps them in CSV."""
    written = codes.drop(columns=["note", "time", "zip"]).assign(x=0.5, y=codes["y"].replace({"": "11", "?": "11"}))
    written["code"] = written["code"].replace({"7": "u", "12": "v"})
    written["x"] += np.arange(len(written)) % 7
    written.to_csv(tmp_path / "a.csv", index=False)
    written.to_parquet(tmp_path / "a.parquet")
    written.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    for fitted, levels in (("csv", ["u", "v", "missing"]), ("parquet", ["?", "None", "u", "v"])):
        model = tmp_path / f"{fitted}.cofrnet"
        done = run("fit", tmp_path / f"a.{fitted}", "-t", "y", "-o", model, *FAST)
        assert done.exit_code == 0, done.output
        assert list(cofrnet.load(model).encoder_.columns[1].levels) == levels
        found = [run("predict", model, tmp_path / f"a.{end}").stdout for end in ("csv", "parquet", "jsonl")]
        assert found[0] == found[1] == found[2]
        scores = [run("evaluate", model, tmp_path / f"a.{end}", "--json").stdout for end in ("csv", "parquet")]
        assert scores[0] == scores[1]


def test_classes_that_look_missing_stay_classes(run, tmp_path):
    x = np.random.default_rng(0).normal(size=80)
    frame = pd.DataFrame({"x": x, "y": np.where(x > 0, "None", "some")})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert run("fit", tmp_path / "a.parquet", "-t", "y", "-o", tmp_path / "m", *FAST).exit_code == 0
    for name in ("a.parquet", "a.csv"):
        assert json.loads(run("evaluate", tmp_path / "m", tmp_path / name, "--json").stdout)["n_rows"] == 80


@pytest.mark.parametrize("fitted", ["a.csv", "a.jsonl"])
def test_categories_of_numbers_in_json(run, tmp_path, fitted):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "code": rng.integers(1, 4, 90), "y": rng.integers(0, 2, 90)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    done = run("fit", tmp_path / fitted, "-t", "y", "--categorical", "code", "-o", tmp_path / "m", *FAST)
    assert done.exit_code == 0, done.output
    found = [run("predict", tmp_path / "m", tmp_path / name) for name in ("a.csv", "a.jsonl")]
    assert found[1].exit_code == 0, found[1].output
    assert found[0].stdout == found[1].stdout
    assert found[1].stderr == ""
    scores = [run("evaluate", tmp_path / "m", tmp_path / name, "--json") for name in ("a.csv", "a.jsonl")]
    assert scores[1].exit_code == 0, scores[1].output
    assert scores[0].stdout == scores[1].stdout


@pytest.mark.parametrize("piped", [False, True])
def test_classes_with_leading_zeros_are_text(run, codes, tmp_path, piped):
    data = tmp_path / "codes.csv"
    given = {"input": data.read_bytes()} if piped else {}
    arguments = ["fit", "-" if piped else data, "-t", "y", "--drop", "note", "-o", tmp_path / "m", *FAST]
    done = CliRunner().invoke(app, [str(a) for a in arguments], **given)
    assert done.exit_code == 0, done.output
    assert "3 classes, because it is written with leading zeros (else say --task regression)" in done.stdout
    assert cofrnet.load(tmp_path / "m").classes_.tolist() == ["0010", "007", "11"]
    assert "column 'zip' is written with leading zeros; if it is a code, say --categorical zip." in done.stderr
    assert "column 'time'" not in done.stderr
    assert json.loads(run("evaluate", tmp_path / "m", data, "--json").stdout)["n_rows"] == 118
    done = run("fit", data, "-t", "y", "--drop", "note", "--task", "regression", "-o", tmp_path / "m", *FAST)
    assert done.exit_code == 0, done.output
    done = run("fit", data, "-t", "y", "--text", "note", "-o", tmp_path / "m", "--set", "max_epochs=2")
    assert done.exit_code == 0, done.output
    assert run("predict", tmp_path / "m", data, "--keep", "note", "-o", tmp_path / "p.csv").exit_code == 0
    assert as_text(tmp_path / "p.csv")["note"].tolist() == codes["note"].tolist()
    assert cofrnet.load(tmp_path / "m").classes_.tolist() == ["0010", "007", "11"]


def test_levels_that_are_numbers_may_have_a_point(run, tmp_path):
    rng = np.random.default_rng(0)
    z = rng.integers(0, 5, 300)
    frame = pd.DataFrame({"z": z, "t": pd.Timestamp("2024-01-01 07:30:00").strftime("%H:%M:%S"), "y": (z - 2) ** 2})
    frame["x"] = rng.normal(size=300)
    frame.to_csv(tmp_path / "a.csv", index=False)
    fit = run(
        "fit", tmp_path / "a.csv", "-t", "y", "--task", "regression", "--categorical", "z", "-o", tmp_path / "m", *FAST
    )
    assert fit.exit_code == 0, fit.output
    frame.assign(z=frame["z"].astype(float)).to_csv(tmp_path / "b.csv", index=False)
    frame.assign(z="strange").to_csv(tmp_path / "c.csv", index=False)
    found = [run("predict", tmp_path / "m", tmp_path / f"{name}.csv") for name in "abc"]
    assert found[0].exit_code == 0, found[0].output
    assert found[0].stdout == found[1].stdout
    assert "300 of 300 values of column 'z'" in found[2].stderr


def test_rows_held_out_can_be_kept(run, data, tmp_path):
    held = tmp_path / "held.csv"
    result = run(
        "fit", data, "-t", "bought", "-o", tmp_path / "m", "--test", "0.25", "--test-out", held, "--json", *FAST
    )
    assert result.exit_code == 0, result.output
    evaluated = json.loads(run("evaluate", tmp_path / "m", held, "--json").stdout)
    test = json.loads(result.stdout)["test"]
    assert evaluated["n_rows"] == 100
    assert {m["name"]: m["value"] for m in evaluated["metrics"]} == pytest.approx(
        {k: m["value"] for k, m in test.items()}
    )


@pytest.mark.parametrize("options", [["--drop", "note"], ["--text", "note"]])
def test_rows_held_out_are_as_in_the_file(run, codes, tmp_path, options):
    data, held = tmp_path / "codes.csv", tmp_path / "held.csv"
    fast = FAST if "--drop" in options else FAST[:2]
    done = run(
        "fit", data, "-t", "y", *options, "-o", tmp_path / "m", "--test", "0.3", "--test-out", held, "--json", *fast
    )
    assert done.exit_code == 0, done.output
    found = as_text(held)
    assert len(found) == 120 - 2 - json.loads(done.stdout)["rows"]
    merged = found.merge(codes.drop_duplicates(), how="left", indicator=True)
    assert list(found.columns) == list(codes.columns)
    assert (merged["_merge"] == "both").all()
    assert not found["y"].isin(["", "?"]).any()
    test = json.loads(done.stdout)["test"]
    metrics = json.loads(run("evaluate", tmp_path / "m", held, "--json").stdout)["metrics"]
    assert {m["name"]: m["value"] for m in metrics} == pytest.approx({k: m["value"] for k, m in test.items()})


def test_rows_held_out_of_a_pipe_are_as_they_were_read(codes, tmp_path):
    arguments = ["fit", "-", "-t", "y", "--drop", "note", "-o", tmp_path / "m", "--test", "0.3", *FAST]
    arguments += ["--test-out", tmp_path / "held.csv"]
    done = CliRunner().invoke(app, [str(a) for a in arguments], input=(tmp_path / "codes.csv").read_bytes())
    assert done.exit_code == 0, done.output
    found = as_text(tmp_path / "held.csv")
    assert list(found.columns) == ["zip", "x", "time", "code", "y"]
    assert set(found["y"]) == {"007", "0010", "11"}


def test_rows_that_cannot_be_held_out_are_told(run, tmp_path):
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=40), "y": [f"c{i}" for i in range(40)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    none = run("fit", tmp_path / "a.csv", "-t", "y", "--test", "0.25", "-o", tmp_path / "m", *FAST)
    assert none.exit_code == 1
    assert "none among the 10 it chose. Leave --test out, or give every class more rows." in none.stderr
    frame.loc[:19, "y"] = "c0"
    frame.to_csv(tmp_path / "b.csv", index=False)
    some = run("fit", tmp_path / "b.csv", "-t", "y", "--test", "0.25", "-o", tmp_path / "m", *FAST)
    assert some.exit_code == 0, some.output
    found = re.search(r"(\d+) of the 10 rows that --test chose are held out: the rest is of classes", some.stderr)
    assert 0 < int(found[1]) < 10
    assert f"On {found[1]} rows that were held out" in some.stdout
    assert "hold rows out with --test" not in some.stderr


def test_what_counts_as_no_target_is_told(run, codes, tmp_path):
    said = "2 rows have no target (it is blank, or one of the signs ?, NA, N/A, NaN, null, None) and are left out."
    assert said in run("fit", tmp_path / "codes.csv", "-t", "y", "-o", tmp_path / "m", *FAST).stderr
    assert said in run("evaluate", tmp_path / "m", tmp_path / "codes.csv").stderr


def test_an_infinite_target_is_named(run, tmp_path):
    frame = pd.DataFrame({"x": np.arange(80.0), "y": np.random.default_rng(0).normal(size=80)}).astype(object)
    frame.loc[[2, 17], "y"] = [None, "inf"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = run("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m", *FAST)
    assert done.exit_code == 1
    assert "the target 'y' must hold finite numbers; got inf in row 17 (the first is 0). Mend it" in done.stderr


@pytest.mark.parametrize(
    ("form", "whether"),
    [
        ("%m/%d/%Y", True),
        ("%m/%d/%Y 0:00", True),
        ("%d.%m.%Y %H:%M:%S", True),
        ("%m/%d/%Y %I:%M %p", True),
        ("%d-%b-%Y", True),
        ("%B %d, %Y", True),
        ("%d-%m-%Y", True),
        ("flat %d/%m", False),
        ("1%y-%m-%d%H", False),
        ("%d/%m", False),
    ],
)
def test_dates_that_are_read_as_text_are_told(form, whether):
    texts = pd.date_range("2020-01-01", periods=60, freq="25h").strftime(form)
    column = pa.chunked_array([pa.array(texts).dictionary_encode()])
    said = "is read as text: its values look like dates. Write them as 2026-01-31"
    assert meant_otherwise(column) == (said if whether else "")


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{:.2f}", "numbers with a decimal comma. Write them as 1.5"),
        ("{:.1f}%", "percentages. Write them as 27.0"),
        ("day", "dates. Write them as 2026-01-31"),
    ],
)
def test_a_target_that_was_meant_otherwise(run, tmp_path, form, said):
    rng = np.random.default_rng(0)
    texts = [f"{1 + i % 28}/{1 + i % 12}/2020" if form == "day" else form.format(i / 3) for i in range(60)]
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": [t.replace(".", ",") for t in texts]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    done = run("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m", *FAST)
    assert done.exit_code == 1
    said_all = f"the target 'y' is read as text: its values look like {said}; or say --task classification, if they are"
    assert said_all in done.stderr.replace("\n", " ")
    frame.head(40).to_csv(tmp_path / "few.csv", index=False)
    done = run("fit", tmp_path / "few.csv", "-t", "y", "-o", tmp_path / "m", *FAST)
    assert f"the target 'y' is read as text: its values look like {said}." in done.stderr
    assert done.exit_code == 0
    done = run("fit", tmp_path / "a.csv", "-t", "y", "--task", "regression", "-o", tmp_path / "m", *FAST)
    assert done.exit_code == 1
    assert said in done.stderr


def test_a_class_of_one_row_is_kept_for_training(run, data, tmp_path):
    frame = pd.read_csv(data)
    frame.loc[7, "bought"] = "rare"
    frame.to_csv(tmp_path / "a.csv", index=False)
    for seed in range(3):
        result = run(
            "fit", tmp_path / "a.csv", "-t", "bought", "-o", tmp_path / "m", "--test", "0.5", "--seed", seed, *FAST
        )
        assert result.exit_code == 0, result.output
    result = run("tune", tmp_path / "a.csv", "-t", "bought", "--storage", tmp_path / "t", *FAST)
    assert "'rare' has 1" in result.stderr


def test_places_of_rows_are_those_of_the_file(run, data, model, tmp_path):
    assert "row 7, yes" in run("explain", "local", model, data, "--rows", "7").stdout
    assert run("explain", "local", model, data, "--rows", "7,9", "-o", tmp_path / "a.csv").exit_code == 0
    assert read_table(tmp_path / "a.csv")["row"].to_pylist() == [7, 9]


def test_columns_that_were_meant_otherwise(tmp_path):
    n = 100
    frame = pd.DataFrame(
        {
            "comma": [f"{i},5" for i in range(n)],
            "day": [f"{1 + i % 12:02d}/{1 + i % 28:02d}/2020" for i in range(n)],
            "mixed": [*map(str, range(n - 1)), "foo"],
            "none": None,
            "thousands": [f"{1000 + 7919.5 * i:,}" for i in range(n)],
            "only thousands": [f"{1000 + 7919 * i:,}" for i in range(n)],
            "points": [f"{1000 + 7919.5 * i:,}".translate(str.maketrans(",.", ".,")) for i in range(n)],
            "percent": [f"{i}.0%" for i in range(n)],
            "euro": [f"€{1275 + i}" for i in range(n)],
            "dollar": [f"${1000 + 17 * i:,}" for i in range(n)],
            "after": [f"{i},50 €" for i in range(n)],
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    y = np.random.default_rng(0).integers(0, 2, n)
    reports = {report.name: report.warning for report in describe(read_table(tmp_path / "a.csv"), y, True)}
    assert "decimal comma" in reports["comma"]
    assert "look like dates" in reports["day"]
    assert "'foo' is not" in reports["mixed"]
    assert reports["none"] == "has no values"
    for name in ("thousands", "only thousands"):
        assert "numbers with commas for thousands. Write them as 1275.22" in reports[name]
    assert "decimal comma" in reports["points"]
    assert "percentages. Write them as 27.0" in reports["percent"]
    for name in ("euro", "dollar", "after"):
        assert "amounts of money. Write them as 1275.22" in reports[name]


def test_info(run, model):
    text = run("info", model)
    assert text.exit_code == 0
    assert "bought" in text.stdout
    assert "date" in text.stdout
    found = json.loads(run("info", model, "--json").stdout)
    assert found["target"]["classes"] == ["no", "yes"]
    assert [column["kind"] for column in found["columns"]] == ["number", "category", "bool", "date"]


def test_tune_goes_on_where_it_stopped(run, data, tmp_path):
    options = ["-t", "spent", "--drop", "id", "--drop", "bought", "--storage", tmp_path / "t.journal", "--json", *FAST]
    first = run("tune", data, *options, "--trials", "2", "--folds", "2")
    assert first.exit_code == 0, first.output
    second = run("tune", data, *options, "--trials", "1", "--folds", "2")
    assert "going on from 2 trials" in second.stderr
    found = [json.loads(result.stdout) for result in (first, second)]
    assert [f["trials"] for f in found] == [2, 3]
    assert found[0]["default"] == found[1]["default"]
    assert found[1]["loss"] <= found[0]["loss"]
    assert "max_epochs=3" in found[1]["command"]
    command = shlex.split(found[1]["command"])[1:]
    assert run(*command, "-o", tmp_path / "m.cofrnet").exit_code == 0
    for changed in (["--folds", "3"], ["--folds", "2", "--set", "batch_size=64"], ["--folds", "2", "--seed", "5"]):
        other = run("tune", data, *options, "--trials", "1", *changed)
        assert other.exit_code == 1
        assert "holds another search" in other.stderr
    moved = pd.read_csv(data).assign(age=lambda frame: frame["age"] + 1)
    moved.to_csv(tmp_path / "moved.csv", index=False)
    other = run("tune", tmp_path / "moved.csv", *options, "--trials", "1", "--folds", "2")
    assert "holds another search" in other.stderr


def test_parameters_of_either_estimator_are_known_before_the_task_is(run, data, tmp_path):
    result = run("fit", data, "-t", "spent", "--set", "loss=huber", "-o", tmp_path / "m.cofrnet", *FAST)
    assert result.exit_code == 0, result.output
    result = run("fit", data, "-t", "bought", "--set", "loss=huber", "-o", tmp_path / "m.cofrnet", *FAST)
    assert result.exit_code == 2
    assert "no parameter 'loss'" in result.stderr


def test_an_interrupted_search_tries_the_defaults_again(run, data, tmp_path, monkeypatch):
    from cofrnet.cli import tuning

    options = ["-t", "spent", "--drop", "id", "--drop", "bought", "--storage", tmp_path / "t.journal", "--json", *FAST]
    whole = tuning._loss

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_loss", interrupted)
    result = run("tune", data, *options, "--trials", "2", "--folds", "2")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr
    monkeypatch.setattr(tuning, "_loss", whole)
    found = json.loads(run("tune", data, *options, "--trials", "1", "--folds", "2").stdout)
    assert found["trials"] == 1
    assert found["default"] == found["loss"]


# ---------------------------------------------------------------------------------------------- nonsense


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fit", "{data}", "-t", "nothing"], 1, "must have a column 'nothing'; its columns are 'id'"),
        (["fit", "absent.csv", "-t", "y"], 1, "absent.csv: No such file or directory"),
        (["fit", "{data}", "-t", "bought", "--set", "dpth=3"], 2, "there is no parameter 'dpth'. Did you mean depth?"),
        (["fit", "{data}", "-t", "bought", "--set", "depth=-1"], 1, "depth must be an integer, 0 or more"),
        (["fit", "{data}", "-t", "bought", "--variant", "Q"], 2, "variant"),
        (["fit", "{data}", "-t", "bought", "--task", "regression"], 1, "must hold numbers for a regression"),
        (["fit", "{data}", "-t", "bought", "--weight", "city"], 1, "weights must be numbers"),
        (["fit", "{data}"], 2, "--target"),
        (["predict", "{data}", "{data}"], 1, "must be a model file that cofrnet wrote"),
        (["predict", "{model}", "{model}"], 1, "model.cofrnet"),
        (["predict", "{model}", "{data}", "--keep", "nothing"], 1, "must have a column 'nothing'; it has none"),
        (["predict", "{model}", "{data}", "-o", "out.xlsx"], 1, "must end in one of"),
        (["evaluate", "{model}", "{data}", "--target", "city"], 1, "known classes"),
        (["plot", "{model}", "--feature", "agee"], 1, "got 'agee'"),
        (["plot", "{model}", "-o", "p.xyz"], 1, "must end in one of"),
        (["plot", "{model}", "--row", "1"], 2, "--row needs the rows"),
        (
            ["explain", "local", "{model}", "{data}", "--method", "magic"],
            2,
            "'integrated', 'gradient'",
        ),
        (["formula", "{model}", "--name", "1x", "-f", "c"], 1, "name must be an identifier"),
        (["fit", "{data}", "-t", "bought", "-o", "{data}/m.cofrnet"], 1, "is a file; a folder is needed"),
        (["fit", "{data}", "-t", "bought", "-o", "."], 1, "is a folder; name a file in it"),
        (["fit", "{data}", "-t", "bought", "--device", "cuda:7"], 1, "device must be one of auto, cpu"),
        (["fit", "{data}", "-t", "bought", "--test-out", "x.csv"], 2, "--test 0.2"),
        (["formula", "{model}", "--name", "int", "-f", "c"], 1, "must not mean something else"),
        (["tune", "{data}", "-t", "city", "--storage", "{data}"], 1, "must be a journal of a search"),
        (["fit", "{data}", "-t", "bought", "--drop", "bought"], 1, "--drop must not name the target"),
        (["fit", "{data}", "-t", "bought", "--drop", "nope"], 1, "must have a column 'nope'; it has none. Its columns"),
        (
            ["tune", "{data}", "-t", "bought", "--drop", "nope"],
            1,
            "must have a column 'nope'; it has none. Its columns",
        ),
        (["explain", "local", "{model}", "{data}", "--rows", "10-"], 2, "--rows must be like"),
        (["explain", "local", "{model}", "{data}", "--rows", "5-3"], 2, "--rows must be like"),
        (["explain", "local", "{model}", "{data}", "--rows", "0-99999999999"], 1, "from 0 to 399"),
    ],
)
def test_nonsense_gets_a_message_and_a_code(run, data, model, tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    result = run(*(argument.format(data=data, model=model) for argument in arguments))
    assert result.exit_code == code, result.output
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_formula_that_nobody_can_read_is_refused(run, model, tmp_path, monkeypatch):
    written = run("formula", model, "-f", "sympy")
    assert written.exit_code == 0
    terms = cofrnet.load(model).plan().terms
    symbols = len(re.findall(r"[a-z(][\w=()]*(?=[*) ]|$)", written.stdout))
    assert terms / 3 < symbols < 3 * terms, "it counts what is written"
    monkeypatch.setattr("cofrnet.cli.explaining.MOST_TERMS", 10)
    refused = run("formula", model, "-f", "sympy", "-o", tmp_path / "f")
    assert refused.exit_code == 1
    assert f"must have at most 10 terms; this one has {terms}" in " ".join(refused.stderr.split())
    assert not (tmp_path / "f").exists()


def test_debug_shows_where(data):
    command = [sys.executable, "-m", "cofrnet", "fit", str(data), "-t", "nothing", "--debug"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_an_interrupted_fit_keeps_the_best_model(data, tmp_path):
    out = tmp_path / "m.cofrnet"
    command = [sys.executable, "-m", "cofrnet", "fit", str(data), "-t", "bought", "-o", str(out)]
    checkpoint = tmp_path / "checkpoint"
    command += ["--set", "max_epochs=1000000", "--set", "n_iter_no_change=None", "--set", f"checkpoint={checkpoint}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for _ in range(600):
        if checkpoint.exists():  # it trains
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stdout + stderr
    assert "the best model so far is kept" in stderr
    assert "Traceback" not in stderr
    assert cofrnet.load(out).n_iter_ > 0


def test_who_has_read_enough_may_leave(data, model):
    many = data.parent / "many.csv"
    lines = data.read_text().splitlines(keepends=True)
    many.write_text(lines[0] + "".join(300 * lines[1:]))  # more than a pipe holds
    command = f"{sys.executable} -m cofrnet predict {model} {many} | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=120)
    assert result.stderr == ""
    assert result.stdout.splitlines() == ['"prediction","probability_no","probability_yes"', "1"]


def test_an_interrupt_does_not_wait_for_a_silent_pipe(model):
    command = [sys.executable, "-m", "cofrnet", "predict", str(model), "-"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(8)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    process.communicate()


def test_a_named_pipe_is_read_once(data, model):
    command = f"{sys.executable} -m cofrnet predict {model} <(cat {data}) | wc -l"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "401", result.stderr


# ---------------------------------------------------------------------------------------------- columns that look wrong


def test_identifiers_and_leaks(tmp_path):
    rng = np.random.default_rng(0)
    n = 1000
    y = rng.integers(0, 2, n)
    frame = pd.DataFrame(
        {
            "row": np.arange(n),
            "shuffled id": rng.permutation(n) + 7,
            "code": [f"c{i}" for i in range(n)],
            "leak": np.where(y == 1, "closed", "open"),
            "numeric leak": y + rng.normal(size=n) * 0.01,
            "constant": 3,
            "measurement": rng.normal(size=n),
            "level": rng.choice(["a", "b"], n),
            "flag": rng.random(n) > 0.5,
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    reports = {report.name: report.warning for report in describe(read_table(tmp_path / "a.csv"), y, True)}
    for name in ("row", "shuffled id", "code"):
        assert "identifier" in reports[name], name
    for name in ("leak", "numeric leak"):
        assert "tells the target" in reports[name], name
    assert "one value only" in reports["constant"]
    assert [reports[name] for name in ("measurement", "level", "flag")] == ["", "", ""]
    order = np.argsort(y, kind="stable")  # a file that is sorted by its target gives no column away
    frame.iloc[order].to_csv(tmp_path / "sorted.csv", index=False)
    sorted_ = {report.name: report.warning for report in describe(read_table(tmp_path / "sorted.csv"), y[order], True)}
    assert [sorted_[name] for name in ("measurement", "level", "flag")] == ["", "", ""]
    target = frame["measurement"].to_numpy()
    numbers = {r.name: r.warning for r in describe(read_table(tmp_path / "a.csv"), target, False)}
    assert "tells the target" in numbers["measurement"]
    assert numbers["level"] == ""


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"], "classification"),
        ([True, False], "classification"),
        ([0, 1], "classification"),
        ([0.0, 1.0], "classification"),
        (list(range(50)), "regression"),
        ([0.5, 1.5], "regression"),
    ],
)
def test_the_task_is_found_out(tmp_path, values, task):
    pd.DataFrame({"y": values * 30}).to_csv(tmp_path / "a.csv", index=False)
    assert target_task(read_table(tmp_path / "a.csv")["y"])[0] == task


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_codes_that_training_has_not_seen_are_told(run, tmp_path, kind):
    rng = np.random.default_rng(0)
    shop = rng.integers(0, 100, 1500)
    table = pd.DataFrame(
        {"shop": shop if kind == "numbers" else [f"shop {i}" for i in shop], "x": rng.normal(size=1500)}
    )
    table["y"] = rng.normal(size=100)[shop] + table["x"]
    table.to_csv(tmp_path / "rows.csv", index=False)
    path = tmp_path / "m.cofrnet"
    assert run("fit", tmp_path / "rows.csv", "--target", "y", "-o", path, "--set", "max_epochs=3").exit_code == 0
    assert "does not know" not in run("predict", path, tmp_path / "rows.csv").stderr
    table.assign(shop=table["shop"] + (1000 if kind == "numbers" else "0")).to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", path, tmp_path / "new.csv")
    assert result.exit_code == 0
    told = " ".join(result.stderr.split())
    assert "values of column 'shop' of" in told
    assert "levels that the model does not know" in told

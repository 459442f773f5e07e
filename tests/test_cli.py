import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import cofrnet
from cofrnet.cli import app


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
        assert "demo" in result.stdout


def test_usage_errors_exit_with_2(run):
    result = run("demo", "--rows", "3")
    assert result.exit_code == 2
    assert "--rows" in result.stderr
    assert "100" in result.stderr
    assert run("nonsense").exit_code == 2


def test_demo_writes_what_it_prints(run, tmp_path):
    result = run("demo", "--out", tmp_path / "new" / "folder", "--epochs", 12)
    assert result.exit_code == 0, result.output
    path = tmp_path / "new" / "folder" / "results.json"
    assert str(path) in result.stdout.replace("\n", "")
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


def test_interrupt_exits_with_130(tmp_path):
    code = """
import cofrnet.cli, signal, sys
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
signal.setitimer(signal.ITIMER_REAL, 2.5)
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

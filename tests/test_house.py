"""The house: which way imports point, what the core may load, what is shipped, what the project says of itself."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cofrnet
from cofrnet.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cofrnet"

# A part may import those named here, and itself.
MAY_IMPORT = {
    "errors": set(),
    "compiled": {"errors"},
    "core": {"errors", "compiled"},
    "nn": {"errors", "compiled", "core"},
    "training": {"errors", "compiled", "core", "nn", "files", "images"},
    "explain": {"errors", "core", "nn"},
    "export": {"errors", "core", "nn", "explain", "files"},
    "report": {"errors", "explain", "export"},
    "estimators": {
        "errors",
        "compiled",
        "core",
        "nn",
        "training",
        "explain",
        "export",
        "report",
        "files",
        "texts",
        "images",
    },
    "tables": {"errors", "files"},
    "texts": {"errors", "compiled"},
    "images": {"errors"},
    "reproduce": {"errors", "core", "training", "estimators", "explain", "plot", "files", "datasets", "texts"},
    "plot": {"explain", "export"},
    "files": {"errors"},
    "datasets": {"errors", "files", "texts", "images"},
    "cli": {
        "errors",
        "core",
        "training",
        "estimators",
        "explain",
        "plot",
        "files",
        "datasets",
        "tables",
        "images",
        "reproduce",
    },
    "__main__": {"cli"},
    "__init__": {"estimators"},
}


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name.startswith("cofrnet."):
                yield name.split(".")[1]


def test_imports_point_one_way():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        allowed = MAY_IMPORT[part] | {part}
        wrong += [
            f"{path.relative_to(PACKAGE)} imports {other}" for other in imported_parts(path) if other not in allowed
        ]
    assert not wrong


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("cofrnet", ["torch", "numpy"]),
        *((f"cofrnet.cli.{module}", ["torch", "numpy", "sklearn", "rich"]) for module in sorted({*COMMANDS.values()})),
        ("cofrnet.estimators.scoring", ["torch", "sklearn", "pandas", "numba", "scipy", "narwhals"]),
        ("cofrnet.core", ["sklearn", "pandas", "polars", "matplotlib", "numba", "scipy"]),
        ("cofrnet.nn", ["sklearn", "pandas", "polars", "matplotlib", "numba", "scipy"]),
    ],
)
def test_what_an_import_loads(module, unwanted):
    code = f"import sys, {module}; print([name for name in {unwanted} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_only_the_command_line_prints():
    prints = [
        f"{path.name}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints


def test_version_is_in_the_changelog():
    assert f"## [{cofrnet.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_public_name_exists():
    import cofrnet.core
    import cofrnet.estimators
    import cofrnet.nn
    import cofrnet.training

    for module in (cofrnet, cofrnet.core, cofrnet.nn, cofrnet.training, cofrnet.estimators):
        assert all(hasattr(module, name) for name in module.__all__)


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example, tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_example_model_learns():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from ladders_as_layers import main
    finally:
        sys.path.pop(0)
    assert main(steps=300) > 0.95

"""The command `demo`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cofrnet import __version__
from cofrnet.cli.fitting import fitted
from cofrnet.cli.output import busy, print_table, say, tell
from cofrnet.cli.root import app

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["demo"]

BAYES_LIMIT = 0.867  # Waveform's: the accuracy of the rule that knows how the rows are made, over endless rows
TEST_ROWS, PAGE_ROWS = 20_000, 5000


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("cofrnet-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the generated rows and of the initial values.")] = 0,
    rows: Annotated[int, typer.Option(min=100, help="Training rows to generate.")] = 5000,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training rows.")] = 40,
) -> None:
    """Fit a CoFrNet to generated Waveform data, compare it with what is possible, and write its page.

    Waveform has three classes and 40 features, 19 of them pure noise, and a known Bayes limit: no model can do better
    than 0.867 on average.
    """
    from cofrnet.core import prepare
    from cofrnet.datasets import waveform, waveform_posterior
    from cofrnet.estimators import CoFrNetClassifier
    from cofrnet.explain.quality import quality_of_classes
    from cofrnet.files import write_atomically

    X, y = waveform(rows, seed=seed)
    X_test, y_test = waveform(TEST_ROWS, seed=seed + 1)
    with busy("preparing (some ten seconds, once on a machine)"):
        prepare("table")
    model = CoFrNetClassifier(max_epochs=epochs, random_state=seed, verbose=int(sys.stderr.isatty()))
    seconds, interrupted = fitted(model, _named(X), y)
    if interrupted:
        raise typer.Exit(130)
    spec = model.model_.spec

    found = {
        "Bayes rule (the limit)": waveform_posterior(X_test),
        "CoFrNet": model.predict_proba(_named(X_test)),
        "logistic regression": _logistic_regression(X, y, X_test),
    }
    classes = [str(name) for name in model.classes_]
    qualities = {method: quality_of_classes(own, y_test, classes) for method, own in found.items()}
    methods = {
        method: {"accuracy": quality["accuracy"].value, "log_loss": quality["log-loss"].value}
        for method, quality in qualities.items()
    }
    lines = [(method, f"{own['accuracy']:.3f}", f"{own['log_loss']:.3f}") for method, own in methods.items()]
    title = f"Waveform: {rows} rows to fit, {len(y_test)} to test"
    print_table(("method", "accuracy", "log-loss"), lines, title)
    ladders = spec.n_members * spec.total_ladders
    tell(
        f"The limit is {BAYES_LIMIT} over endless rows. The CoFrNet has {ladders} ladders and "
        f"{spec.n_parameters} parameters and was fitted in {seconds:.1f} s."
    )
    results: dict[str, Any] = {
        "cofrnet": __version__,
        "data": {"name": "waveform", "rows": rows, "test_rows": len(y_test), "bayes_limit": BAYES_LIMIT, "seed": seed},
        "methods": methods,
        "spec": spec.to_dict(),
        "n_parameters": spec.n_parameters,
        "epochs": epochs,
        "fit_seconds": round(seconds, 3),
    }
    written = write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    tell(f"results written to {written}")
    tell(f"model written to {model.save(out / 'waveform.cofrnet')}")
    try:
        with busy("writing the page"):
            page = model.report(
                out / "report.html", _named(X_test[:PAGE_ROWS]), y_test[:PAGE_ROWS], title="Waveform, three classes"
            )
        tell(f"page written to {page}: open it in a browser")
    except ImportError as missing:
        say(str(missing))


def _named(X: NDArray[np.float64]) -> pa.Table:
    """The features with names: x1 to x21 of the waves, then noise."""
    import pyarrow as pa

    names = [f"x{j + 1}" if j < 21 else f"noise {j - 20}" for j in range(X.shape[1])]
    return pa.table(dict(zip(names, X.T, strict=True)))


def _logistic_regression(
    X: NDArray[np.float64], y: NDArray[np.int64], X_test: NDArray[np.float64]
) -> NDArray[np.floating[Any]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    probabilities: NDArray[np.floating[Any]] = fitted.predict_proba(X_test)
    return probabilities

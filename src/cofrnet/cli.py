"""The command line; the only module that prints. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cofrnet import __version__

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["app", "main"]

app = typer.Typer(
    name="cofrnet",
    help="Interpretable neural models made of continued fractions.",
    epilog="Start with: cofrnet demo",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

BAYES_LIMIT = 0.867  # Waveform's: the accuracy of the rule that knows how the rows are made, over endless rows


def main() -> None:
    """Run the command line; Ctrl-C ends it with exit code 130, as a shell expects."""
    try:
        app()
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cofrnet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("cofrnet-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the generated rows and of the initial values.")] = 0,
    rows: Annotated[int, typer.Option(min=100, help="Training rows to generate.")] = 5000,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training rows.")] = 40,
) -> None:
    """Fit a CoFrNet to generated Waveform data and compare it with what is possible.

    Waveform has three classes and 40 features, 19 of them pure noise, and a known Bayes limit: no model can do better
    than 0.867 on average.
    """
    from cofrnet.core import prepare
    from cofrnet.datasets import waveform, waveform_posterior
    from cofrnet.estimators import CoFrNetClassifier
    from cofrnet.files import write_atomically

    X, y = waveform(rows, seed=seed)
    X_test, y_test = waveform(20_000, seed=seed + 1)
    console = Console()
    with Console(stderr=True).status("preparing (some ten seconds, once on a machine)"):
        prepare()
    started = time.perf_counter()
    model = CoFrNetClassifier(max_epochs=epochs, random_state=seed, verbose=sys.stderr.isatty()).fit(X, y)
    seconds = time.perf_counter() - started
    probabilities = model.predict_proba(X_test)
    spec = model.model_.spec

    methods = {
        "Bayes rule (the limit)": _quality(waveform_posterior(X_test), y_test),
        "CoFrNet": _quality(probabilities, y_test),
        "logistic regression": _quality(_logistic_regression(X, y, X_test), y_test),
    }
    table = Table(title=f"Waveform: {rows} rows to fit, {len(y_test)} to test", title_justify="left")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    table.add_column("log-loss", justify="right")
    for method, quality in methods.items():
        table.add_row(method, f"{quality['accuracy']:.3f}", f"{quality['log_loss']:.3f}")
    console.print(table)
    console.print(
        f"The limit is {BAYES_LIMIT} over endless rows. The CoFrNet has {spec.total_ladders} ladders and "
        f"{spec.n_parameters} parameters and was fitted in {seconds:.1f} s.",
        soft_wrap=True,
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
    path = write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    console.print(f"results written to {path}", soft_wrap=True)


def _quality(probabilities: NDArray[np.floating[Any]], y: NDArray[np.int64]) -> dict[str, float]:
    import numpy as np

    of_true_class = probabilities[np.arange(len(y)), y]
    return {
        "accuracy": float((probabilities.argmax(1) == y).mean()),
        "log_loss": float(-np.log(np.maximum(of_true_class, 1e-12)).mean()),
    }


def _logistic_regression(
    X: NDArray[np.float64], y: NDArray[np.int64], X_test: NDArray[np.float64]
) -> NDArray[np.floating[Any]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    probabilities: NDArray[np.floating[Any]] = fitted.predict_proba(X_test)
    return probabilities


if __name__ == "__main__":
    main()

"""The command `fit`."""

from __future__ import annotations

import ast
import difflib
import sys
import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cofrnet.cli.output import busy, print_json, quality_table, say, tell, warn
from cofrnet.cli.pictures import image_sources, readable
from cofrnet.cli.root import AsJson, DataFormat, Device, Out, Seed, Threads, app
from cofrnet.cli.rows import (
    Task,
    TrainingRows,
    held_rows,
    read_texts,
    read_training_rows,
    split,
    weights_of,
    write_rows,
)
from cofrnet.files import require_writable

if TYPE_CHECKING:
    from cofrnet.explain.quality import Quality

__all__ = ["Categorical", "Drop", "Settings", "Target", "fit", "fitted", "make_estimator", "parameters_of"]


class Variant(StrEnum):
    """Which ladders there are."""

    S = "S"
    D = "D"
    DL = "DL"
    F = "F"


Target = Annotated[str, typer.Option("--target", "-t", help="The column to predict.")]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")]
Categorical = Annotated[
    list[str] | None, typer.Option("--categorical", help="A column of numbers that are categories; may be repeated.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A parameter of the estimator, as in --set depth=4 --set n_members=8.", metavar="K=V"),
]


@app.command()
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="CSV (also .gz, .zst), Parquet, Arrow/Feather or JSON lines; - for stdin; or a folder with one folder "
            "of images for each class.",
            metavar="DATA",
        ),
    ],
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column to predict.")] = None,
    out: Out = Path("model.cofrnet"),
    task: Annotated[Task, typer.Option(help="What is predicted; auto looks at the target.")] = Task.auto,
    variant: Annotated[
        Variant | None,
        typer.Option(help="S stacked (best, the default), D one curve a feature (most readable), F or DL (the paper)."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="A column of texts to read, and no other.")] = None,
    image: Annotated[str | None, typer.Option(help="Of Parquet: a column of images to read, and no other.")] = None,
    settings: Settings = None,
    drop: Drop = None,
    categorical: Categorical = None,
    weight: Annotated[str | None, typer.Option(help="A column of row weights.")] = None,
    test: Annotated[float, typer.Option(min=0, max=0.9, help="Share of rows to hold out and measure on.")] = 0.0,
    test_out: Annotated[Path | None, typer.Option(help="Write the rows held out to this table.")] = None,
    format: DataFormat = None,  # noqa: A002
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and write it to a file.

    Types of columns are found out and told: numbers, dates, true or false, text (categories). Missing values need
    nothing. Rows without a target are left out.

    Examples: `cofrnet fit churn.csv -t Churn --drop customerID --test 0.2`, `cofrnet fit bikes.parquet
    -t count --set n_members=8`, `cofrnet fit reviews.parquet --text review -t label`, `cofrnet fit photos/
    --set size=64`
    """
    pictures = image is not None or Path(data).is_dir()
    _require_sensible(pictures, image, target, text, task, drop or categorical, weight, test, test_out)
    for path in (out, *([] if test_out is None else [test_out])):
        require_writable(path)
    kind = "image" if pictures else "text" if text is not None else task.value
    parameters_of(kind, settings)  # what is wrong is told before long work
    if pictures:
        read = _read_images(data, target, image)
    elif text is not None:
        read = read_texts(data, text, str(target), task, weight, format, not as_json)
    else:
        read = read_training_rows(data, str(target), task, drop, categorical, weight, format, not as_json)
    y = read.y
    weights = None if weight is None else weights_of(read.table, weight)
    table = read.table if weight is None else read.table.drop_columns([weight])
    shown = int(sys.stderr.isatty())
    asked = {} if variant is None else {"variant": variant.value}
    estimator = make_estimator(read.task, settings, **asked, random_state=seed, device=device, verbose=shown)
    rows, held = split(y, test, read.task, seed)
    apart = None if test_out is None else list(held_rows(data, format, read, str(target), held))
    given = None if weights is None else weights[rows]
    seconds, interrupted, rank = _fitted_together(
        read.task, estimator, _taken(table, rows), _named(y[rows], target), given
    )
    if rank > 0:
        return
    path = estimator.save(out)
    if pictures and estimator.on_error == "skip":
        held = readable(table, held)
    quality = estimator.quality(_taken(table, held), y[held]) if len(held) else None
    if test_out is not None and apart is not None:
        write_rows(apart, test_out)
    if as_json:
        about = _described(estimator, read, len(rows), seconds, quality)
        print_json({"model": str(path), **about, "interrupted": interrupted})
    else:
        _tell_fit(estimator, seconds, len(rows), path)
        _tell_quality(quality, len(held), test_out, None if interrupted or test else path)
    if interrupted:
        raise typer.Exit(130)


def _require_sensible(
    pictures: bool,
    image: str | None,
    target: str | None,
    text: str | None,
    task: Task,
    columns: list[str] | None,
    weight: str | None,
    test: float,
    test_out: Path | None,
) -> None:
    """Raise unless the options go together."""
    if target is None and not (pictures and image is None):
        raise typer.BadParameter("say which column is to be predicted: --target COLUMN.", param_hint="--target")
    if test_out is not None and test == 0:
        raise typer.BadParameter("--test-out needs rows to be held out: say --test 0.2.")
    if (text is not None or pictures) and columns:
        raise typer.BadParameter("texts and images are read alone: leave --drop and --categorical out.")
    if pictures and (text is not None or weight is not None or test_out is not None or task is Task.regression):
        raise typer.BadParameter("images have classes and no columns: leave --text, --weight, --test-out, --task out.")


def _read_images(data: str, target: str | None, image: str | None) -> TrainingRows:
    """Images and their labels; tells how many."""
    sources, y = image_sources(data, target, image)
    if y is None:
        raise ValueError(f"{data} must have a folder of images for each class; it has images and no folders.")
    say(f"{len(y)} images of {len(set(y))} classes.")
    return TrainingRows(sources, y, "image")


def _fitted_together(task: str, estimator: Any, X: Any, y: Any, weights: Any) -> tuple[float, bool, int]:
    """Fit, with the processes that torchrun started, if it did: how long it took, whether Ctrl-C ended it, our rank."""
    with busy("preparing (some ten seconds, once on a machine)"):
        from cofrnet.core import prepare
        from cofrnet.training import joined

        prepare(task if task in ("text", "image") else "table")
    asked, shown = estimator.device, estimator.verbose
    with joined(asked) as (crew, own):
        estimator.set_params(device=own, verbose=shown if crew.rank == 0 else 0)
        seconds, interrupted = fitted(estimator, X, y, weights)
    estimator.set_params(device=asked, verbose=shown)
    return seconds, interrupted, crew.rank


def _taken(table: Any, rows: Any) -> Any:
    """Some rows of a table, or some of a list of images."""
    return [table[i] for i in rows] if isinstance(table, list) else table.take(rows)


def _described(
    estimator: Any, read: TrainingRows, rows: int, seconds: float, quality: Quality | None
) -> dict[str, Any]:
    """What came of a fit, for machines."""
    return {
        "task": read.task,
        "rows": rows,
        "columns": [report.to_dict() for report in read.reports],
        "parameters": estimator.model_.spec.n_parameters,
        "epochs": estimator.n_iter_,
        "seconds": round(seconds, 3),
        "validation": _validation(estimator),
        "test": None if quality is None else {m.name: m.to_dict() for m in quality.metrics},
    }


def fitted(estimator: Any, X: Any, y: Any, weights: Any = None) -> tuple[float, bool]:
    """Fit; how long it took, and whether Ctrl-C ended it. Warnings are printed."""
    started = time.perf_counter()
    interrupted = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y, sample_weight=weights)
    for own in caught:
        interrupted = interrupted or type(own.message).__name__ == "FitInterruptedWarning"
        if type(own.message).__module__.startswith("cofrnet") or issubclass(own.category, UserWarning):
            warn(str(own.message))
    return time.perf_counter() - started, interrupted


def _tell_fit(estimator: Any, seconds: float, rows: int, path: Path) -> None:
    spec = estimator.model_.spec
    found = _validation(estimator)
    measured = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
    ladders = f"{getattr(spec, 'total_ladders', spec.n_ladders)} ladders of depth {spec.depth}"
    members = getattr(spec, "n_members", 1)
    ladders += f" in each of {members} members" if members > 1 else ""
    tell(
        f"Fitted {rows} rows in {seconds:.1f} s: {ladders}, "
        f"{spec.n_parameters} parameters" + (f"; on validation rows: {measured}" if found else "") + "."
    )
    tell(f"model written to {path}")


def _tell_quality(quality: Quality | None, held: int, test_out: Path | None, path: Path | None) -> None:
    """How good the model is on rows that were held out or, where none were asked for, how to find out."""
    if quality is not None:
        quality_table(quality, f"On {held} rows that were held out")
        if test_out is not None:
            tell(f"these rows written to {test_out}")
    elif path is not None:
        say(f"To measure it, hold rows out with --test 0.2, or: cofrnet evaluate {path} OTHER_ROWS")


def _validation(estimator: Any) -> dict[str, float]:
    """The last-kept figures of the rows that the fit held out for itself."""
    best = max(estimator.best_epoch_, 0)
    history = estimator.history_
    return {
        name.removeprefix("validation_").replace("_", " "): values[best]
        for name, values in history.items()
        if name.startswith("validation_") and best < len(values)
    }


def _named(y: Any, name: str | None) -> Any:
    """The target with its name, as a series; as it is where it has none."""
    import narwhals as nw
    import pyarrow as pa

    return y if name is None else nw.new_series(name, y, backend=pa)


def make_estimator(task: str, settings: list[str] | None, **given: Any) -> Any:
    """The estimator of a task with the parameters of --set."""
    return _kinds(task)[0](**given | parameters_of(task, settings))


def parameters_of(task: str, settings: list[str] | None) -> dict[str, Any]:
    """What --set gives, by name. Where the task is found out later ("auto"), parameters of either estimator will do."""
    known = {name for kind in _kinds(task) for name in kind().get_params(deep=False)}
    found: dict[str, Any] = {}
    for setting in settings or ():
        name, sign, text = setting.partition("=")
        if not sign:
            raise typer.BadParameter(f"--set must be PARAMETER=VALUE; got {setting!r}.")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise typer.BadParameter(
                f"--set: there is no parameter {name!r}.{hint} The parameters are {', '.join(sorted(known))}."
            )
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    return found


def _kinds(task: str) -> list[Any]:
    from cofrnet import estimators as e

    named: dict[str, list[Any]] = {
        "classification": [e.CoFrNetClassifier],
        "regression": [e.CoFrNetRegressor],
        "auto": [e.CoFrNetClassifier, e.CoFrNetRegressor],
        "text": [e.CoFrNetTextClassifier],
        "image": [e.CoFrNetImageClassifier],
    }
    return named[task]

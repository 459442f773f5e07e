"""Rows to fit a model to: read from a table, told about, and split into those to learn from and those held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cofrnet.cli.output import busy, print_table, say, say_without_target, tell, warn

if TYPE_CHECKING:
    import pyarrow as pa

    from cofrnet.cli.columns import ColumnReport

__all__ = ["Task", "TrainingRows", "held_rows", "read_texts", "read_training_rows", "split", "weights_of", "write_rows"]

MOST_LISTED = 40  # columns
MANY_CLASSES = 50  # of text that looks like numbers or dates


class Task(StrEnum):
    """What is predicted."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


@dataclass(frozen=True)
class TrainingRows:
    """Rows that have a target.

    `table` holds the features, and maybe weights, or is a list of images; `places` says where the rows are in the file.
    """

    table: Any
    y: Any
    task: str
    reports: list[ColumnReport] = field(default_factory=list)
    places: Any = None


def read_training_rows(
    data: str,
    target: str,
    task: Task,
    drop: list[str] | None,
    categorical: list[str] | None,
    weight: str | None,
    format: Any,  # noqa: A002
    told: bool,
) -> TrainingRows:
    """Features, target, task and what the columns are; prints these, and warns of columns that look wrong."""
    import numpy as np

    from cofrnet.cli.columns import describe, target_task, with_target
    from cofrnet.tables import leading_zeros, listed, read_table

    for option, names in (("--drop", drop or []), ("--weight", [weight]), ("--categorical", categorical or [])):
        if target in names:
            raise ValueError(f"{option} must not name the target; got {target!r}. Name another column.")
    with busy(f"reading {data}"):
        codes = () if task is Task.regression else (target,)
        table = read_table(data, format, text=categorical or (), without=drop or (), codes=codes)
    for name in [target, *(categorical or []), *([] if weight is None else [weight])]:
        if name not in table.column_names:
            raise ValueError(f"{data} must have a column {name!r}; its columns are {listed(table.column_names)}.")
    zeros, rows = leading_zeros(table), len(table)
    table, column, y, places = with_target(table.replace_schema_metadata(), target, data)
    say_without_target(rows - len(y))
    if table.num_columns == (weight is not None):
        raise ValueError(f"{data} must have a column beside the target; it has none left.")
    found, why = (task.value, "as asked") if task is not Task.auto else target_task(column, target in zeros)
    _warn_of_target(column, target, found, task is Task.auto)
    if found == "regression":
        y = _finite(y, target, places)
    reports = describe(table, y, found == "classification", zeros)
    if told:
        _tell_columns(reports, data, len(y), target, found, why, len(np.unique(y)))
    for report in reports:
        if report.warning:
            warn(f"column {report.name!r} {report.warning}.")
    return TrainingRows(table, y, found, reports, places)


def _warn_of_target(column: pa.ChunkedArray, name: str, task: str, unasked: bool) -> None:
    """Warn of a target of text that was meant as numbers or dates; raise where it has to be numbers.

    Raise also where there would be very many classes that nobody has asked for.
    """
    from cofrnet.cli.columns import meant_otherwise
    from cofrnet.tables import kind_of

    kind = kind_of(column)
    strange = meant_otherwise(column) if kind == "category" else ""
    if task == "regression" and kind != "number":
        hint = "Write days since a first one" if kind == "date" else "Use --task classification"
        got = f"it {strange}" if strange else f"got {str(column[0].as_py())!r}. {hint}"
        raise ValueError(f"the target {name!r} must hold numbers for a regression; {got}.")
    if strange and unasked and len(column.unique()) > MANY_CLASSES:
        raise ValueError(f"the target {name!r} {strange}; or say --task classification, if they are classes.")
    if strange:
        warn(f"the target {name!r} {strange}.")


def _finite(y: Any, target: str, places: Any) -> Any:
    """The target of a regression as floats, all of them finite."""
    import numpy as np

    numbers = y.astype(np.float64)
    strange = np.flatnonzero(~np.isfinite(numbers))
    if len(strange):
        raise ValueError(
            f"the target {target!r} must hold finite numbers; got {numbers[strange[0]]:g} in row {places[strange[0]]} "
            "(the first is 0). Mend it, or leave it blank: rows without a target are left out."
        )
    return numbers


def read_texts(
    data: str,
    text: str,
    target: str,
    task: Task,
    weight: str | None,
    format: Any,  # noqa: A002
    told: bool,
) -> TrainingRows:
    """A column of texts (and of weights), and the target."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from cofrnet.cli.columns import target_task, with_target
    from cofrnet.tables import leading_zeros, listed, read_table

    if task is Task.regression:
        raise typer.BadParameter("texts are classified: --task regression does not go with --text.")
    others = [] if weight is None else [weight]
    if len({text, target, *others}) < 2 + len(others):
        raise ValueError("texts, target and weights must be different columns; got one of them twice. Name another.")
    with busy(f"reading {data}"):
        table = read_table(data, format, text=(text,), codes=(target,))
    for name in (text, target, *others):
        if name not in table.column_names:
            raise ValueError(f"{data} must have a column {name!r}; its columns are {listed(table.column_names)}.")
    left_out = [name for name in table.column_names if name not in (text, target, *others)]
    zeros, rows = leading_zeros(table), len(table)
    table = table.replace_schema_metadata().select([text, target, *others])
    table, column, y, places = with_target(table, target, data)
    say_without_target(rows - len(y))
    _warn_of_target(column, target, "classification", task is Task.auto)
    if target_task(column, target in zeros)[0] == "regression" and task is Task.auto:
        raise ValueError(
            f"the target {target!r} must hold classes; got many numbers, such as {y[0]}. Name another column, or say "
            "--task classification if these whole numbers are classes."
        )
    texts = table[text].cast(pa.string())
    table = table.set_column(table.column_names.index(text), text, texts)
    empty = int(pc.sum(pc.equal(pc.utf8_length(texts.fill_null("")), 0)).as_py() or 0)
    if told:
        lengths = np.asarray(pc.utf8_length(texts.fill_null("")))
        tell(
            f"{data}: {len(y)} texts in column {text!r}, {int(np.median(lengths))} characters in the middle, "
            f"{lengths.max()} at most, {empty} empty."
        )
        tell(f"target {target!r}: {len(np.unique(y))} classes.")
        if left_out:
            tell(f"not read: {listed(left_out)}.")
    return TrainingRows(table, y, "text", places=places)


def _tell_columns(reports: list[Any], data: str, rows: int, target: str, task: str, why: str, distinct: int) -> None:
    word = {"number": "number", "category": "category", "date": "date", "bool": "true/false"}
    shown = reports if len(reports) <= MOST_LISTED else [r for r in reports if r.warning or r.missing][:MOST_LISTED]
    lines = [(r.name, word[r.kind], r.example, r.distinct, r.missing) for r in shown]
    print_table(("column", "read as", "for example", "distinct", "missing"), lines, f"{data}: {rows} rows", left=3)
    if len(shown) < len(reports):
        kinds = ", ".join(f"{sum(r.kind == k for r in reports)} {w}" for k, w in word.items())
        tell(f"{len(reports)} columns in all: {kinds}.")
    other = "regression" if task == "classification" else "classification"
    detail = f", {distinct} classes" if task == "classification" else ""
    hint = "" if why in ("as asked", "its values are text") else f" (else say --task {other})"
    tell(f"target {target!r}: {task}{detail}, {why if why == 'as asked' else f'because {why}'}{hint}.")


def weights_of(table: pa.Table, name: str) -> Any:
    """The weights in a column."""
    import numpy as np

    values = np.asarray(table[name])
    if values.dtype.kind not in "iuf":
        raise ValueError(f"weights must be numbers; column {name!r} holds {values[0]!r}.")
    return values.astype(np.float64)


def split(y: Any, share: float, task: str, seed: int) -> tuple[Any, Any]:
    """Rows to learn from, and so large a share of rows to hold out; every class keeps some to learn from."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    everything = np.arange(len(y))
    if share == 0:
        return everything, everything[:0]
    classify = task != "regression"
    classes = np.unique(y, return_counts=True)[1] if classify else np.array([0])
    stratify = y if classify and classes.min() >= 2 and len(y) * share >= len(classes) else None
    rows, held = train_test_split(everything, test_size=share, random_state=seed, stratify=stratify)
    unseen = ~np.isin(y[held], y[rows]) if classify else np.zeros(len(held), dtype=bool)
    if unseen.all():
        hint = ", or say --task regression if these numbers are no classes" if y.dtype.kind in "iuf" else ""
        raise ValueError(
            f"--test {share:g} must hold out rows of classes that have others to learn from; there are none among the "
            f"{len(held)} it chose. Leave --test out, or give every class more rows{hint}."
        )
    if unseen.any():
        say(
            f"{len(held) - unseen.sum()} of the {len(held)} rows that --test chose are held out: the rest is of "
            "classes that would have no row left to learn from."
        )
    return np.sort(np.concatenate([rows, held[unseen]])), np.sort(held[~unseen])


def held_rows(data: str, format: Any, read: TrainingRows, target: str, held: Any) -> Iterator[pa.Table]:  # noqa: A002
    """The rows held out, as they are in the file; from a pipe, which is read once, as they were read."""
    import pyarrow as pa

    from cofrnet.tables import as_written

    if data == "-" or not Path(data).is_file():
        y = read.y[held]
        yield read.table.take(held).append_column(target, pa.array(y.tolist() if y.dtype.kind in "US" else y))
        return
    places, start = read.places[held], 0
    for part in as_written(data, format):
        yield part.take(places[(places >= start) & (places < start + len(part))] - start)
        start += len(part)


def write_rows(parts: list[pa.Table], path: Path) -> None:
    """Write a table that is in parts."""
    from cofrnet.tables import writer

    with writer(path) as write:
        for part in parts:
            write(part)

"""What the columns of a table are, and which of them look like identifiers or give the target away."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cofrnet.tables import Kind, kind_of

__all__ = ["ColumnReport", "describe", "meant_otherwise", "target_task", "with_target"]

ROWS = 20_000  # that are looked at for leaks
FEWEST = 50  # rows below which nothing is suspected
MOST_CLASSES = 10  # integers that are taken for classes
_MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.]?"
_NUMBERED = r"\d{4}[/.-]\d{1,2}[/.-]\d{1,2}|\d{1,2}[/.-]\d{1,2}[/.-](\d{2}|\d{4})"
_DAY = rf"{_NUMBERED}|\d{{1,2}}[- ]{_MONTH}[- ]\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}}"
_TIME = r"([ T]+\d{1,2}:\d{2}(:\d{2}([.]\d+)?)?(\s*(?i:am|pm))?)?"
PATTERNS = {
    "numbers": r"^\s*[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\s*$",
    "numbers with commas for thousands": r"^\s*[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*$",
    "numbers with a decimal comma": r"^\s*[-+]?(\d*|\d{1,3}(\.\d{3})+),\d+\s*$",
    "percentages": r"^\s*[-+]?[\d.,]+\s*%\s*$",
    "amounts of money": r"^\s*([-+]?\s*[$€£¥₹]\s*[-+]?[\d.,]+|[-+]?[\d.,]+\s*[$€£¥₹])\s*$",
    "dates": rf"^\s*({_DAY}){_TIME}\s*$",
}
REMEDIES = {
    "numbers with commas for thousands": "1275.22",
    "numbers with a decimal comma": "1.5",
    "percentages": "27.0",
    "amounts of money": "1275.22",
    "dates": "2026-01-31",
}


@dataclass(frozen=True)
class ColumnReport:
    """A column as it was read; `warning` says what looks wrong with it, or is empty."""

    name: str
    kind: Kind
    distinct: int
    missing: int
    example: str
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def describe(table: pa.Table, y: NDArray[Any], classify: bool, zeros: Collection[str] = ()) -> list[ColumnReport]:
    """Reports of all columns, with y the target of each row; `zeros` are those written with leading zeros."""
    step = max(1, len(y) // ROWS)
    some = np.arange(0, len(y), step)
    target = np.unique(y[some], return_inverse=True)[1] if classify else y[some].astype(float)
    found = []
    for name in table.column_names:
        column = table[name]
        distinct = pc.count_distinct(_values(column)).as_py()
        present = pc.drop_null(column)
        example = str(present[0].as_py()) if len(present) else ""
        kind = kind_of(column)
        warning = "" if len(y) < FEWEST else _warning(column, kind, name, distinct, target, some, classify)
        if kind == "number" and name in zeros:
            warning = f"is written with leading zeros; if it is a code, say --categorical {shlex.quote(name)}"
        found.append(ColumnReport(name, kind, distinct, column.null_count, example[:40], warning))
    return found


def with_target(
    table: pa.Table, target: str, path: str
) -> tuple[pa.Table, pa.ChunkedArray, NDArray[Any], NDArray[np.int64]]:
    """Of the rows that have a target, the other columns, the target as column and array, and their places."""
    column = table[target]
    known = column.is_valid()
    if column.null_count:
        table, column = table.filter(known), column.filter(known)
    if len(column) == 0:
        raise ValueError(f"{path} must have rows with a target in column {target!r}; it has none.")
    text = pa.types.is_dictionary(column.type) or pa.types.is_string(column.type)
    values = np.asarray(column.cast(pa.string()) if text else column.combine_chunks())
    return (
        table.drop_columns([target]),
        column,
        values.astype(str) if text else values,
        np.flatnonzero(np.asarray(known)),
    )


def target_task(column: pa.ChunkedArray, zeros: bool = False) -> tuple[str, str]:
    """Classification or regression, and why; `zeros` says whether the column is written with leading zeros."""
    kind = kind_of(column)
    if kind == "category" and zeros:
        return "classification", "it is written with leading zeros"
    distinct = pc.count_distinct(_values(column)).as_py()
    if kind in ("category", "bool"):
        return "classification", f"its values are {'text' if kind == 'category' else 'true or false'}"
    if kind == "date":
        return "regression", "it holds dates"
    whole = pa.types.is_integer(column.type) or pc.all(pc.equal(column, pc.round(column))).as_py()
    if whole and distinct <= MOST_CLASSES:
        return "classification", f"it has {distinct} different whole numbers"
    return "regression", "it holds numbers"


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, or the codes of its levels."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pa.chunked_array([chunk.indices for chunk in column.chunks], type=column.type.index_type)


def _warning(
    column: pa.ChunkedArray,
    kind: Kind,
    name: str,
    distinct: int,
    target: NDArray[Any],
    some: NDArray[np.int64],
    classify: bool,
) -> str:
    present = len(column) - column.null_count
    drop = f"--drop {shlex.quote(name)}"
    if present == 0:
        return "has no values"
    if distinct <= 1:
        return "has one value only, so it says nothing"
    if kind == "category" and (strange := meant_otherwise(column)):
        return strange
    if distinct == present and _is_identifier(column, kind, present):
        return f"looks like an identifier: all its values are different. If it is one, leave it out: {drop}"
    if kind == "category" and distinct > max(100, present // 2):
        return f"has {distinct} levels for {present} rows: the rare ones count as one"
    values = _values(column).take(pa.array(some))
    gaps = np.asarray(pc.is_null(values))
    if kind == "date":
        values = values.cast(pa.timestamp("us")).cast(pa.int64())
    numbers = np.asarray(values.cast(pa.float64(), safe=False).fill_null(0))
    if _tells(numbers[~gaps], target[~gaps], kind in ("category", "bool"), classify):
        return f"tells the target almost perfectly alone. If it is not known when you predict, leave it out: {drop}"
    return ""


def meant_otherwise(column: pa.ChunkedArray) -> str:
    """What a column of text looks like, where it was meant as numbers or dates; else nothing."""
    levels = pc.drop_null(column.cast(pa.string()).unique())
    shares = {
        what: float(np.mean(np.asarray(pc.match_substring_regex(levels, pattern))))
        for what, pattern in PATTERNS.items()
    }
    what, share = max(shares.items(), key=lambda pair: pair[1])
    if len(levels) < 10 or share < 0.5:
        return ""
    strange = levels.filter(pc.invert(pc.match_substring_regex(levels, PATTERNS[what])))
    if what == "numbers" and len(strange):
        return f"is read as text: most of its values are numbers, but {strange[0].as_py()!r} is not. Mend it, if so"
    return "" if what == "numbers" else f"is read as text: its values look like {what}. Write them as {REMEDIES[what]}"


def _is_identifier(column: pa.ChunkedArray, kind: Kind, present: int) -> bool:
    if kind == "category":
        return True
    if kind != "number" or not pa.types.is_integer(column.type):
        return False  # measurements are all different too
    ends = pc.min_max(column).as_py()
    rising = bool(pc.all(pc.greater(column[1:], column[:-1])).as_py()) if column.null_count == 0 else False
    return rising or ends["max"] - ends["min"] + 1 <= 2 * present


def _tells(x: NDArray[np.float64], y: NDArray[Any], levels: bool, classify: bool) -> bool:
    """Whether rows next to each other in the order of this column, or of one level, have the same target."""
    if len(x) < FEWEST or (classify and len(np.unique(y)) > len(y) / 10):
        return False
    shuffled = np.random.default_rng(0).permutation(len(x))  # so that rows of one value are in no order of their own
    order = shuffled[np.argsort(x[shuffled], kind="stable")]
    x, y = x[order], y[order]
    pairs = np.flatnonzero(np.diff(x) == 0) if levels else np.arange(len(x) - 1)
    if len(pairs) < len(x) / 2:
        return False
    if classify:
        constant = np.bincount(y).max() / len(y)
        different = int((y[pairs] != y[pairs + 1]).sum())  # one place less than there are classes has to be
        return different <= len(np.unique(y)) - 1 + 0.001 * len(pairs) and constant < 0.99
    spread = float(y.var())
    return spread > 0 and float(((y[pairs] - y[pairs + 1]) ** 2).mean()) / 2 < 1e-3 * spread

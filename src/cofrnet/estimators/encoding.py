"""From a table as it comes to the numbers a CoFrNet reads, learned on training rows and kept in the user's terms.

Every column of the table becomes one or more inputs:

    numeric        z(x), a monotone piecewise-linear map learned from the column; where the column had missing values,
                   one more input that is 1 for them and 0 otherwise (z is then 0)
    categorical    one input for each frequent level, 1 where the row has it; rare levels share one; missing is a level

Numeric values beyond the training range count as its ends. All of this is data: it can be written to a file, shown
beside a curve, and turned into code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Number
from typing import Any, Literal, TypeAlias, TypeVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from cofrnet.compiled.settings import uses_numba

__all__ = [
    "CategoricalColumn",
    "Column",
    "NumericColumn",
    "Scaling",
    "TableEncoder",
    "as_columns",
    "as_given",
    "is_categorical",
    "numbers",
]

Scaling: TypeAlias = Literal["quantile", "standard", "minmax"]
Floats: TypeAlias = NDArray[np.float64]
T = TypeVar("T")

FEWEST_KNOTS, MOST_KNOTS = 32, 257
MISSING = "missing"
OTHER = "other"


@dataclass(frozen=True)
class NumericColumn:
    """How a numeric column becomes an input: linear between the knots (knots[i], values[i]).

    `bounded` columns stay at the outermost values beyond the knots; others go on straight. A column of dates is one of
    days since 1970-01-01.
    """

    name: str
    knots: tuple[float, ...]
    values: tuple[float, ...]
    bounded: bool = True
    has_missing: bool = False
    is_date: bool = False

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs this column becomes."""
        return [self.name, f"{self.name}={MISSING}"] if self.has_missing else [self.name]

    def scaled(self, x: Floats, out: NDArray[Any] | None = None, compiled: bool = True) -> NDArray[Any]:
        """z(x), written to `out` where it is given; NaN stays NaN. Without `compiled`, by numpy alone."""
        z: NDArray[Any]
        if self.bounded and len(self.knots) <= MOST_KNOTS and compiled and uses_numba():
            from cofrnet.compiled.vectors import piecewise_linear

            into = out if out is None or out.flags.c_contiguous else None
            z = piecewise_linear(x, *self._pieces, self.knots[-1], out=into)
        elif self.bounded:
            z = np.interp(x, self.knots, self.values)
        else:
            (x0, x1), (z0, z1) = self.knots, self.values
            z = z0 + (x - x0) * ((z1 - z0) / (x1 - x0))
        if out is None or z is out:
            return z
        out[...] = z
        return out

    def slope(self, x: Floats) -> Floats:
        """dz/dx, by which a slope in z becomes one in the column's units; at a knot, that to its right (at the last, to
        its left). NaN stays NaN.

        It is 0 beyond the knots of a bounded column.
        """
        knots, slopes = np.asarray(self.knots), np.diff(self.values) / np.diff(self.knots)
        piece = np.searchsorted(knots, x, side="right") - 1
        found: Floats = slopes[piece.clip(0, len(slopes) - 1)]
        outside = (x < knots[0]) | (x > knots[-1]) if self.bounded else np.zeros(np.shape(x), dtype=bool)
        return np.where(np.isnan(x), np.nan, np.where(outside, 0.0, found))

    def straight_within(self, x: float, unit: float, tolerance: float = 0.1) -> float:
        """How far from x the map stays within a share of its tangent there, in units: infinite for a straight line."""
        if not self.bounded:
            return math.inf
        steps = np.geomspace(0.01, 10, 61)
        slope = float(self.slope(np.array([x]))[0])
        line = slope * unit * steps
        sides = [np.abs(self.scaled(x + s * unit * steps) - self.scaled(np.array([x])) - s * line) for s in (-1, 1)]
        bent = np.flatnonzero((np.maximum(*sides) > tolerance * np.abs(line)) | (line == 0))
        return math.inf if len(bent) == 0 else float(steps[max(bent[0] - 1, 0)]) if bent[0] else 0.0

    def inverse(self, z: Floats) -> Floats:
        """The value of the column that becomes z; the outermost knots for z beyond those of a bounded column."""
        if self.values[0] == self.values[-1]:  # constant in training
            return np.full(np.shape(z), self.knots[0])
        if self.bounded:
            return np.interp(z, self.values, self.knots)
        (x0, x1), (z0, z1) = self.knots, self.values
        return x0 + (z - z0) * ((x1 - x0) / (z1 - z0))

    def points(self, count: int, low: float, high: float) -> Floats:
        """Values to look at the column at: those it takes where they are few, else evenly spaced from low to high."""
        if len(self.knots) <= count and self.bounded:
            return np.asarray(self.knots)
        if not math.isfinite(high - low):
            return np.asarray(self.knots)[np.linspace(0, len(self.knots) - 1, count).round().astype(int)]
        return np.linspace(low, high, count)

    def at(self, values: Any, dtype: Any = np.float32) -> NDArray[Any]:
        """Inputs for given values, (n, len(inputs))."""
        out = np.zeros((len(self.inputs), len(values)), dtype=dtype).T
        self.encode(np.asarray(values, dtype=np.float64), out)
        return out

    @property
    def missing(self) -> NDArray[Any] | None:
        """Inputs of a missing value, (len(inputs),), where training had any."""
        return np.array([0.0, 1.0]) if self.has_missing else None

    @cached_property
    def _pieces(self) -> tuple[Floats, Floats, Floats]:
        """Where the pieces between the knots start, (257,), their values there and their slopes, (256,)."""
        count = len(self.knots) - 1
        starts, values, slopes = np.full(MOST_KNOTS, np.inf), np.zeros(MOST_KNOTS - 1), np.zeros(MOST_KNOTS - 1)
        starts[:count], values[:count] = self.knots[:-1], self.values[:-1]
        slopes[:count] = np.diff(self.values) / np.diff(self.knots)
        return starts, values, slopes

    def encode(self, column: Any, out: NDArray[Any], compiled: bool = True) -> None:
        """Write the inputs of a column of `as_columns`, (n,), into `out` (n, len(inputs))."""
        x = numbers(column, self.name)
        missing = np.isnan(self.scaled(x, out[:, 0], compiled))
        if missing.any():
            out[missing, 0] = 0
        if self.has_missing:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoricalColumn:
    """How a categorical column becomes inputs: one for each of `levels`, in this order.

    A level that is not among them is counted as `OTHER` where that is one of them, else it is 0 in every input.
    """

    name: str
    levels: tuple[str, ...]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs this column becomes."""
        return [f"{self.name}={level}" for level in self.levels]

    @property
    def place_of_other(self) -> int:
        """The level that levels not seen in training count as; -1 for none."""
        return self.levels.index(OTHER) if OTHER in self.levels else -1

    @property
    def place_of_missing(self) -> int:
        """The level that missing values count as; -1 for none."""
        return self.levels.index(MISSING) if MISSING in self.levels else self.place_of_other

    def encode(self, column: Any, out: NDArray[Any], compiled: bool = True) -> None:
        """Write the inputs of a column of `as_columns`, (n,), into `out` (n, len(inputs))."""
        code: dict[str | None, int] = {level: i for i, level in enumerate(self.levels)}
        other = self.place_of_other
        code[None] = self.place_of_missing

        def place(value: Any) -> int:
            return code.get(_label(value, self.name), other)

        arrow = _dictionary(column)
        if arrow is None:
            codes = np.asarray(_of_each(column, place), dtype=np.int64)
        else:
            of_levels = np.array([*map(place, arrow[1]), code[None]], dtype=np.int64)
            codes = of_levels[arrow[0]]
        out[...] = 0
        known = codes >= 0
        out[np.flatnonzero(known), codes[known]] = 1


Column: TypeAlias = NumericColumn | CategoricalColumn


@dataclass(frozen=True)
class TableEncoder:
    """The columns of a table and how each becomes inputs of the model."""

    columns: tuple[Column, ...]

    @property
    def input_names(self) -> list[str]:
        """Names of all inputs."""
        return [name for column in self.columns for name in column.inputs]

    @property
    def n_inputs(self) -> int:
        """Inputs of the model."""
        return sum(len(column.inputs) for column in self.columns)

    @property
    def column_inputs(self) -> list[tuple[int, ...]]:
        """Positions of the inputs of each column."""
        ends = np.cumsum([len(column.inputs) for column in self.columns]).tolist()
        return [tuple(range(end - len(c.inputs), end)) for end, c in zip(ends, self.columns, strict=True)]

    @property
    def curved_inputs(self) -> tuple[int, ...]:
        """Inputs that take more than two values, and so have a curve: the numeric ones."""
        pairs = zip(self.columns, self.column_inputs, strict=True)
        return tuple(own[0] for c, own in pairs if isinstance(c, NumericColumn) and (len(c.knots) > 2 or not c.bounded))

    def encode(self, columns: Sequence[Any], dtype: Any = np.float32, compiled: bool = True) -> NDArray[Any]:
        """Inputs of a table given as the columns of `as_columns`, (n, n_inputs); without `compiled`, by numpy alone."""
        n = len(columns[0]) if columns else 0
        out = np.empty((self.n_inputs, n), dtype=dtype).T  # feature-first in memory, as the ladders read it
        start = 0
        for column, values in zip(self.columns, columns, strict=True):
            stop = start + len(column.inputs)
            column.encode(values, out[:, start:stop], compiled)
            start = stop
        return out

    def slopes(self, columns: Sequence[Any]) -> Floats:
        """Slope of each numeric column's first input by its value, (n, columns); NaN for categories and missing."""
        found = [
            column.slope(numbers(values, column.name))
            if isinstance(column, NumericColumn)
            else np.full(len(values), np.nan)
            for column, values in zip(self.columns, columns, strict=True)
        ]
        return np.stack(found, axis=1)

    @classmethod
    def learn(
        cls,
        columns: Sequence[Any],
        names: Sequence[str],
        categorical: Sequence[bool],
        scaling: Scaling = "quantile",
        max_categories: int = 64,
    ) -> TableEncoder:
        """The encoder of training rows, given as the columns of `as_columns`."""
        learned: list[Column] = []
        for values, name, is_categorical in zip(columns, names, categorical, strict=True):
            if is_categorical:
                learned.append(_learn_categorical(labels(values, name), name, max_categories))
            else:
                column = _learn_numeric(numbers(values, name), name, scaling)
                learned.append(replace(column, is_date=_is_date(values)))
        return cls(tuple(learned))


def _learn_numeric(x: Floats, name: str, scaling: Scaling) -> NumericColumn:
    missing = np.isnan(x)
    has_missing = bool(missing.any())
    x = x[~missing]
    if len(x) == 0 or x.min() == x.max():  # constant or all missing: nothing to scale
        at = float(x[0]) if len(x) else 0.0
        return NumericColumn(name, (at, at + max(1.0, abs(at))), (0.0, 0.0), has_missing=has_missing)
    if scaling == "minmax":
        return NumericColumn(name, (float(x.min()), float(x.max())), (0.0, 1.0), False, has_missing)
    if scaling == "standard":
        with np.errstate(over="ignore"):
            mean, deviation = float(x.mean()), float(x.std())
        if not (math.isfinite(mean) and math.isfinite(deviation) and deviation > 0):
            raise ValueError(
                f"column {name!r} must have a finite mean and spread for scaling='standard'; got values up to "
                f"{np.abs(x).max():g}. Use scaling='quantile'."
            )
        return NumericColumn(name, (mean, mean + deviation), (0.0, 1.0), False, has_missing)
    return NumericColumn(name, *_quantile_knots(x), True, has_missing)


def _quantile_knots(x: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Knots of the map to a normal distribution: the value at mid-rank u goes to Phi^-1(u), then mean 0, variance 1.

    There are about as many as a hundredth of the rows: with more, the slope of a piece, which slopes and series in the
    user's units are made of, would be that of the few rows in it.
    """
    from scipy.special import ndtri

    values, counts = np.unique(x, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    z = ndtri((before + counts / 2) / len(x))
    mean = float((z * counts).sum() / len(x))
    deviation = math.sqrt(float((counts * (z - mean) ** 2).sum() / len(x)))
    z = (z - mean) / deviation
    most = min(max(len(x) // 100, FEWEST_KNOTS), MOST_KNOTS)
    if len(values) > most:  # evenly spaced in z, so that the tails keep their knots
        wanted = np.searchsorted(z, np.linspace(z[0], z[-1], most))
        keep = np.unique(np.concatenate([[0], wanted, [len(z) - 1]]).clip(0, len(z) - 1))
        values, z = values[keep], z[keep]
    wide = np.flatnonzero(np.diff(values / 2) > np.finfo(float).max / 2)
    if len(wide):  # differences beyond the largest float: knots half-way
        values = np.insert(values, wide + 1, values[wide] / 2 + values[wide + 1] / 2)
        z = np.insert(z, wide + 1, (z[wide] + z[wide + 1]) / 2)
    return tuple(values.tolist()), tuple(z.tolist())


def _learn_categorical(x: Sequence[str | None], name: str, max_categories: int) -> CategoricalColumn:
    counts = Counter(MISSING if v is None else v for v in x)
    enough = 5 if len(x) >= 200 else 1
    frequent = [level for level, count in counts.most_common(max_categories) if count >= enough]
    levels = sorted(level for level in frequent if level not in (MISSING, OTHER))
    if len(frequent) < len(counts) or OTHER in counts:
        levels.append(OTHER)
    if MISSING in frequent:
        levels.append(MISSING)
    return CategoricalColumn(name, tuple(levels))


# ---------------------------------------------------------------------------------------------- reading tables


def as_columns(X: Any) -> list[Any] | None:
    """The columns of a frame or of an object array; None for a plain numeric array."""
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        twice = [name for name, count in Counter(X.columns).items() if count > 1]
        raise ValueError(f"columns of X must have different names; got {twice[0]!r} twice. Rename one.") from None
    if isinstance(frame, nw.DataFrame):
        return list(frame.iter_columns())
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUST":
        return [X[:, j] for j in range(X.shape[1])]
    return None


def is_categorical(column: Any) -> bool:
    """Whether a column is categorical by its type."""
    if isinstance(column, np.ndarray):
        return column.dtype.kind in "OUST" and _has_labels(column)
    dtype = column.dtype
    if dtype.is_numeric() or isinstance(dtype, nw.Datetime | nw.Date | nw.Duration):
        return False
    if dtype == nw.Object:  # pandas columns of mixed things: numbers stay numbers
        return _has_labels(column.to_list())
    return True


def _has_labels(values: Any) -> bool:
    """Whether any of the values is something other than a number or missing."""
    return any(isinstance(v, bool | np.bool_) or not (v is None or isinstance(v, Number)) for v in values)


def numbers(values: Any, name: str) -> Floats:
    """A numeric column as float64 with NaN for missing; +-inf and what is no number are errors that name the column."""
    if isinstance(values, nw.Series):
        dtype = values.dtype
        if isinstance(dtype, nw.Datetime | nw.Date):
            if getattr(dtype, "time_zone", None) is not None:
                values = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            values = values.cast(nw.Datetime("us")).dt.timestamp("us").cast(nw.Float64) / 86_400e6
        elif isinstance(dtype, nw.Duration):
            values = values.dt.total_microseconds().cast(nw.Float64) / 1e6
        elif dtype.is_numeric() and dtype != nw.Float64 and not values.implementation.is_pyarrow():
            values = values.cast(nw.Float64)
        values = _of_arrow(values.to_native()) if values.implementation.is_pyarrow() else values.to_numpy()
    try:
        x = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        x = np.array([_number(v, name) for v in values], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        total = x.sum()  # tells in one pass that all are finite
    if not np.isfinite(total) and np.isinf(x).any():
        infinite = np.flatnonzero(np.isinf(x))
        raise ValueError(
            f"column {name!r} must hold finite numbers or missing values; got {x[infinite[0]]} in row {infinite[0]}. "
            "Replace infinity with a number or with NaN."
        )
    return x


def _of_arrow(column: Any) -> Floats | list[Any]:
    """An Arrow column as float64, NaN for missing; as a list where it holds no numbers.

    Arrow's own `to_numpy` gives the same, but imports pandas first.
    """
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return column.to_pylist()
    floats = column.cast(pa.float64(), safe=False)  # beyond 2^53 to the nearest
    x: Floats = _memory(floats)
    return np.where(_memory(floats.is_null().cast(pa.uint8())), np.nan, x) if floats.null_count else x


def _memory(column: Any) -> NDArray[Any]:
    """The numbers of an Arrow column as they lie in memory, whatever is there for missing ones."""
    parts = [column] if not hasattr(column, "chunks") else column.chunks
    kind = column.type.to_pandas_dtype()
    found = [np.frombuffer(part.buffers()[1], kind)[part.offset :][: len(part)] for part in parts if len(part)]
    return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0, kind)


def _number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {name!r} must hold numbers, as it did in training; got {value!r}. Convert the column, or name it "
            "in categorical_features."
        ) from None


def as_given(columns: Sequence[Any]) -> NDArray[Any]:
    """The table as it was given, (n, P): floats where all columns are numbers, else objects."""
    lists = [column.to_numpy() if isinstance(column, nw.Series) else np.asarray(column) for column in columns]
    if all(values.dtype.kind in "fiu" for values in lists):
        return np.stack([values.astype(np.float64) for values in lists], axis=1)
    table = np.empty((len(lists[0]), len(lists)), dtype=object)
    for j, values in enumerate(lists):
        table[:, j] = values.tolist() if values.dtype.kind in "fiubO" else [str(v) for v in values]
    return table


def _is_date(values: Any) -> bool:
    return isinstance(values, nw.Series) and isinstance(values.dtype, nw.Datetime | nw.Date)


def _dictionary(values: Any) -> tuple[NDArray[np.int64], list[Any]] | None:
    """Codes (n,) and levels of an Arrow column, -1 for missing; None for columns of other kinds."""
    if not isinstance(values, nw.Series) or not values.implementation.is_pyarrow():
        return None
    import pyarrow as pa

    column = values.to_arrow()
    if pa.types.is_nested(column.type):
        return None
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, column.dictionary.to_pylist()


def labels(values: Any, name: str) -> list[str | None]:
    """A categorical column as strings with None for missing; anything but strings, numbers and bools is an error."""
    arrow = _dictionary(values)
    if arrow is not None:
        levels = [*(_label(value, name) for value in arrow[1]), None]
        return [levels[code] for code in arrow[0].tolist()]
    return _of_each(values, lambda value: _label(value, name))


def _of_each(values: Any, function: Callable[[Any], T]) -> list[T]:
    """The function of every value, computed once for values that are equal."""
    items = values.to_list() if isinstance(values, nw.Series) else list(values)
    kinds = set(map(type, items))
    if len(kinds - {str, type(None)}) > 1 or any(kind.__hash__ is None for kind in kinds):
        return [function(v) for v in items]  # 1, 1.0 and True are equal, but have different labels
    return list(map(_Memory(function).__getitem__, items))


class _Memory(dict[Any, Any]):
    """Results of a function, each computed when it is first asked for."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __missing__(self, value: Any) -> Any:
        self[value] = result = self._function(value)
        return result


def _label(value: Any, name: str) -> str | None:
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, float | np.floating) and math.isnan(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bool | np.bool_ | int | float | np.number):
        return str(value)
    raise TypeError(
        f"column {name!r} must hold strings, numbers or bools (argument must be a string or a number); got {value!r} "
        f"of type {type(value).__name__}. Convert the column to strings."
    )

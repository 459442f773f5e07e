"""Columns of tables as they come: of numpy, or of narwhals, which knows pandas, polars and Arrow.

`numbers`, `labels` and `dictionary`, which encoding needs, take columns of Arrow as they are, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Floats",
    "as_columns",
    "as_given",
    "dictionary",
    "is_categorical",
    "is_date",
    "is_missing",
    "label",
    "labels",
    "numbers",
    "of_each",
    "unmasked",
]

Floats: TypeAlias = NDArray[np.float64]
T = TypeVar("T")


def as_columns(X: Any) -> list[Any] | None:
    """The columns of a frame or of an object array; None for a plain numeric array."""
    if hasattr(X, "iloc") and X.ndim == 1:
        raise ValueError(
            f"X must be a table; got a Series of {len(X)} values. For one row of a frame use X.iloc[[i]], for one "
            "column X.to_frame()."
        )
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        twice = [name for name, count in Counter(X.columns).items() if count > 1]
        raise ValueError(f"columns of X must have different names; got {twice[0]!r} twice. Rename one.") from None
    if isinstance(frame, nw.DataFrame):
        return [_dense(column) for column in frame.iter_columns()]
    if type(X).__name__ == "LazyFrame":
        raise ValueError("X must be a table in memory; got a LazyFrame. Call its collect() first.")
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUSTmM":
        return [X[:, j] for j in range(X.shape[1])]
    return None


def _dense(column: Any) -> Any:
    """A column of narwhals, which does not know those that pandas stores sparsely, as it is when stored in full."""
    if _in_numpy(column.to_native()):
        return column
    import narwhals as nw

    sparse = getattr(column.to_native(), "sparse", None) if column.dtype == nw.Unknown else None
    return column if sparse is None else nw.from_native(sparse.to_dense(), series_only=True)


def unmasked(X: Any) -> Any:
    """A masked array with NaN, or None in one of objects, for what is masked; anything else as it is."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    numeric = X.dtype.kind in "biuf"
    return np.ma.filled(X.astype(np.float64 if numeric else object), np.nan if numeric else None)


def is_missing(value: Any) -> bool:
    """Whether a value stands for none."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def is_categorical(column: Any) -> bool:
    """Whether a column is categorical by its type."""
    if isinstance(column, np.ndarray):
        return column.dtype.kind in "OUST" and _has_labels(column)
    if _in_numpy(column.to_native()):
        return False
    import narwhals as nw

    dtype = column.dtype
    if dtype.is_numeric() or isinstance(dtype, nw.Datetime | nw.Date | nw.Duration | nw.Time):
        return False
    if dtype == nw.Object:  # pandas columns of mixed things: numbers stay numbers
        return _has_labels(column.to_list())
    return True


def _has_labels(values: Any) -> bool:
    """Whether any of the values is something other than a number or missing."""
    return any(isinstance(v, bool | np.bool_) or not (isinstance(v, Number) or is_missing(v)) for v in values)


def numbers(values: Any, name: str, dates: bool = False) -> Floats:
    """A numeric column as float64 with NaN for missing; +-inf and what is no number are errors that name the column.

    `dates` are numbers of days.
    """
    values = _plain(values)
    try:
        x = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        x = np.array([_number(v, name, dates) for v in values], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        total = x.sum()  # tells in one pass that all are finite
    if not np.isfinite(total) and np.isinf(x).any():
        infinite = np.flatnonzero(np.isinf(x))
        raise ValueError(
            f"column {name!r} must hold finite numbers or missing values; got {x[infinite[0]]} in row {infinite[0]}. "
            "Replace infinity with a number or with NaN."
        )
    return x


def _in_numpy(native: Any) -> bool:
    """Whether a native column is numbers that pandas stores as numpy does; narwhals takes long to find that out."""
    dtype = getattr(native, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "fiu"


def _is_series(values: Any) -> bool:
    """Whether a column is one of narwhals, which takes a while to import and need not be for others."""
    return type(values).__module__.startswith("narwhals")


def _arrow(values: Any) -> Any:
    """The column of Arrow that this is, or that narwhals holds; None for others."""
    if _is_series(values):
        return values.to_native() if values.implementation.is_pyarrow() else None
    return values if type(values).__module__.startswith("pyarrow") else None


def _plain(values: Any) -> Any:
    """A numeric column as numpy or a list: dates as days since 1970, durations and times of day as seconds."""
    arrow = _arrow(values)
    if arrow is not None:
        return _of_arrow(arrow)
    if not _is_series(values):
        return _of_times(values) if getattr(values, "dtype", np.dtype(float)).kind in "mM" else values
    if _in_numpy(native := values.to_native()):
        return native.to_numpy()
    import narwhals as nw

    series, dtype = values, values.dtype
    if isinstance(dtype, nw.Datetime | nw.Date):
        if getattr(dtype, "time_zone", None) is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        series = series.cast(nw.Datetime("us")).dt.timestamp("us").cast(nw.Float64) / 86_400e6
    elif isinstance(dtype, nw.Duration):
        series = series.dt.total_microseconds().cast(nw.Float64) / 1e6
    elif isinstance(dtype, nw.Time):
        return [math.nan if is_missing(t) else _seconds(t) for t in series.to_list()]
    elif dtype.is_numeric() and dtype != nw.Float64:
        series = series.cast(nw.Float64)
    return series.to_numpy()


def _seconds(time: Any) -> float:
    """Seconds since midnight."""
    return float(3600 * time.hour + 60 * time.minute + time.second + time.microsecond / 1e6)


def _of_times(values: NDArray[Any]) -> Floats:
    """Dates of numpy as days since 1970, durations as seconds; NaN for what is missing."""
    kind, unit = values.dtype.kind, 86_400e6 if values.dtype.kind == "M" else 1e6
    numbers = values.astype(f"{kind}8[us]").astype(np.int64).astype(np.float64) / unit
    return np.where(np.isnat(values), np.nan, numbers)


def _of_arrow(column: Any) -> Floats | list[Any]:
    """An Arrow column as float64, NaN for missing, dates as days; as a list where it holds no numbers.

    Arrow's own `to_numpy` gives the same, but imports pandas first.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        return np.asarray(_of_arrow(column.cast(pa.int64()))) / 86_400e6
    if pa.types.is_duration(kind):
        return np.asarray(_of_arrow(column.cast(pa.duration("us"), safe=False).cast(pa.int64()))) / 1e6
    if pa.types.is_time(kind):
        return np.asarray(_of_arrow(column.cast(pa.time64("us"), safe=False).cast(pa.int64()))) / 1e6
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return column.to_pylist()
    floats = column if kind == pa.float64() else column.cast(pa.float64(), safe=False)  # beyond 2^53 to the nearest
    x: Floats = _memory(floats)
    return np.where(_memory(floats.is_null().cast(pa.uint8())), np.nan, x) if floats.null_count else x


def _memory(column: Any) -> NDArray[Any]:
    """The numbers of an Arrow column as they lie in memory, whatever is there for missing ones."""
    parts = [column] if not hasattr(column, "chunks") else column.chunks
    kind = column.type.to_pandas_dtype()
    found = [np.frombuffer(part.buffers()[1], kind)[part.offset :][: len(part)] for part in parts if len(part)]
    return found[0] if len(found) == 1 else np.concatenate(found) if found else np.empty(0, kind)


def _number(value: Any, name: str, dates: bool) -> float:
    if is_missing(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        raise ValueError(
            f"column {name!r} must hold numbers of at most 1.8e308; got {value!r:.20}... Take their logarithms."
        ) from None
    except (TypeError, ValueError):
        what = "dates" if dates else "numbers"
        remedy = "the column with pandas.to_datetime" if dates else "the column, or name it in categorical_features"
        raise ValueError(
            f"column {name!r} must hold {what}, as it did in training; got {value!r}. Convert {remedy}."
        ) from None


def as_given(columns: Sequence[Any]) -> NDArray[Any]:
    """The table as it was given, (n, P): floats where all columns are numbers, else objects."""
    lists = [_as_array(column) if _is_series(column) else np.asarray(column) for column in columns]
    if all(values.dtype.kind in "fiu" for values in lists):
        return np.stack([values.astype(np.float64) for values in lists], axis=1)
    table = np.empty((len(lists[0]), len(lists)), dtype=object)
    for j, values in enumerate(lists):
        table[:, j] = _as_texts(values) if values.dtype.kind in "mM" else values.tolist()
    return table


def _as_texts(times: NDArray[Any]) -> list[str | None]:
    """Dates and durations of numpy as text, None for those that are missing."""
    if times.dtype.kind == "M":
        texts = np.datetime_as_string(times, unit="auto").tolist()
    else:
        texts = [str(v) for v in times.astype("m8[us]").tolist()]
    return [None if gap else text for gap, text in zip(np.isnat(times).tolist(), texts, strict=True)]


def _as_array(column: Any) -> NDArray[Any]:
    """A column of narwhals as numpy, which has no integers of 128 bits; levels are objects, None for missing ones."""
    import narwhals as nw

    if column.dtype in (nw.Categorical, nw.Enum):  # numpy would get the codes of pyarrow, which has any for a null
        return np.array([*column.to_list(), None], dtype=object)[:-1]
    wide = column.dtype in (nw.Int128, nw.UInt128)
    found: NDArray[Any] = (column.cast(nw.Float64) if wide else column).to_numpy()
    return found


def is_date(values: Any) -> bool:
    """Whether a column is one of dates."""
    if not _is_series(values):
        return bool(getattr(values, "dtype", np.dtype(float)).kind == "M")
    import narwhals as nw

    return isinstance(values.dtype, nw.Datetime | nw.Date)


def dictionary(values: Any) -> tuple[NDArray[np.int64], list[Any]] | None:
    """Codes (n,) and levels of an Arrow column, -1 for missing; None for columns of other kinds."""
    column = _arrow(values)
    if column is None:
        return None
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return None
    column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = _memory(column.indices.cast(pa.int64()))
    levels = column.dictionary.to_pylist()
    if pa.types.is_float32(column.type.value_type):
        levels = [None if level is None else np.float32(level) for level in levels]
    return np.where(_memory(column.is_null().cast(pa.uint8())), -1, codes), levels


def labels(values: Any, name: str) -> list[str | None]:
    """A categorical column as strings with None for missing; anything but strings, numbers and bools is an error."""
    arrow = dictionary(values)
    if arrow is not None:
        levels = [*(label(value, name) for value in arrow[1]), None]
        return [levels[code] for code in arrow[0].tolist()]
    return of_each(values, lambda value: label(value, name))


def of_each(values: Any, function: Callable[[Any], T]) -> list[T]:
    """The function of every value, computed once for values that are equal."""
    items = _items(values) if _is_series(values) else list(values)
    kinds = set(map(type, items))
    if len(kinds - {str, type(None)}) > 1 or any(kind.__hash__ is None for kind in kinds):
        return [function(v) for v in items]  # 1, 1.0 and True are equal, but have different labels
    return list(map(_Memory(function).__getitem__, items))


def _items(series: Any) -> list[Any]:
    """The values of a column of narwhals; floats of 32 bits as such, which have fewer digits than Python's."""
    import narwhals as nw

    return list(series.to_numpy()) if series.dtype == nw.Float32 else series.to_list()


class _Memory(dict[Any, Any]):
    """Results of a function, each computed when it is first asked for."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __missing__(self, value: Any) -> Any:
        self[value] = result = self._function(value)
        return result


def label(value: Any, name: str) -> str | None:
    """What a value of a categorical column is called; None for missing."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bool | np.bool_ | int | float | np.number):
        return str(value)
    kind = type(value).__name__
    if kind == "Interval":  # of pandas.cut
        return str(value)
    remedies = {"Period": "with its dt.to_timestamp()", "time": "to seconds since midnight"}
    remedy = remedies.get(kind, "with pandas.to_datetime" if hasattr(value, "isoformat") else "to strings")
    raise TypeError(
        f"column {name!r} must hold strings, numbers or bools (argument must be a string or a number); got {value!r} "
        f"of type {kind}. Convert the column {remedy}."
    )

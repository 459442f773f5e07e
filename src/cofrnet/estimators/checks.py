"""Checks of what users pass, with errors that name the parameter, the value and the remedy."""

from __future__ import annotations

import math
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from cofrnet.estimators.columns import is_missing

__all__ = [
    "as_plain",
    "as_texts",
    "checked_weight",
    "finite",
    "is_auto",
    "is_number",
    "is_whole",
    "name_of",
    "pairs_of",
    "position_of",
    "require",
    "require_finite",
    "require_same_length",
    "signs_of",
]


def require(holds: bool, name: str, value: Any, what: str) -> None:
    """Raise unless a condition on a parameter holds."""
    if not holds:
        raise ValueError(f"{name} must be {what}; got {name}={value!r}.")


def is_whole(value: Any, least: int) -> bool:
    """Whether a parameter is an integer of at least so much."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_) and int(value) >= least


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to us."""
    return isinstance(value, str) and value == "auto"


def is_number(value: Any, above: float = -math.inf, below: float = math.inf) -> bool:
    """Whether a parameter is a number between two others, and not one of them."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and above < float(value) < below


def require_same_length(rows: int, targets: int) -> None:
    """Raise unless X and y have as many rows."""
    if rows != targets:
        raise ValueError(f"X and y must have as many rows; got inconsistent numbers of samples: {rows} and {targets}.")


def position_of(feature: Any, names: list[str], parameter: str) -> int:
    """Position of a column given by name or position in `parameter`."""
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"{parameter} must name columns of X; got {feature!r}. The columns are {names[:20]}.")
        return names.index(feature)
    if not (is_whole(feature, 0) and int(feature) < len(names)):
        raise ValueError(f"{parameter} must name columns, or count them from 0 to {len(names) - 1}; got {feature!r}.")
    return int(feature)


def pairs_of(given: Any, names: list[str]) -> list[tuple[int, int]]:
    """Positions of the pairs of columns that `interactions` names."""
    require(np.iterable(given) and not isinstance(given, str), "interactions", given, "a number, or pairs")
    found = []
    for pair in given:
        columns = list(pair) if np.iterable(pair) and not isinstance(pair, str) else []
        places = [position_of(column, names, "interactions") for column in columns]
        require(len(set(places)) == len(places) == 2, "interactions", given, "pairs of different columns")
        found.append((places[0], places[1]))
    return found


def signs_of(given: Any, names: list[str]) -> dict[int, int]:
    """+1 or -1 by position, for the columns that `monotonic_cst` gives a sign: by column, or one for each."""
    if given is None:
        return {}
    by_column = given
    if not hasattr(given, "items"):  # as dicts and series have
        each = list(given) if np.iterable(given) else []
        require(len(each) == len(names), "monotonic_cst", given, "a dict, or one of -1, 0, 1 for each column")
        by_column = dict(enumerate(each))
    signs: dict[int, int] = {}
    for column, sign in by_column.items():
        require(is_number(sign) and sign in (-1, 0, 1), "monotonic_cst", given, "made of -1, 0 and 1")
        j = position_of(column, names, "monotonic_cst")
        once = signs.setdefault(j, int(sign)) == sign
        require(once, "monotonic_cst", given, f"of one sign for column {names[j]!r}")
    return {j: sign for j, sign in signs.items() if sign}


def as_plain(y: Any) -> Any:
    """y of a polars or pandas series or frame as an array; anything else as it is."""
    if y is None:
        raise ValueError(
            "y must be given to fit; got None (this estimator requires y to be passed, but the target y is None)."
        )
    if isinstance(y, np.ma.MaskedArray):
        masked = np.flatnonzero(np.ma.getmaskarray(y).reshape(len(y), -1).any(1))
        if len(masked):
            raise ValueError(f"y must not be missing; got a masked value in row {masked[0]}. Leave such rows out.")
        return y.filled()
    native = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    return native.to_numpy() if isinstance(native, nw.Series | nw.DataFrame) else y


def finite(y: Any, name: str) -> NDArray[np.float64]:
    """Numbers as an array of doubles; text, NaN and infinities are an error that says where."""
    y = as_plain(y)
    try:
        found: NDArray[np.float64] = check_array(
            y, ensure_2d=False, dtype=np.float64, input_name=name, ensure_all_finite=False
        )
    except ValueError:
        for row, value in enumerate(y if np.ndim(y) == 1 else ()):
            if isinstance(value, str) and not _reads_as_number(value):
                raise ValueError(f"{name} must be finite numbers; got {value!r} in row {row}. Mend it.") from None
        raise
    require_finite(found, name)
    return found


def _reads_as_number(text: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(text))
    return False


def require_finite(y: NDArray[Any], name: str) -> None:
    """Raise where one of the numbers y (n, ...) is NaN or infinite."""
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        by_row = y.reshape(len(y), -1)
        row, place = np.argwhere(~np.isfinite(by_row))[0]
        raise ValueError(f"{name} must be finite numbers; got {by_row[row, place]} in row {row}. Leave such rows out.")


def name_of(y: Any) -> str | None:
    """The name of y, where it is a series with a name or a table of one column."""
    native = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame) and native.shape[1] == 1:
        native = native.get_column(native.columns[0])
    return str(native.name) if isinstance(native, nw.Series) and native.name not in (None, "") else None


def checked_weight(weight: Any, n: int) -> NDArray[np.float64] | None:
    """One weight of 0 or more for each of n rows; None where none are given."""
    if weight is None:
        return None
    if np.isscalar(weight):
        weight = np.full(n, float(weight))  # type: ignore[arg-type]
    weight = finite(weight, "sample_weight")
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have one number a row, shape ({n},); got shape {weight.shape}.")
    negative = np.flatnonzero(weight < 0)
    if len(negative):
        raise ValueError(f"sample_weight must be 0 or more; got {weight[negative[0]]:g} in row {negative[0]}.")
    if not weight.any():
        raise ValueError("sample_weight must not be zero for every row; got no positive weight. Pass some.")
    if not 1e-100 < weight.max() < 1e100:
        raise ValueError(f"sample_weight must be of ordinary size; got {weight.max():g}. Divide all by their mean.")
    return weight


def as_texts(X: Any) -> list[str]:
    """Texts as a list of strings; what is missing is an empty text.

    A list, an array or a series; also a table of one column.
    """
    if X is None or isinstance(X, int | float | bytes):
        raise ValueError(f"X must be texts; got {X!r:.60}. Pass a list of strings.")
    if isinstance(X, str):
        raise ValueError("X must be several texts, not one; got a string. Pass a list: [text].")
    native = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame):
        if native.shape[1] != 1:
            raise ValueError(f"X must be one column of texts; got {native.shape[1]} columns. Pick one: X[column].")
        native = native.get_column(native.columns[0])
    if isinstance(native, nw.Series):
        values = native.to_list()
    else:
        values = X.to_pylist() if hasattr(X, "to_pylist") else list(X)
    if len(values) and isinstance(values[0], np.ndarray | list | tuple):
        if any(len(value) != 1 for value in values):
            raise ValueError("X must be one column of texts; got rows of several values. Pass one of them.")
        values = [value[0] for value in values]
    found = ["" if is_missing(value) else value for value in values]
    for i, value in enumerate(found):
        if not isinstance(value, str):
            raise ValueError(
                f"X must hold texts; got {value!r:.60} of type {type(value).__name__} in row {i}. Make it a string."
            )
    return found

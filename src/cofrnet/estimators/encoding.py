"""From a table as it comes to the numbers a CoFrNet reads, learned on training rows and kept in the user's terms.

Every column of the table becomes one or more inputs:

    numeric        z(x), a monotone piecewise-linear map learned from the column; where the column had missing values,
                   one more input that is 1 for them and 0 otherwise (z is then 0); where it takes few values, such as
                   the code of a category, it may have a hat for each: highest at the value, falling to 0 at its
                   neighbours, so that a value can have an effect that no curve through its neighbours has
    categorical    one input for each frequent level, 1 where the row has it; rare levels share one; missing is a level

Numeric values beyond the training range count as its ends. All of this is data: it can be written to a file, shown
beside a curve, and turned into code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cofrnet.compiled.settings import uses_numba
from cofrnet.estimators.columns import Floats, dictionary, is_date, label, labels, numbers, of_each

__all__ = ["CategoricalColumn", "Column", "NumericColumn", "Scaling", "TableEncoder"]

Scaling: TypeAlias = Literal["quantile", "standard", "minmax"]

FEWEST_KNOTS, MOST_KNOTS = 32, 257
FEW_VALUES = 32  # of a column whose values have hats; as many have a knot each
ROWS_OF_HAT = 10
MOST_HATS = 256  # of a table
HEIGHT = 0.3  # low hats need large weights, which decay holds down: values in order follow their curve as before
CELLS = 4096
TINY = 1e-280  # what is nearer to 0 counts as 0: the slopes between such numbers would not be finite
MISSING = "missing"
OTHER = "other"


@dataclass(frozen=True)
class NumericColumn:
    """How a numeric column becomes inputs; the first is linear between the knots (knots[i], values[i]).

    `bounded` columns stay at the outermost values beyond the knots; others go on straight. A column of dates is one of
    days since 1970-01-01. `hats` are positions of knots that have an input of their own, linear between the knots too:
    `height` at the knot, and 0 at all others.
    """

    name: str
    knots: tuple[float, ...]
    values: tuple[float, ...]
    bounded: bool = True
    has_missing: bool = False
    is_date: bool = False
    hats: tuple[int, ...] = ()
    height: float = HEIGHT

    @cached_property
    def inputs(self) -> list[str]:
        """Names of the inputs this column becomes: z, missing, hats."""
        missing = [f"{self.name}={MISSING}"] if self.has_missing else []
        return [self.name, *missing, *(f"{self.name}={_short(self.knots[i])}" for i in self.hats)]

    @property
    def first_hat(self) -> int:
        """Which of its inputs is the first hat."""
        return 1 + self.has_missing

    def scaled(self, x: Floats, out: NDArray[Any] | None = None, compiled: bool = True) -> NDArray[Any]:
        """z(x), written to `out` where it is given; NaN stays NaN. Without `compiled`, by numpy alone."""
        z: NDArray[Any]
        if self.bounded and len(self.knots) <= MOST_KNOTS and compiled and uses_numba():
            from cofrnet.compiled.vectors import piecewise_linear

            into = out if out is None or out.flags.c_contiguous else None
            z = piecewise_linear(x, *self._pieces, self.knots[-1], out=into)
        elif self.bounded:
            z = self._by_cells(x) if len(x) > CELLS else np.interp(x, self.knots, self.values)
        else:
            (x0, x1), (z0, z1) = self.knots, self.values
            z = z0 + (x - x0) * ((z1 - z0) / (x1 - x0))
        if out is None or z is out:
            return z
        out[...] = z
        return out

    def slopes(self, x: Floats) -> Floats:
        """Slopes of the inputs by the column, (n, len(inputs)), by which slopes of a score become one in its units.

        At a knot, those to its right (at the last, to its left). They are 0 beyond the knots of a bounded column. NaN
        stays NaN.
        """
        knots = np.asarray(self.knots)
        widths = np.diff(knots)
        piece = (np.searchsorted(knots, x, side="right") - 1).clip(0, len(widths) - 1)
        found = np.zeros((len(x), len(self.inputs)))
        found[:, 0] = (np.diff(self.values) / widths)[piece]
        for place, i in enumerate(self.hats, self.first_hat):
            found[:, place] = self.height * ((piece + 1 == i).astype(float) - (piece == i)) / widths[piece]
        if self.bounded:
            found[(x < knots[0]) | (x > knots[-1])] = 0
        found[np.isnan(x)] = np.nan
        return found

    def straight_within(self, x: float, unit: float, tolerance: float = 0.1) -> float:
        """How far from x the map stays within a share of its tangent there, in units: infinite for a straight line."""
        if not self.bounded:
            return math.inf
        steps = np.geomspace(0.01, 10, 61)
        slope = float(self.slopes(np.array([x]))[0, 0])
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
        return np.eye(len(self.inputs))[1] if self.has_missing else None

    @cached_property
    def _pieces(self) -> tuple[Floats, Floats, Floats]:
        """Where the pieces between the knots start, (257,), their values there and their slopes, (256,)."""
        count = len(self.knots) - 1
        starts, values, slopes = np.full(MOST_KNOTS, np.inf), np.zeros(MOST_KNOTS - 1), np.zeros(MOST_KNOTS - 1)
        starts[:count], values[:count] = self.knots[:-1], self.values[:-1]
        slopes[:count] = np.diff(self.values) / np.diff(self.knots)
        return starts, values, slopes

    @cached_property
    def _cells(self) -> tuple[float, Floats, Floats, NDArray[np.bool_]] | None:
        """Cells of equal width between the outermost knots: how many there are in a unit, z at the first knot and the
        slope of the line that the map is in each of them, and which hold a knot, so that it is no line there.

        None where so many cells are too wide or too narrow for numbers.
        """
        knots, values = np.asarray(self.knots), np.asarray(self.values)
        with np.errstate(all="ignore"):
            density = CELLS / (knots[-1] - knots[0])
            if not 0 < density < math.inf:
                return None
            within = ((knots[1:-1] - knots[0]) * density).astype(np.intp).clip(0, CELLS - 1)
            piece = np.searchsorted(within, np.arange(CELLS))
            slope = (np.diff(values) / np.diff(knots))[piece]
            start = values[piece] - slope * (knots[piece] - knots[0])
        with_knot = np.zeros(CELLS, dtype=bool)
        with_knot[within] = True
        return density, start, slope, with_knot

    def _by_cells(self, x: Floats) -> Floats:
        """z(x) of many values, each by the line of its cell; those in cells with a knot as they come."""
        if self._cells is None:
            return np.interp(x, self.knots, self.values)
        density, start, slope, with_knot = self._cells
        beyond = np.clip(x, self.knots[0], self.knots[-1])
        beyond -= self.knots[0]
        with np.errstate(invalid="ignore"):  # NaN is in any cell, and stays NaN
            cell = (beyond * density).astype(np.intp)
        z: Floats = slope.take(cell, mode="clip")
        z *= beyond
        z += start.take(cell, mode="clip")
        rest = np.flatnonzero(with_knot.take(cell, mode="clip"))
        z[rest] = np.interp(x[rest], self.knots, self.values)
        return z

    def encode(self, column: Any, out: NDArray[Any], compiled: bool = True) -> None:
        """Write the inputs of a column of `as_columns`, (n,), into `out` (n, len(inputs))."""
        x = numbers(column, self.name)
        missing = np.isnan(self.scaled(x, out[:, 0], compiled))
        if missing.any():
            out[missing, 0] = 0
        if self.has_missing:
            out[:, 1] = missing
        if self.hats:
            self._encode_hats(x, out[:, self.first_hat :])

    @cached_property
    def _places_of_hats(self) -> NDArray[np.int64]:
        """Which hat is that of each knot; -1 for none."""
        places = np.full(len(self.knots), -1, dtype=np.int64)
        places[list(self.hats)] = np.arange(len(self.hats))
        return places

    def _encode_hats(self, x: Floats, out: NDArray[Any]) -> None:
        """Write the hats of values x (n,) into `out` (n, hats): all 0 for NaN."""
        knots, place = np.asarray(self.knots), self._places_of_hats
        x = x.clip(knots[0], knots[-1])
        low = (np.searchsorted(knots, x, side="right") - 1).clip(0, len(knots) - 2)
        share = (x - knots[low]) / (knots[low + 1] - knots[low])
        out[...] = 0
        for at, height in ((place[low], 1 - share), (place[low + 1], share)):
            rows = np.flatnonzero((at >= 0) & (height > 0))  # not those of NaN
            out[rows, at[rows]] = self.height * height[rows]


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

    @property
    def aliases(self) -> dict[str, int]:
        """Other words for its levels, and their places: true and false may be given as 1 and 0."""
        words = {"True": ("true", "1"), "False": ("false", "0")}
        return {
            word: i for i, level in enumerate(self.levels) for word in words.get(level, ()) if word not in self.levels
        }

    def encode(self, column: Any, out: NDArray[Any], compiled: bool = True) -> None:
        """Write the inputs of a column of `as_columns`, (n,), into `out` (n, len(inputs))."""
        code: dict[str | None, int] = {level: i for i, level in enumerate(self.levels)}
        code.update(self.aliases)
        other = self.place_of_other
        code[None] = self.place_of_missing

        def place(value: Any) -> int:
            return code.get(label(value, self.name), other)

        arrow = dictionary(column)
        if arrow is None:
            codes = np.asarray(of_each(column, place), dtype=np.int64)
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
        """Slopes of the inputs by the columns they are of, (n, n_inputs); NaN for categories and missing."""
        found = [
            column.slopes(numbers(values, column.name))
            if isinstance(column, NumericColumn)
            else np.full((len(values), len(column.inputs)), np.nan)
            for column, values in zip(self.columns, columns, strict=True)
        ]
        return np.concatenate(found, axis=1)

    @classmethod
    def learn(
        cls,
        columns: Sequence[Any],
        names: Sequence[str],
        categorical: Sequence[bool],
        scaling: Scaling = "quantile",
        max_categories: int = 64,
    ) -> TableEncoder:
        """The encoder of training rows, given as the columns of `as_columns`; no column has hats yet."""
        learned: list[Column] = []
        for values, name, is_categorical in zip(columns, names, categorical, strict=True):
            if is_categorical:
                learned.append(_learn_categorical(labels(values, name), name, max_categories))
            else:
                column = _learn_numeric(numbers(values, name), name, scaling)
                learned.append(replace(column, is_date=is_date(values)))
        return cls(tuple(learned))

    def with_bounds(self, which: Iterable[int], columns: Sequence[Any]) -> TableEncoder:
        """The same, numeric columns at some positions staying at their values beyond those of the rows given."""
        own = list(self.columns)
        for j in which:
            column = own[j]
            if isinstance(column, NumericColumn) and not column.bounded:
                x = numbers(columns[j], column.name)
                knots = np.linspace(np.nanmin(x), np.nanmax(x), FEWEST_KNOTS)  # two would be those of a flag
                values = column.scaled(knots, compiled=False)
                own[j] = replace(column, knots=tuple(knots.tolist()), values=tuple(values.tolist()), bounded=True)
        return TableEncoder(tuple(own))

    def possible_hats(self, columns: Sequence[Any]) -> dict[int, tuple[int, ...]]:
        """By position, the numeric columns of few values (no dates), with those that enough of the rows given have."""
        found = {
            j: _hats(column, numbers(values, column.name))
            for j, (column, values) in enumerate(zip(self.columns, columns, strict=True))
            if isinstance(column, NumericColumn) and not column.is_date
        }
        return {j: hats for j, hats in found.items() if hats}

    def with_hats(self, hats: Mapping[int, tuple[int, ...]]) -> TableEncoder:
        """The same with hats for some columns, as many as a table may have: columns of the fewest come first."""
        columns, left = list(self.columns), MOST_HATS
        for j in sorted(hats, key=lambda j: len(hats[j])):
            column = columns[j]
            left -= len(hats[j])
            if left >= 0 and isinstance(column, NumericColumn):
                columns[j] = replace(column, hats=hats[j])
        return TableEncoder(tuple(columns))


def _learn_numeric(x: Floats, name: str, scaling: Scaling) -> NumericColumn:
    missing = np.isnan(x)
    has_missing = bool(missing.any())
    x = x[~missing]
    x = np.where(np.abs(x) < TINY, 0.0, x)
    if len(x) == 0 or x.min() == x.max():  # constant or all missing: nothing to scale
        at = float(x[0]) if len(x) else 0.0
        return NumericColumn(name, (at, at + max(1.0, abs(at))), (0.0, 0.0), has_missing=has_missing)
    if scaling == "minmax":
        return NumericColumn(name, (float(x.min()), float(x.max())), (0.0, 1.0), False, has_missing)
    if scaling == "standard":
        with np.errstate(over="ignore"):
            mean, deviation = float(x.mean()), float(x.std())
        if not (math.isfinite(mean) and math.isfinite(deviation) and mean + deviation > mean):
            raise ValueError(
                f"column {name!r} must have a mean and spread in reach of numbers for scaling='standard'; got up to "
                f"{np.abs(x).max():g}. Use scaling='quantile'."
            )
        return NumericColumn(name, (mean, mean + deviation), (0.0, 1.0), False, has_missing)
    return NumericColumn(name, *_quantile_knots(x), True, has_missing)


def _hats(column: NumericColumn, x: Floats) -> tuple[int, ...]:
    """Positions of the values that enough rows x (n,) have; none where there are many values, or two."""
    if not (column.bounded and 2 < len(column.knots) <= FEW_VALUES):
        return ()
    knots, x = np.asarray(column.knots), x[~np.isnan(x)]
    places = np.searchsorted(knots, x)
    if not np.array_equal(knots[places], x):  # more values than knots
        return ()
    return tuple(np.flatnonzero(np.bincount(places, minlength=len(knots)) >= ROWS_OF_HAT).tolist())


def _short(value: float) -> str:
    return repr(value).removesuffix(".0")


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

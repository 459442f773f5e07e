"""From a table as it comes to the numbers a CoFrNet reads, learned on training rows and kept in the user's terms.

Every column of the table becomes one or more inputs:

    numeric        z(x), a monotone piecewise-linear map learned from the column; where the column had missing values,
                   one more input that is 1 for them and 0 otherwise (z is then 0); where it takes few values, such as
                   the code of a category, it may have a hat for each: highest at the value, falling to 0 at its
                   neighbours, so that a value can have an effect that no curve through its neighbours has; where it
                   takes many values, such as the number of a customer, it may have their effects as one input more
    categorical    one input for each frequent level, 1 where the row has it; rare levels share one; missing is a level;
                   where levels are very many, their effects as one input more (`cofrnet.estimators.effects`)

Numeric values beyond the training range count as its ends. All of this is data: it can be written to a file, shown
beside a curve, and turned into code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cofrnet.estimators.column_inputs import MISSING, MOST_KNOTS, OTHER, CategoricalColumn, Column, NumericColumn
from cofrnet.estimators.columns import Floats, is_date, labels, numbers

__all__ = ["Scaling", "TableEncoder"]

Scaling: TypeAlias = Literal["quantile", "standard", "minmax"]

FEWEST_KNOTS = 32
FEW_VALUES = 32  # of a column whose values have hats; as many have a knot each
ROWS_OF_HAT = 10
MOST_HATS, MOST_EFFECTS = 256, 256  # of a table
MOST_CODES = 10_000  # values or levels that have effects
ROWS_FOR_CODES = 20_000  # that tell whether a column of numbers is one of codes
TINY = 1e-280  # what is nearer to 0 counts as 0: the slopes between such numbers would not be finite


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
        """Inputs that take more than two values, and so have a curve: numbers and effects."""
        found: list[int] = []
        for column, own in zip(self.columns, self.column_inputs, strict=True):
            if isinstance(column, NumericColumn) and (len(column.knots) > 2 or not column.bounded):
                found.append(own[0])
            found += own[column.first_effect :]
        return tuple(found)

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

    def possible_effects(self, columns: Sequence[Any], max_categories: int) -> dict[int, Column]:
        """By position, the columns of so many values or levels that these may have effects, with all of them.

        Numbers (no dates) have more values than those with hats, categories more levels than may have inputs, and there
        are two rows or more for each of them in the mean of the rows given.
        """
        found: dict[int, Column] = {}
        for j, (column, values) in enumerate(zip(self.columns, columns, strict=True)):
            own: Column | None = None
            if isinstance(column, CategoricalColumn):
                own = _many_levels(column, values, max_categories)
            elif not column.is_date:
                own = _many_codes(column, numbers(values, column.name))
            if own is not None:
                found[j] = own
        return found

    def with_columns(self, columns: Mapping[int, Column]) -> TableEncoder:
        """The same with other columns at some positions."""
        return TableEncoder(tuple(columns.get(j, column) for j, column in enumerate(self.columns)))


def _many_levels(column: CategoricalColumn, values: Any, max_categories: int) -> CategoricalColumn | None:
    """The column with all its levels, where they are many: those that have no input follow the others."""
    if column.place_of_other < 0:
        return None
    counts = _counts(labels(values, column.name), column.gap)
    if not max_categories < len(counts) <= len(values) / 2:
        return None
    rest = [level for level, _ in counts.most_common(MOST_CODES) if level not in column.levels]
    return replace(column, levels=(*column.levels, *sorted(rest)), frequent=len(column.levels))


def _many_codes(column: NumericColumn, x: Floats) -> NumericColumn | None:
    """The column with all its values as codes, where they are many."""
    x = x[~np.isnan(x)]
    some = x[:: max(1, len(x) // ROWS_FOR_CODES)]
    if len(np.unique(some)) > len(some) / 2:  # as many in all rows, or too many
        return None
    codes = np.unique(x)
    if not FEW_VALUES < len(codes) <= min(len(x) / 2, MOST_CODES):
        return None
    with np.errstate(over="ignore"):
        apart = np.diff(codes)
    if not (np.isfinite(apart).all() and (apart > TINY).all()):
        return None
    found = replace(column, codes=tuple(codes.tolist()), effects=((0.0,),) * len(codes))
    with np.errstate(over="ignore"):
        apart = np.diff(found.effect_map[0])
    lost = not (np.isfinite(apart).all() and (apart > 0).all())  # what lies between codes, to rounding
    return None if lost else replace(found, effects=())


def _learn_numeric(x: Floats, name: str, scaling: Scaling) -> NumericColumn:
    missing = np.isnan(x)
    has_missing = bool(missing.any())
    x = x[~missing]
    x = np.where(np.abs(x) < TINY, 0.0, x)
    if len(x) == 0:  # nothing is known, so whatever comes later says nothing
        return NumericColumn(name, (0.0, 1.0), (0.0, 0.0))
    if x.min() == x.max():  # nothing to scale
        at = float(x[0])
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


def _counts(x: Sequence[str | None], gap: str) -> Counter[str]:
    return Counter(gap if v is None else v for v in x)


def _learn_categorical(x: Sequence[str | None], name: str, max_categories: int) -> CategoricalColumn:
    own = set(x)
    gap, other = (_unlike(word, own) for word in (MISSING, OTHER))
    counts = _counts(x, gap)
    enough = 5 if len(x) >= 200 else 1
    frequent = [level for level, count in counts.most_common(max_categories) if count >= enough]
    levels = sorted(level for level in frequent if level != gap)
    if len(frequent) < len(counts):
        levels.append(other)
    if gap in frequent:
        levels.append(gap)
    return CategoricalColumn(name, tuple(levels), gap=gap, other=other)


def _unlike(word: str, levels: Collection[str | None]) -> str:
    """The word, with as many apostrophes as make it one that no level is."""
    while word in levels:
        word += "'"
    return word

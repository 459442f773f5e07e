"""How one column of a table becomes numbers a CoFrNet reads, as data: kept in the user's terms, and invertible."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cofrnet.compiled.settings import uses_numba
from cofrnet.estimators.columns import Floats, dictionary, label, numbers, of_each

__all__ = ["HEIGHT", "MISSING", "MOST_KNOTS", "OTHER", "CategoricalColumn", "Column", "Effects", "NumericColumn"]

MOST_KNOTS = 257
HEIGHT = 0.3  # low hats need large weights, which decay holds down: values in order follow their curve as before
CELLS = 4096
MOST_SCALED = 1e30  # and least, of what goes on straight: scores of it are finite in single precision
MISSING = "missing"
OTHER = "other"

Effects: TypeAlias = tuple[tuple[float, ...], ...]  # one for each output, of each code or level


@dataclass(frozen=True)
class NumericColumn:
    """How a numeric column becomes inputs; the first is linear between the knots (knots[i], values[i]).

    `bounded` columns stay at the outermost values beyond the knots; others go on straight. A column of dates is one of
    days since 1970-01-01. `hats` are positions of knots that have an input of their own, linear between the knots too:
    `height` at the knot, and 0 at all others. A column of many codes has one input more for each output of the model:
    effects[i] at codes[i] and very near it, else 0. See `cofrnet.estimators.effects`, also for what `unit` is.
    """

    name: str
    knots: tuple[float, ...]
    values: tuple[float, ...]
    bounded: bool = True
    has_missing: bool = False
    is_date: bool = False
    hats: tuple[int, ...] = ()
    height: float = HEIGHT
    codes: tuple[float, ...] = ()
    effects: Effects = ()
    unit: float = 1.0

    @cached_property
    def inputs(self) -> list[str]:
        """Names of the inputs this column becomes: z, missing, hats, effects."""
        missing = [f"{self.name}={MISSING}"] if self.has_missing else []
        hats = [f"{self.name}={_short(self.knots[i])}" for i in self.hats]
        return [self.name, *missing, *hats, *_names_of_effects(self.name, self.effects)]

    @property
    def first_hat(self) -> int:
        """Which of its inputs is the first hat."""
        return 1 + self.has_missing

    @property
    def first_effect(self) -> int:
        """Which of its inputs is the first effect."""
        return self.first_hat + len(self.hats)

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
            with np.errstate(over="ignore"):
                z = np.clip(z0 + (x - x0) * ((z1 - z0) / (x1 - x0)), -MOST_SCALED, MOST_SCALED)
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
        if self.effects:
            knots, values = self.effect_map
            piece = (np.searchsorted(knots, x, side="right") - 1).clip(0, len(knots) - 2)
            steep = np.diff(values, axis=0)[piece] / np.diff(knots)[piece, None]
            found[:, self.first_effect :] = np.where(((x < knots[0]) | (x > knots[-1]))[:, None], 0.0, steep)
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
        """Values to look at the column at: those it takes where they are few, else evenly spaced from low to high.

        Of codes, which have effects of their own, those that it takes, evenly spread over them.
        """
        if self.effects:
            own = np.asarray(self.codes)
            within = own[(own >= low) & (own <= high)]
            within = within if len(within) else own  # rows that training went on with may have had others
            return within[np.unique(np.linspace(0, len(within) - 1, count).round().astype(int))]
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
        x = numbers(column, self.name, self.is_date)
        missing = np.isnan(self.scaled(x, out[:, 0], compiled))
        if missing.any():
            out[missing, 0] = 0
        if self.has_missing:
            out[:, 1] = missing
        if self.hats:
            self._encode_hats(x, out[:, self.first_hat : self.first_effect])
        if self.effects:
            knots, values = self.effect_map
            for place, own in enumerate(values.T, self.first_effect):
                out[:, place] = np.where(missing, 0.0, np.interp(x, knots, own))

    @cached_property
    def effect_map(self) -> tuple[Floats, Floats]:
        """Knots, rising, and values (knots, outputs) of what is linear between them: the effects by the column.

        Each code has four knots: its effect holds up to an eighth of the least distance of two codes, at most 1 where
        they are whole numbers, and is 0 from a quarter of it on. So rounding does no harm, and no other code has it.
        """
        codes = np.asarray(self.codes)
        near = np.diff(codes).min()
        if (codes == codes.round()).all():
            near = min(near, 1.0)
        knots = codes[:, None] + near * np.array([-0.25, -0.125, 0.125, 0.25])
        values = np.asarray(self.effects)[:, None] * np.array([0.0, 1.0, 1.0, 0.0])[:, None]
        return knots.reshape(-1), values.reshape(len(codes) * 4, -1)

    def places(self, column: Any) -> NDArray[np.int64]:
        """Which of its codes each value of a column of `as_columns` is, (n,); -1 for none."""
        x, codes = numbers(column, self.name), np.asarray(self.codes)
        found = np.searchsorted(codes, x).clip(0, len(codes) - 1)
        return np.where(codes[found] == x, found, -1)

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
    """How a categorical column becomes inputs: one for each of `levels`, in this order, 1 for its own and 0 for others.

    A level that is not among them is counted as the `other` level where that is one of them, else it is 0 in every
    input. Of very many levels only the first, as many as are `frequent`, have an input; the rest are the `other` one
    there. All of them have `effects`, one for each output of the model: see `cofrnet.estimators.effects`, also for what
    `unit` is. What is missing is the level `gap`. Both have names that no level of the table has.
    """

    name: str
    levels: tuple[str, ...]
    frequent: int | None = None
    effects: Effects = ()
    unit: float = 1.0
    gap: str = MISSING
    other: str = OTHER

    @property
    def known(self) -> list[str]:
        """The levels that are some of the table's, and neither `gap` nor `other`."""
        return [level for level in self.levels if level not in (self.gap, self.other)]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs this column becomes: levels, effects."""
        own = [f"{self.name}={level}" for level in self.levels[: self.first_effect]]
        return [*own, *_names_of_effects(self.name, self.effects)]

    @property
    def first_effect(self) -> int:
        """Which of its inputs is the first effect."""
        return len(self.levels) if self.frequent is None else self.frequent

    @property
    def of_levels(self) -> NDArray[np.float64]:
        """Inputs of the levels, (levels, len(inputs))."""
        out = np.empty((len(self.levels), len(self.inputs)))
        self._write(np.arange(len(self.levels)), out)
        return out

    @property
    def place_of_other(self) -> int:
        """The level that levels not seen in training count as; -1 for none.

        A column that has one level only says nothing, so whatever comes later is that level too.
        """
        if self.other in self.levels:
            return self.levels.index(self.other)
        return 0 if len(self.levels) == 1 else -1

    @property
    def place_of_missing(self) -> int:
        """The level that missing values count as; -1 for none."""
        return self.levels.index(self.gap) if self.gap in self.levels else self.place_of_other

    @property
    def aliases(self) -> dict[str, int]:
        """Other words for its levels, and their places: true and false may be given as 1 and 0."""
        words = {"True": ("true", "1"), "False": ("false", "0")}
        return {
            word: i for i, level in enumerate(self.levels) for word in words.get(level, ()) if word not in self.levels
        }

    def encode(self, column: Any, out: NDArray[Any], compiled: bool = True) -> None:
        """Write the inputs of a column of `as_columns`, (n,), into `out` (n, len(inputs))."""
        self._write(self.places(column), out)

    def _write(self, places: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write the inputs of rows of the levels at some places into `out`."""
        first, known = self.first_effect, places >= 0
        own = np.where(places < first, places, self.place_of_other)
        out[...] = 0
        rows = np.flatnonzero(own >= 0)
        out[rows, own[rows]] = 1
        if self.effects:
            out[known, first:] = self._effects[places[known]]

    @cached_property
    def _effects(self) -> NDArray[np.float64]:
        return np.array(self.effects)

    @cached_property
    def _place_of(self) -> dict[str | None, int]:
        """Places of the levels, of other words for them, and of what is missing."""
        places: dict[str | None, int] = {level: i for i, level in enumerate(self.levels)}
        places.update(self.aliases)
        places[None] = self.place_of_missing
        return places

    def places(self, column: Any) -> NDArray[np.int64]:
        """Which of its levels each value of a column of `as_columns` is, (n,); -1 for none."""
        code, other = self._place_of, self.place_of_other

        def place(value: Any) -> int:
            return code.get(label(value, self.name), other)

        arrow = dictionary(column)
        if arrow is None:
            return np.asarray(of_each(column, place), dtype=np.int64)
        of_levels = np.array([*map(place, arrow[1]), code[None]], dtype=np.int64)
        return of_levels[arrow[0]]


Column: TypeAlias = NumericColumn | CategoricalColumn


def _names_of_effects(name: str, effects: Effects) -> list[str]:
    count = len(effects[0]) if effects else 0
    return [f"effect of {name}"] if count == 1 else [f"effect {i + 1} of {name}" for i in range(count)]


def _short(value: float) -> str:
    return repr(value).removesuffix(".0")

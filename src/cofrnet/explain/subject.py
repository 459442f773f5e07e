"""What an explanation needs to know of a fitted model: the model, how columns become inputs, and what training saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.nn import CoFrNet

__all__ = ["ColumnProfile", "Subject", "TableProfile", "evenly", "to_browse"]

Floats = NDArray[np.floating[Any]]

BINS = 40
CHUNK = 8192
FAR = 3.0  # from the mean of an input, in its deviations


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """Positions of at most `most` of n rows, evenly spread over all of them."""
    count = min(n, most)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)


def to_browse(n: int, most: int, loss: NDArray[Any] | None, worst: int) -> NDArray[np.int64]:
    """Positions of at most `most` of n rows, in order: the `worst` of greatest loss, and others evenly spread."""
    wrong = [] if loss is None else np.argsort(-loss, kind="stable")[:worst].tolist()
    others = np.setdiff1d(np.arange(n), wrong)
    return np.sort([*wrong, *others[evenly(len(others), most - len(wrong))].tolist()]).astype(np.int64)


@dataclass(frozen=True)
class ColumnProfile:
    """Statistics of a column in training, none of them a row.

    For numbers: mean and median, edges of bins (from 0.5 % to 99.5 %) and counts of rows in them, share of missing
    values, standard deviation. For categories: counts for each level, no edges.
    """

    mean: float
    median: float
    edges: tuple[float, ...]
    counts: tuple[float, ...]
    missing: float = 0.0
    deviation: float = 0.0

    @property
    def rows(self) -> float:
        """How many rows it was made of; 0 where all were missing."""
        return sum(self.counts) / (1 - self.missing) if self.missing < 1 else 0.0

    @classmethod
    def of_numbers(cls, x: Floats) -> ColumnProfile:
        """Of a numeric column; NaN is missing."""
        gaps = np.isnan(x)
        missing, x = float(gaps.mean()), x[~gaps]
        if len(x) == 0:
            return cls(0.0, 0.0, (0.0, 1.0), (0.0,), missing)
        low, high = (float(v) for v in np.quantile(x, [0.005, 0.995]))
        if low == high:
            low, high = float(x.min()), float(x.max())
        if low == high:
            high = low + max(1.0, abs(low))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(x.mean()), float(x.std())
            try:
                counts, edges = np.histogram(x.clip(low, high), bins=BINS, range=(low, high))
            except ValueError:  # too narrow or too wide for floats to be divided
                counts, edges = np.array([len(x)]), np.array([low, high])
            median = 2 * float(np.median(x / 2))  # the two in the middle may have a sum that no number is
        mean = mean if np.isfinite(mean) else median
        deviation = deviation if np.isfinite(deviation) else (high / 2 - low / 2)
        return cls(mean, median, tuple(edges.tolist()), tuple(counts.astype(float).tolist()), missing, deviation)

    @classmethod
    def of_levels(cls, counts: NDArray[Any]) -> ColumnProfile:
        """Of a categorical column, from the rows of each level."""
        return cls(np.nan, np.nan, (), tuple(counts.astype(float).tolist()))


@dataclass(frozen=True)
class TableProfile:
    """What a fit remembers of its rows: statistics of the columns and inputs, and what the features did overall.

    importances : (q, P); pairs : positions of two columns, with strengths (q,).
    """

    columns: tuple[ColumnProfile, ...]
    input_spreads: Floats
    importances: Floats
    pairs: tuple[tuple[int, int, tuple[float, ...]], ...]

    @property
    def rows(self) -> float:
        """How many rows the statistics are of."""
        return max(column.rows for column in self.columns)


@dataclass(frozen=True)
class Subject:
    """A fitted model as explanations see it.

    score = scale * model(inputs) + offset, in `unit`.
    """

    model: CoFrNet
    columns: Sequence[Any]
    profiles: Sequence[ColumnProfile]
    output_names: tuple[str, ...]
    scale: Floats
    offset: Floats
    unit: str

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, all different: an apostrophe is added to that of a level which a column has already."""
        names: list[str] = []
        taken = set(self.feature_names)
        for column in self.columns:
            for name in column.inputs:
                while name in taken and name != column.name:
                    name += "'"
                taken.add(name)
                names.append(name)
        return tuple(names)

    @cached_property
    def places(self) -> list[slice]:
        """Where the inputs of each column are."""
        ends = np.cumsum([0, *(len(column.inputs) for column in self.columns)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    @property
    def dtype(self) -> torch.dtype:
        """That of the model."""
        return self.model.head.dtype

    def is_categorical(self, j: int) -> bool:
        """Whether column j is one of levels."""
        return not self.profiles[j].edges

    def is_date(self, j: int) -> bool:
        """Whether column j is one of dates."""
        return bool(getattr(self.columns[j], "is_date", False))

    def scores(self, x: Tensor) -> Floats:
        """Shapes: x (n, p); returns (n, q), in the unit of the score."""
        with torch.no_grad():
            found = torch.cat([self.model(part) for part in x.split(CHUNK)])
        return found.double().numpy() * self.scale + self.offset

    def by_column(self, of_inputs: Floats) -> Floats:
        """Sums over the inputs of each column. Shapes: (..., p) to (..., P)."""
        starts = [place.start for place in self.places]
        return np.add.reduceat(of_inputs, starts, axis=-1)

    def middle(self, j: int, kind: str) -> float:
        """The "mean" or "median" of a column of numbers, NaN for levels.

        Where a few huge values alone make the mean, it is like no row, and the median takes its place.
        """
        column, profile = self.columns[j], self.profiles[j]
        if kind == "median" or self.is_categorical(j):
            return profile.median
        return profile.mean if abs(column.at([profile.mean], np.float64)[0, 0]) <= FAR else profile.median

    def baseline(self, kind: str) -> Tensor:
        """Inputs of the "mean" row (levels and gaps by their shares) or of the "median" row (what is most frequent)."""
        if kind not in ("mean", "median"):
            raise ValueError(f"baseline must be 'mean', 'median' or rows like those of X; got baseline={kind!r}.")
        parts = []
        for j, (column, profile) in enumerate(zip(self.columns, self.profiles, strict=True)):
            if not self.is_categorical(j):
                row = column.at([self.middle(j, kind)], np.float64)[0]
                row[column.first_effect :] = 0  # the mean of effects; a mean of codes is no code
                if column.has_missing:
                    row[1] = profile.missing if kind == "mean" else float(profile.missing > 0.5)
                parts.append(row)
                continue
            counts = np.asarray(profile.counts)
            shares = counts / max(1.0, counts.sum())
            parts.append(shares @ column.of_levels if kind == "mean" else column.of_levels[counts.argmax()])
        return torch.as_tensor(np.concatenate(parts), dtype=self.dtype)

    def levels_shown(self, j: int, points: int) -> NDArray[np.int64]:
        """Positions of the levels to look at column j at: all, or of very many (with effects) the most frequent."""
        count = len(self.columns[j].levels)
        if not self.columns[j].effects or count <= points:
            return np.arange(count)
        return np.sort(np.argsort(-np.asarray(self.profiles[j].counts), kind="stable")[:points])

    def grid(self, j: int, points: int) -> tuple[NDArray[Any], Tensor]:
        """Values to look at column j at, (G,), and their inputs, (G, k)."""
        column, profile = self.columns[j], self.profiles[j]
        if self.is_categorical(j):
            some = self.levels_shown(j, points)
            levels = np.asarray(column.levels, dtype=object)[some]
            return levels, torch.as_tensor(column.of_levels[some], dtype=self.dtype)
        values = column.points(points, profile.edges[0], profile.edges[-1])
        return values, torch.as_tensor(column.at(values, np.float64).copy(), dtype=self.dtype)

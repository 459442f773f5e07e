"""Which values and pairs of columns matter: what their means explain of the residuals of a simpler model."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.explain.subject import evenly

__all__ = ["stands_out", "strongest_pairs"]

Floats = NDArray[np.floating[Any]]

BINS = 8
MOST_ROWS = 100_000
MOST_COLUMNS = 64  # pairs are looked for among the columns with the strongest effects of their own, at most so many


def strongest_pairs(columns: Sequence[Floats], residual: Floats, count: int) -> list[tuple[int, int]]:
    """The `count` pairs of columns whose joint effect explains most of the residual, strongest first.

    Each column is cut into at most eight bins of equal size. The strength of a pair is the sum of squares that the
    means of its cells explain beyond the means of its rows and columns, less what pure noise would explain. No array of
    all pairs is made.

    columns : one (n,) array a column; residual : (n,) or (n, q). Of many rows, some evenly spread ones are looked at.
    """
    some = evenly(len(residual), MOST_ROWS)
    columns, residual = [column[some] for column in columns], residual.reshape(len(residual), -1)[some]
    codes = [_binned(column) for column in columns]
    candidates = range(len(columns))
    if len(columns) > MOST_COLUMNS:
        own = [_explained(code, residual, int(code.max()) + 1) for code in codes]
        candidates = sorted(np.argsort(own)[-MOST_COLUMNS:].tolist())  # type: ignore[assignment]
    noise = float(residual.var(0).sum())
    strengths = ((_pair_strength(codes[i], codes[j], residual, noise), i, j) for i, j in combinations(candidates, 2))
    return [(i, j) for _, i, j in heapq.nlargest(count, strengths)]


def stands_out(column: Floats, residual: Floats) -> bool:
    """Whether the means of a column's values explain more of the residual than noise would.

        sum over its k values of n_v |mean of v|^2  >  variance (k + 3 sqrt(2 k)),

    the mean of that sum for pure noise, and three standard deviations. column : (n,), of few values; residual : (n, q).
    """
    code = np.unique(column, return_inverse=True)[1]
    cells = int(code.max()) + 1
    return _explained(code, residual, cells) > float(residual.var(0).sum()) * (cells + 3 * math.sqrt(2 * cells))


def _binned(x: Floats) -> NDArray[np.int64]:
    edges = np.unique(np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1]))
    values = np.unique(x)
    if len(values) <= BINS:
        return np.searchsorted(values, x)
    return np.searchsorted(edges, x, side="right")


def _means(code: NDArray[np.int64], residual: Floats, cells: int) -> tuple[Floats, Floats]:
    count = np.bincount(code, minlength=cells).astype(float)
    sums = np.stack([np.bincount(code, weights=column, minlength=cells) for column in residual.T], axis=1)
    return sums / np.maximum(count, 1)[:, None], count


def _explained(code: NDArray[np.int64], residual: Floats, cells: int) -> float:
    means, count = _means(code, residual, cells)
    return float((count[:, None] * means**2).sum())


def _pair_strength(a: NDArray[np.int64], b: NDArray[np.int64], residual: Floats, noise: float) -> float:
    rows, columns = int(a.max()) + 1, int(b.max()) + 1
    left = residual
    for _ in range(2):  # what each column explains alone, taken out in turn
        left = left - _means(a, left, rows)[0][a]
        left = left - _means(b, left, columns)[0][b]
    cell = a * columns + b
    used = len(np.unique(cell))
    return _explained(cell, left, rows * columns) - noise * max(0, used - rows - columns + 1)

"""Effects of the values of a column: what y is like where a column has a value, for columns of very many values.

The number of a shop or the name of a country has too many values for an input each. It has one input more for each
output of the model:

    effect of v = (sum over the rows of v of r) / (rows of v + within / between),     r = y less its mean

the mean of y, drawn towards 0 where rows are few: `within` is the variance of r among rows of one value, `between` that
of the values' own means, estimated from what they vary more than chance would have it. (Target encoding by empirical
Bayes: Micci-Barreca 2001.) Of classes, r is 1 or 0 for each class less its share.

A row's own y would tell the model what it is to learn. So a row that is trained on has the effect that the rows of the
other four of five parts give (`out_of_fold`); all other rows have that of all of them. For the same reason a column has
effects only where those of other parts explain what a linear model leaves over (`effects_explain`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FOLDS", "effects_explain", "out_of_fold", "shrunken_means"]

Floats = NDArray[np.floating[Any]]
Places = NDArray[np.int64]

FOLDS = 5
BINS = 32  # of neighbours
LEAST_GAIN, LEAST_ERRORS = 0.01, 4.0  # share of the squares explained; in standard errors of it
LEAST_BETWEEN = 1e-3  # share of the variance within


def shrunken_means(places: Places, y: Floats, weight: Floats | None, count: int) -> Floats:
    """The effect of each of `count` values, (count, q), by the module's formula; 0 for those of no row.

    places : (n,), the value of each row, -1 for none; y : (n, q); weight : None or (n,), of mean 1.
    """
    known = places >= 0
    places, y = places[known], y[known]
    w = np.ones(len(y)) if weight is None else weight[known]
    rows = np.bincount(places, w, count)
    total = rows.sum()
    if total == 0:
        return np.zeros((count, y.shape[1]))
    r = y - (w @ y) / total
    sums = np.stack([np.bincount(places, w * own, count) for own in r.T], axis=1)  # (count, q)
    means = sums / np.maximum(rows, 1e-12)[:, None]
    values = np.count_nonzero(rows)
    within = float((w[:, None] * (r - means[places]) ** 2).sum() / max(total - values, 1.0))
    between = float(((rows[:, None] * means**2).sum() - within * values) / total)
    between = max(between, LEAST_BETWEEN * within, 1e-12)
    return np.divide(sums, (rows + within / between)[:, None], out=np.zeros_like(sums), where=rows[:, None] > 0)


def out_of_fold(places: Places, y: Floats, weight: Floats | None, count: int, folds: NDArray[np.int64]) -> Floats:
    """The effect of each row's value that the rows of other folds give, (n, q); 0 for rows of no value.

    folds : (n,), the part of each row, from 0 to 4.
    """
    found = np.zeros(y.shape)
    for fold in range(FOLDS):
        inside = folds == fold
        own = None if weight is None else weight[~inside]
        effects = shrunken_means(places[~inside], y[~inside], own, count)
        rows = np.flatnonzero(inside & (places >= 0))
        found[rows] = effects[places[rows]]
    return found


def effects_explain(
    places: Places, residual: Floats, weight: Floats | None, count: int, folds: NDArray[np.int64], ordered: bool
) -> bool:
    """Whether effects of a column's values explain what a simpler model leaves over, in folds they are not made of.

    At least one percent of its squares, and four standard errors of that; where values are in order, beyond what 32
    bins of neighbours explain, as a curve would.

    places : (n,), in the order of the values where that is `ordered`; residual : (n, q).
    """
    residual = residual - np.average(residual, axis=0, weights=weight)
    none = (residual**2).sum(1)
    without = none
    if ordered:
        rows = np.bincount(places[places >= 0], minlength=count)
        middle = (np.cumsum(rows) - rows / 2) / max(rows.sum(), 1)
        bins = np.minimum((middle * BINS).astype(np.int64), BINS - 1)
        binned = np.where(places >= 0, bins[places], -1)
        smooth = ((residual - out_of_fold(binned, residual, weight, BINS, folds)) ** 2).sum(1)
        without = min(none, smooth, key=lambda squares: float(np.average(squares, weights=weight)))
    gain = without - ((residual - out_of_fold(places, residual, weight, count, folds)) ** 2).sum(1)
    mean, whole = float(np.average(gain, weights=weight)), float(np.average(none, weights=weight))
    w = np.ones(len(gain)) if weight is None else weight
    error = float(np.sqrt(((w * (gain - mean)) ** 2).sum()) / w.sum())
    return mean > LEAST_GAIN * whole and mean > LEAST_ERRORS * error

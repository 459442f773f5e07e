"""How good predictions are: metrics with confidence intervals, calibration, confusion, residuals.

An interval is the value and two (1.96) standard errors to either side, from the influence of every row on the metric,

    metric(rows) - metric = mean of psi(row) + smaller terms,     standard error = sd(psi) / sqrt(n)

which needs no resampling; that of the accuracy is Wilson's, which holds near 0 and 1 too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cofrnet.explain.data import Explanation, text_table
from cofrnet.explain.subject import evenly

__all__ = ["Metric", "Quality", "quality_of_classes", "quality_of_numbers"]

Floats = NDArray[np.floating[Any]]

Z = 1.96
BINS = 10
POINTS = 2000  # of a residual plot


@dataclass(frozen=True, eq=False)
class Metric(Explanation):
    """A figure with its 95 % interval; `constant` is what the best constant prediction gets on the same rows."""

    name: str
    value: float
    low: float
    high: float
    constant: float
    more_is_better: bool


@dataclass(frozen=True, eq=False)
class Quality(Explanation):
    """How good predictions of some rows are.

    For classes: confusion (C, C), rows that are of one class and were predicted as another; calibration (C, B, 3), of
    each class and bin the mean predicted probability, the share of rows that are of the class, and how many rows.
    For numbers: points (at most 2000, q, 2), predicted and actual. What does not apply is empty.
    """

    n_rows: int
    metrics: tuple[Metric, ...]
    class_names: tuple[str, ...]
    confusion: NDArray[np.int64]
    calibration: Floats
    points: Floats
    definition: str = "95 % intervals, from the influence of every row on the metric (too narrow for very few rows)"

    def __getitem__(self, name: str) -> Metric:
        """The metric of that name."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(f"there is no metric {name!r}; there are {[metric.name for metric in self.metrics]}.")

    def columns(self) -> dict[str, Any]:
        """One line for each metric."""
        return {
            "metric": [m.name for m in self.metrics],
            **{part: [getattr(m, part) for m in self.metrics] for part in ("value", "low", "high", "constant")},
        }

    def __str__(self) -> str:
        """The metrics."""
        rows = [(m.name, f"{m.value:.4g}", f"{m.low:.4g} to {m.high:.4g}", f"{m.constant:.4g}") for m in self.metrics]
        titles = ("metric", "value", "95 % interval", "constant prediction")
        return "\n".join([f"{self.n_rows} rows; {self.definition}", "", *text_table(titles, rows)])


def quality_of_classes(probabilities: Floats, y: NDArray[np.int64], class_names: Sequence[str]) -> Quality:
    """Of probabilities (n, C) for the classes y (n,), given by position."""
    n, count = probabilities.shape
    predicted = probabilities.argmax(1) if count > 2 else (probabilities[:, 1] > 0.5).astype(np.int64)
    shares = np.bincount(y, minlength=count) / n
    own = np.maximum(probabilities[np.arange(n), y], 1e-15)
    correct = (predicted == y).astype(float)
    losses = -np.log(own)
    squares = ((probabilities - np.eye(count)[y]) ** 2).sum(1) / (2 if count == 2 else 1)
    squared_shares = float((shares**2).sum())
    brier = (1 - squared_shares) / (2 if count == 2 else 1)
    entropy = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    metrics = [
        Metric("accuracy", float(correct.mean()), *_wilson(correct), float(shares.max()), True),
        _metric("log-loss", float(losses.mean()), losses - losses.mean(), entropy, False, (0, math.inf)),
        _metric("Brier score", float(squares.mean()), squares - squares.mean(), brier, False, (0, math.inf)),
    ]
    if (shares > 0).all():
        recalls = np.bincount(y, weights=correct, minlength=count) / (shares * n)
        influence = (correct - recalls[y]) / shares[y] / count
        metrics.append(_metric("balanced accuracy", float(recalls.mean()), influence, 1 / count, True, (0, 1)))
        if count == 2:
            metrics.append(_auc(probabilities[:, 1], y))
    confusion = np.bincount(y * count + predicted, minlength=count**2).reshape(count, count)
    return Quality(
        n, tuple(metrics), tuple(class_names), confusion, _calibration(probabilities, y), np.zeros((0, 0, 2))
    )


def quality_of_numbers(predicted: Floats, actual: Floats, names: Sequence[str] = ()) -> Quality:
    """Of predictions (n, q) of targets (n, q); metrics are named after the targets where there are several."""
    n, q = actual.shape
    metrics = []
    for c in range(q):
        suffix = f" of {names[c]}" if q > 1 else ""
        error, y = predicted[:, c] - actual[:, c], actual[:, c]
        squares, size, spread = error**2, np.abs(error), (y - y.mean()) ** 2
        mse, variance = float(squares.mean()), float(spread.mean())
        rmse, mae = math.sqrt(mse), float(size.mean())
        if variance > 0:
            ratio = mse / variance
            influence = ratio - squares / variance + ratio * (spread / variance - 1)
            metrics.append(_metric(f"R²{suffix}", 1 - ratio, influence, 0.0, True, (-math.inf, 1)))
        of_rmse = (squares - mse) / (2 * rmse) if rmse > 0 else np.zeros(n)
        metrics.append(_metric(f"RMSE{suffix}", rmse, of_rmse, math.sqrt(variance), False, (0, math.inf)))
        constant = float(np.abs(y - np.median(y)).mean())
        metrics.append(_metric(f"MAE{suffix}", mae, size - mae, constant, False, (0, math.inf)))
    some = evenly(n, POINTS)
    points = np.stack([predicted[some], actual[some]], axis=-1)
    return Quality(n, tuple(metrics), (), np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0, 3)), points)


def _metric(
    name: str, value: float, influence: Floats, constant: float, more: bool, ends: tuple[float, float]
) -> Metric:
    error = Z * float(influence.std()) / math.sqrt(len(influence))
    low, high = max(value - error, ends[0]), min(value + error, ends[1])
    return Metric(name, value, low, high, constant, more)


def _wilson(correct: Floats) -> tuple[float, float]:
    n, share = len(correct), float(correct.mean())
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _auc(score: Floats, y: NDArray[np.int64]) -> Metric:
    """Area under the ROC curve: how often a row of the second class has the higher probability; ties count half."""
    positive = y == 1
    within, overall = np.empty(len(y)), rankdata(score)
    for side in (positive, ~positive):
        within[side] = rankdata(score[side])
    others = np.where(positive, (~positive).sum(), positive.sum())
    below = (overall - within) / others  # share of the other class's rows that lie below
    value = float(below[positive].mean())
    won = np.where(positive, below, 1 - below)
    influence = (won - value) / np.where(positive, positive.mean(), (~positive).mean())
    return _metric("AUC", value, influence, 0.5, True, (0, 1))


def _calibration(probabilities: Floats, y: NDArray[np.int64]) -> Floats:
    """Bins of as many rows each, by probability. Returns (C, B, 3)."""
    n, count = probabilities.shape
    edges = np.linspace(0, n, min(BINS, n) + 1).astype(int)
    found = np.zeros((count, len(edges) - 1, 3))
    for c in range(count):
        own, inverse, counts = np.unique(probabilities[:, c], return_inverse=True, return_counts=True)
        shares = np.bincount(inverse, weights=y == c) / counts  # rows of one probability are alike
        order = np.argsort(probabilities[:, c], kind="stable")
        sizes = np.diff(edges)
        for part, values in enumerate((own[inverse[order]], shares[inverse[order]])):
            found[c, :, part] = np.add.reduceat(values, edges[:-1]) / sizes
        found[c, :, 2] = sizes
    return found

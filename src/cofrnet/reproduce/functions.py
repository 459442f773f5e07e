"""Table "synperf" and Figure 3: a single ladder fitted to 300 points of each of ten functions of two variables.

Methods, each with as many parameters as the supplement counts:

- "CoFrNet-F, paper": one full ladder, clamp with epsilon 0.1, Adam, min-max scaling: the paper's setting.
- "CoFrNet-F, ours": one full ladder, the smooth reciprocal, Levenberg-Marquardt from many starts, then reweighted for
  the absolute error, which MAPE is.
- "MLP, Adam" and "MLP, second order": tanh networks of the same depth, their width that which brings the count of
  parameters nearest; Adam from as many starts, and the same Levenberg-Marquardt. "One wider" has more parameters than
  the ladder.

MAPE is the mean absolute error in percent of the range of the values, on the 300 points and on 3000 fresh ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.datasets import FUNCTIONS, Function
from cofrnet.estimators import CoFrNetRegressor
from cofrnet.training import levenberg_marquardt

__all__ = ["PAPER", "coefficients", "figure3_tasks", "fit_function", "synperf_tasks"]

# MAPE as the paper prints it: CoFrNet-F, MLP.
PAPER = {
    "Beale": (16.512, 19.480),
    "Goldstein-Price": (12.045, 20.966),
    "Booth": (11.885, 21.932),
    "Cross-in-tray": (9.926, 5.591),
    "Three-hump camel": (36.250, 37.315),
    "Himmelblau": (25.545, 34.420),
    "Bukin N.6": (20.073, 40.795),
    "Matyas": (7.311, 15.525),
    "Lévi N.13": (24.873, 28.751),
    "Rosenbrock": (13.080, 44.520),
}
METHODS = ("CoFrNet-F, paper", "CoFrNet-F, ours", "MLP, Adam", "MLP, second order", "MLP one wider, second order")
POINTS, FRESH = 300, 3000
STARTS, ADAM_STEPS = 50, 3000


def synperf_tasks(seeds: int = 10) -> Iterator[dict[str, Any]]:
    """What is to be run."""
    for seed in range(seeds):
        for name in FUNCTIONS:
            for method in METHODS:
                yield {"function": name, "method": method, "seed": seed}


def depth_of(function: Function) -> int:
    """Depth of the ladder: the degree, six for what is no polynomial."""
    return function.degree or 6


def width_of(depth: int) -> int:
    """Width of the MLP whose count of parameters is nearest to that of one ladder, by the supplement's formulas.

    A ladder of our depth d counts p (d + 1) + 1, an MLP of the same depth p L + d L^2 + L, the constant being one of
    the p = 3 inputs.
    """
    ladder = 3 * (depth + 1) + 1
    return min(range(1, 10), key=lambda width: abs(3 * width + depth * width**2 + width - ladder))


def mape(predicted: NDArray[Any], actual: NDArray[Any]) -> float:
    """Mean absolute error in percent of the range."""
    return float(100 * np.abs(predicted - actual).mean() / np.ptp(actual))


def fit_function(function: str, method: str, seed: int) -> dict[str, float]:
    """MAPE on the points and on fresh ones, parameters, seconds."""
    own = FUNCTIONS[function]
    X, y = own.sample(POINTS, seed)
    fresh = own.sample(FRESH, seed + 1000)
    started = time.perf_counter()
    if method.startswith("MLP"):
        width = width_of(depth_of(own)) + ("wider" in method)
        model: Any = _MLP(depth_of(own), width, second_order="second order" in method).fit(X, y, own, seed)
    else:
        model = _ladder(own, method, seed).fit(X, y)
    seconds = time.perf_counter() - started
    return {
        "train": mape(model.predict(X), y),
        "fresh": mape(model.predict(fresh[0]), fresh[1]),
        "parameters": model.n_parameters if method.startswith("MLP") else model.model_.spec.n_parameters,
        "seconds": seconds,
    }


def _ladder(function: Function, method: str, seed: int) -> Any:
    given: dict[str, Any] = {
        "variant": "F",
        "n_ladders": 1,
        "depth": depth_of(function),
        "n_members": 1,
        "scaling": "minmax",
        "early_stopping": False,
        "random_state": seed,
    }
    if method.endswith("paper"):
        return CoFrNetRegressor(pole="clamp", epsilon=0.1, solver="adamw", max_epochs=1000, batch_size=64, **given)
    return _ManyStarts(**given)


class _ManyStarts:
    """The best on its own points of several second-order fits, each of many starts."""

    def __init__(self, random_state: int, **given: Any) -> None:
        self.seed, self.given = random_state, given

    def fit(self, X: Any, y: Any) -> Any:
        fits = (
            CoFrNetRegressor(
                solver="least_squares", loss="absolute_error", random_state=1000 * self.seed + i, **self.given
            ).fit(X, y)
            for i in range(3)
        )
        return min(fits, key=lambda fitted: mape(fitted.predict(X), y))


class _MLP:
    """tanh networks of one shape from many starts side by side; the best on the points is kept."""

    def __init__(self, depth: int, width: int, second_order: bool) -> None:
        self.shapes = [(2, width), *[(width, width)] * depth, (width, 1)]
        self.second_order = second_order
        self.n_parameters = sum(a * b + b for a, b in self.shapes)

    def fit(self, X: NDArray[Any], y: NDArray[Any], function: Function, seed: int) -> _MLP:
        low, high = np.array(function.box).T
        self._scaled = partial(_to_unit, low=low, high=high)
        self._mean, self._spread = float(y.mean()), float(y.std())
        x, target = self._scaled(X), torch.tensor((y - self._mean) / self._spread)
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for a, b in self.shapes:
            weight = torch.randn(STARTS, a * b, generator=generator, dtype=torch.float64) * (5 / 3) / a**0.5
            parts += [weight, 0.3 * torch.randn(STARTS, b, generator=generator, dtype=torch.float64)]
        theta = torch.cat(parts, 1)
        fitted = self._by_curvature(theta, x, target) if self.second_order else self._by_adam(theta, x, target)
        losses = (self._scores(fitted, x) - target).abs().mean(1)
        self.theta = fitted[losses.nan_to_num(float("inf")).argmin()][None]
        return self

    def _scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """Shapes: theta (members, parameters), x (n, 2); returns (members, n)."""
        found, at = x.expand(len(theta), -1, -1), 0
        for i, (a, b) in enumerate(self.shapes):
            weight = theta[:, at : at + a * b].view(-1, a, b)
            found = torch.baddbmm(theta[:, None, at + a * b : at + a * b + b], found, weight)
            found = found if i == len(self.shapes) - 1 else found.tanh()
            at += a * b + b
        return found.squeeze(-1)

    def _by_curvature(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        def one(own: Tensor, row: Tensor) -> Tensor:
            return self._scores(own[None], row[None])[0, 0]

        slope = torch.func.vmap(torch.func.vmap(torch.func.grad(one), (None, 0)), (0, None))
        with torch.no_grad():
            return levenberg_marquardt(theta, lambda t: self._scores(t, x), lambda t: slope(t, x), y)[0]

    def _by_adam(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        theta = theta.clone().requires_grad_()
        optimizer = torch.optim.Adam([theta], lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ADAM_STEPS)
        for _ in range(ADAM_STEPS):
            optimizer.zero_grad()
            (self._scores(theta, x) - y).square().mean(1).sum().backward()
            optimizer.step()
            schedule.step()
        return theta.detach()

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            return self._scores(self.theta, self._scaled(X))[0].numpy() * self._spread + self._mean


def _to_unit(X: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> Tensor:
    return torch.tensor(2 * (X - low) / (high - low) - 1)


# ---------------------------------------------------------------------------------------------- Figure 3


TRUE_TERMS: dict[str, dict[tuple[int, ...], float]] = {
    "Matyas": {(2, 0): 0.26, (0, 2): 0.26, (1, 1): -0.48},
    "Rosenbrock": {(0, 0): 1.0, (1, 0): -2.0, (2, 0): 1.0, (0, 2): 100.0, (2, 1): -200.0, (4, 0): 100.0},
}
# As the paper prints them, divided by the largest.
PAPER_TERMS: dict[str, dict[tuple[int, ...], float]] = {
    "Matyas": {(2, 0): 0.56, (0, 2): 0.44, (1, 1): -1.0, (1, 0): 0.06, (0, 1): -0.07, (0, 0): -0.01},
    "Rosenbrock": {
        (0, 0): 0.002, (1, 0): -0.01, (2, 0): 0.008, (2, 1): -0.01, (4, 0): 1.0, (3, 0): -0.279, (3, 1): 0.09,
    },
}  # fmt: skip
FIGURE_BOX = (-1.0, 1.0)


def figure3_tasks() -> Iterator[dict[str, Any]]:
    """What is to be run."""
    for name in TRUE_TERMS:
        yield {"function": name, "seed": 0}


def coefficients(function: str, seed: int = 0) -> dict[str, Any]:
    """The power series of a fitted model about 0 beside the true coefficients, each divided by the largest true one;
    and the slopes at 0 (IC) beside the linear terms.

    Six ladders of depth 2: a ladder is no polynomial, and a sum of them comes nearer to one.
    """
    own = FUNCTIONS[function]
    X = np.random.default_rng(seed).uniform(*FIGURE_BOX, (POINTS, 2))
    y = own.value(*X.T)
    model = CoFrNetRegressor(
        variant="F",
        n_ladders=6,
        depth=2,
        scaling="minmax",
        early_stopping=False,
        solver="least_squares",
        random_state=seed,
    ).fit(X, y)
    truth = TRUE_TERMS[function]
    degree = max(map(sum, truth))
    zero = np.zeros((1, 2))
    series = model.power_series(degree, center=zero)
    largest = max(map(abs, truth.values()))
    slopes = model.explain_local(zero, method="gradient").values[0, 0]
    return {
        "terms": [
            {
                "powers": list(powers),
                "true": truth.get(powers, 0.0) / largest,
                "found": float(value) / largest,
                "paper": PAPER_TERMS[function].get(powers),
            }
            for powers, value in series.terms.items()
        ],
        "ic": (slopes / largest).tolist(),
        "train": mape(model.predict(X), y),
    }

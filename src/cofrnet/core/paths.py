"""Ladders along a straight path: the mean of their sensitivities between two points.

On the way from a to b every partial denominator is linear in the path parameter, so that the gradient integrated along
it, for however many features, is d+1 one-dimensional integrals per ladder:

    f(b) - f(a) = sum_k (b_k - a_k) S_k,     S_k = integral of df/da_k over a + u (b - a), u from 0 to 1
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from cofrnet.core.ladder import fused_kernels, sensitivities, tails, wants_gradient
from cofrnet.core.poles import reciprocal, resolve_pole, slope

__all__ = ["mean_sensitivities", "secant_sensitivities"]

AT_ONCE = 16  # nodes, where there is no fused kernel: so many times the memory of the partial denominators


def mean_sensitivities(
    a: Tensor, b: Tensor, nodes: int = 16, pole: str = "smooth", epsilon: float | Tensor | None = None
) -> Tensor:
    """Mean of the sensitivities between a and b, by the Gauss-Legendre rule with that many nodes.

    Its error falls exponentially with the nodes where the path stays away from poles. A clamped ladder may jump where
    a tail changes sign, which no such rule sees: see `secant_sensitivities`.

    a, b : (d+1, ...), or shapes that broadcast to it. Returns (d+1, ...), differentiable.
    """
    kind, epsilon = resolve_pole(pole, epsilon)
    points, shares = _gauss_legendre(nodes)
    step = _difference(b, a)
    a, b = a.expand_as(step), b.expand_as(step)
    kernels = None if isinstance(epsilon, Tensor) or wants_gradient(a, b) else fused_kernels(a, b)
    if kernels is None:
        total = torch.zeros_like(a)
        for first in range(0, nodes, AT_ONCE):
            some = slice(first, first + AT_ONCE)
            u, share = (a.new_tensor(v[some]).view(-1, *[1] * (a.ndim - 1)) for v in (points, shares))
            on_the_way = a.unsqueeze(1) + u * step.unsqueeze(1)  # (d+1, nodes, ...)
            total = total + (share * sensitivities(on_the_way, kind, epsilon)).sum(1)
        return total
    shape = (1, len(a), -1)
    numbers = (torch.tensor(values, dtype=a.dtype) for values in (points, shares))
    start, step = a.detach().contiguous().view(shape), step.detach().contiguous().view(shape)
    mean: Tensor = kernels.integrated_sensitivities(start, step, *numbers, epsilon, kind == "smooth")
    return mean.view(a.shape)


def secant_sensitivities(
    a: Tensor, b: Tensor, steps: int = 1, pole: str = "smooth", epsilon: float | Tensor | None = None
) -> Tensor:
    """Sensitivities that account for the whole difference f(b) - f(a), whatever lies between.

        S_k = rho_1 rho_2 ... rho_k,     rho_i = (r(t_i(b)) - r(t_i(a))) / (t_i(b) - t_i(a))

    satisfy f(b) - f(a) = sum_k (b_k - a_k) S_k to rounding, even across a jump, because t_k(b) - t_k(a) is
    b_k - a_k + rho_{k+1} (t_{k+1}(b) - t_{k+1}(a)). With several steps, the mean over equal parts of the path, which
    goes to that of `mean_sensitivities` as the square of their number.

    a, b : (d+1, ...). Returns (d+1, ...).
    """
    kind, epsilon = resolve_pole(pole, epsilon)
    total, step = torch.zeros_like(a), _difference(b, a)
    here = tails(a, kind, epsilon)
    for i in range(1, steps + 1):
        there = tails(a + i / steps * step, kind, epsilon)
        change = _difference(there, here)
        still = (change.abs() <= 1e-6 * (1 + there.abs())) & ((here < 0) == (there < 0))
        quotient = (reciprocal(there, kind, epsilon) - reciprocal(here, kind, epsilon)) / torch.where(still, 1, change)
        rho = torch.where(still, slope((here + there) / 2, kind, epsilon), quotient)
        total += torch.stack(list(accumulate([torch.ones_like(rho[0]), *rho[1:]], torch.mul)))
        here = there
    return total / steps


def _difference(b: Tensor, a: Tensor) -> Tensor:
    """b - a, and 0 where both are the infinity of a rung that is not there."""
    return torch.where(a == b, 0.0, b - a)


@cache
def _gauss_legendre(nodes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes in (0, 1) and weights that sum to 1."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return tuple(((points + 1) / 2).tolist()), tuple((weights / 2).tolist())

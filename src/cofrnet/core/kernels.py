"""The ladder operation fused for the CPU, on tensors; autograd is the caller's.

The compiled code is in `strips`, and that of other operations in the modules beside it. The reference in
`ladder` gives the same numbers to rounding. This module needs numba and is imported on first use only; what is compiled
is cached on disk.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cofrnet.compiled import descent, scores, strips
from cofrnet.compiled.bags import add_bag_gradients, bag_sums, prepare_bags
from cofrnet.compiled.channels import bend, bend_gradients, moments, prepare_channels
from cofrnet.compiled.jit import Array
from cofrnet.compiled.vectors import adamw, clip, prepare_vectors

__all__ = [
    "adamw",
    "add_bag_gradients",
    "bag_sums",
    "bend",
    "bend_gradients",
    "clip",
    "feature_gradients",
    "feature_slopes",
    "feature_values",
    "integrated_sensitivities",
    "moments",
    "prepare",
    "sensitivity_products",
    "value",
]


def _arrays(*tensors: Tensor) -> list[Any]:
    return [t.detach().contiguous().numpy() for t in tensors]


def _by_rung(a: Tensor, axis: int) -> Array:
    """Partial denominators whose rung axis is `axis`, as (outer, rungs, inner)."""
    return a.detach().contiguous().numpy().reshape(math.prod(a.shape[:axis]), a.shape[axis], -1)


def value(a: Tensor, epsilon: float, smooth: bool, first: bool = True, axis: int = 1) -> Tensor:
    """Value of every ladder; the rung axis of `a` is `axis`. Returns the shape of `a` without it.

    Without `first`, `a` holds rungs 1 to d, and rung 0 is 0.
    """
    f = torch.empty(a.shape[:axis] + a.shape[axis + 1 :], dtype=a.dtype)
    rungs = _by_rung(a, axis)
    strips.value(epsilon, smooth, rungs, f.numpy().reshape(len(rungs), -1), first)
    return f


def sensitivity_products(
    g: Tensor, a: Tensor, epsilon: float, smooth: bool, first: bool = True, axis: int = 1
) -> Tensor:
    """g times the sensitivities df/da_k, in the shape of `a`; the rung axis of `a` is `axis`, g is without it.

    Without `first`, `a` holds rungs 1 to d, and rung 0 is 0.
    """
    result = torch.empty(a.shape, dtype=a.dtype)
    rungs = _by_rung(a, axis)
    factors = g.detach().contiguous().numpy().reshape(len(rungs), -1)
    strips.sensitivity_products(epsilon, smooth, factors, rungs, result.numpy().reshape(rungs.shape), first)
    return result


def feature_values(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, smooth: bool) -> Tensor:
    """Value of single-feature ladders, a_k = w_k x_j + b_k.

    Shapes: x (p, n), weight and bias (members, d+1, p, m); returns (members, p, m, n).
    """
    members, _, p, m = weight.shape
    f = torch.empty((members, p, m, x.shape[1]), dtype=x.dtype)
    strips.feature_values(epsilon, smooth, *_arrays(x, weight, bias, f))
    return f


def feature_gradients(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    smooth: bool,
    with_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of sum(g f) by x, weight and bias; without `with_x` the first is empty.

    Shapes: g (members, p, m, n), the others as in `feature_values`.
    """
    by_x = torch.zeros(x.shape if with_x else (len(x), 0), dtype=x.dtype)
    by_weight, by_bias = torch.empty_like(weight), torch.empty_like(bias)
    strips.feature_gradients(epsilon, smooth, *_arrays(g, x, weight, bias, by_x, by_weight, by_bias))
    return by_x, by_weight, by_bias


def feature_slopes(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, smooth: bool) -> Tensor:
    """Derivative of single-feature ladders by their feature; shapes as in `feature_values`."""
    members, _, p, m = weight.shape
    f = torch.empty((members, p, m, x.shape[1]), dtype=x.dtype)
    strips.feature_slopes(epsilon, smooth, *_arrays(x, weight, bias, f))
    return f


def integrated_sensitivities(
    a: Tensor, step: Tensor, nodes: Tensor, shares: Tensor, epsilon: float, smooth: bool
) -> Tensor:
    """Sum over nodes of share times the sensitivities at a + node * step.

    Shapes: a and step (outer, d+1, inner), contiguous; nodes and shares (count,); returns the shape of a.
    """
    out = torch.empty_like(a)
    strips.integrated_sensitivities(epsilon, smooth, *_arrays(a, step, nodes, shares, out))
    return out


def prepare(*kinds: str) -> None:
    """Compile the float32 kernels of these kinds of data, or load them from disk, so that no later call has to."""
    strips.prepare_strips()
    prepare_vectors()
    if "table" in kinds:
        scores.prepare_scores()
        descent.prepare_descent()
    if "text" in kinds:
        prepare_bags()
    if "image" in kinds:
        prepare_channels()

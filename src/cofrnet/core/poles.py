"""The reciprocal r(t) made safe against poles, with its first two derivatives.

    kind        r(t)                                        r'(t)
    "smooth"    t/(t^2 + eps^2) = Re 1/(t + i eps)          (eps^2 - t^2)/(t^2 + eps^2)^2
    "clamp"     sgn(t)/max(|t|, eps),  sgn(0) = +1          -1/t^2 where |t| >= eps, else 0

At the edges both kinds agree on r(+-inf) = 0 with slope 0, and NaN goes through as NaN.
At t = 0 the smooth reciprocal is 0 with slope 1/eps^2, the clamped one is 1/eps with slope 0.
Nothing here can return an infinity: |r| <= 1/(2 eps) for smooth and |r| <= 1/eps for clamp.

Paper: Section 4, "Handling Poles", for the clamp. The smooth kind is ours.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cofrnet.compiled.settings import DEFAULT_EPSILON, Pole, with_epsilon

__all__ = ["DEFAULT_EPSILON", "Pole", "curvature", "is_clamped", "reciprocal", "resolve_pole", "slope"]


def resolve_pole(pole: str, epsilon: float | Tensor | None) -> tuple[Pole, float | Tensor]:
    """The pole kind and its epsilon, checked; ``epsilon=None`` takes the default of the kind.

    A tensor epsilon (a learned one) is returned as it is: its values belong to whoever trains it.
    """
    if isinstance(epsilon, Tensor):
        return with_epsilon(pole)[0], epsilon
    return with_epsilon(pole, epsilon)


# The |t| from which t^2 + eps^2 might overflow and equals t^2 to rounding: there r(t) = 1/t.
FAR = {
    dtype: 0.5 * math.sqrt(torch.finfo(dtype).max)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}


def _smooth_parts(t: Tensor, epsilon: float | Tensor) -> tuple[Tensor, Tensor]:
    """r = t q and q = 1/(t^2 + eps^2); where t^2 would overflow, r = 1/t and q = r^2.

    Each branch is fed a harmless 1 where the other one is taken, so that autograd sees no inf * 0.
    """
    is_far = t.abs() >= FAR[t.dtype]
    near = torch.where(is_far, torch.ones_like(t), t)
    q = 1 / (near * near + epsilon * epsilon)
    r_far = 1 / torch.where(is_far, t, torch.ones_like(t))
    return torch.where(is_far, r_far, near * q), torch.where(is_far, r_far * r_far, q)


def is_clamped(t: Tensor, pole: Pole, epsilon: float | Tensor) -> Tensor:
    """True where the clamp acts, |t| < eps; nowhere for the smooth kind."""
    if pole == "smooth":
        return torch.zeros_like(t, dtype=torch.bool)
    return t.abs() < epsilon


def reciprocal(t: Tensor, pole: Pole, epsilon: float | Tensor) -> Tensor:
    """r(t), elementwise, differentiable by autograd in t and in a tensor epsilon."""
    if pole == "smooth":
        return _smooth_parts(t, epsilon)[0]
    sign = torch.where(t < 0, -torch.ones_like(t), torch.ones_like(t))
    size = t.abs()
    if isinstance(epsilon, Tensor):
        return sign / torch.where(size < epsilon, epsilon, size)  # NaN < eps is false: NaN stays
    return sign / size.clamp_min(epsilon)


def slope(t: Tensor, pole: Pole, epsilon: float | Tensor) -> Tensor:
    """r'(t), elementwise: q - 2 r^2 for the smooth kind, -r^2 or 0 for the clamp."""
    if pole == "smooth":
        r, q = _smooth_parts(t, epsilon)
        return q - 2 * r * r
    r = reciprocal(t, pole, epsilon)
    return torch.where(is_clamped(t, pole, epsilon), torch.zeros_like(t), -r * r)


def curvature(t: Tensor, pole: Pole, epsilon: float | Tensor) -> Tensor:
    """r''(t), elementwise: 2 r (4 r^2 - 3 q) for the smooth kind, 2 r^3 or 0 for the clamp."""
    if pole == "smooth":
        r, q = _smooth_parts(t, epsilon)
        return 2 * r * (4 * r * r - 3 * q)
    r = reciprocal(t, pole, epsilon)
    return torch.where(is_clamped(t, pole, epsilon), torch.zeros_like(t), 2 * r * r * r)

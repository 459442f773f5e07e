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
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

__all__ = ["DEFAULT_EPSILON", "Pole", "curvature", "is_clamped", "reciprocal", "resolve_pole", "slope"]

Pole: TypeAlias = Literal["smooth", "clamp"]

DEFAULT_EPSILON: dict[Pole, float] = {"smooth": 1.0, "clamp": 0.1}

# Inside this range eps^2, 1/eps^2 and the curvature ~ 1/eps^3 are ordinary float32 numbers.
_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-12, 1e6


def resolve_pole(pole: str, epsilon: float | Tensor | None) -> tuple[Pole, float | Tensor]:
    """The pole kind and its epsilon, checked; ``epsilon=None`` takes the default of the kind.

    A tensor epsilon (a learned one) is returned as it is: its values belong to whoever trains it.
    """
    if pole not in get_args(Pole):
        raise ValueError(f"pole must be 'smooth' or 'clamp'; got pole={pole!r}. Choose one of the two.")
    kind: Pole = "smooth" if pole == "smooth" else "clamp"
    if epsilon is None:
        return kind, DEFAULT_EPSILON[kind]
    if isinstance(epsilon, Tensor):
        return kind, epsilon
    value = float(epsilon)
    if not _SMALLEST_EPSILON <= value <= _LARGEST_EPSILON:  # NaN fails here too
        raise ValueError(
            f"epsilon must lie in [{_SMALLEST_EPSILON:g}, {_LARGEST_EPSILON:g}]; got epsilon={epsilon!r}. "
            f"The default for pole={kind!r} is {DEFAULT_EPSILON[kind]:g}."
        )
    return kind, value


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

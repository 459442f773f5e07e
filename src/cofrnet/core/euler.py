"""Euler's continued fractions: ladders with numerators that are polynomials, the paper's representation theorem.

Everything here works over anything that has + and * (and / for a value): tensors, `fractions.Fraction`, SymPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cofrnet.errors import PoleError

__all__ = ["EulerLadder", "euler_form", "fraction", "polynomial_ladders"]


def fraction(numerators: Sequence[Any], denominators: Sequence[Any]) -> Any:
    """Value of the continued fraction with partial numerators b and denominators c.

        b_0/(c_0 + b_1/(c_1 + ... + b_d/c_d))

    by the forward recurrence P_k = c_k P_{k-1} + b_k P_{k-2} and the same for Q, with one division P/Q at the end: no
    pole of an inner tail can harm it. Where Q = 0 the value does not exist: `PoleError`.
    """
    if len(numerators) != len(denominators) or not numerators:
        raise ValueError(
            f"a fraction must have as many numerators as denominators, one or more; got {len(numerators)} and "
            f"{len(denominators)}. Pair them."
        )
    p_before, p, q_before, q = 1, 0, 0, 1
    for b, c in zip(numerators, denominators, strict=True):
        p_before, p = p, c * p + b * p_before
        q_before, q = q, c * q + b * q_before
    vanishes: Any = q == 0
    if vanishes.any() if hasattr(vanishes, "any") else vanishes:
        raise PoleError("the last denominator of a continued fraction must not vanish; got 0. Move the point.")
    return p / q


def euler_form(factors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Numerators and denominators of the fraction that equals a sum of products.

        a_0/(1 - a_1/(1+a_1 - a_2/(1+a_2 - ... a_d/(1+a_d)))) = a_0 + a_0 a_1 + ... + a_0 a_1 ... a_d

    All its denominators Q_k are identically 1: it has no pole anywhere.

    Paper: proof of Theorem 2.
    """
    first, *rest = factors
    return [first, *(-a for a in rest)], [1, *(1 + a for a in rest)]


@dataclass(frozen=True)
class EulerLadder:
    """A ladder in Euler's form whose factors are a constant and features: c + c x_i + c x_i x_j + ..."""

    constant: Any
    features: tuple[int, ...]

    def __call__(self, x: Sequence[Any]) -> Any:
        """Value at the features `x`, a sequence with one entry a feature."""
        return fraction(*euler_form([self.constant, *(x[j] for j in self.features)]))


def polynomial_ladders(terms: Mapping[tuple[int, ...], Any]) -> list[EulerLadder]:
    """Ladders in Euler's form whose sum is the polynomial with these terms, {exponents: coefficient}.

    Each monomial is the difference of two ladders, one a rung longer than the other; a constant is one ladder of depth
    0. With m terms there are at most 2 m ladders, each as deep as the degree of its term.

    Paper: Theorem 2.
    """
    ladders = []
    for exponents, coefficient in terms.items():
        features = tuple(j for j, power in enumerate(exponents) for _ in range(power))
        ladders.append(EulerLadder(coefficient, features))
        if features:
            ladders.append(EulerLadder(-coefficient, features[:-1]))
    return ladders

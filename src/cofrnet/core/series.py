"""Truncated multivariate power series: polynomials in v variables of which only some monomials are kept.

A series is an array of coefficients (..., T), one for each monomial of `Terms`; the leading axes are a batch. Sums are
sums of arrays; `Terms.product` multiplies and drops what is not kept; `reciprocal` is r of a series, by the Taylor
coefficients of r at its constant term; with it a ladder of series is a series. Coefficients are float64, or of dtype
object for exact numbers (`fractions.Fraction`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cofrnet.core.poles import Pole

__all__ = ["Terms", "ladder_series", "reciprocal"]

Coefficients = NDArray[Any]

MOST_TERMS, MOST_PRODUCTS, MOST_ORDER = 250_000, 20_000_000, 100
AT_ONCE = 2**22  # products held at a time


@dataclass(frozen=True)
class Terms:
    """The monomials that are kept: of total degree up to `order`, or with every exponent up to `order`.

    Parameters
    ----------
    variables : int
    order : int
    kind : {"total", "each"}
        "each" is the paper's truncation, Series[f, {x_1, 0, d}, ..., {x_v, 0, d}].
    """

    variables: int
    order: int
    kind: Literal["total", "each"] = "total"

    def __post_init__(self) -> None:
        if self.order < 0 or self.variables < 0 or self.kind not in ("total", "each"):
            raise ValueError(f"a series needs an order of 0 or more and kind 'total' or 'each'; got {self}.")
        v, order, count = self.variables, self.order, self.count
        products = math.comb(2 * v + order, order) if self.kind == "total" else count**2
        if count > MOST_TERMS or products > MOST_PRODUCTS or order > MOST_ORDER:
            raise ValueError(
                f"a series must have at most {MOST_TERMS} terms, {MOST_PRODUCTS} products of two, order {MOST_ORDER}; "
                f"got {count} terms and {products} products for order={order} in {v} variables. Lower the order, or "
                "name fewer features."
            )

    @property
    def count(self) -> int:
        """How many monomials are kept, T."""
        v, order = self.variables, self.order
        return math.comb(v + order, order) if self.kind == "total" else (order + 1) ** v

    def __len__(self) -> int:
        return self.count

    @cached_property
    def exponents(self) -> NDArray[np.int64]:
        """Of each variable in each monomial, (T, v), from the lowest degree to the highest; the first is 1."""
        v, order = self.variables, self.order
        if self.kind == "each":
            found = np.array(list(product(range(order + 1), repeat=v)), dtype=np.int64).reshape(-1, v)
            return found[np.argsort(found.sum(1), kind="stable")]
        tuples = list(combinations_with_replacement(range(v + 1), order))
        chosen = np.array(tuples, dtype=np.int64).reshape(len(tuples), order)
        found = np.zeros((len(chosen), v + 1), dtype=np.int64)  # the last column counts what is not chosen
        np.add.at(found, (np.arange(len(chosen))[:, None], chosen), 1)
        found = found[:, :v]
        return found[np.argsort(found.sum(1), kind="stable")]

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Total degree of each monomial, (T,)."""
        degrees: NDArray[np.int64] = self.exponents.sum(1)
        return degrees

    @property
    def highest(self) -> int:
        """The highest total degree."""
        return self.order if self.kind == "total" else self.order * self.variables

    @cached_property
    def _products(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """All pairs of monomials whose product is kept, sorted by it: first, second, and where each product starts."""
        exponents, degrees = self.exponents, self.degrees
        first, second = [], []
        for low in range(self.highest + 1):
            a = np.flatnonzero(degrees == low)
            b = np.flatnonzero(degrees <= self.highest - low)
            first.append(np.repeat(a, len(b)))
            second.append(np.tile(b, len(a)))
        left, right = np.concatenate(first), np.concatenate(second)
        places: dict[bytes, int] = {row.tobytes(): i for i, row in enumerate(exponents.astype(np.uint8))}
        small = exponents.astype(np.uint8)
        sums = small[left] + small[right]
        if self.kind == "each":
            kept = (sums <= self.order).all(1)
            left, right, sums = left[kept], right[kept], sums[kept]
        width, flat = self.variables, np.ascontiguousarray(sums).tobytes()
        target = np.zeros(len(left), dtype=np.int64)
        if width:
            found = (places[flat[i : i + width]] for i in range(0, len(flat), width))
            target = np.fromiter(found, np.int64, len(left))
        order = np.argsort(target, kind="stable")
        starts = np.searchsorted(target[order], np.arange(len(exponents)))
        return left[order], right[order], starts

    def constant(self, value: Any) -> Coefficients:
        """A constant series, or a batch of them: (...,) to (..., T)."""
        value = np.asarray(value)
        series = np.zeros((*value.shape, len(self)), dtype=value.dtype)
        series[..., 0] = value
        return series

    def linear(self, constant: Coefficients, slopes: Coefficients) -> Coefficients:
        """c + sum_j s_j x_j. Shapes: constant (...,), slopes (..., v); returns (..., T)."""
        series = self.constant(np.asarray(constant))
        if self.order > 0 and self.variables > 0:
            first = np.flatnonzero(self.degrees == 1)  # one for each variable
            series[..., first] = np.asarray(slopes)[..., self.exponents[first].argmax(1)]
        return series

    def product(self, a: Coefficients, b: Coefficients) -> Coefficients:
        """The product of two series of one batch, truncated. Shapes: (..., T)."""
        left, right, starts = self._products
        a, b = np.broadcast_arrays(a, b)
        shape = a.shape
        a, b = a.reshape(-1, shape[-1]), b.reshape(-1, shape[-1])
        out = np.empty(a.shape, dtype=a.dtype)
        rows = max(1, AT_ONCE // len(left))
        for i in range(0, len(a), rows):
            out[i : i + rows] = np.add.reduceat(a[i : i + rows, left] * b[i : i + rows, right], starts, axis=1)
        return out.reshape(shape)

    def evaluate(self, coefficients: Coefficients, x: Coefficients) -> Coefficients:
        """The polynomial at rows of variables. Shapes: coefficients (..., T), x (n, v); returns (..., n)."""
        monomials = np.ones((len(x), len(self)), dtype=x.dtype)
        powers = [np.ones_like(x)]
        for _ in range(self.order):
            powers.append(powers[-1] * x)
        for j in range(self.variables):
            column = np.stack([power[:, j] for power in powers])  # (order + 1, n)
            monomials *= column[self.exponents[:, j]].T
        return coefficients @ monomials.T


def _taylor(t: Coefficients, pole: Pole, epsilon: Any, highest: int) -> list[Coefficients]:
    """Taylor coefficients of r at t, up to the highest power.

    smooth: Re (-1)^m / (t + i eps)^(m+1);   clamp: (-1)^m / t^(m+1), and a constant where |t| < eps
    """
    found = []
    if pole == "smooth":
        size = t * t + epsilon * epsilon
        real, imaginary = t / size, -epsilon / size  # 1 / (t + i eps)
        re, im = real, imaginary
        for m in range(highest + 1):
            found.append(re if m % 2 == 0 else -re)
            re, im = re * real - im * imaginary, re * imaginary + im * real
        return found
    inside = np.abs(t) < epsilon
    safe = np.where(inside, np.where(t < 0, -epsilon, epsilon), t)
    inverse = 1 / safe
    power = inverse
    for m in range(highest + 1):
        value = power if m % 2 == 0 else -power
        found.append(value if m == 0 else np.where(inside, 0 * value, value))
        power = power * inverse
    return found


def reciprocal(terms: Terms, t: Coefficients, pole: Pole, epsilon: Any) -> Coefficients:
    """r of a series: the Taylor series of r at its constant term, of what is left of it. Shapes: (..., T)."""
    coefficients = _taylor(t[..., 0], pole, epsilon, terms.highest)
    rest = t.copy()
    rest[..., 0] = 0 * rest[..., 0]
    result = terms.constant(coefficients[-1])
    for value in coefficients[-2::-1]:
        result = terms.product(result, rest)
        result[..., 0] = result[..., 0] + value
    return result


def ladder_series(terms: Terms, a: Sequence[Coefficients], pole: Pole, epsilon: Any) -> Coefficients:
    """The series of ladders whose partial denominators are series: a_0 + r(a_1 + ... r(a_d)), each (..., T).

    A rung whose constant term is infinite ends the ladder above it.

    Paper: Section 3, "Interpretability using Power Series" (IPS).
    """
    t = a[-1]
    for rung in reversed(a[:-1]):
        first = t[..., 0]
        absent = np.array([isinstance(value, float) and math.isinf(value) for value in first.flat]).reshape(first.shape)
        one = np.full(first.shape, Fraction(1) if t.dtype == object else 1.0, dtype=t.dtype)
        finite = np.where(absent[..., None], terms.constant(one), t) if absent.any() else t
        r = reciprocal(terms, finite, pole, epsilon)
        t = rung + (np.where(absent[..., None], 0 * r, r) if absent.any() else r)
    return t


def exact(values: Any) -> Coefficients:
    """Floats as the exact fractions that they are, in an array of objects."""
    array = np.asarray(values, dtype=np.float64)
    out = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        out[index] = Fraction(float(array[index])) if math.isfinite(array[index]) else float(array[index])
    return out

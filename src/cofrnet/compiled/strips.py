"""The ladder operation compiled, on plain arrays: one pass over memory forward, one backward (numba).

Partial denominators come as a C-contiguous array of shape (outer, d+1, inner): the rung axis may stand anywhere in
memory, with `outer` elements before it and `inner` after. A *strip* is up to `STRIP` neighbours of the inner axis; all
rungs of a strip are worked through while it is in the first-level cache, so every number is read from and written to
memory once, whatever the depth. Strips are independent, which makes the result the same for any number of threads.

The rules for t = 0, +-inf and NaN are those of `poles`. Nothing here needs torch.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from cofrnet.compiled import team
from cofrnet.compiled.jit import STRIP, Array, jit, jit_sum
from cofrnet.compiled.vectors import dot

__all__ = [
    "feature_gradients",
    "feature_slopes",
    "feature_values",
    "integrated_sensitivities",
    "prepare_strips",
    "scalars",
    "sensitivity_products",
    "value",
]

# One rung of a strip: t <- (w x + b) + r(t), and with it the slope s = r'(t) for the backward pass. Where the partial
# denominators are there already, they are x, with w = 1 and b = 0.


@jit
def _smooth_rung(t: Array, x: Array, w: Any, b: Any, epsilon: Any, far: Any) -> None:
    one = epsilon / epsilon
    square = epsilon * epsilon
    for j in range(t.size):
        u = t[j]
        near = abs(u) < far
        t[j] = (w * x[j] + b) + (u if near else one) / (u * u + square if near else u)


@jit
def _clamp_rung(t: Array, x: Array, w: Any, b: Any, epsilon: Any) -> None:
    one = epsilon / epsilon
    for j in range(t.size):
        u = t[j]
        size = abs(u)
        r = one / (epsilon if size < epsilon else size)
        t[j] = (w * x[j] + b) + (-r if u < 0 else r)


@jit
def _smooth_rung_slope(t: Array, x: Array, w: Any, b: Any, s: Array, epsilon: Any, far: Any) -> None:
    one = epsilon / epsilon
    square = epsilon * epsilon
    for j in range(t.size):
        u = t[j]
        near = abs(u) < far
        inverse = one / (u * u + square if near else u)
        r = u * inverse if near else inverse
        q = inverse if near else inverse * inverse
        s[j] = q - (r + r) * r
        t[j] = (w * x[j] + b) + r


@jit
def _clamp_rung_slope(t: Array, x: Array, w: Any, b: Any, s: Array, epsilon: Any) -> None:
    one = epsilon / epsilon
    zero = epsilon - epsilon
    for j in range(t.size):
        u = t[j]
        size = abs(u)
        inside = size < epsilon
        r = one / (epsilon if inside else size)
        s[j] = zero if inside else -(r * r)
        t[j] = (w * x[j] + b) + (-r if u < 0 else r)


@jit
def strip_copy(t: Array, x: Array) -> None:
    """Also what t[:] = x does; but that takes numba two seconds more to compile."""
    for j in range(t.size):
        t[j] = x[j]


@jit
def _multiply(s: Array, by: Array) -> None:
    for j in range(s.size):
        s[j] *= by[j]


@jit
def _affine(t: Array, x: Array, w: Any, b: Any) -> None:
    for j in range(t.size):
        t[j] = w * x[j] + b


@jit
def add_multiple(t: Array, x: Array, w: Any) -> None:
    for j in range(t.size):
        t[j] += w * x[j]


@jit_sum
def strip_sum(s: Array) -> Any:
    total = s[0] - s[0]
    for j in range(s.size):
        total += s[j]
    return total


# All rungs of one strip of partial denominators.


@jit
def strip_value(strip: int, a: Array, f: Array, epsilon: Any, far: Any, smooth: bool, first: bool) -> None:
    _, rungs, inner = a.shape
    one, zero = epsilon / epsilon, epsilon - epsilon
    per_row = (inner + STRIP - 1) // STRIP
    i, lo = strip // per_row, strip % per_row * STRIP
    hi = min(lo + STRIP, inner)
    t = f[i, lo:hi]
    strip_copy(t, a[i, rungs - 1, lo:hi])
    for k in range(rungs - 2, -1 if first else -2, -1):
        w = one if k >= 0 else zero  # a rung that is left out is 0
        if smooth:
            _smooth_rung(t, a[i, max(k, 0), lo:hi], w, zero, epsilon, far)
        else:
            _clamp_rung(t, a[i, max(k, 0), lo:hi], w, zero, epsilon)


@jit
def strip_products(
    strip: int, g: Array, a: Array, out: Array, epsilon: Any, far: Any, smooth: bool, first: bool
) -> None:
    _, rungs, inner = a.shape
    one, zero = epsilon / epsilon, epsilon - epsilon
    per_row = (inner + STRIP - 1) // STRIP
    i, lo = strip // per_row, strip % per_row * STRIP
    hi = min(lo + STRIP, inner)
    t = np.empty(hi - lo, dtype=a.dtype)
    strip_copy(t, a[i, rungs - 1, lo:hi])
    for k in range(rungs - 1, 0 if first else -1, -1):
        w = one if k > 0 else zero
        if smooth:
            _smooth_rung_slope(t, a[i, max(k - 1, 0), lo:hi], w, zero, out[i, k, lo:hi], epsilon, far)
        else:
            _clamp_rung_slope(t, a[i, max(k - 1, 0), lo:hi], w, zero, out[i, k, lo:hi], epsilon)
    if first:
        strip_copy(out[i, 0, lo:hi], g[i, lo:hi])
    else:
        _multiply(out[i, 0, lo:hi], g[i, lo:hi])
    for k in range(1, rungs):
        _multiply(out[i, k, lo:hi], out[i, k - 1, lo:hi])


# All ladders of one feature, a_k = w_k x_j + b_k, without ever storing `a`.
# x (p, n), w and b (members, d+1, p, m), f and g (members, p, m, n)


@jit
def strip_feature_value(j: int, x: Array, w: Array, b: Array, f: Array, epsilon: Any, far: Any, smooth: bool) -> None:
    members, rungs, _, m = w.shape
    n = x.shape[1]
    for lo in range(0, n, STRIP):
        hi = min(lo + STRIP, n)
        row = x[j, lo:hi]
        for i in range(members):
            for c in range(m):
                t = f[i, j, c, lo:hi]
                _affine(t, row, w[i, rungs - 1, j, c], b[i, rungs - 1, j, c])
                for k in range(rungs - 2, -1, -1):
                    if smooth:
                        _smooth_rung(t, row, w[i, k, j, c], b[i, k, j, c], epsilon, far)
                    else:
                        _clamp_rung(t, row, w[i, k, j, c], b[i, k, j, c], epsilon)


@jit
def _rung_slopes(scratch: Array, row: Array, w: Array, b: Array, epsilon: Any, far: Any, smooth: bool) -> None:
    """Slopes r'(t_k) of a ladder on a strip of its feature, into scratch[k] for k from 1; scratch[0] is used up."""
    t = scratch[0, : row.size]
    _affine(t, row, w[-1], b[-1])
    for k in range(w.size - 1, 0, -1):
        s = scratch[k, : row.size]
        if smooth:
            _smooth_rung_slope(t, row, w[k - 1], b[k - 1], s, epsilon, far)
        else:
            _clamp_rung_slope(t, row, w[k - 1], b[k - 1], s, epsilon)


@jit
def strip_feature_gradients(
    j: int,
    g: Array,
    x: Array,
    w: Array,
    b: Array,
    by_x: Array,
    by_w: Array,
    by_b: Array,
    epsilon: Any,
    far: Any,
    smooth: bool,
) -> None:
    members, rungs, _, m = w.shape
    n = x.shape[1]
    scratch = np.empty((rungs, min(n, STRIP)), dtype=x.dtype)
    by_w[:, :, j] = 0
    by_b[:, :, j] = 0
    for lo in range(0, n, STRIP):
        hi = min(lo + STRIP, n)
        row = x[j, lo:hi]
        for i in range(members):
            for c in range(m):
                _rung_slopes(scratch, row, w[i, :, j, c], b[i, :, j, c], epsilon, far, smooth)
                strip_copy(scratch[0, : hi - lo], g[i, j, c, lo:hi])
                for k in range(rungs):
                    s = scratch[k, : hi - lo]
                    if k > 0:
                        _multiply(s, scratch[k - 1, : hi - lo])
                    by_b[i, k, j, c] += strip_sum(s)
                    by_w[i, k, j, c] += dot(s, row)
                    if by_x.size > 0:
                        add_multiple(by_x[j, lo:hi], s, w[i, k, j, c])


@jit
def _feature_slopes(j: int, x: Array, w: Array, b: Array, f: Array, epsilon: Any, far: Any, smooth: bool) -> None:
    members, rungs, _, m = w.shape
    n = x.shape[1]
    scratch = np.empty((rungs, min(n, STRIP)), dtype=x.dtype)
    for lo in range(0, n, STRIP):
        hi = min(lo + STRIP, n)
        row = x[j, lo:hi]
        for i in range(members):
            for c in range(m):
                _rung_slopes(scratch, row, w[i, :, j, c], b[i, :, j, c], epsilon, far, smooth)
                total = f[i, j, c, lo:hi]
                total[:] = w[i, 0, j, c]
                for k in range(1, rungs):
                    s = scratch[k, : hi - lo]
                    if k > 1:
                        _multiply(s, scratch[k - 1, : hi - lo])
                    add_multiple(total, s, w[i, k, j, c])


@jit
def _integrated_strip(
    strip: int,
    a: Array,
    step: Array,
    nodes: Array,
    shares: Array,
    out: Array,
    epsilon: Any,
    far: Any,
    smooth: bool,
) -> None:
    _, rungs, inner = a.shape
    one, zero = epsilon / epsilon, epsilon - epsilon
    per_row = (inner + STRIP - 1) // STRIP
    i, lo = strip // per_row, strip % per_row * STRIP
    hi = min(lo + STRIP, inner)
    t, at = np.empty(hi - lo, dtype=a.dtype), np.empty(hi - lo, dtype=a.dtype)
    slopes = np.empty((rungs, hi - lo), dtype=a.dtype)
    out[i, :, lo:hi] = 0
    for node in range(len(nodes)):
        strip_copy(t, a[i, rungs - 1, lo:hi])
        add_multiple(t, step[i, rungs - 1, lo:hi], nodes[node])
        for k in range(rungs - 1, 0, -1):
            strip_copy(at, a[i, k - 1, lo:hi])
            add_multiple(at, step[i, k - 1, lo:hi], nodes[node])
            if smooth:
                _smooth_rung_slope(t, at, one, zero, slopes[k], epsilon, far)
            else:
                _clamp_rung_slope(t, at, one, zero, slopes[k], epsilon)
        slopes[0] = one
        add_multiple(out[i, 0, lo:hi], slopes[0], shares[node])
        for k in range(1, rungs):
            _multiply(slopes[k], slopes[k - 1])
            add_multiple(out[i, k, lo:hi], slopes[k], shares[node])


# Kernels: some of the strips, or all ladders of some features.


@jit
def _value(first: int, last: int, a: Array, f: Array, epsilon: Any, far: Any, smooth: bool, whole: bool) -> None:
    for strip in range(first, last):
        strip_value(strip, a, f, epsilon, far, smooth, whole)


@jit
def _products(
    first: int, last: int, g: Array, a: Array, out: Array, epsilon: Any, far: Any, smooth: bool, whole: bool
) -> None:
    for strip in range(first, last):
        strip_products(strip, g, a, out, epsilon, far, smooth, whole)


@jit
def _features(
    first: int, last: int, x: Array, w: Array, b: Array, f: Array, epsilon: Any, far: Any, smooth: bool
) -> None:
    for j in range(first, last):
        strip_feature_value(j, x, w, b, f, epsilon, far, smooth)


@jit
def _slopes(
    first: int, last: int, x: Array, w: Array, b: Array, f: Array, epsilon: Any, far: Any, smooth: bool
) -> None:
    for j in range(first, last):
        _feature_slopes(j, x, w, b, f, epsilon, far, smooth)


@jit
def _integrated(
    first: int,
    last: int,
    a: Array,
    step: Array,
    nodes: Array,
    shares: Array,
    out: Array,
    epsilon: Any,
    far: Any,
    smooth: bool,
) -> None:
    for strip in range(first, last):
        _integrated_strip(strip, a, step, nodes, shares, out, epsilon, far, smooth)


@jit
def _gradients(
    first: int,
    last: int,
    g: Array,
    x: Array,
    w: Array,
    b: Array,
    by_x: Array,
    by_w: Array,
    by_b: Array,
    epsilon: Any,
    far: Any,
    smooth: bool,
) -> None:
    for j in range(first, last):
        strip_feature_gradients(j, g, x, w, b, by_x, by_w, by_b, epsilon, far, smooth)


# All strips, on as many threads as pay. Arrays are C-contiguous and of one dtype; results are written to the last ones.


def scalars(a: Array, epsilon: float) -> tuple[Any, Any]:
    """Epsilon, and the |t| from which r(t) = 1/t, in the dtype of the array."""
    return a.dtype.type(epsilon), _far(a.dtype)


@cache
def _far(dtype: np.dtype[Any]) -> Any:
    return dtype.type(0.5 * math.sqrt(np.finfo(dtype).max))


def _strips(a: Array) -> int:
    return int(a.shape[0] * -(-a.shape[2] // STRIP))


def value(epsilon: float, smooth: bool, a: Array, f: Array, first: bool = True) -> None:
    """Values f (outer, inner) of ladders a (outer, rungs, inner); without `first`, rung 0 is 0 and not among them."""
    team.run(_value, _strips(a), a.size, a, f, *scalars(a, epsilon), smooth, first)


def sensitivity_products(epsilon: float, smooth: bool, g: Array, a: Array, out: Array, first: bool = True) -> None:
    """g (outer, inner) times the sensitivities of ladders a (outer, rungs, inner), in the shape of a."""
    team.run(_products, _strips(a), a.size, g, a, out, *scalars(a, epsilon), smooth, first)


def feature_values(epsilon: float, smooth: bool, x: Array, w: Array, b: Array, f: Array) -> None:
    """Values f (members, p, m, n) of single-feature ladders: x (p, n), w and b (members, d+1, p, m)."""
    team.run(_features, len(x), f.size * w.shape[1], x, w, b, f, *scalars(x, epsilon), smooth)


def feature_slopes(epsilon: float, smooth: bool, x: Array, w: Array, b: Array, f: Array) -> None:
    """Derivatives of single-feature ladders by their feature; shapes as in `feature_values`."""
    team.run(_slopes, len(x), f.size * w.shape[1], x, w, b, f, *scalars(x, epsilon), smooth)


def feature_gradients(
    epsilon: float, smooth: bool, g: Array, x: Array, w: Array, b: Array, by_x: Array, by_w: Array, by_b: Array
) -> None:
    """Gradients of sum(g f) by x, unless `by_x` is empty, by w and by b; g (members, p, m, n)."""
    arguments = (g, x, w, b, by_x, by_w, by_b, *scalars(x, epsilon), smooth)
    team.run(_gradients, len(x), g.size * w.shape[1], *arguments)


def integrated_sensitivities(
    epsilon: float, smooth: bool, a: Array, step: Array, nodes: Array, shares: Array, out: Array
) -> None:
    """Sums over nodes of share times the sensitivities at a + node * step; a, step and out (outer, d+1, inner)."""
    team.run(_integrated, _strips(a), a.size * len(nodes), a, step, nodes, shares, out, *scalars(a, epsilon), smooth)


def prepare_strips() -> None:
    """Compile the float32 kernels, or load them from the disk cache, so that no later call has to."""
    a, f, one = np.ones((1, 2, 1), dtype=np.float32), np.ones((1, 1), dtype=np.float32), np.float32(1)
    _value(0, 1, a, f, one, one, True, True)
    _products(0, 1, f, a, np.empty_like(a), one, one, True, True)
    _integrated(0, 1, a, a, f[0], f[0], np.empty_like(a), one, one, True)
    x, w, g = f, np.ones((1, 2, 1, 1), dtype=np.float32), np.ones((1, 1, 1, 1), dtype=np.float32)
    _slopes(0, 1, x, w, w, g.copy(), one, one, True)
    _features(0, 1, x, w, w, g.copy(), one, one, True)
    _gradients(0, 1, g, x, w, w, x.copy(), w.copy(), w.copy(), one, one, True)

"""Kernels on channels: every number of a channel is normalised and bent by the ladder of its channel, in one pass.

    y = t_0,   t_k = a_k + r(t_{k+1}),   a_k = w_kc u + b_kc,   u = (x - mean_c) inverse_c

with the smooth r(t) = t / (t^2 + epsilon^2). Rows are positions of images, channels lie next to each other. Rows may be
float32 or float64, or the bits of bfloat16 as uint16, which are widened to float32 where they are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cofrnet.compiled import team
from cofrnet.compiled.half import narrow, wide, widened
from cofrnet.compiled.jit import Array, jit

__all__ = ["bend", "bend_gradients", "moments", "prepare_channels"]

BLOCK = 256  # rows that a thread takes at once


@jit
def _bend(
    first: int, last: int, x: Array, mean: Array, inverse: Array, w: Array, b: Array, square: Any, y: Array
) -> None:
    depth, channels = len(w) - 1, x.shape[1]
    u, t = np.empty(channels, dtype=w.dtype), np.empty(channels, dtype=w.dtype)
    for i in range(first * BLOCK, min(last * BLOCK, len(x))):
        source, target = x[i], y[i]
        for c in range(channels):
            u[c] = (wide(source[c]) - mean[c]) * inverse[c]
            t[c] = w[depth, c] * u[c] + b[depth, c]
        for k in range(depth - 1, -1, -1):
            wk, bk = w[k], b[k]
            for c in range(channels):
                t[c] = wk[c] * u[c] + bk[c] + t[c] / (t[c] * t[c] + square)
        for c in range(channels):
            target[c] = narrow(t[c], target[c])


@jit
def _gradient_block(
    first: int,
    last: int,
    x: Array,
    mean: Array,
    inverse: Array,
    w: Array,
    b: Array,
    square: Any,
    g: Array,
    out: Array,
    all_sums: Array,
) -> None:
    """By u into `out`; the sums, (2 + 2 (d+1), C), are of g_u, g_u u, and for each rung of what comes to its weight and
    bias: of a few rows in the dtype of the ladders, then in float64.
    """
    depth, channels = len(w) - 1, x.shape[1]
    t = np.empty((depth + 1, channels), dtype=w.dtype)
    u = np.empty(channels, dtype=w.dtype)
    s = np.empty(channels, dtype=w.dtype)
    total = np.empty(channels, dtype=w.dtype)
    sums = np.zeros((2 + 2 * len(w), channels), dtype=w.dtype)
    for i in range(first, last):
        if (i - first) % BLOCK == 0:
            all_sums += sums
            sums[:] = 0
        source, slope, target = x[i], g[i], out[i]
        for c in range(channels):
            u[c] = (wide(source[c]) - mean[c]) * inverse[c]
            t[depth, c] = w[depth, c] * u[c] + b[depth, c]
        for k in range(depth - 1, -1, -1):
            here, below = t[k], t[k + 1]
            wk, bk = w[k], b[k]
            for c in range(channels):
                here[c] = wk[c] * u[c] + bk[c] + below[c] / (below[c] * below[c] + square)
        for c in range(channels):
            s[c] = wide(slope[c])
            total[c] = s[c] * w[0, c]
        by_weight, by_bias = sums[2], sums[3]
        for c in range(channels):
            by_weight[c] += s[c] * u[c]
            by_bias[c] += s[c]
        for k in range(1, depth + 1):
            here, wk = t[k], w[k]
            by_weight, by_bias = sums[2 + 2 * k], sums[3 + 2 * k]
            for c in range(channels):
                own = here[c] * here[c]
                bottom = own + square
                s[c] *= (square - own) / (bottom * bottom)
                total[c] += s[c] * wk[c]
                by_weight[c] += s[c] * u[c]
                by_bias[c] += s[c]
        sum_g, sum_gu = sums[0], sums[1]
        for c in range(channels):
            target[c] = narrow(total[c], target[c])
            sum_g[c] += total[c]
            sum_gu[c] += total[c] * u[c]
    all_sums += sums


@jit
def _gradients(
    first: int,
    last: int,
    x: Array,
    mean: Array,
    inverse: Array,
    w: Array,
    b: Array,
    square: Any,
    g: Array,
    out: Array,
    sums: Array,
) -> None:
    each = -(-len(x) // len(sums))
    for part in range(first, last):
        lo, hi = part * each, min((part + 1) * each, len(x))
        if lo < hi:
            _gradient_block(lo, hi, x, mean, inverse, w, b, square, g, out, sums[part])


@jit
def _centre(first: int, last: int, x: Array, mean: Array, inverse: Array, a: Array, b: Array, out: Array) -> None:
    for i in range(first * BLOCK, min(last * BLOCK, len(x))):
        source, target = x[i], out[i]
        for c in range(x.shape[1]):
            u = (wide(source[c]) - mean[c]) * inverse[c]
            target[c] = narrow(inverse[c] * (wide(target[c]) - a[c] - u * b[c]), target[c])


@jit
def _moment_block(first: int, last: int, x: Array, shift: Array, sums: Array) -> None:
    """Sums of values and squares into `sums` of float64, (2, C), by way of sums of a few rows in the dtype of x."""
    few = np.zeros((2, x.shape[1]), dtype=shift.dtype)
    one, two = few[0], few[1]
    for start in range(first, last, BLOCK):
        few[:] = 0
        for i in range(start, min(start + BLOCK, last)):
            source = x[i]
            for c in range(x.shape[1]):
                value = wide(source[c]) - shift[c]
                one[c] += value
                two[c] += value * value
        sums += few


@jit
def _moments(first: int, last: int, x: Array, shift: Array, sums: Array) -> None:
    each = -(-len(x) // len(sums))
    for part in range(first, last):
        lo, hi = part * each, min((part + 1) * each, len(x))
        if lo < hi:
            _moment_block(lo, hi, x, shift, sums[part])


PARTS = 16  # sums are made in as many parts, whatever the number of threads, so that it does not change them


def moments(x: Array) -> tuple[Array, Array]:
    """Mean and variance of each channel, (C,). Shapes: x (rows, C)."""
    with np.errstate(all="ignore"):  # of numbers that have run away: the loss will tell
        shift = widened(x[:BLOCK]).mean(0)
        sums = np.zeros((PARTS, 2, x.shape[1]))
        team.run(_moments, PARTS, x.size, x, shift, sums)
        one, two = sums.sum(0) / len(x)
        return (shift + one).astype(shift.dtype), np.maximum(two - one * one, 0).astype(shift.dtype)


def bend(x: Array, mean: Array, inverse: Array, w: Array, b: Array, epsilon: float, y: Array) -> None:
    """Fill y, (rows, C), with the ladders of the channels. Shapes: x (rows, C); mean, inverse (C,); w, b (d+1, C)."""
    square = w.dtype.type(epsilon * epsilon)
    team.run(_bend, -(-len(x) // BLOCK), 8 * x.size, x, mean, inverse, w, b, square, y)


def bend_gradients(
    x: Array, mean: Array, inverse: Array, w: Array, b: Array, epsilon: float, g: Array, out: Array, normed: bool
) -> tuple[Array, Array]:
    """Fill `out`, (rows, C), with the gradient by x; return those by w and b, (d+1, C).

    With `normed`, mean and inverse are those of x itself, and depend on it.
    """
    square = w.dtype.type(epsilon * epsilon)
    sums = np.zeros((PARTS, 2 + 2 * len(w), x.shape[1]))
    team.run(_gradients, PARTS, 24 * x.size, x, mean, inverse, w, b, square, g, out, sums)
    whole = sums.sum(0)
    scale = 1 / len(x) if normed else 0.0
    with np.errstate(all="ignore"):
        means = [(scale * part).astype(w.dtype) for part in whole[:2]]
        team.run(_centre, -(-len(x) // BLOCK), 2 * x.size, x, mean, inverse, *means, out)
        return whole[2::2].astype(w.dtype), whole[3::2].astype(w.dtype)


def prepare_channels() -> None:
    """Compile what is here for float32, and for rows of bfloat16."""
    w = np.ones((2, 4), dtype=np.float32)
    mean, square = w[0], np.float32(1)
    for x in (np.ones((4, 4), dtype=np.float32), np.ones((4, 4), dtype=np.uint16)):
        _bend(0, 1, x, mean, mean, w, w, square, x.copy())
        _gradients(0, 2, x, mean, mean, w, w, square, x, x.copy(), np.zeros((2, 6, 4)))
        _centre(0, 1, x, mean, mean, mean, mean, x.copy())
        _moments(0, 2, x, mean, np.zeros((2, 2, 4)))

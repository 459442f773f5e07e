"""Kernels on vectors: the map of a column to its input, and a step of the optimizer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cofrnet.compiled import team
from cofrnet.compiled.jit import STRIP, Array, jit, jit_sum, part

PART = 65_536  # numbers of a step that a thread takes at once

__all__ = ["adamw", "clip", "dot", "piecewise_linear", "prepare_vectors"]


@jit_sum
def dot(s: Array, x: Array) -> Any:
    """Sum of products."""
    total = s[0] - s[0]
    for j in range(s.size):
        total += s[j] * x[j]
    return total


@part
def _on_piece(t: float, piece: int, starts: Array, values: Array, slopes: Array, last: float) -> Any:
    if t < starts[0]:
        t = starts[0]
    if t > last:
        t = last
    return values[piece] + slopes[piece] * (t - starts[piece])


@jit
def _piecewise(
    first: int, last: int, x: Array, starts: Array, values: Array, slopes: Array, end: float, out: Array
) -> None:
    stop = min(last * STRIP, len(x))
    for i in range(first * STRIP, stop, 4):  # a search without branches; one row alone would wait at every step of it
        j, k, m = min(i + 1, stop - 1), min(i + 2, stop - 1), min(i + 3, stop - 1)
        t, u, v, w = x[i], x[j], x[k], x[m]
        of_t = of_u = of_v = of_w = 0
        for step in (128, 64, 32, 16, 8, 4, 2, 1):
            of_t += step * (starts[of_t + step] <= t)
            of_u += step * (starts[of_u + step] <= u)
            of_v += step * (starts[of_v + step] <= v)
            of_w += step * (starts[of_w + step] <= w)
        out[i] = _on_piece(t, of_t, starts, values, slopes, end)
        out[j] = _on_piece(u, of_u, starts, values, slopes, end)
        out[k] = _on_piece(v, of_v, starts, values, slopes, end)
        out[m] = _on_piece(w, of_w, starts, values, slopes, end)


# A step of the optimizer on a vector of parameters.


@jit
def clip(gradient: Array, blocks: Array, limit: float) -> None:
    """Scale the gradient of each member to a norm of at most `limit`.

    Shapes: gradient (k,), blocks (b, members, 2), the first and one past the last number of each of its blocks.
    """
    for i in range(blocks.shape[1]):
        total = 0.0
        for j in range(blocks.shape[0]):
            own = gradient[blocks[j, i, 0] : blocks[j, i, 1]]
            total += dot(own, own) if own.size > 0 else 0.0
        scale = np.ones(1, dtype=gradient.dtype)
        scale[0] = limit / (math.sqrt(total) + 1e-6)
        if scale[0] < 1:
            for j in range(blocks.shape[0]):
                multiply(gradient[blocks[j, i, 0] : blocks[j, i, 1]], scale[0])


@jit
def multiply(s: Array, by: Any) -> None:
    for j in range(s.size):
        s[j] *= by


@jit
def adamw_part(values: Array, gradient: Array, mean: Array, square: Array, decayed: int, numbers: Array) -> None:
    keep1, add1, keep2, add2, speed, inverse, least, shrunk = numbers
    if decayed > 0:
        multiply(values[:decayed], shrunk)
    for j in range(values.size):
        g = gradient[j]
        m = keep1 * mean[j] + add1 * g
        v = keep2 * square[j] + add2 * g * g
        mean[j], square[j] = m, v
        values[j] -= speed * m / (np.sqrt(v) * inverse + least)


@jit
def _adamw(
    first: int, last: int, values: Array, gradient: Array, mean: Array, square: Array, decayed: int, numbers: Array
) -> None:
    own = slice(first * PART, last * PART)
    adamw_part(values[own], gradient[own], mean[own], square[own], min(decayed, last * PART) - first * PART, numbers)


def adamw(
    values: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    decayed: int,
    keep: float,
    rate: float,
    root: float,
    betas: tuple[float, float],
    tiny: float,
) -> None:
    """One step of AdamW on vectors; the first `decayed` numbers are multiplied by `keep`.

    `rate` is the learning rate over 1 - beta1^t, `root` the square root of 1 - beta2^t.
    """
    beta1, beta2 = betas
    numbers = np.array(  # in the precision of the vectors
        [beta1, 1 - beta1, beta2, 1 - beta2, rate, 1 / root, tiny, keep], dtype=values.dtype
    )
    parts = -(-values.size // PART)
    team.run(_adamw, parts, values.size, values, gradient, mean, square, decayed, numbers)


def piecewise_linear(
    x: Array, starts: Array, values: Array, slopes: Array, last: float, out: Array | None = None
) -> Array:
    """The function that starts piece i at (starts[i], values[i]) and goes on with slopes[i], constant beyond its ends.

    NaN stays NaN. A read-only x is copied: it would be another type to compile for. `out` is contiguous memory to write
    to, float32 or float64. Shapes, all float64: x (n,); 256 pieces, starts (257,) being +inf where there is none.
    """
    out = np.empty(len(x)) if out is None else out
    x = np.require(x, requirements=["C", "W"])
    team.run(_piecewise, -(-len(x) // STRIP), 32 * len(x), x, starts, values, slopes, last, out)
    return out


def prepare_vectors() -> None:
    """Compile what is here for float32."""
    values, gradient, mean, square = (np.ones(1, dtype=np.float32) for _ in range(4))
    _adamw(0, 1, values, gradient, mean, square, 1, np.ones(8, dtype=np.float32))
    clip(gradient, np.zeros((1, 1, 2), dtype=np.int64), 1.0)
    pieces = np.zeros(257)
    _piecewise(0, 1, pieces, pieces, pieces[1:], pieces[1:], 1.0, np.empty(257, dtype=np.float32))

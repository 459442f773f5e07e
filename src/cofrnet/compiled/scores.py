"""Scores of rows by the members of a CoFrNet, a block of rows at a time (numba).

    V = [x; curves; full]  (p + C + L, rows),     scores = [U, H] V + c

as in `nn.fused`, but all of it for one block while that is in the cache, and the blocks side by side on threads. Matrix
products are those of the BLAS that SciPy brings. Nothing here needs torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cofrnet.compiled import team
from cofrnet.compiled.blas import one_thread_of_blas
from cofrnet.compiled.jit import STRIP, Array, jit, part
from cofrnet.compiled.strips import scalars, strip_copy, strip_feature_value, strip_value

__all__ = ["Kind", "Numbers", "member_scores", "prepare_scores"]

BLOCK = 128  # rows; the last block is filled up, as products of one shape round alike on most processors
PRICE = 4  # of an input of a ladder, in elements


class Numbers(NamedTuple):
    """Parameters of all members, or gradients by them; of ladders that there are none of, empty.

    Shapes: linear (members, q, p), intercept (members, q), head (members, q, L), curve_weight and curve_bias (members,
    d+1, curved, m), weight (members, rungs of all full ladders, inputs), bias (members, rungs of all full ladders).
    """

    linear: Array
    intercept: Array
    head: Array
    curve_weight: Array
    curve_bias: Array
    weight: Array
    bias: Array


class Kind(NamedTuple):
    """What ladders there are: a full one has `rungs` rungs, rung 0 among them if `first`.

    `epsilon` and `far` are the `scalars` of their numbers, `curved` (curved,) says which inputs have curves.
    """

    rungs: int
    first: bool
    epsilon: Any
    far: Any
    smooth: bool
    curved: Array


@part
def member_of(w: Numbers, i: int) -> Numbers:
    """The numbers of one member: those of curves keep the axis of members, the others do not."""
    curves = slice(i, i + 1)
    of_curves = w.curve_weight[curves], w.curve_bias[curves]
    return Numbers(w.linear[i], w.intercept[i], w.head[i], of_curves[0], of_curves[1], w.weight[i], w.bias[i])


@jit
def add_to_rows(a: Array, b: Array) -> None:
    """Add b (k,) to the columns of a (k, n)."""
    for k in range(len(a)):
        for i in range(a.shape[1]):
            a[k, i] += b[k]


@part
def curved_inputs(v: Array, p: int, curved: Array) -> Array:
    """The inputs that have curves, (curved, n), of V."""
    features = v[:p]
    if 0 < curved.size < p:
        features = np.empty((curved.size, v.shape[1]), dtype=v.dtype)
        for j in range(curved.size):
            strip_copy(features[j], v[curved[j]])
    return features


@part
def fill_in_ladders(w: Numbers, kind: Kind, features: Array, v: Array, a: Array) -> None:
    """Values of the ladders of one member below the inputs in V; partial denominators of full ladders in `a`."""
    p, (height, width) = w.linear.shape[1], w.weight.shape
    _, _, curved, m = w.curve_weight.shape
    count, n = curved * m, v.shape[1]
    values = v[p : p + count].reshape(1, curved, m, n)
    for j in range(curved):
        strip_feature_value(j, features, w.curve_weight, w.curve_bias, values, kind.epsilon, kind.far, kind.smooth)
    if height > 0:
        np.dot(w.weight, v[:width], a)
        add_to_rows(a, w.bias)
        out, by_rung = v[p + count :].reshape(1, -1), a.reshape(1, kind.rungs, -1)
        for strip in range((out.size + STRIP - 1) // STRIP):
            strip_value(strip, by_rung, out, kind.epsilon, kind.far, kind.smooth, kind.first)


@jit
def _fill(t: Array, value: Any) -> None:
    for j in range(t.size):
        t[j] = value


@jit
def _blocks(first: int, last: int, x: Array, w: Numbers, kind: Kind, out: Array) -> None:
    """Scores of some blocks of rows, in memory that is taken once."""
    members, q, p = w.linear.shape
    v = np.empty((p + w.head.shape[2], BLOCK), dtype=x.dtype)
    a = np.empty((w.bias.shape[1], BLOCK), dtype=x.dtype)
    scores, of_ladders = np.empty((q, BLOCK), dtype=x.dtype), np.empty((q, BLOCK), dtype=x.dtype)
    for start in range(first * BLOCK, min(last * BLOCK, x.shape[1]), BLOCK):
        count = min(BLOCK, x.shape[1] - start)
        for j in range(p):
            strip_copy(v[j, :count], x[j, start : start + count])
            _fill(v[j, count:], x[j, start])
        features = curved_inputs(v, p, kind.curved)
        for k in range(members):
            own = member_of(w, k)
            fill_in_ladders(own, kind, features, v, a)
            np.dot(own.linear, v[:p], scores)
            np.dot(own.head, v[p:], of_ladders)
            for c in range(q):
                for i in range(count):
                    out[k, c, start + i] = scores[c, i] + of_ladders[c, i] + own.intercept[c]


def member_scores(x: Array, w: Numbers, kind: Kind, out: Array) -> None:
    """Write the scores of inputs x (p, n) to `out` (members, q, n). All arrays are C-contiguous and of one dtype."""
    n = x.shape[1]
    with one_thread_of_blas():
        team.run(_blocks, -(-n // BLOCK), PRICE * n * (w.head.size + w.bias.size), x, w, kind, out)


def smallest() -> tuple[Numbers, Kind]:
    """The smallest model, to compile for."""
    shapes = ((1, 1, 1), (1, 1), (1, 1, 2), (1, 2, 1, 1), (1, 2, 1, 1), (1, 1, 2), (1, 1))
    w = Numbers(*(np.ones(shape, dtype=np.float32) for shape in shapes))
    return w, Kind(1, False, *scalars(w.linear, 1.0), True, np.zeros(1, dtype=np.int64))


def prepare_scores() -> None:
    """Compile what is here for float32."""
    x = np.ones((1, 1), dtype=np.float32)
    _blocks(0, 1, x, *smallest(), np.empty((1, 1, 1), dtype=np.float32))

"""Training steps compiled: one member of a CoFrNet goes down the loss over many batches in one call (numba).

A step is what `nn.fused` and `training.optimizer` do, formula by formula, without Python in between: on small batches
Python takes as long as the arithmetic, and while it runs no other thread can. Matrix products are those of the BLAS
that SciPy brings. Nothing here needs torch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cofrnet.compiled.jit import STRIP, Array, jit, part
from cofrnet.compiled.scores import Kind, Numbers, add_to_rows, curved_inputs, fill_in_ladders, member_of, smallest
from cofrnet.compiled.strips import add_multiple, strip_feature_gradients, strip_products, strip_sum
from cofrnet.compiled.vectors import adamw_part, dot, multiply

__all__ = ["LOSSES", "Rule", "Table", "Vectors", "descend", "prepare_descent"]

LOSSES = {"logistic": 0, "multinomial": 1, "squared": 2}


class Table(NamedTuple):
    """Rows to train on: inputs (n, p), targets (n, q), weights (n,) or (0,) for none."""

    x: Array
    targets: Array
    weight: Array


class Vectors(NamedTuple):
    """What a step of the optimizer changes, all parameters one after another: matrices first."""

    values: Array
    gradient: Array
    mean: Array
    square: Array


class Rule(NamedTuple):
    """The constants of a step, as `training.optimizer` has them, and the gradient's greatest norm, 0 for none."""

    betas: tuple[float, float]
    betas_of_matrices: tuple[float, float]
    tiny: float
    smallest: float
    distance: float
    others: float
    quintic: tuple[float, float, float]
    rounds: int
    most_rows: int
    clip_norm: float


# Mean loss of a batch: scores s (q, n), the rows `order` of targets t and of weights; slopes are written to g (q, n).


@jit
def _logistic(s: Array, t: Array, weight: Array, order: Array, g: Array) -> Any:
    total, each = 0.0, 1 / order.size
    for i in range(order.size):
        u, target = s[0, i], t[order[i], 0]
        e = math.exp(-abs(u))
        own = each * weight[order[i]] if weight.size > 0 else each
        total += own * (max(u, 0.0) + math.log1p(e) - u * target)
        g[0, i] = ((1.0 if u >= 0 else e) / (1.0 + e) - target) * own
    return total


@jit
def _multinomial(s: Array, t: Array, weight: Array, order: Array, g: Array) -> Any:
    total, each = 0.0, 1 / order.size
    for i in range(order.size):
        highest, mass = s[0, i], 0.0
        for c in range(1, len(s)):
            highest = max(highest, s[c, i])
        for c in range(len(s)):
            g[c, i] = math.exp(s[c, i] - highest)
            mass += g[c, i]
        own = each * weight[order[i]] if weight.size > 0 else each
        loss = math.log(mass)
        for c in range(len(s)):
            target = t[order[i], c]
            loss -= target * (s[c, i] - highest)
            g[c, i] = (g[c, i] / mass - target) * own
        total += own * loss
    return total


@jit
def _squared(s: Array, t: Array, weight: Array, order: Array, g: Array) -> Any:
    total, each = 0.0, 1 / (len(s) * order.size)
    for i in range(order.size):
        own = each * weight[order[i]] if weight.size > 0 else each
        for c in range(len(s)):
            excess = s[c, i] - t[order[i], c]
            total += own * excess * excess
            g[c, i] = 2 * excess * own
    return total


@part
def _cut(memory: Array, rows: int, n: int) -> Array:
    """Some of the memory, as (rows, n)."""
    return memory[: rows * n].reshape(rows, n)


@part
def _gather(x: Array, order: Array, v: Array) -> None:
    for i in range(order.size):
        for j in range(x.shape[1]):
            v[j, i] = x[order[i], j]


@part
def _gradients(
    w: Numbers,
    by: Numbers,
    table: Table,
    order: Array,
    loss: int,
    kind: Kind,
    memory: Array,
    by_memory: Array,
    more: Array,
    rungs: Array,
    by_rungs: Array,
    few: Array,
) -> Any:
    """Mean loss of a batch, the rows that `order` names; its gradients are written to `by`."""
    n, one = order.size, kind.epsilon / kind.epsilon
    q, p = w.linear.shape
    _, _, curved, m = w.curve_weight.shape
    count, (height, width) = curved * m, w.weight.shape
    ladders = w.head.shape[1]
    v, by_v = _cut(memory, p + ladders, n), _cut(by_memory, p + ladders, n)
    a, by_a = _cut(rungs, height, n), _cut(by_rungs, height, n)
    _gather(table.x, order, v)
    features = curved_inputs(v, p, kind.curved)
    fill_in_ladders(w, kind, features, v, a)
    scores, g, of_ladders = _cut(few[0], q, n), _cut(few[1], q, n), _cut(few[2], q, n)
    np.dot(w.linear, v[:p], scores)
    np.dot(w.head, v[p:], of_ladders)
    for c in range(q):
        add_multiple(scores[c], of_ladders[c], one)
    add_to_rows(scores, w.intercept)
    if loss == 0:
        mean = _logistic(scores, table.targets, table.weight, order, g)
    elif loss == 1:
        mean = _multinomial(scores, table.targets, table.weight, order, g)
    else:
        mean = _squared(scores, table.targets, table.weight, order, g)
    np.dot(g, v[:p].T, by.linear)
    np.dot(g, v[p:].T, by.head)
    for c in range(q):
        by.intercept[c] = strip_sum(g[c])
    np.dot(w.head.T, g, by_v[p:])
    if height > 0:
        into, by_rung = by_v[p + count :].reshape(1, -1), a.reshape(1, kind.rungs, -1)
        for strip in range((into.size + STRIP - 1) // STRIP):
            strip_products(
                strip, into, by_rung, by_a.reshape(1, kind.rungs, -1), kind.epsilon, kind.far, kind.smooth, kind.first
            )
        np.dot(by_a, v[:width].T, by.weight)
        for k in range(height):
            by.bias[k] = strip_sum(by_a[k])
        if width > p:
            by_reads = _cut(more, width, n)
            np.dot(w.weight.T, by_a, by_reads)
            for j in range(p, width):
                add_multiple(by_v[j], by_reads[j], one)
    by_values, none = by_v[p : p + count].reshape(1, curved, m, n), np.empty((curved, 0), dtype=v.dtype)
    for j in range(curved):
        strip_feature_gradients(
            j, by_values, features, w.curve_weight, w.curve_bias, none, by.curve_weight, by.curve_bias,
            kind.epsilon, kind.far, kind.smooth,
        )  # fmt: skip
    return mean


@jit
def _polar(u: Array, quintic: tuple[float, float, float], rounds: int) -> Array:
    """As `training.optimizer.polar`, of one matrix with no more rows than columns."""
    one, three, five = quintic
    first, third, fifth = u.dtype.type(one), u.dtype.type(three), u.dtype.type(five)
    r = u.shape[0]
    square, fourth, more = np.empty((r, r), u.dtype), np.empty((r, r), u.dtype), np.empty_like(u)
    for _ in range(rounds):
        np.dot(u, u.T, square)
        np.dot(square, square, fourth)
        for i in range(r):
            for j in range(r):
                fourth[i, j] = third * square[i, j] + fifth * fourth[i, j]
        np.dot(fourth, u, more)
        for i in range(r):
            for j in range(u.shape[1]):
                u[i, j] = first * u[i, j] + more[i, j]
    return u


@jit
def _norm(u: Array) -> Any:
    flat = u.reshape(-1)
    return math.sqrt(dot(flat, flat))


@part
def _move(w: Array, g: Array, mean: Array, moves: Array, shrink: float, rule: Rule) -> None:
    """A step of one matrix, (r, c)."""
    r, c = w.shape
    u = np.empty_like(w)
    keep = w.dtype.type(rule.betas_of_matrices[0])
    for i in range(r):
        for j in range(c):
            u[i, j] = g[i, j] + keep * (mean[i, j] - g[i, j])
    multiply(u.reshape(-1), w.dtype.type(1 / max(_norm(u), rule.smallest)))
    if r <= c:
        way = _polar(u.copy(), rule.quintic, rule.rounds)
    else:
        way = _polar(u.T.copy(), rule.quintic, rule.rounds).T.copy()
    share = w.dtype.type(rule.others / math.sqrt(min(r, c)))
    kept, far = w.dtype.type(1 - shrink), w.dtype.type(rule.distance * _norm(moves))
    for i in range(r):
        for j in range(c):
            w[i, j] = kept * w[i, j] - far * (u[i, j] + share * way[i, j])


@part
def _fill_in_adamw(
    numbers: Array, betas: tuple[float, float], rate: float, shrink: float, count: int, tiny: float
) -> None:
    """Write down the numbers of `adamw_part` for step `count`."""
    b1, b2 = betas
    numbers[0], numbers[1], numbers[2], numbers[3] = b1, 1 - b1, b2, 1 - b2
    numbers[4], numbers[5] = rate / (1 - b1**count), 1 / math.sqrt(1 - b2**count)
    numbers[6], numbers[7] = tiny, 1 - shrink


@part
def _step(
    vectors: Vectors,
    in_matrices: int,
    decayed: int,
    shape: tuple[int, int, int],
    plan: Array,
    count: int,
    moves: Array,
    rule: Rule,
) -> None:
    """One step of the optimizer; `plan` is its rate, the shrink of weights, and that of matrices."""
    values, gradient, mean, square = vectors
    rate, shrink, of_matrices = plan
    if rule.clip_norm > 0:
        scale = rule.clip_norm / (math.sqrt(dot(gradient, gradient)) + 1e-6)
        if scale < 1:
            multiply(gradient, values.dtype.type(scale))
    numbers = np.empty(8, dtype=values.dtype)
    _fill_in_adamw(numbers, rule.betas, rate, shrink, count, rule.tiny)
    own = slice(in_matrices, values.size)
    adamw_part(values[own], gradient[own], mean[own], square[own], decayed, numbers)
    if in_matrices > 0:
        _fill_in_adamw(numbers, rule.betas_of_matrices, rate, shrink, count, rule.tiny)
        own = slice(0, in_matrices)
        moves.fill(0)
        adamw_part(moves, gradient[own], mean[own], square[own], 0, numbers)
    some, r, c = shape
    for i in range(some):
        for lo in range(0, r, rule.most_rows):
            hi = min(lo + rule.most_rows, r)
            own = slice((i * r + lo) * c, (i * r + hi) * c)
            _move(
                values[own].reshape(hi - lo, c), gradient[own].reshape(hi - lo, c), mean[own].reshape(hi - lo, c),
                moves[own].reshape(hi - lo, c), of_matrices, rule,
            )  # fmt: skip


@jit
def descend(
    w: Numbers,
    by: Numbers,
    vectors: Vectors,
    in_matrices: int,
    decayed: int,
    shape: tuple[int, int, int],
    table: Table,
    order: Array,
    ends: Array,
    plan: Array,
    count: int,
    loss: int,
    kind: Kind,
    rule: Rule,
    losses: Array,
    stop: Array,
) -> None:
    """Take a step of the only member for each batch, whose mean loss before it is written to `losses`.

    `w` and `by` share memory with the values and the gradient of `vectors`, of which the first `in_matrices` numbers
    are matrices of a `shape` (count, rows, columns), and the next `decayed` shrink. Batch i has the rows
    order[ends[i] : ends[i+1]], and its step is plan[i], (3,), after `count` earlier ones. A `stop` (1,)
    that is not 0 any more ends the work after a step.
    """
    most = 0
    for i in range(len(plan)):
        most = max(most, ends[i + 1] - ends[i])
    dtype, own, by_own = vectors.values.dtype, member_of(w, 0), member_of(by, 0)
    wide, height = own.linear.shape[1] + own.head.shape[1], own.bias.size
    memory, by_memory, more = np.empty(wide * most, dtype), np.empty(wide * most, dtype), np.empty(wide * most, dtype)
    rungs, by_rungs = np.empty(height * most, dtype), np.empty(height * most, dtype)
    few, moves = np.empty((3, own.head.shape[0] * most), dtype), np.zeros(in_matrices, dtype)
    for i in range(len(plan)):
        if stop[0] != 0:
            break
        losses[i] = _gradients(
            own, by_own, table, order[ends[i] : ends[i + 1]], loss, kind, memory, by_memory, more, rungs, by_rungs, few
        )  # fmt: skip
        _step(vectors, in_matrices, decayed, shape, plan[i], count + i + 1, moves, rule)


def prepare_descent() -> None:
    """Compile what is here for float32, for one step of the smallest model."""
    (w, kind), (by, _) = smallest(), smallest()
    vectors = Vectors(*(np.ones(3, dtype=np.float32) for _ in range(4)))
    one = np.ones((1, 1), dtype=np.float32)
    table = Table(one, one, one[0])
    rule = Rule((0.9, 0.999), (0.8, 0.999), 1e-8, 1e-16, 0.2, 4.0, (3.0, -4.0, 2.0), 1, 64, 1.0)
    order, ends, plan, stop = np.zeros(1, np.int64), np.array([0, 1]), np.ones((1, 3)), np.zeros(1, np.int64)
    descend(w, by, vectors, 2, 1, (1, 1, 2), table, order, ends, plan, 0, 0, kind, rule, plan[0].copy(), stop)

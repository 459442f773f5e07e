"""Kernels on bags: weighted sums of rows of a table, and the way back from them."""

from __future__ import annotations

import numpy as np

from cofrnet.compiled import team
from cofrnet.compiled.jit import Array, jit

__all__ = ["add_bag_gradients", "bag_sums", "prepare_bags"]


@jit
def _sums(first: int, last: int, offsets: Array, ids: Array, weights: Array, table: Array, out: Array) -> None:
    for i in range(first, last):
        row = out[i]
        for j in range(row.size):
            row[j] = 0
        for e in range(offsets[i], offsets[i + 1]):
            own, weight = table[ids[e]], weights[e]
            for j in range(row.size):
                row[j] += weight * own[j]


def bag_sums(offsets: Array, ids: Array, weights: Array, table: Array, out: Array) -> None:
    """Fill `out`, (n, k), with sums over the entries of each row of weight times the row of `table`, (V, k).

    Shapes: offsets (n + 1,), ids and weights (entries,).
    """
    team.run(_sums, len(out), 2 * len(ids) * table.shape[1], offsets, ids, weights, table, out)


@jit
def add_bag_gradients(offsets: Array, ids: Array, weights: Array, slopes: Array, gradient: Array) -> None:
    """Add to the gradient by the table, (V, k), what comes from the slopes by the sums, (n, k)."""
    for i in range(len(slopes)):
        own = slopes[i]
        for e in range(offsets[i], offsets[i + 1]):
            row, weight = gradient[ids[e]], weights[e]
            for j in range(own.size):
                row[j] += weight * own[j]


def prepare_bags() -> None:
    """Compile what is here for float32."""
    ones, integers = np.ones((1, 1), dtype=np.float32), np.zeros(2, dtype=np.int64)
    _sums(0, 1, integers, integers[:1], ones[0], ones, ones)
    add_bag_gradients(integers, integers[:1], ones[0], ones, ones)

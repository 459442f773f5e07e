"""The ladder operation fused for the CPU: one pass over memory forward, one backward (numba).

Partial denominators come as a C-contiguous array of shape (outer, d+1, inner): the rung axis may stand anywhere in
memory, with `outer` elements before it and `inner` after. A *strip* is up to `STRIP` neighbours of the inner axis; all
rungs of a strip are worked through while it is in the first-level cache, so every number is read from and written to
memory once, whatever the depth. Strips are independent, which makes the result the same for any number of threads.

The rules for t = 0, +-inf and NaN are those of `poles`; the reference in `ladder` gives the same numbers to rounding.
This module needs numba and is imported on first use only; the compiled code is cached on disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray

__all__ = ["prepare", "sensitivity_products", "value"]

STRIP = 512
PARALLEL_FROM = 65_536  # elements of `a` below which starting a second thread costs more than it saves

_Array = NDArray[Any]
_Function = TypeVar("_Function", bound=Callable[..., None])


def _jit(function: _Function, parallel: bool = False) -> _Function:
    options: dict[str, Any] = {"parallel": parallel, "nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    compiled: Any
    try:
        compiled = numba.njit(function, cache=True, **options)
    except RuntimeError:  # no folder to cache in, neither beside the package nor in the user's home
        compiled = numba.njit(function, **options)
    return cast("_Function", compiled)


def _jit_parallel(function: _Function) -> _Function:
    return _jit(function, parallel=True)


# One rung of a strip: t <- a + r(t), and with it the slope s = r'(t) for the backward pass.


@_jit
def _smooth_rung(t: _Array, a: _Array, epsilon: Any, far: Any) -> None:
    one = epsilon / epsilon
    square = epsilon * epsilon
    for j in range(t.size):
        x = t[j]
        near = abs(x) < far
        t[j] = a[j] + (x if near else one) / (x * x + square if near else x)


@_jit
def _clamp_rung(t: _Array, a: _Array, epsilon: Any) -> None:
    one = epsilon / epsilon
    for j in range(t.size):
        x = t[j]
        size = abs(x)
        r = one / (epsilon if size < epsilon else size)
        t[j] = a[j] + (-r if x < 0 else r)


@_jit
def _smooth_rung_slope(t: _Array, a: _Array, s: _Array, epsilon: Any, far: Any) -> None:
    one = epsilon / epsilon
    square = epsilon * epsilon
    for j in range(t.size):
        x = t[j]
        near = abs(x) < far
        inverse = one / (x * x + square if near else x)
        r = x * inverse if near else inverse
        q = inverse if near else inverse * inverse
        s[j] = q - (r + r) * r
        t[j] = a[j] + r


@_jit
def _clamp_rung_slope(t: _Array, a: _Array, s: _Array, epsilon: Any) -> None:
    one = epsilon / epsilon
    zero = epsilon - epsilon
    for j in range(t.size):
        x = t[j]
        size = abs(x)
        inside = size < epsilon
        r = one / (epsilon if inside else size)
        s[j] = zero if inside else -(r * r)
        t[j] = a[j] + (-r if x < 0 else r)


@_jit
def _multiply(s: _Array, by: _Array) -> None:
    for j in range(s.size):
        s[j] *= by[j]


# All rungs of one strip.


@_jit
def _value_strip(strip: int, a: _Array, f: _Array, epsilon: Any, far: Any, smooth: bool) -> None:
    _, rungs, inner = a.shape
    per_row = (inner + STRIP - 1) // STRIP
    i, lo = strip // per_row, strip % per_row * STRIP
    hi = min(lo + STRIP, inner)
    t = f[i, lo:hi]
    t[:] = a[i, rungs - 1, lo:hi]
    for k in range(rungs - 2, -1, -1):
        if smooth:
            _smooth_rung(t, a[i, k, lo:hi], epsilon, far)
        else:
            _clamp_rung(t, a[i, k, lo:hi], epsilon)


@_jit
def _products_strip(strip: int, g: _Array, a: _Array, out: _Array, epsilon: Any, far: Any, smooth: bool) -> None:
    _, rungs, inner = a.shape
    per_row = (inner + STRIP - 1) // STRIP
    i, lo = strip // per_row, strip % per_row * STRIP
    hi = min(lo + STRIP, inner)
    t = out[i, 0, lo:hi]  # holds the tail on the way up, g on the way down
    t[:] = a[i, rungs - 1, lo:hi]
    for k in range(rungs - 1, 0, -1):
        if smooth:
            _smooth_rung_slope(t, a[i, k - 1, lo:hi], out[i, k, lo:hi], epsilon, far)
        else:
            _clamp_rung_slope(t, a[i, k - 1, lo:hi], out[i, k, lo:hi], epsilon)
    t[:] = g[i, lo:hi]
    for k in range(1, rungs):
        _multiply(out[i, k, lo:hi], out[i, k - 1, lo:hi])


# All strips, in turn or side by side. (Two functions each: numba's cache does not tell the two ways apart.)


@_jit
def _value_serial(strips: int, a: _Array, f: _Array, epsilon: Any, far: Any, smooth: bool) -> None:
    for strip in range(strips):
        _value_strip(strip, a, f, epsilon, far, smooth)


@_jit_parallel
def _value_parallel(strips: int, a: _Array, f: _Array, epsilon: Any, far: Any, smooth: bool) -> None:
    for strip in prange(strips):
        _value_strip(strip, a, f, epsilon, far, smooth)


@_jit
def _products_serial(strips: int, g: _Array, a: _Array, out: _Array, epsilon: Any, far: Any, smooth: bool) -> None:
    for strip in range(strips):
        _products_strip(strip, g, a, out, epsilon, far, smooth)


@_jit_parallel
def _products_parallel(strips: int, g: _Array, a: _Array, out: _Array, epsilon: Any, far: Any, smooth: bool) -> None:
    for strip in prange(strips):
        _products_strip(strip, g, a, out, epsilon, far, smooth)


class _Team:
    """Numba's threads, entered by one caller at a time and never after a fork.

    Not every threading layer of numba may be entered by two threads at once or by a forked child; whoever finds
    the team taken, or is such a child, does the work alone. The numbers are the same.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True

    def run(self, serial: Any, parallel: Any, elements: int, *arguments: Any) -> None:
        threads = min(torch.get_num_threads(), int(numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        if threads > 1 and elements >= PARALLEL_FROM and not self._forked and self._lock.acquire(blocking=False):
            try:
                numba.set_num_threads(threads)
                parallel(*arguments)
            finally:
                self._lock.release()
        else:
            serial(*arguments)


_team = _Team()


def _strip_count(a: _Array) -> int:
    outer, _, inner = a.shape
    return int(outer * ((inner + STRIP - 1) // STRIP))


def _scalars(a: _Array, epsilon: float, far: float) -> tuple[Any, Any]:
    return a.dtype.type(epsilon), a.dtype.type(far)


def value(a: _Array, f: _Array, epsilon: float, far: float, smooth: bool) -> None:
    """Write the value of every ladder into `f`. Shapes: a (outer, d+1, inner), f (outer, inner)."""
    _team.run(_value_serial, _value_parallel, a.size, _strip_count(a), a, f, *_scalars(a, epsilon, far), smooth)


def sensitivity_products(g: _Array, a: _Array, out: _Array, epsilon: float, far: float, smooth: bool) -> None:
    """Write g times the sensitivity df/da_k into `out`. Shapes: g (outer, inner), a and out (outer, d+1, inner)."""
    _team.run(
        _products_serial, _products_parallel, a.size, _strip_count(a), g, a, out, *_scalars(a, epsilon, far), smooth
    )


def prepare() -> None:
    """Compile the float32 kernels, or load them from the disk cache, so that no later call has to."""
    a, f, one = np.ones((1, 2, 1), dtype=np.float32), np.ones((1, 1), dtype=np.float32), np.float32(1)
    for run_value, run_products in ((_value_serial, _products_serial), (_value_parallel, _products_parallel)):
        run_value(1, a, f, one, one, True)
        run_products(1, f, a, np.empty_like(a), one, one, True)

"""How kernels are compiled and run: numba's options, and its threads."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numpy.typing import NDArray

__all__ = ["STRIP", "Array", "jit", "jit_parallel", "jit_sum", "part", "team"]

STRIP = 512
PARALLEL_FROM = 131_072  # elements below which starting a second thread costs more than it saves

Array = NDArray[Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def jit(function: _Function, parallel: bool = False, fastmath: frozenset[str] = frozenset({"contract"})) -> _Function:
    """Compile a function, cached on disk where there is a folder to cache in."""
    options: dict[str, Any] = {"parallel": parallel, "nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    compiled: Any
    try:
        compiled = numba.njit(function, cache=True, **options)
        _compile_again_after_changes(compiled)
    except RuntimeError:  # no folder to cache in, neither beside the package nor in the user's home
        compiled = numba.njit(function, **options)
    return cast("_Function", compiled)


@cache
def _sources() -> str:
    """What tells one version of all that is compiled from another."""
    texts = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in texts)).hexdigest()


def _compile_again_after_changes(compiled: Any) -> None:
    """Let what is cached be of no use once any of the modules here is another.

    Numba looks at the file of a function alone, but functions have code of those of other files in them.
    """
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = _sources()


def part(function: _Function) -> _Function:
    """For a function that another is made of: it is compiled as part of that one, and not a second time by itself."""
    return cast("_Function", numba.njit(function, inline="always"))


def jit_parallel(function: _Function) -> _Function:
    """Compile a function whose `prange` loops run on several threads."""
    return jit(function, parallel=True)


def jit_sum(function: _Function) -> _Function:
    """For sums over a strip: lanes may be added in another order, always the same one."""
    return jit(function, fastmath=frozenset({"contract", "reassoc", "nsz"}))


def _no_more_than_torch(most: int) -> int:
    """At most so many threads, and no more than torch uses, where that is loaded."""
    torch = sys.modules.get("torch")
    return most if torch is None else min(most, torch.get_num_threads())


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
        """Call the parallel function where that pays and may be done, else the serial one."""
        if elements >= PARALLEL_FROM and not self._forked:
            before = numba.get_num_threads()
            threads = _no_more_than_torch(before)
            if threads > 1 and self._lock.acquire(blocking=False):
                try:
                    numba.set_num_threads(threads)
                    parallel(*arguments)
                finally:
                    numba.set_num_threads(before)
                    self._lock.release()
                return
        serial(*arguments)


team = _Team()

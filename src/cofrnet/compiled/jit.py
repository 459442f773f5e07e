"""How kernels are compiled, and the threads they run on."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numpy.typing import NDArray

__all__ = ["STRIP", "Array", "jit", "jit_sum", "part", "team"]

STRIP = 512
PARALLEL_FROM = 1_048_576  # elements below which waking a second thread costs more than it saves
SHARES = 2  # of the work for each thread, which take them as they come

Array = NDArray[Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def jit(function: _Function, fastmath: frozenset[str] = frozenset({"contract"})) -> _Function:
    """Compile a function, cached on disk where there is a folder to cache in."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
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


def jit_sum(function: _Function) -> _Function:
    """For sums over a strip: lanes may be added in another order, always the same one."""
    return jit(function, fastmath=frozenset({"contract", "reassoc", "nsz"}))


def _most_threads() -> int:
    """As many threads as numba may use, and torch, where that is loaded."""
    torch = sys.modules.get("torch")
    own: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # numba makes it when it is imported
    return own if torch is None else min(own, torch.get_num_threads())


class _Team:
    """Threads that share the work of a kernel with the thread that calls it.

    They are threads of Python, which compiled code lets go of, so any number of callers may use them at once, within
    the work of others too. Shares are taken as they come; what is not begun when the caller has none left to take, it
    has done itself. What a share computes does not depend on the others, so the numbers are always the same.
    """

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Have no threads yet, as after a fork: those of the parent stay behind."""
        self._pool = ThreadPoolExecutor(thread_name_prefix="cofrnet")

    def run(self, kernel: Any, parts: int, elements: int, *arguments: Any) -> None:
        """Call kernel(first, last, *arguments) for all parts, on several threads where there is enough to do.

        `elements` says how much that is: rungs of a row, or what takes as long.
        """
        threads = min(_most_threads(), parts) if elements >= PARALLEL_FROM else 1
        if threads < 2:
            kernel(0, parts, *arguments)
            return
        count = min(parts, SHARES * threads)
        shares = deque((parts * i // count, parts * (i + 1) // count) for i in range(count))

        def work() -> None:
            while True:
                try:
                    share = shares.popleft()
                except IndexError:  # none left
                    return
                kernel(*share, *arguments)

        others: list[Future[None]] = []
        try:
            with suppress(RuntimeError):  # Python is ending, and starts no threads any more
                others.extend(self._pool.submit(work) for _ in range(threads - 1))
            work()
        finally:  # Ctrl-C may have come
            shares.clear()
            wait([other for other in others if not other.cancel()])
        for other in others:
            if not other.cancelled():
                other.result()


team = _Team()

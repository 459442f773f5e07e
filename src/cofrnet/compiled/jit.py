"""How kernels are compiled and run: numba's options, and its threads."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["STRIP", "Array", "jit", "jit_sum", "part", "team"]

STRIP = 512
PARALLEL_FROM = 1_048_576  # elements below which waking a second thread costs more than it saves
SHARES = 2  # of the work for each thread, which take them as they come

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


def jit_sum(function: _Function) -> _Function:
    """For sums over a strip: lanes may be added in another order, always the same one."""
    return jit(function, fastmath=frozenset({"contract", "reassoc", "nsz"}))


def _no_more_than_torch(most: int) -> int:
    """At most so many threads, and no more than torch uses, where that is loaded."""
    torch = sys.modules.get("torch")
    return most if torch is None else min(most, torch.get_num_threads())


def _call(_: Any, address: Any, number: Any) -> Any:
    """Call the C function at an address with a number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), [integer]).as_pointer())
        builder.call(function, [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


call: Any = intrinsic(_call)


@partial(jit, parallel=True)
def _on_threads(address: int, count: int) -> None:
    for i in prange(count):
        call(address, np.int64(i))


class _Team:
    """Numba's threads, entered by one caller at a time and never after a fork.

    Not every threading layer of numba may be entered by two threads at once or by a forked child; whoever finds
    the team taken, or is such a child, does the work alone. Threads take shares of the work as they come. What a share
    computes does not depend on the others, so the numbers are always the same.

    The threads come back to Python, which compiled code lets go of, to call the kernel: so there is one compiled
    kernel for work on one thread and on many.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forked = False
        self._work: Callable[[], object] = int
        self._come_back = ctypes.CFUNCTYPE(None, ctypes.c_int64)(lambda _: self._work())
        self._address: Any = ctypes.cast(self._come_back, ctypes.c_void_p).value
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._forked = True

    def run(self, kernel: Any, parts: int, elements: int, *arguments: Any) -> None:
        """Call kernel(first, last, *arguments) for all parts, on several threads where there is enough to do.

        `elements` says how much that is: rungs of a row, or what takes as long.
        """
        if elements >= PARALLEL_FROM and parts > 1 and not self._forked:
            before = numba.get_num_threads()
            threads = min(_no_more_than_torch(before), parts)
            if threads > 1 and self._lock.acquire(blocking=False):
                try:
                    numba.set_num_threads(threads)
                    self._share(kernel, parts, threads, arguments)
                finally:
                    self._work = int  # which keeps no arrays
                    numba.set_num_threads(before)
                    self._lock.release()
                return
        kernel(0, parts, *arguments)

    def _share(self, kernel: Any, parts: int, threads: int, arguments: tuple[Any, ...]) -> None:
        count = min(parts, SHARES * threads)
        shares = deque((parts * i // count, parts * (i + 1) // count) for i in range(count))
        ends: list[BaseException | None] = []

        def work() -> None:
            try:
                while (share := _next(shares)) is not None:
                    kernel(*share, *arguments)
                ends.append(None)
            except BaseException as error:  # Ctrl-C too: an error must not end in the threads of numba
                shares.clear()
                ends.append(error)

        self._work = work
        _on_threads(self._address, threads)
        if len(ends) < threads:  # Ctrl-C came before `work` could tell
            raise KeyboardInterrupt
        for error in filter(None, ends):
            raise error


def _next(shares: deque[tuple[int, int]]) -> tuple[int, int] | None:
    try:
        return shares.popleft()
    except IndexError:
        return None


team = _Team()

"""How kernels are compiled."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

__all__ = ["STRIP", "Array", "jit", "jit_sum", "part"]

STRIP = 512

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


if hasattr(os, "register_at_fork"):  # a child must not be born while another thread compiles, as its lock stays taken
    _free = global_compiler_lock.release
    os.register_at_fork(before=global_compiler_lock.acquire, after_in_parent=_free, after_in_child=_free)

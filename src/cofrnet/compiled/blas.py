"""The BLAS that compiled code calls: SciPy's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

__all__ = ["one_thread_of_blas"]


@cache
def _blas() -> Any:
    import scipy.linalg.cython_blas  # noqa: F401  # compiled code calls it; only what is loaded can be found

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def _in_control() -> Iterator[None]:
    """Within the context, the thread that is in it may set limits.

    From version 3.8 on, threadpoolctl heeds only the first thread that ever set one, as long as it lives; ours are set
    by one thread and lifted by another.
    """
    let_go = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    let_go(force=True)
    try:
        yield
    finally:
        let_go(force=True)


class _OneThread:
    """A limit on what may be entered several times at once: the first to come sets it, the last to go lifts it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                with _in_control():
                    self._limit = _blas().limit(limits=1)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limit is not None:
                with _in_control():
                    self._limit.restore_original_limits()


_one_thread = _OneThread()


def one_thread_of_blas() -> _OneThread:
    """Within the context, the BLAS that compiled code calls works on the thread that calls it."""
    return _one_thread

"""The BLAS that compiled code calls: SciPy's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import threadpoolctl

__all__ = ["one_thread_of_blas"]


@cache
def _libraries() -> list[Any]:
    import scipy.linalg.cython_blas  # noqa: F401  # compiled code calls it; only what is loaded can be found

    return list(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def _in_control() -> Iterator[None]:
    """Within the context, the thread that is in it may set limits.

    From version 3.8 on, threadpoolctl heeds only the first thread that ever set one, as long as it lives; ours are set
    by one thread and lifted by another.
    """
    controller = getattr(threadpoolctl, "OpenBLASController", None)
    let_go = getattr(controller, "clear_controlling_thread", lambda force: None)
    let_go(force=True)
    try:
        yield
    finally:
        let_go(force=True)


class _OneThread:
    """A limit that several threads may enter at once: whoever comes sets it, the last to go lifts it.

    Ctrl-C may come between any two lines here. So a thread is known by its name and not counted, and what there was
    before is known before it is changed: what an interrupt leaves behind, the next use of the same thread mends.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: set[int] = set()
        self._before: list[int] | None = None
        if hasattr(os, "register_at_fork"):
            held, free = self._lock.acquire, self._lock.release
            os.register_at_fork(before=held, after_in_parent=free, after_in_child=self._after_fork)

    def __enter__(self) -> None:
        with self._lock:
            self._inside.add(threading.get_ident())
            if self._before is None:
                self._before = [library.get_num_threads() for library in _libraries()]
            with _in_control():
                for library in _libraries():
                    library.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Be no longer within the limit, if this thread is: Ctrl-C may have come on its way out."""
        with self._lock:
            self._inside.discard(threading.get_ident())
            self._lift()

    def _lift(self) -> None:
        """Undo the limit once all have gone, but where somebody has set another since."""
        if self._inside or self._before is None:
            return
        with _in_control():
            for library, before in zip(_libraries(), self._before, strict=True):
                if library.get_num_threads() == 1:
                    library.set_num_threads(before)
        self._before = None

    def _after_fork(self) -> None:
        """Of all threads, a child has only the one that forked, which has the lock."""
        self._inside &= {threading.get_ident()}
        self._lift()
        self._lock.release()


_one_thread = _OneThread()


def one_thread_of_blas() -> _OneThread:
    """Within the context, BLAS works on the thread that calls it. A thread that is in it must not enter again.

    A limit of OpenBLAS holds for the whole process, NumPy's included; one of MKL, for the thread that sets it.
    """
    return _one_thread

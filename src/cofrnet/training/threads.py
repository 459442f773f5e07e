"""As many threads as the work is worth."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["EACH", "look_after_forks", "threads_for"]

EACH = 30_000_000  # multiplications of a step that keep a thread busy; with fewer, threads wait for each other


class _Threads:
    """How many threads torch uses, while several callers may want other numbers of them at once.

    What one thread sets, others that begin within that time take for their own; so all go back to the number there was
    before the first came.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[int, int] = {}  # numbers to go back to, by the thread
        if hasattr(os, "register_at_fork"):
            held, free = self._lock.acquire, self._lock.release
            os.register_at_fork(before=held, after_in_parent=free, after_in_child=self._after_fork)

    def enter(self, share: Callable[[int], int]) -> None:
        with self._lock:
            before = next(iter(self._inside.values()), torch.get_num_threads())
            self._inside[threading.get_ident()] = before
            torch.set_num_threads(share(before))

    def leave(self) -> None:
        with self._lock:
            before = self._inside.pop(threading.get_ident(), None)
            if before is not None:
                torch.set_num_threads(before)

    def _after_fork(self) -> None:
        """A child has another number of threads, for good."""
        self._inside.clear()
        self._lock.release()


_threads = _Threads()


@contextmanager
def threads_for(multiplications: float, among: int = 1) -> Iterator[None]:
    """Let torch use as many of its threads as steps of so many multiplications are worth, at least one.

    Threads with little to do gain nothing, and where others work on the machine too, every step waits for the slowest.
    The work is divided `among` so many callers, each of which may use its share of the threads. Not to be entered again
    by a thread that is within.
    """
    _threads.enter(lambda most: max(1, min(most, int(multiplications // EACH)) // among))
    try:
        yield
    finally:
        _threads.leave()


@cache
def look_after_forks() -> None:
    """From now on, let forked children use torch on one thread.

    The threads that torch has started do not go with them, and the first of their operations to wait for one would wait
    for ever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

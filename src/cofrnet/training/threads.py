"""As many threads as the work is worth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["EACH", "look_after_forks", "threads_for"]

EACH = 30_000_000  # multiplications of a step that keep a thread busy; with fewer, threads wait for each other


@contextmanager
def threads_for(multiplications: float, among: int = 1) -> Iterator[None]:
    """Let torch use as many of its threads as steps of so many multiplications are worth, at least one.

    Threads with little to do gain nothing, and where others work on the machine too, every step waits for the slowest.
    The work is divided `among` so many callers, each of which may use its share of the threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, int(multiplications // EACH)) // among))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def look_after_forks() -> None:
    """From now on, let forked children use torch on one thread.

    The threads that torch has started do not go with them, and the first of their operations to wait for one would wait
    for ever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

"""As many threads as the work is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["threads_for"]

EACH = 30_000_000  # multiplications of a step that keep a thread busy; with fewer, threads wait for each other


@contextmanager
def threads_for(multiplications: float) -> Iterator[None]:
    """Let torch use as many of its threads as steps of so many multiplications are worth, at least one.

    Threads with little to do gain nothing, and where others work on the machine too, every step waits for the slowest.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, int(multiplications // EACH))))
    try:
        yield
    finally:
        torch.set_num_threads(before)

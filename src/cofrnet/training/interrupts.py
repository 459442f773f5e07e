"""Ctrl-C during a fit: what must not be cut in two, and what is kept."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["FitInterruptedWarning", "after_training", "whole"]


class FitInterruptedWarning(UserWarning):
    """The fit was interrupted (Ctrl-C); the best model so far was kept."""


@contextmanager
def whole() -> Iterator[None]:
    """Within the context Ctrl-C waits for its end, so that what is written there belongs together.

    Signals come to the main thread alone; others have nothing to wait for.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[-1])


@contextmanager
def after_training() -> Iterator[None]:
    """Within the context Ctrl-C ends nothing: the model is there, and what is still to be done with it is done."""
    try:
        with whole():
            yield
    except KeyboardInterrupt:
        message = "the fit was interrupted when its training was over; the model is kept."
        warnings.warn(message, FitInterruptedWarning, stacklevel=3)

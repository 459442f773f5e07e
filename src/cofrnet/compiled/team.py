"""Threads that share work with the thread that calls.

They are threads of Python, which compiled code lets go of, so any number of callers may use them at once, within the
work of others too. What a share of the work computes does not depend on the others, so the numbers are always the same.
"""

from __future__ import annotations

import os
import sys
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import numba

__all__ = ["Team", "run"]

PARALLEL_FROM = 1_048_576  # elements below which waking a second thread costs more than it saves
SHARES = 2  # of the work for each thread, which take them as they come
PATIENCE = 0.1  # seconds after which who waits looks again: Ctrl-C may have come between a message and what it says


class _Task:
    """Work that several threads do, each by calling it until it returns."""

    def __init__(self, work: Callable[[], None], stop: Callable[[], None]) -> None:
        self.work, self.stop = work, stop
        self.errors: list[BaseException] = []
        self._over = False
        self._at_it: list[None] = []  # an entry for every thread that is
        self._been: list[None] = []  # and for every one that has been
        self._news: SimpleQueue[None] = SimpleQueue()

    def __call__(self) -> None:
        """Work on the thread of a team."""
        self._at_it.append(None)
        try:
            if not self._over:
                self.work()
        except BaseException as error:
            self.errors.append(error)
            self.stop()
        finally:
            self._been.append(None)
            self._at_it.pop()
            self._news.put(None)

    def wait_for(self, threads: int) -> None:
        """Wait until so many threads have been at it."""
        while len(self._been) < threads:
            self._wait()

    def end(self) -> None:
        """Let no thread begin any more, and wait for those that have begun, whatever comes."""
        self._over = True
        interrupt: KeyboardInterrupt | None = None
        while self._at_it:
            try:
                self._wait()
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _wait(self) -> None:
        with suppress(Empty):
            self._news.get(timeout=PATIENCE)


class Team:
    """Threads that wait for work: as many as were ever asked for at once, and none before.

    Ctrl-C may come between any two lines of the thread that calls, so nothing here has a lock that it could leave
    taken. Where there are no more threads to be had, as when Python ends, the caller does all the work itself.
    """

    def __init__(self) -> None:
        self._process = 0

    def call(
        self, work: Callable[[], None], threads: int, stop: Callable[[], None] = lambda: None, watching: bool = False
    ) -> None:
        """Call work() on so many threads at once, this one among them; it returns when nothing is left to do.

        After an error of one of them, or Ctrl-C, stop() is called, by which the others should end early. A `watching`
        caller does not work itself, if others can, and so sees Ctrl-C at once.
        """
        task = _Task(work, stop)
        try:
            handed = self._hand_out(task, threads if watching else threads - 1)
            if watching and handed:
                task.wait_for(handed)
            else:
                work()
        except BaseException:
            stop()
            raise
        finally:
            task.end()
        if task.errors:
            raise task.errors[0]

    def release(self) -> None:
        """End the threads."""
        if self._process == os.getpid():
            for _ in range(self._threads):
                self._tasks.put(None)
        self._process = 0

    def _hand_out(self, task: _Task, threads: int) -> int:
        """Give a task to so many threads, or to as many as there can be; how many these are."""
        if self._process != os.getpid():  # those of a parent stayed behind when it forked
            self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
            self._threads, self._process = 0, os.getpid()
        with suppress(RuntimeError):  # no more are to be had
            while self._threads < threads:
                start_new_thread(_serve, (self._tasks,))
                self._threads += 1
        threads = min(threads, self._threads)
        for _ in range(threads):
            self._tasks.put(task)
        return threads


def _serve(tasks: SimpleQueue[_Task | None]) -> None:
    """Work at one task after the other, as a thread of a team does."""
    while (task := tasks.get()) is not None:
        task()
        del task  # and what it holds, until the next one comes


_team = Team()


def run(kernel: Any, parts: int, elements: int, *arguments: Any) -> None:
    """Call kernel(first, last, *arguments) for all parts, on several threads where there is enough to do.

    `elements` says how much that is: rungs of a row, or what takes as long. Threads take shares of the parts as they
    come; what others have not begun when the caller has none left to take, it has done itself.
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

    _team.call(work, threads, shares.clear)


def _most_threads() -> int:
    """As many threads as numba may use, and torch, where that is loaded."""
    torch = sys.modules.get("torch")
    own: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # numba makes it when it is imported
    return own if torch is None else min(own, torch.get_num_threads())

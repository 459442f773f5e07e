"""Threads that share work: every part is done once, whoever does it, and whatever comes between."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cofrnet.compiled import team


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(team, "PARALLEL_FROM", 0)
    monkeypatch.setattr(team, "_most_threads", lambda: 2)


def counting(first, last, out, seconds=0.0):
    time.sleep(seconds)
    for i in range(first, last):
        out[i] += 1


def all_is_well():
    out = np.zeros(20)
    team.run(counting, 20, 1, out)
    return (out == 1).all()


@pytest.mark.parametrize("parts", [0, 1, 2, 3, 7, 100])
def test_every_part_is_done_once(parts):
    for _ in range(50):
        out = np.zeros(parts)
        team.run(counting, parts, 1, out)
        assert (out == 1).all()


def two_meet():
    seen, together = set(), threading.Barrier(2)

    def meet(first, last):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            together.wait(60)

    team.run(meet, 12, 1)
    return len(seen) == 2


def test_two_threads_work():
    assert two_meet()


def test_callers_at_once():
    def call(_):
        out = np.zeros(20)
        team.run(counting, 20, 1, out, 0.0005)
        return (out == 1).all()

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(call, range(60)))


def test_work_within_work():
    out = np.zeros((8, 8))
    team.run(lambda first, last: [team.run(counting, 8, 1, out[i]) for i in range(first, last)], 8, 1)
    assert (out == 1).all()


@pytest.mark.parametrize("share", [0, 1])
def test_errors_come_to_the_caller(share):
    def fail(first, last):
        if first == share:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        team.run(fail, 2, 1)
    assert all_is_well()


def test_interrupts_end_the_work():
    """After Ctrl-C no share is begun, and those that were are over when the caller goes on."""
    begun, ended = [], []

    def work(first, last):
        begun.append(first)
        try:
            time.sleep(0.2)
        finally:
            ended.append(first)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            team.run(work, 12, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert len(begun) == len(ended) <= 3
    assert all_is_well()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_interrupts_at_any_moment_leave_nothing_behind():
    rng = np.random.default_rng(0)
    came = 0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(500):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
                for _ in range(50):
                    team.run(counting, 20, 1, np.zeros(20))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                came += 1
            assert all_is_well()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert came > 50
    assert two_meet()


def test_no_threads_are_needed(monkeypatch):
    def none_left(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(team, "start_new_thread", none_left)
    own, here = team.Team(), []
    own.call(lambda: here.append(threading.get_ident()), 3, watching=True)
    own.release()
    assert here == [threading.get_ident()]


def test_who_watches_sees_errors_and_ends_the_others():
    own, stop = team.Team(), threading.Event()
    first = threading.Lock()

    def work():
        if first.acquire(blocking=False):
            raise ZeroDivisionError
        assert stop.wait(60)

    with pytest.raises(ZeroDivisionError):
        own.call(work, 2, stop=stop.set, watching=True)
    own.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_forked_children_have_threads_of_their_own():
    assert all_is_well()
    child = os.fork()
    if child == 0:
        os._exit(0 if all_is_well() and two_meet() else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_it_works_while_python_ends():
    code = """
import atexit
import numpy as np
from cofrnet.compiled import team

def count(first, last, out):
    out[first:last] += 1

def work():
    out = np.zeros(20)
    team.run(count, 20, 1, out)
    print((out == 1).all())

team.PARALLEL_FROM, team._most_threads = 0, lambda: 2
atexit.register(work)
work()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")

"""Compiled steps: the same numbers as steps by torch, for any number of threads; Ctrl-C ends them."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from threadpoolctl import threadpool_limits

from cofrnet import CoFrNetRegressor
from cofrnet.compiled import blas
from cofrnet.nn import CoFrNet
from cofrnet.training import (
    FitInterruptedWarning,
    LogLoss,
    LoopOptions,
    MultinomialLogLoss,
    Rows,
    SquaredError,
    train,
)
from cofrnet.training.members import MemberSteps
from tests.tolerances import STEPS

LOSSES = {
    "two classes": (LogLoss(), 1),
    "smoothed": (LogLoss(0.1), 1),
    "classes": (MultinomialLogLoss(0.05), 3),
    "numbers": (SquaredError(), 2),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def some_rows(outputs, weights, members, n=300, p=5):
    x = torch.randn(n, p, generator=seeded())
    y = {
        1: (torch.rand(n, generator=seeded(1)) > 0.5).float(),
        2: torch.randn(n, 2, generator=seeded(1)),
        3: torch.randint(0, 3, (n,), generator=seeded(1)),
    }[outputs]
    shape = {"none": None, "of rows": (n,), "of members": (n, members)}[weights]
    return Rows(x, y, None if shape is None else torch.rand(shape, generator=seeded(2)))


def trained(data, loss, outputs, **fields):
    model = CoFrNet(n_features=data.x.shape[1], n_outputs=outputs, generator=seeded(), **fields)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert isinstance(loss, LogLoss | MultinomialLogLoss | SquaredError)
    history = train(model, loss, data, options=LoopOptions(3, 64), generator=seeded()).history
    moved = max(float((value - before[name]).abs().max()) for name, value in model.state_dict().items())
    assert moved > 0.01
    return model.state_dict(), history


@pytest.mark.parametrize("weights", ["none", "of rows", "of members"])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(
    "fields",
    [
        {"variant": "S", "n_ladders": 7, "ladders_per_feature": 2},
        {"variant": "S", "n_ladders": 7, "curved": (0, 1, 3), "pole": "clamp"},
        {"variant": "S", "n_ladders": 70},  # more than directions are found for at once
        {"variant": "F", "n_ladders": 12},  # more ladders than inputs
        {"variant": "D"},
    ],
    ids=["stacked", "clamped", "many", "full", "curves"],
)
def test_compiled_steps_are_those_of_torch(fields, kind, members, weights, monkeypatch):
    loss, outputs = LOSSES[kind]
    data = some_rows(outputs, weights, members)
    state, history = trained(data, loss, outputs, n_members=members, **fields)
    monkeypatch.setattr(MemberSteps, "cover", lambda *_: False)
    expected, expected_history = trained(data, loss, outputs, n_members=members, **fields)
    for name, value in state.items():
        torch.testing.assert_close(value, expected[name], **STEPS)
    for name, values in history.items():
        assert values == pytest.approx(expected_history[name], rel=1e-4)


def test_numbers_of_threads_do_not_matter():
    states, before = [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        try:
            states.append(trained(some_rows(1, "of members", 3), LogLoss(), 1, n_members=3)[0])
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_what_they_do_not_cover():
    def cover(model, loss=None, data=None):
        return MemberSteps.cover(model, loss or LogLoss(), data or some_rows(1, "none", 1), 64)

    class Other(LogLoss):
        def __call__(self, scores, y):
            return 2 * super().__call__(scores, y)

    frozen = CoFrNet(n_features=5)
    frozen.linear.requires_grad_(False)
    uneven = CoFrNet(n_features=5, variant="DL")
    assert cover(CoFrNet(n_features=5))
    assert not cover(CoFrNet(n_features=5), Other())
    assert not any(cover(model) for model in (frozen, uneven, CoFrNet(n_features=5, dropout=0.1)))
    assert not cover(CoFrNet(n_features=5, subsets=((0, 1),)))
    assert not cover(CoFrNet(n_features=5).double(), data=some_rows(1, "none", 1).double())


@pytest.mark.parametrize("members", [1, 2])
def test_interrupt_ends_the_steps_at_once(members):
    """Ctrl-C in the middle of an epoch that would take far longer: no thread goes on, the best weights are kept."""
    model = CoFrNet(n_features=5, n_ladders=512, n_members=members, generator=seeded())  # seconds an epoch
    start = {name: value.clone() for name, value in model.state_dict().items()}
    data = some_rows(1, "none", 1, n=1000)
    many = Rows(data.x.repeat(2000, 1), data.y.repeat(2000))  # two million rows
    trained(data, LogLoss(), 1)  # compiled
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.warns(FitInterruptedWarning, match="after 0 of 9 epochs"):
            found = train(model, LogLoss(), many, options=LoopOptions(9, 256), generator=seeded())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert found.interrupted
    assert not any(thread.name.startswith("cofrnet-member") for thread in threading.enumerate())
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())


def test_what_a_callback_changes_is_trained_on():
    def change(epoch):
        with torch.no_grad():
            epoch.model.linear.fill_(5.0)

    data, model = some_rows(1, "none", 1), CoFrNet(n_features=5, n_members=2, generator=seeded())
    options = LoopOptions(2, 64, learning_rate=1e-6, weight_decay=0.0)
    losses = train(model, LogLoss(), data, options=options, generator=seeded(), callbacks=[change]).history["loss"]
    assert losses[1] > losses[0] + 1


def test_a_member_without_validation_rows_has_no_loss_of_them():
    data, model = some_rows(1, "of members", 2), CoFrNet(n_features=5, n_members=2, generator=seeded())
    weight = data.weight.clone()
    weight[:, 1] = 0
    held = Rows(data.x, data.y, weight)
    found = train(model, LogLoss(), data, validation=held, options=LoopOptions(2, 64), generator=seeded())
    assert all(math.isnan(value) for value in found.history["validation_loss"])


def test_a_limit_of_blas_that_fails_is_set_the_next_time(monkeypatch):
    def fails():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(blas, "_libraries", fails)
        with pytest.raises(KeyboardInterrupt), blas.one_thread_of_blas():
            pass

    before = threads_of_blas()
    with blas.one_thread_of_blas():
        assert set(threads_of_blas()) == {1}
    assert threads_of_blas() == before


def test_a_fit_lifts_the_limit_that_an_interrupt_has_left_behind(monkeypatch):
    before, limit, x = threads_of_blas(), blas.one_thread_of_blas(), torch.randn(60, 2, generator=seeded()).numpy()
    with monkeypatch.context() as patch:
        patch.setattr(type(limit), "__exit__", lambda *_: None)
        with limit:
            pass
    assert set(threads_of_blas()) == {1}
    with pytest.raises(ValueError, match="depth must be"):
        CoFrNetRegressor(depth=-1).fit(x, x[:, 0])
    assert threads_of_blas() == before


def threads_of_blas():
    return [library.get_num_threads() for library in blas._libraries()]


def test_interrupts_leave_no_limit_of_blas_behind():
    """Ctrl-C at any moment of predictions: the next one mends what it has left."""
    model, x = CoFrNet(n_features=4, generator=seeded()), torch.randn(5, 4, generator=seeded())
    before = threads_of_blas()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with torch.no_grad():
            model(x)  # compiled
            for i in range(500):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + i % 20))
                    while True:
                        model(x)
                model(x)
                assert threads_of_blas() == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_limit_of_blas_is_set_and_lifted_by_any_thread():
    """One thread is the first to come, another the last to go, and a third has set a limit before and still lives."""
    before, there, entered, go, gone, end = threads_of_blas(), *(threading.Event() for _ in range(5))

    def sets_one():
        threadpool_limits(limits=max(before), user_api="blas")
        there.set()
        end.wait(60)

    def is_first():
        there.wait(60)
        with blas.one_thread_of_blas():
            entered.set()
            go.wait(60)
        gone.set()

    threads = [threading.Thread(target=work) for work in (sets_one, is_first)]
    for thread in threads:
        thread.start()
    try:
        assert entered.wait(60)
        with blas.one_thread_of_blas():
            go.set()
            assert gone.wait(60)
            assert set(threads_of_blas()) == {1}
        assert threads_of_blas() == before
    finally:
        end.set()
        go.set()
        for thread in threads:
            thread.join()


FIT = """
import hashlib
import numpy as np
from cofrnet import CoFrNetClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(6000, 12))
y = (X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=6000) > 0).astype(int)
model = CoFrNetClassifier(max_epochs=3, random_state=0).fit(X, y)
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.model_.parameters())).hexdigest())
"""


def test_threads_of_blas_do_not_matter():
    """The same weights in every process, to the bit; products are large enough here for BLAS to divide them."""
    found = set()
    for count in ("1", "2", "2", "2"):
        threads = {"OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        command = [sys.executable, "-c", FIT]
        found.add(
            subprocess.run(command, env=os.environ | threads, capture_output=True, check=True, timeout=300).stdout
        )
    assert len(found) == 1

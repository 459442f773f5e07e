import itertools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from cofrnet import core
from cofrnet.datasets import waveform
from cofrnet.nn import CoFrNet
from cofrnet.training import (
    AbsoluteError,
    Checkpoint,
    Decay,
    FitInterruptedWarning,
    Huber,
    LogLoss,
    LoopOptions,
    MultinomialLogLoss,
    ProgressBar,
    Rows,
    SquaredError,
    Stream,
    evaluate,
    loop,
    train,
)
from cofrnet.training.threads import threads_for


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def wave():
    X, y = waveform(900, seed=0)
    x, y = torch.as_tensor(X, dtype=torch.float32) / 3, torch.as_tensor(y)
    return Rows(x[:700], y[:700]), Rows(x[700:], y[700:])


def small(seed=0, **fields):
    return CoFrNet(**{"n_features": 40, "n_outputs": 3, "n_ladders": 4, **fields}, generator=seeded(seed))


OPTIONS = LoopOptions(max_epochs=8, batch_size=64)


def test_loss_falls_and_the_seed_decides(wave):
    data, validation = wave

    def fitted(seed):
        model = small(seed)
        trained = train(
            model, MultinomialLogLoss(), data, validation=validation, options=OPTIONS, generator=seeded(seed)
        )
        assert not model.training
        return trained.history, model.state_dict()

    (history, one), (_, two), (_, other) = fitted(0), fitted(0), fitted(1)
    assert set(history) == {"loss", "learning_rate", "validation_loss"}
    assert all(len(values) == 8 for values in history.values())
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    assert max(history["learning_rate"]) <= OPTIONS.learning_rate
    assert history["learning_rate"][-1] < 0.05 * OPTIONS.learning_rate
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_torch_global_generator_is_not_touched(wave, dropout):
    data, validation = wave
    state = torch.get_rng_state()
    model = small(dropout=dropout)
    model.dropout.generator = seeded(1)
    train(model, MultinomialLogLoss(), data, validation=validation, options=OPTIONS, generator=seeded())
    assert torch.equal(torch.get_rng_state(), state)


def test_overfitting_is_undone_by_the_best_weights(wave):
    data, validation = wave
    few = data.select(torch.arange(60))
    model = small()
    options = LoopOptions(max_epochs=60, batch_size=10, learning_rate=0.1, weight_decay=0.0)
    trained = train(model, MultinomialLogLoss(), few, validation=validation, options=options, generator=seeded())
    losses = trained.history["validation_loss"]
    assert losses[-1] > 1.5 * min(losses), "the example should overfit"
    kept = float(evaluate(model, validation, [MultinomialLogLoss()])[0])
    assert kept == pytest.approx(min(losses), rel=1e-5)
    assert trained.best_epoch == losses.index(min(losses))


def test_a_start_that_is_never_bettered_is_kept(wave):
    data, validation = wave
    model = small()
    train(model, MultinomialLogLoss(), data, validation=validation, options=OPTIONS, generator=seeded())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    wrecking = LoopOptions(max_epochs=2, batch_size=64, learning_rate=5.0, clip_norm=None, cycle=False)
    trained = train(model, MultinomialLogLoss(), data, validation=validation, options=wrecking, generator=seeded())
    assert trained.best_epoch == -1
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_patience_and_callbacks_end_the_training(wave):
    data, validation = wave
    options = LoopOptions(max_epochs=50, batch_size=64, learning_rate=1.0, patience=3)
    trained = train(small(), MultinomialLogLoss(), data, validation=validation, options=options, generator=seeded())
    assert len(trained.history["loss"]) < 50
    seen = []

    def stop_at_two(epoch):
        seen.append((epoch.number, epoch.max_epochs, epoch.history["loss"]))
        return epoch.number == 2

    trained = train(small(), MultinomialLogLoss(), data, options=OPTIONS, generator=seeded(), callbacks=[stop_at_two])
    assert [number for number, _, _ in seen] == [0, 1, 2]
    assert [loss for _, _, loss in seen] == trained.history["loss"]


def test_weight_decay_is_that_of_the_whole_training(wave):
    data, _ = wave
    for batch_size, epochs in [(64, 4), (175, 9)]:
        model = small()
        model.dead = torch.nn.Parameter(torch.ones(3))
        loss = MultinomialLogLoss()
        options = LoopOptions(max_epochs=epochs, batch_size=batch_size, weight_decay=2.0)

        def with_dead(scores, y, model=model, loss=loss):
            return loss(scores, y) + 0 * model.dead.sum()

        train(model, with_dead, data, options=options, generator=seeded())
        assert model.dead.detach().numpy() == pytest.approx(math.exp(-2), rel=1e-4)


def test_weight_decay_may_go_by_what_was_reached(wave):
    data, validation = wave
    asked = []

    def decay(done, lowest):
        asked.append((done, lowest))
        return Decay(3.0, 3.0)

    def fit(weight_decay, validation):
        model = small()
        options = LoopOptions(max_epochs=5, batch_size=64, weight_decay=weight_decay)
        return model, train(
            model, MultinomialLogLoss(), data, validation=validation, options=options, generator=seeded()
        )

    one, trained = fit(decay, validation)
    losses = trained.history["validation_loss"]
    assert asked == [(i / 5, min(losses[:i], default=math.inf)) for i in range(5)]
    other, _ = fit(3.0, validation)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    asked.clear()
    fit(decay, None)
    assert asked == [(i / 5, math.inf) for i in range(5)]


def test_matrices_may_have_a_decay_of_their_own():
    """Where nothing is left to learn, only decay moves the weights."""
    model = small()
    data = Rows(torch.zeros(64, 40), torch.zeros(64, dtype=torch.long))
    full, curves = (bank.weight.detach().clone() for bank in (model.full, model.curves))

    def no_loss(scores, y):
        return 0 * scores.sum(-1)

    options = LoopOptions(max_epochs=3, batch_size=16, weight_decay=lambda done, lowest: Decay(2.0, 0.5))
    train(model, no_loss, data, options=options, generator=seeded())
    torch.testing.assert_close(model.full.weight.detach(), full * math.exp(-2), rtol=1e-4, atol=0)
    torch.testing.assert_close(model.curves.weight.detach(), curves * math.exp(-0.5), rtol=1e-4, atol=0)


def interrupted_fit(wave, said="", callbacks=()):
    """A fit that Ctrl-C ends: it says so, and keeps the weights that were best."""
    data, validation = wave
    model, run = small(), {"options": OPTIONS, "generator": seeded(), "callbacks": callbacks}
    with pytest.warns(FitInterruptedWarning, match=said):
        trained = train(model, MultinomialLogLoss(), data, validation=validation, **run)
    assert trained.interrupted
    kept = float(evaluate(model, validation, [MultinomialLogLoss()])[0])
    assert kept == pytest.approx(min(trained.history["validation_loss"]), rel=1e-5)
    return trained


def test_ctrl_c_does_not_cut_what_is_kept_in_two(wave, monkeypatch):
    """The best weights are those of one epoch, and the history has all its columns, wherever the signal comes."""
    real, calls = loop.numbers_of, itertools.count()

    def interrupted_within(model):
        for i, found in enumerate(real(model)):
            if i == 2 and next(calls) == 5:
                signal.raise_signal(signal.SIGINT)
            yield found

    monkeypatch.setattr(loop, "numbers_of", interrupted_within)
    trained = interrupted_fit(wave)
    assert len({len(column) for column in trained.history.values()}) == 1


def test_interrupt_keeps_the_best_and_says_so(wave):
    def interrupt(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    interrupted_fit(wave, "interrupted after 4 of 8 epochs; the best model so far is kept", [interrupt])


def test_members_side_by_side_are_members_alone(wave):
    """With one batch an epoch and no clipping, training members together or apart gives the same weights."""
    data, validation = wave
    options = LoopOptions(max_epochs=5, batch_size=10_000)
    together = small(n_members=3)
    alone = [together.member(i) for i in range(3)]
    train(together, MultinomialLogLoss(), data, validation=validation, options=options, generator=seeded())
    for i, model in enumerate(alone):
        train(model, MultinomialLogLoss(), data, validation=validation, options=options, generator=seeded())
        for name, value in together.member(i).state_dict().items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=2e-3, atol=2e-4)


def test_members_that_hold_out_rows_in_turn_are_members_alone(wave):
    """Each is trained on the rows it does not hold out, and keeps what is best on those it does."""
    data, _ = wave
    held = torch.arange(len(data))[:, None] % 5 == torch.arange(3)
    options = LoopOptions(max_epochs=5, batch_size=10_000, clip_norm=None)
    together = small(n_members=3)
    alone = [together.member(i) for i in range(3)]
    kept, own = data.in_turn(held)
    assert len(own) == int(held.any(1).sum())
    torch.testing.assert_close(kept.weight.mean(0), torch.ones(3))
    train(together, MultinomialLogLoss(), kept, validation=own, options=options, generator=seeded())
    for i, (model, rows) in enumerate(zip(alone, kept.of_members(), strict=True)):
        assert torch.equal(rows.x, data.x[~held[:, i]])
        torch.testing.assert_close(rows.weight, torch.ones(len(rows)))
        validation = data.select(held[:, i])
        train(model, MultinomialLogLoss(), rows, validation=validation, options=options, generator=seeded())
        for name, value in together.member(i).state_dict().items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=2e-3, atol=2e-4)


def test_weights_decide_what_is_learned():
    x = torch.randn(400, 1, generator=seeded())
    y = torch.cat([torch.ones(200, 1), -torch.ones(200, 1)])
    for weight, expected in [(torch.cat([torch.ones(200), torch.zeros(200)]), 1.0), (torch.ones(400), 0.0)]:
        model = CoFrNet(n_features=1, generator=seeded())
        data = Rows(x, y, weight)
        train(model, SquaredError(), data, options=LoopOptions(max_epochs=60, batch_size=100), generator=seeded())
        with torch.no_grad():
            assert float(model(x).mean()) == pytest.approx(expected, abs=0.15)


def test_streams_of_batches_train_as_rows_do(wave):
    data, validation = wave
    batches = [(data.x[i : i + 70], data.y[i : i + 70]) for i in range(0, 700, 70)]
    for stream in (Stream(batches), Stream(batches, length=10)):
        model = small()
        trained = train(model, MultinomialLogLoss(), stream, validation=validation, options=OPTIONS, generator=seeded())
        assert trained.history["validation_loss"][-1] < 0.8 * trained.history["validation_loss"][0]


def test_losses_against_torch():
    scores = torch.randn(50, 2, 3, generator=seeded(), dtype=torch.float64)
    y = torch.randn(50, 3, generator=seeded(1), dtype=torch.float64)
    labels = torch.randint(0, 3, (50,), generator=seeded(2))
    for m in range(2):
        s = scores[:, m]
        cross = torch.nn.functional.cross_entropy(s, labels, reduction="none", label_smoothing=0.1)
        torch.testing.assert_close(MultinomialLogLoss(0.1)(scores, labels)[:, m], cross)
        torch.testing.assert_close(SquaredError()(scores, y)[:, m], ((s - y) ** 2).mean(1))
        torch.testing.assert_close(AbsoluteError()(scores, y)[:, m], (s - y).abs().mean(1))
        huber = torch.nn.functional.huber_loss(s, y, reduction="none", delta=0.5).mean(1)
        torch.testing.assert_close(Huber(0.5)(scores, y)[:, m], huber)
        binary = (labels > 0).double()
        expected = torch.nn.functional.binary_cross_entropy_with_logits(s[:, 0], binary * 0.9 + 0.05, reduction="none")
        torch.testing.assert_close(LogLoss(0.1)(scores[..., :1], binary)[:, m], expected)


@pytest.mark.parametrize(
    ("loss", "q", "target"),
    [
        (LogLoss(0.1), 1, "binary"),
        (LogLoss(), 1, "binary"),
        (MultinomialLogLoss(), 3, "labels"),
        (MultinomialLogLoss(0.1), 3, "labels"),
        (SquaredError(), 3, "numbers"),
    ],
)
def test_slopes_of_losses_are_those_of_autograd(loss, q, target):
    scores = torch.randn(50, 2, q, generator=seeded(), dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 3, (50,), generator=seeded(2))
    y = {"binary": (labels > 0).double(), "labels": labels, "numbers": torch.randn(50, q, dtype=torch.float64)}[target]
    losses, slopes = loss.with_slopes(scores.detach(), y)
    expected = loss(scores, y)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(slopes, torch.autograd.grad(expected.sum(), scores)[0])


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_training_in_closed_form_is_training_by_autograd(members, weighted, by_hand):
    x = torch.randn(200, 4, generator=seeded(), dtype=torch.float64)
    y = (x[:, :1] * x[:, 1:2]).sin()
    weight = torch.rand(200, members, generator=seeded(1), dtype=torch.float64) if weighted else None
    loss = SquaredError() if by_hand else Huber(0.3)  # one gives its slopes, the other leaves them to autograd
    options = LoopOptions(max_epochs=3, batch_size=60)
    states = []
    for way in ("auto", "reference"):
        model = CoFrNet(n_features=4, n_ladders=3, n_members=members, dtype=torch.float64, generator=seeded(3))
        with core.backend(way):
            train(model, loss, Rows(x, y, weight), options=options, generator=seeded(4))
        states.append(model.state_dict())
    torch.testing.assert_close(states[0], states[1], rtol=1e-8, atol=1e-10)


def test_a_loss_may_read_the_parameters():
    x = torch.randn(200, 3, generator=seeded(), dtype=torch.float64)
    norms = []
    for way in ("auto", "reference"):
        model = CoFrNet(n_features=3, n_ladders=2, generator=seeded(), dtype=torch.float64)

        def penalised(scores, y, model=model):
            return (scores - y.unsqueeze(1)).square().mean(-1) + 100 * model.head.square().sum()

        options = LoopOptions(20, 50, weight_decay=0.0)
        with core.backend(way):
            train(model, penalised, Rows(x, x[:, :1]), options=options, generator=seeded())
        norms.append(float(model.head.detach().norm()))
    start = CoFrNet(n_features=3, n_ladders=2, generator=seeded(), dtype=torch.float64)
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    assert norms[0] < 0.7 * float(start.head.detach().norm())


def test_a_subclass_with_another_loss_is_trained_by_it():
    class Tilted(SquaredError):  # noqa: N818
        def __call__(self, scores, y):
            return super().__call__(scores, y) + 4 * scores.squeeze(-1)

    x = torch.randn(300, 2, generator=seeded())
    ends = []
    for way in ("auto", "reference"):
        model = CoFrNet(n_features=2, n_ladders=2, generator=seeded())
        with core.backend(way):
            train(model, Tilted(), Rows(x, torch.zeros(300, 1)), options=LoopOptions(30, 50), generator=seeded())
        ends.append(float(model(x).detach().mean()))
    assert ends[0] == pytest.approx(ends[1], abs=0.05)
    assert ends[0] < -1


def test_a_row_weighs_the_same_whatever_its_batch():
    y = torch.zeros(2000, 1)
    y[:20] = 1.0
    weight = torch.ones(2000)
    weight[:20] = 100.0
    weight /= weight.mean()
    goal = float((weight * y[:, 0]).mean())  # 0.503
    for batch in (64, 512):
        model = CoFrNet(n_features=1, variant="F", n_ladders=1, depth=0, generator=seeded())
        options = LoopOptions(60, batch, weight_decay=0.0, clip_norm=None)
        train(model, SquaredError(), Rows(torch.zeros(2000, 1), y, weight), options=options, generator=seeded())
        assert float(model(torch.zeros(1, 1)).detach()) == pytest.approx(goal, abs=0.06)


def test_a_frozen_parameter_stays_and_the_others_learn():
    x = torch.randn(100, 2, generator=seeded())
    model = CoFrNet(n_features=2, n_ladders=2, generator=seeded())
    model.head.requires_grad_(False)
    before = model.head.clone()
    trained = train(model, SquaredError(), Rows(x, x[:, :1]), options=OPTIONS, generator=seeded())
    assert torch.equal(model.head, before)
    assert trained.history["loss"][-1] < trained.history["loss"][0]


def test_an_error_in_a_callback_leaves_an_ordinary_model(wave):
    model = small()

    def fails(epoch):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        train(model, MultinomialLogLoss(), wave[0], options=OPTIONS, generator=seeded(), callbacks=[fails])
    storages = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert len(storages) == len(list(model.parameters()))
    assert not model.training


def test_progress_bar_shows_the_losses(wave, capsys):
    data, validation = wave
    with ProgressBar("fitting") as bar:
        train(
            small(),
            MultinomialLogLoss(),
            data,
            validation=validation,
            options=LoopOptions(max_epochs=2, batch_size=350),
            generator=seeded(),
            callbacks=[bar],
        )
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "epoch 2 of 2" in shown.err
    assert "validation loss" in shown.err


def test_projection_is_applied_after_every_step(wave):
    data, _ = wave
    model = small()

    def project():
        with torch.no_grad():
            model.head.clamp_(min=0)

    train(model, MultinomialLogLoss(), data, options=OPTIONS, generator=seeded(), project=project)
    assert (model.head >= 0).all()


class TestCheckpoints:
    code = """
import sys, time, torch
from pathlib import Path
from cofrnet.datasets import waveform
from cofrnet.nn import CoFrNet
from cofrnet.training import Checkpoint, LoopOptions, MultinomialLogLoss, Rows, train
from safetensors.torch import save_file
torch.set_num_threads(1)
checkpoint, result, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
X, y = waveform(600, seed=0)
x, y = torch.as_tensor(X, dtype=torch.float32) / 3, torch.as_tensor(y)
generator = torch.Generator().manual_seed(0)
model = CoFrNet(n_features=40, n_outputs=3, n_ladders=4, dropout=0.1, generator=generator)
model.dropout.generator = generator
trained = train(
    model, MultinomialLogLoss(), Rows(x[:500], y[:500]), validation=Rows(x[500:], y[500:]),
    options=LoopOptions(max_epochs=12, batch_size=50), generator=generator,
    checkpoint=Checkpoint(Path(checkpoint), 1, "this fit"), callbacks=[lambda epoch: time.sleep(pause)],
)
assert len(trained.history["loss"]) == 12
save_file({name: value.contiguous() for name, value in model.state_dict().items()}, result)
"""

    def start(self, *arguments):
        return subprocess.Popen([sys.executable, "-c", self.code, *map(str, arguments)], env=os.environ)

    def test_killed_and_resumed_is_the_same_to_the_bit(self, tmp_path):
        assert self.start(tmp_path / "a.ckpt", tmp_path / "a", 0).wait(120) == 0
        process = self.start(tmp_path / "b.ckpt", tmp_path / "b", 0.3)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if (tmp_path / "b.ckpt").exists() and self.epochs_in(tmp_path / "b.ckpt") >= 4:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert not (tmp_path / "b").exists()
        assert 4 <= self.epochs_in(tmp_path / "b.ckpt") < 12
        assert self.start(tmp_path / "b.ckpt", tmp_path / "b", 0).wait(120) == 0
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    @staticmethod
    def epochs_in(path):
        with safe_open(path, framework="pt") as file:
            return json.loads(file.metadata()["cofrnet"])["next_epoch"]

    def test_a_file_of_another_fit_is_refused(self, wave, tmp_path):
        data, _ = wave
        path = tmp_path / "fit.ckpt"
        run = {"options": OPTIONS, "generator": seeded()}
        train(small(), MultinomialLogLoss(), data, checkpoint=Checkpoint(path, 4, "one"), **run)
        before = path.read_bytes()
        with pytest.raises(ValueError, match="must belong to the same data and settings"):
            train(small(), MultinomialLogLoss(), data, checkpoint=Checkpoint(path, 4, "two"), **run)
        assert path.read_bytes() == before
        path.write_bytes(b"nonsense")
        with pytest.raises(ValueError, match="must be a file that a fit wrote"):
            train(small(), MultinomialLogLoss(), data, checkpoint=Checkpoint(path, 4, "one"), **run)

    @pytest.mark.parametrize("about", ["[]", "{}", '{"seed": "x"}', '{"fingerprint": "one"}', "{"])
    def test_a_file_that_no_fit_wrote_is_refused(self, wave, tmp_path, about):
        path = tmp_path / "fit.ckpt"
        path.write_bytes(save({"a": torch.zeros(1)}, {"cofrnet": about}))
        assert Checkpoint.seed_in(path) is None
        with pytest.raises(ValueError, match="must be a file that a fit wrote"):
            train(small(), MultinomialLogLoss(), wave[0], options=OPTIONS, checkpoint=Checkpoint(path, 4, "one"))

    def test_a_changed_byte_is_noticed(self, wave, tmp_path):
        path = tmp_path / "fit.ckpt"
        run = {"options": OPTIONS, "checkpoint": Checkpoint(path, 4, "one")}
        train(small(), MultinomialLogLoss(), wave[0], generator=seeded(), **run)
        content = bytearray(path.read_bytes())
        content[-200] ^= 0x40
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"must be as it was written; some numbers of .* have changed since"):
            train(small(), MultinomialLogLoss(), wave[0], generator=seeded(), **run)


def test_members_that_learn_one_epsilon_keep_the_weights_that_are_best_together():
    x, generator = torch.randn(400, 3, generator=seeded(0)), seeded(1)
    y = (x[:, :1] > x[:, 1:2]).float() + 0.5 * torch.randn(400, 1, generator=generator)
    model = CoFrNet(n_features=3, n_ladders=4, n_members=5, learn_epsilon=True, generator=seeded(2))
    data, held = Rows(x[:360], y[:360]), Rows(x[360:], y[360:])
    options = LoopOptions(40, 32, 0.2, 0.0, patience=3, cycle=False)
    trained = train(model, SquaredError(), data, validation=held, options=options, generator=generator)
    (losses,) = evaluate(model, held, [SquaredError()])
    assert float(losses.mean()) == pytest.approx(trained.history["validation_loss"][trained.best_epoch], rel=1e-5)


def test_threads_of_torch_are_as_before_when_several_have_changed_them():
    """A thread that begins while another has changed their number takes that for its own."""
    before, inside, left = torch.get_num_threads(), threading.Event(), threading.Event()
    found = []

    def first():
        with threads_for(0):
            inside.set()
            assert left.wait(60)

    def second():
        assert inside.wait(60)
        with threads_for(0):
            left.set()
            one.join()

    one, other = threading.Thread(target=first), threading.Thread(target=second)
    for thread in (one, other):
        thread.start()
    other.join()
    last = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    last.start()
    last.join()
    assert found == [before]
    assert torch.get_num_threads() == before

"""The epoch loop: mini-batches, one cycle of the learning rate, early stopping with the best weights kept.

It trains any module that has `member_scores(x)`, (n, members, q); members are trained side by side and each keeps its
own best weights. Of a module that says `members_share` they are one: some of its numbers belong to all of them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from cofrnet.training.batches import Rows, Source
from cofrnet.training.checkpoints import Checkpoint, numbers_of
from cofrnet.training.interrupts import FitInterruptedWarning, after_training, whole
from cofrnet.training.losses import Loss, row_losses
from cofrnet.training.members import MemberSteps
from cofrnet.training.steps import Plan, Steps, one_cycle, sum_of_squares
from cofrnet.training.threads import threads_for

__all__ = ["Callback", "Decay", "Epoch", "LoopOptions", "Trained", "train"]


class Decay(NamedTuple):
    """Weight decay of the matrices of a model, which are the weights of its full ladders, and of its other weights."""

    matrices: float
    others: float


@dataclass(frozen=True)
class LoopOptions:
    """How to train.

    `weight_decay` is that of the whole training, decoupled from the gradient: a weight that gets no gradient shrinks by
    exp(-weight_decay), whatever the number of steps. Steps share it by the square of their learning rate, so that it
    fades before they do, and the last of them set right what was shrunk too far. Biases and intercepts are not decayed.
    It may be a function of the share of epochs done and of the lowest validation loss after one of them (infinite where
    there is none), asked anew at every epoch; it gives one decay for matrices and one for all else.
    `patience` epochs without a better validation loss end the training; None runs all epochs. With `cycle`, the
    learning rate goes through one cycle over all epochs, else it stays.
    """

    max_epochs: int = 60
    batch_size: int = 512
    learning_rate: float = 0.02
    weight_decay: float | Callable[[float, float], Decay] = 5.0
    clip_norm: float | None = 1.0
    patience: int | None = None
    tolerance: float = 0.0
    cycle: bool = True


@dataclass(frozen=True)
class Epoch:
    """What a callback is told: the epoch's number, its row of the history, how many there may be, and the model."""

    number: int
    max_epochs: int
    history: dict[str, float]
    model: nn.Module


class Callback(Protocol):
    """Called after each epoch; a true answer ends the training."""

    def __call__(self, epoch: Epoch) -> bool | None:
        """Look at the epoch."""
        ...


@dataclass
class Trained:
    """What came of it: a list of numbers an epoch for each name, the best epoch, and how it ended."""

    history: dict[str, list[float]] = field(default_factory=dict)
    best_epoch: int = 0
    interrupted: bool = False
    stopped: bool = False  # by a callback
    member_losses: Tensor | None = None

    def then(self, other: Trained) -> Trained:
        """The history of both: of the training, and of another that went on from it."""
        names = {**self.history, **other.history}
        history = {name: [*self.history.get(name, []), *other.history.get(name, [])] for name in names}
        kept_its_start = other.best_epoch < 0
        best = self.best_epoch if kept_its_start else len(self.history.get("loss", [])) + other.best_epoch
        return Trained(history, best, self.interrupted or other.interrupted, self.stopped or other.stopped)


class _Best:
    """The best weights so far, of each member by its own validation loss; the best epoch is that of their mean."""

    def __init__(self, model: nn.Module, members: int) -> None:
        self.loss = next(model.parameters()).new_full((members,), math.inf)
        self.state = {name: value.detach().clone() for name, value in numbers_of(model)}
        self.mean, self.epoch = math.inf, 0

    def update(self, model: nn.Module, loss: Tensor, epoch: int, tolerance: float) -> bool:
        """Keep the weights of members that are better than before; whether their mean is: some are nearly always."""
        better = loss < self.loss - tolerance
        several = len(better) > 1
        for name, value in numbers_of(model) if better.any() else ():
            where: Any = better if several and value.ndim else ...
            self.state[name][where] = value.detach()[where]
        self.loss = torch.where(better, loss, self.loss)
        mean = float(loss.mean())
        if not mean < self.mean - tolerance:
            return False
        self.mean, self.epoch = mean, epoch
        return True

    def restore(self, model: nn.Module, keep: Tensor | None = None, last: int = 0) -> int:
        """Put the best weights into the model, but for the members to `keep`; the epoch the weights are of."""
        if keep is not None and keep.all():
            return last
        with torch.no_grad():
            for name, value in numbers_of(model):
                where: Any = ~keep if keep is not None and len(keep) > 1 and value.ndim else ...
                value[where] = self.state[name][where]
        return self.epoch


def train(
    model: Any,
    loss: Loss,
    data: Source,
    *,
    validation: Rows | None = None,
    options: LoopOptions | None = None,
    generator: torch.Generator | None = None,
    metrics: dict[str, Loss] | None = None,
    project: Callable[[], None] | None = None,
    callbacks: Iterable[Callback] = (),
    checkpoint: Checkpoint | None = None,
) -> Trained:
    """What came of training `model` in place; it is left in evaluation mode with its best weights.

    With `validation`, the best weights are those of the lowest validation loss, each member's own, the start included;
    but where training went through all epochs and the last weights are not worse by more than one standard error of
    the difference, the last are kept: the lowest of many noisy losses is partly luck. Without validation rows the last
    weights are kept. `metrics` are further functions like losses, averaged over the validation rows for the history.
    `project` is called after every step, to keep constraints. Interrupted by Ctrl-C, it keeps the best weights so far
    and warns.
    """
    options = options or LoopOptions()
    generator = generator or torch.Generator().manual_seed(torch.seed())
    run = _Run(model, loss, data, validation, options, generator, metrics or {}, project)
    each = getattr(model, "work_of_row", None) or sum(parameter.numel() for parameter in model.parameters())
    work = options.batch_size * int(each)
    try:
        with threads_for(work, run.steps.threads):
            first = run.resume(checkpoint)
        if run.crew.agreed(first) != first:
            raise ValueError(f"{checkpoint} must be on a disk that all processes see; the first has another one.")
        for number in range(first, options.max_epochs):
            if options.patience is not None and run.since_best >= options.patience:
                break  # a fit that had ended, resumed
            with threads_for(work, run.steps.threads):
                row = run.epoch(number)
            if not math.isfinite(row["loss"]):
                raise ValueError(
                    f"the loss must stay finite; it was {row['loss']} in epoch {number + 1}. Lower learning_rate, "
                    f"which is {options.learning_rate:g}, or look for huge values."
                )
            if checkpoint is not None and checkpoint.is_due(number) and run.crew.rank == 0:
                checkpoint.save(model, run.steps, generator, run.best, number + 1, run.since_best, run.trained.history)
            stop = [callback(Epoch(number, options.max_epochs, row, model)) for callback in callbacks]
            late = options.patience is not None and run.since_best >= options.patience
            run.trained.stopped = bool(run.crew.agreed(any(stop)))
            if run.crew.agreed(run.trained.stopped or late):
                break
    except KeyboardInterrupt:
        run.trained.interrupted = True
        warnings.warn(
            f"the fit was interrupted after {run.done} of {options.max_epochs} epochs; the best model so far is kept.",
            FitInterruptedWarning,
            stacklevel=2,
        )
    finally:
        with whole():
            run.release()
    with after_training():
        run.finish()
    return run.trained


class _Run:
    """One training: what stays the same from epoch to epoch, and what has come of it so far."""

    def __init__(
        self,
        model: Any,
        loss: Loss,
        data: Source,
        validation: Rows | None,
        options: LoopOptions,
        generator: torch.Generator,
        metrics: dict[str, Loss],
        project: Callable[[], None] | None,
    ) -> None:
        self.model, self.loss, self.data, self.validation = model, loss, data, validation
        self.options, self.generator, self.metrics = options, generator, metrics
        self.shared = bool(getattr(model, "members_share", False))
        members = 1 if self.shared else int(getattr(getattr(model, "spec", None), "n_members", 1))
        self.model.eval()
        self.steps: Steps | MemberSteps
        if project is None and MemberSteps.cover(model, loss, data, options.batch_size):
            assert isinstance(data, Rows)
            self.steps = MemberSteps(model, loss, data, options.clip_norm)
        else:
            self.steps = Steps(model, loss, members, options.clip_norm, project, generator)
            self.steps.look_at(data)
        self.best = _Best(model, members)
        self.trained = Trained()
        self.since_best = 0
        self.crew = self.steps.crew
        self.count = max(1, options.max_epochs * data.n_batches(options.batch_size))  # of all steps
        self.squares = options.learning_rate**2 * sum_of_squares(self.count, options.cycle)

    @property
    def done(self) -> int:
        return len(self.trained.history.get("loss", []))

    def resume(self, checkpoint: Checkpoint | None) -> int:
        """The epoch to begin with, and everything as it was before it."""
        saved = None
        if checkpoint is not None:
            saved = checkpoint.load(self.model, self.steps, self.generator, self.best)
        if saved is not None:
            first, self.since_best, history = saved
            self.trained.history = history
            return first
        if self.validation is not None:  # the model as it is: training may only improve on it
            self.best.update(self.model, self._own(self.steps.evaluate(self.validation, [self.loss])[0]), -1, 0.0)
        return 0

    def _own(self, losses: Tensor) -> Tensor:
        """Losses of the members, (..., members), as those that have weights of their own."""
        return losses.mean(-1, keepdim=True) if self.shared else losses

    def epoch(self, number: int) -> dict[str, float]:
        """Go through the data once; the row of the history that it makes."""
        row, own = self._pass_over_the_data(number), None
        self.model.eval()
        if self.validation is not None:
            values = self.steps.evaluate(self.validation, [self.loss, *self.metrics.values()])
            row |= {name: float(v.mean()) for name, v in zip(["validation_loss", *self.metrics], values, strict=True)}
            own = self._own(values[0])
        shown = self.validation if self.validation is not None else self.data
        if isinstance(shown, Rows) and getattr(getattr(self.model, "spec", None), "pole", "") == "clamp":
            row["clamped"] = float(self.model.clamped_share(shown.x[:256]).mean())
        with whole():
            if own is not None:
                better = self.best.update(self.model, own, number, self.options.tolerance)
                self.since_best = 0 if better else self.since_best + 1
            for name, value in row.items():
                self.trained.history.setdefault(name, []).append(value)
        return row

    def _pass_over_the_data(self, number: int) -> dict[str, float]:
        each, plan = self.data.n_batches(self.options.batch_size), self._plan(number)
        self.model.train()
        losses = self.steps.over(self.data, self.options.batch_size, self.generator, plan)
        return {"loss": float(torch.as_tensor(losses).mean()), "learning_rate": plan(each - 1)[0]}

    def _plan(self, number: int) -> Plan:
        """Rate and decay of the steps of an epoch."""
        options, decays = self.options, self._decays(number)
        before = number * self.data.n_batches(options.batch_size)

        def at(step: int) -> tuple[float, float, float]:
            rate = options.learning_rate
            if options.cycle:
                rate *= one_cycle(min(1.0, (before + step) / self.count))
            of_matrices, shrink = (-math.expm1(-decay * rate**2 / self.squares) for decay in decays)
            return rate, shrink, of_matrices

        return at

    def _decays(self, number: int) -> Decay:
        decay = self.options.weight_decay
        if not callable(decay):
            return Decay(decay, decay)
        lowest = min(self.trained.history.get("validation_loss", []), default=math.inf)
        return decay(number / self.options.max_epochs, lowest)

    def release(self) -> None:
        """Leave the model in evaluation mode, its parameters with memory of their own."""
        self.model.eval()
        self.steps.release()

    def finish(self) -> None:
        """Leave the model with the weights to keep."""
        self.trained.best_epoch = self.done - 1
        if self.validation is not None:
            whole = self.done == self.options.max_epochs
            keep = self._last_is_as_good(self.validation) if whole else None
            self.trained.best_epoch = self.best.restore(self.model, keep, self.done - 1)  # -1: the start was best

    @torch.no_grad()
    def _last_is_as_good(self, validation: Rows) -> Tensor:
        """Whether each member's weights are no worse than its best by more than a standard error, (members,)."""
        present = {name: value.detach().clone() for name, value in numbers_of(self.model)}
        last = row_losses(self.model, self.loss, validation)  # (n, members)
        self.best.restore(self.model)
        excess = self._own(last - row_losses(self.model, self.loss, validation))
        for name, value in numbers_of(self.model):
            value.copy_(present[name])
        n = len(excess)
        weight = excess.new_ones(n, 1) if validation.weight is None else validation.weight.reshape(n, -1)
        share = weight / weight.sum(0)
        mean = (share * excess).sum(0)
        variance = (share**2 * (excess - mean) ** 2).sum(0)
        return (mean <= variance.sqrt()) & ((weight > 0).sum(0) > 1)

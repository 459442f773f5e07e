"""Steps down the loss, a batch each: gradients in closed form where there is one, then the optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cofrnet.nn import LadderDropout, fused
from cofrnet.training.batches import Rows, Source
from cofrnet.training.losses import Loss, evaluate, has_slopes, weighted_mean
from cofrnet.training.optimizer import Optimizer
from cofrnet.training.together import crew

__all__ = ["Plan", "Steps", "one_cycle", "sum_of_squares"]

Plan: TypeAlias = Callable[[int], tuple[float, float, float]]  # of a step: rate, shrink of weights and of matrices

MOST_FORMS = 8  # sizes of batches whose memory is kept


def one_cycle(progress: float, warm_up: float = 0.3) -> float:
    """Share of the highest learning rate at `progress` in [0, 1]: up from 1/25 by a cosine, down to nearly 0."""
    if progress < warm_up:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * progress / warm_up))
    return 1e-5 + (1 - 1e-5) * 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def sum_of_squares(steps: int, cycle: bool) -> float:
    """Sum over all steps of the square of `one_cycle`, or of 1."""
    return sum(one_cycle(step / steps) ** 2 for step in range(steps)) if cycle else float(steps)


class Steps:
    """A model that goes down a loss step by step, with its optimizer and the memory that steps use again and again.

    `project` is called after every step, to keep constraints. Dropout draws from the `generator`.
    """

    threads = 1  # that steps are taken on; torch may use more for each

    def __init__(
        self,
        model: Any,
        loss: Loss,
        members: int = 1,
        clip_norm: float | None = None,
        project: Callable[[], None] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.model, self.loss, self.clip_norm, self.project = model, loss, clip_norm, project
        self.optimizer = Optimizer(model, members)
        self.forms: dict[int, fused.ClosedForm | None] = {}  # by the number of rows of a batch
        self.loss_has_slopes = has_slopes(loss)
        self.loss_reads_parameters = False  # such as a penalty; autograd then differentiates everything
        self._draw_from(generator)
        self._let_add_in_place(True)
        self.crew = crew()
        self.crew.take_from_first(self.optimizer.values, *model.buffers())

    @property
    def state(self) -> dict[str, Tensor]:
        """What steps to come depend on, besides the model; `restore` takes it back."""
        return self.optimizer.state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a `state`; the numbers of the model are as they were with it."""
        self.optimizer.restore(state)

    def look_at(self, data: Source) -> None:
        """Find out whether the loss has a gradient that does not come through the scores."""
        if self.loss_has_slopes or not isinstance(data, Rows):
            self.loss_reads_parameters = not self.loss_has_slopes
            return
        some = data.select(torch.arange(min(2, len(data))))
        with torch.no_grad():
            scores = self.model.member_scores(some.x)
        self.loss_reads_parameters = self.loss(scores, some.y).requires_grad

    def _draw_from(self, generator: torch.Generator | None) -> None:
        """Let dropout draw from a generator."""
        for module in self.model.modules():
            if isinstance(module, LadderDropout):
                module.generator = generator

    def _let_add_in_place(self, whether: bool) -> None:
        """Large tables may add to the gradient that the optimizer has for them."""
        if hasattr(self.model, "in_place_gradients"):
            self.model.in_place_gradients = whether

    def over(self, data: Source, batch_size: int, generator: torch.Generator, plan: Plan) -> Tensor | float:
        """Take a step for each batch; returns the mean of the losses before it, of each member."""
        optimizer, where = self.optimizer, self.optimizer.values.device
        total: Any = 0.0
        count = 0
        for number, (x, y, weight) in enumerate(data.batches(batch_size, generator)):
            rate, shrink, of_matrices = plan(number)
            if y.device != where:  # images of files
                x, y = (t.to(where, non_blocking=True) for t in (x, y))
                weight = None if weight is None else weight.to(where, non_blocking=True)
            losses, rows = self.crew.average(optimizer.gradient, self._gradients(x, y, weight), y.shape[0])
            if rows == 0:
                continue
            total = total + losses
            if self.clip_norm is not None:
                optimizer.clip(self.clip_norm)
            optimizer.step(rate, shrink, of_matrices)
            if self.project is not None:
                self.project()
            count += 1
        self.crew.agree(self.model)
        return total / max(1, count)

    def evaluate(self, data: Rows, functions: Sequence[Loss]) -> list[Tensor]:
        """Weighted means over the rows of functions of scores and targets, each (members,)."""
        return evaluate(self.model, data, functions)

    def _gradients(self, x: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """Loss of each member on a batch, (members,); its gradients are left with the parameters.

        Where the model has a closed form, autograd differentiates at most the loss, by the scores.
        """
        n = y.shape[0]  # len() of a tensor takes five times as long
        if n == 0:  # where all images of a share could not be read
            self.optimizer.gradient.zero_()
            return self.optimizer.gradient.new_zeros(1)
        form = self._closed_form(x, n)
        if form is None:
            self.optimizer.gradient.zero_()
            losses = weighted_mean(self.loss(self.model.member_scores(x), y), weight)
            losses.sum().backward()
            return losses.detach()
        losses, slopes = self._losses_with_slopes(form.scores(x).permute(2, 0, 1), y)
        share = 1 / n if weight is None else weight.reshape(n, -1, 1) / n
        form.gradients(slopes.mul_(share).permute(1, 2, 0))
        return weighted_mean(losses, weight)

    def _closed_form(self, x: Tensor, n: int) -> fused.ClosedForm | None:
        """The closed form for n rows such as x, where it gives all gradients there are."""
        if self.loss_reads_parameters:
            return None
        if n not in self.forms:
            if len(self.forms) >= MOST_FORMS:
                self.forms.clear()
            form = fused.closed_form(self.model, x, gradients_to_grad=True)
            owned = form is not None and {*map(id, form.parameters)} == {*map(id, self.optimizer.parameters)}
            self.forms[n] = form if owned else None
        return self.forms[n]

    def _losses_with_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Losses of every row, (n, members), and their derivatives by the scores, (n, members, q)."""
        if self.loss_has_slopes:
            return self.loss.with_slopes(scores, y)  # type: ignore[attr-defined]
        scores.requires_grad_()
        losses = self.loss(scores, y)
        (slopes,) = torch.autograd.grad(losses.sum(), scores)
        return losses.detach(), slopes.contiguous()  # that of a sum is one number, seen many times

    def release(self) -> None:
        """Leave the model's parameters with memory of their own."""
        self.optimizer.release()
        self._draw_from(None)
        self._let_add_in_place(False)

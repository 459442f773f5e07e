"""Losses: what a row costs, given its score.

A loss is any function of scores (n, members, q) and targets (n, ...) that returns the cost of every row and member,
(n, members). Weighting and averaging over rows is the loop's. A loss that also has `with_slopes` gives its derivatives
by the scores, (n, members, q), in closed form, and spares autograd the work; the loop may write over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from cofrnet.training.batches import Rows

__all__ = [
    "AbsoluteError",
    "Huber",
    "LogLoss",
    "Loss",
    "MultinomialLogLoss",
    "SquaredError",
    "compiled_name",
    "evaluate",
    "has_slopes",
    "row_losses",
    "weighted_mean",
]

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def has_slopes(loss: Loss) -> bool:
    """Whether a loss gives its own slopes: its class, or the one it has `__call__` from, has `with_slopes`.

    A subclass that changes the loss, but not the slopes, has none.
    """
    for kind in type(loss).__mro__:
        if "__call__" in vars(kind) or "with_slopes" in vars(kind):
            return "with_slopes" in vars(kind) and "__call__" in vars(kind)
    return False


def compiled_name(loss: Loss) -> str | None:
    """What compiled steps call a loss; None if they do not know it. A subclass may be another loss."""
    name: str | None = vars(type(loss)).get("compiled")
    return name


@dataclass(frozen=True)
class LogLoss:
    """Binary log-loss: log(1 + e^s) - y s, for scores (..., 1) that are log-odds and y in [0, 1].

    `smoothing` moves y that far towards 1/2, which keeps log-odds of sure rows finite.
    """

    smoothing: float = 0.0
    compiled: ClassVar[str] = "logistic"

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, 1), y (n,); returns (n, m)."""
        target = self._target(scores, y).expand_as(scores)
        return functional.binary_cross_entropy_with_logits(scores, target, reduction="none").squeeze(-1)

    def with_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses and their slopes, 1 / (1 + e^-s) - y."""
        target = self._target(scores, y)
        losses = functional.softplus(scores).addcmul_(scores, target, value=-1)
        return losses.squeeze(-1), torch.sigmoid(scores).sub_(target)

    def targets(self, y: Tensor, q: int, dtype: torch.dtype) -> Tensor:
        """y, smoothed, (n, q)."""
        target = y if self.smoothing == 0 else y * (1 - self.smoothing) + self.smoothing / 2
        return target.to(dtype).view(-1, q)

    def _target(self, scores: Tensor, y: Tensor) -> Tensor:
        return self.targets(y, 1, scores.dtype).unsqueeze(1)


@dataclass(frozen=True)
class MultinomialLogLoss:
    """Log-loss of q classes: log sum e^{s_c} - s_y. `smoothing` spreads that share of y over all classes."""

    smoothing: float = 0.0
    compiled: ClassVar[str] = "multinomial"

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, q), y (n,) of class numbers; returns (n, m)."""
        n, m, q = scores.shape
        targets = y.unsqueeze(1).expand(n, m).reshape(-1)
        losses = functional.cross_entropy(
            scores.reshape(-1, q), targets, reduction="none", label_smoothing=self.smoothing
        )
        return losses.view(n, m)

    def with_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses and their slopes, e^{s_c} / sum e^s - [c = y], y smoothed."""
        logarithms = functional.log_softmax(scores, -1)
        target = self.targets(y, scores.shape[-1], scores.dtype).unsqueeze(1)
        losses = (logarithms * target).sum(-1).neg_()
        return losses, logarithms.exp_().sub_(target)

    def targets(self, y: Tensor, q: int, dtype: torch.dtype) -> Tensor:
        """The share that each class has of every row, (n, q)."""
        target = functional.one_hot(y, q).to(dtype)
        return target if self.smoothing == 0 else target * (1 - self.smoothing) + self.smoothing / q


@dataclass(frozen=True)
class SquaredError:
    """Squared error, averaged over outputs."""

    compiled: ClassVar[str] = "squared"

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, q), y (n, q); returns (n, m)."""
        return (scores - y.unsqueeze(1)).square().mean(-1)

    def with_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses and their slopes, 2 (s - y) / q."""
        excess = scores - y.unsqueeze(1)
        return excess.square().mean(-1), excess * (2 / scores.shape[-1])

    def targets(self, y: Tensor, q: int, dtype: torch.dtype) -> Tensor:
        """y, (n, q)."""
        return y.to(dtype).view(-1, q)


@dataclass(frozen=True)
class AbsoluteError:
    """Absolute error, averaged over outputs: the median rather than the mean."""

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, q), y (n, q); returns (n, m)."""
        return (scores - y.unsqueeze(1)).abs().mean(-1)


@dataclass(frozen=True)
class Huber:
    """Squared error near the target, absolute beyond `delta`, averaged over outputs."""

    delta: float = 1.0

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, q), y (n, q); returns (n, m)."""
        y = y.unsqueeze(1).expand_as(scores)
        return functional.huber_loss(scores, y, reduction="none", delta=self.delta).mean(-1)


# Losses of rows, and their means.


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over rows of loss times weight, for each member; weights are taken to have a mean of 1 over all rows.

    So a row counts the same whatever rows share its batch. Shapes: losses (n, m), weight None or (n,) or (n, m);
    returns (m,).
    """
    return losses.mean(0) if weight is None else (losses * weight.reshape(losses.shape[0], -1)).mean(0)


def _rows_at_once(model: Any) -> int:
    return int(getattr(model, "rows_at_once", 8192))


@torch.no_grad()
def evaluate(model: Any, data: Rows, functions: Sequence[Loss]) -> list[Tensor]:
    """Weighted means over the rows of functions of scores and targets, each (members,), in bounded memory."""
    totals: list[Any] = [0.0] * len(functions)
    mass: Any = 0.0
    chunk = _rows_at_once(model)
    for start in range(0, len(data), chunk):
        part = data.select(torch.arange(start, min(start + chunk, len(data))))
        scores = model.member_scores(part.x)
        weight = scores.new_ones(len(part), 1) if part.weight is None else part.weight.reshape(len(part), -1)
        for i, function in enumerate(functions):
            totals[i] = totals[i] + (function(scores, part.y) * weight).sum(0)
        mass = mass + weight.sum(0)
    return [total / mass for total in totals]


@torch.no_grad()
def row_losses(model: Any, loss: Loss, data: Rows) -> Tensor:
    """Loss of every row and member, (n, members), in bounded memory."""
    chunk = _rows_at_once(model)
    pairs = zip(data.x.split(chunk), data.y.split(chunk), strict=True)
    return torch.cat([loss(model.member_scores(x), y) for x, y in pairs])

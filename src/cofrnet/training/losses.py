"""Losses: what a row costs, given its score.

A loss is any function of scores (n, members, q) and targets (n, ...) that returns the cost of every row and member,
(n, members). Weighting and averaging over rows is the loop's. A loss that also has `with_slopes` gives its derivatives
by the scores, (n, members, q), in closed form, and spares autograd the work; the loop may write over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["AbsoluteError", "Huber", "LogLoss", "Loss", "MultinomialLogLoss", "SquaredError"]

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def has_slopes(loss: Loss) -> bool:
    """Whether a loss gives its own slopes: its class, or the one it has `__call__` from, has `with_slopes`.

    A subclass that changes the loss, but not the slopes, has none.
    """
    for kind in type(loss).__mro__:
        if "__call__" in vars(kind) or "with_slopes" in vars(kind):
            return "with_slopes" in vars(kind) and "__call__" in vars(kind)
    return False


@dataclass(frozen=True)
class LogLoss:
    """Binary log-loss: log(1 + e^s) - y s, for scores (..., 1) that are log-odds and y in [0, 1].

    `smoothing` moves y that far towards 1/2, which keeps log-odds of sure rows finite.
    """

    smoothing: float = 0.0

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, 1), y (n,); returns (n, m)."""
        target = self._target(scores, y).expand_as(scores)
        return functional.binary_cross_entropy_with_logits(scores, target, reduction="none").squeeze(-1)

    def with_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses and their slopes, 1 / (1 + e^-s) - y."""
        target = self._target(scores, y)
        losses = functional.softplus(scores).addcmul_(scores, target, value=-1)
        return losses.squeeze(-1), torch.sigmoid(scores).sub_(target)

    def _target(self, scores: Tensor, y: Tensor) -> Tensor:
        target = y if self.smoothing == 0 else y * (1 - self.smoothing) + self.smoothing / 2
        return target.to(scores.dtype).view(-1, 1, 1)


@dataclass(frozen=True)
class MultinomialLogLoss:
    """Log-loss of q classes: log sum e^{s_c} - s_y. `smoothing` spreads that share of y over all classes."""

    smoothing: float = 0.0

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
        target = functional.one_hot(y, scores.shape[-1]).to(scores.dtype).unsqueeze(1)
        if self.smoothing > 0:
            target = target * (1 - self.smoothing) + self.smoothing / scores.shape[-1]
        losses = (logarithms * target).sum(-1).neg_()
        return losses, logarithms.exp_().sub_(target)


@dataclass(frozen=True)
class SquaredError:
    """Squared error, averaged over outputs."""

    def __call__(self, scores: Tensor, y: Tensor) -> Tensor:
        """Shapes: scores (n, m, q), y (n, q); returns (n, m)."""
        return (scores - y.unsqueeze(1)).square().mean(-1)

    def with_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses and their slopes, 2 (s - y) / q."""
        excess = scores - y.unsqueeze(1)
        return excess.square().mean(-1), excess * (2 / scores.shape[-1])


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

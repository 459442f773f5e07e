"""Steps on all parameters of a model as one long vector: a step is a few kernels and not a hundred operations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cofrnet.core.ladder import fused_kernels

__all__ = ["WAY_OF_STEPS", "Optimizer", "polar"]

WAY_OF_STEPS = 3  # one more when what is remembered changes its meaning: a checkpoint of another is refused

BETAS = 0.9, 0.999
BETAS_OF_MATRICES = 0.8, 0.999
DISTANCE, OTHERS = 0.2, 4.0
MOST_ROWS = 64  # that polar takes at once: its cost grows with their square
TINY = 1e-8
SMALLEST = 1e-16  # norm of a gradient: squares of numbers much below it are lost in single precision
QUINTIC, ROUNDS = (3.4445, -4.7750, 2.0315), 3


def _decays(name: str) -> bool:
    return not name.endswith(("bias", "intercept"))


class Optimizer:
    """AdamW on parameters that become views of one vector, with directions of their own for matrices.

        m <- b m + (1 - b) g,   v <- 0.999 v + 0.001 g^2,   a = m / (1 - b^t) / (sqrt(v / (1 - 0.999^t)) + 1e-8)
        w <- (1 - shrink) w - rate a,     b = 0.9

    Biases and intercepts do not shrink, unless the model itself says by `decays(name)` what does. These are the numbers
    of ``torch.optim.AdamW`` with weight_decay = shrink / rate, to rounding.

    Of weights that the model calls `matrices`, Adam says only how far they go:

        W <- (1 - shrink of matrices) W - 0.2 rate |a| (4 polar(u) / sqrt(r) + u / |u|),
        u = b m + (1 - b) g,     polar(u) = (u u^T)^(-1/2) u, of rank r,     b = 0.8

    with Frobenius norms. A gradient has most of its length in a few directions, so that the rows of W, which are
    ladders, learn much the same; in polar(u) all directions are as long. Ladders that differ make better models of most
    tables; the share of u itself keeps directions that are only noise from weighing as much as the rest. (Orthogonal
    steps: Jordan et al. 2024, "Muon"; the length of another method's: Agarwal et al. 2020, "grafting".)

    Until `release`, every parameter that is learned shares memory with `values`, and its `grad` with `gradient`:
    gradients must be written or added there in place.
    """

    def __init__(self, model: nn.Module, members: int = 1) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        kinds = sorted({f"{p.dtype} on {p.device}" for _, p in named})
        if len(kinds) != 1:
            raise ValueError(f"parameters must be of one dtype and on one device to be trained; got {kinds}.")
        decays = getattr(model, "decays", _decays)
        shapes = {id(p): shape for p, shape in getattr(model, "matrices", list)() if p.requires_grad}
        matrices = [p for _, p in named if id(p) in shapes]
        decayed, free = ([p for n, p in named if decays(n) == yes and id(p) not in shapes] for yes in (True, False))
        self.parameters = [*matrices, *decayed, *free]
        self.in_matrices = sum(p.numel() for p in matrices)
        self.decayed = sum(p.numel() for p in decayed)
        self.values = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.gradient, self.mean, self.square = (torch.zeros_like(self.values) for _ in range(3))
        self.count = 0
        places = np.cumsum([0, *(p.numel() for p in self.parameters)])
        for p, start, stop in zip(self.parameters, places, places[1:], strict=False):
            p.data, p.grad = self.values[start:stop].view(p.shape), self.gradient[start:stop].view(p.shape)
        # Where the numbers of each member lie, (blocks, members, 2); a number that all members share is not among them.
        self.blocks = np.array(
            [
                np.linspace(start, stop, members + 1, dtype=np.int64)[[[i, i + 1] for i in range(members)]]
                for p, start, stop in zip(self.parameters, places, places[1:], strict=False)
                if members == 1 or p.ndim
            ]
        )
        self.moves = torch.zeros_like(self.values[: self.in_matrices])  # those of Adam
        self.matrices: list[tuple[Tensor, ...]] = []  # values, gradient, mean and moves of some rows, (count, r, c)
        for p, start, stop in zip(matrices, places, places[1:], strict=False):
            vectors = (t[start:stop] for t in (self.values, self.gradient, self.mean, self.moves))
            self.matrices += zip(*(t.view(-1, *shapes[id(p)]).split(MOST_ROWS, dim=1) for t in vectors), strict=True)
        self.kernels = fused_kernels(self.values)
        of_adam = (self.gradient, self.mean, self.square)
        # What Adam's steps are made of, for matrices and for the other numbers; with kernels, as arrays for them.
        self.of_matrices: tuple[Any, ...] = self.moves, *(t[: self.in_matrices] for t in of_adam)
        self.of_others: tuple[Any, ...] = tuple(t[self.in_matrices :] for t in (self.values, *of_adam))
        if self.kernels is not None:
            self.slopes = self.gradient.numpy()
            self.of_matrices, self.of_others = (
                tuple(t.numpy() for t in own) for own in (self.of_matrices, self.of_others)
            )

    @property
    def rule(self) -> tuple[Any, ...]:
        """The constants of a step, for one that is compiled."""
        return BETAS, BETAS_OF_MATRICES, TINY, SMALLEST, DISTANCE, OTHERS, QUINTIC, ROUNDS, MOST_ROWS

    @property
    def state(self) -> dict[str, Tensor]:
        """What it remembers, by name; `restore` takes it back."""
        return {"mean": self.mean, "square": self.square, "count": torch.tensor(self.count)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a `state`."""
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.count = int(state["count"])

    def clip(self, limit: float) -> None:
        """Scale the gradient of each member to a norm of at most `limit`."""
        if self.kernels is not None:
            self.kernels.clip(self.slopes, self.blocks, limit)
            return
        for i in range(self.blocks.shape[1]):
            parts = [self.gradient[start:stop] for start, stop in self.blocks[:, i]]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in parts]))
            for part in parts:
                part.mul_((limit / (norm + 1e-6)).clamp_max(1.0))

    def step(self, rate: float, shrink: float, of_matrices: float | None = None) -> None:
        """One step down the gradient; matrices shrink as other weights do, unless told otherwise."""
        of_matrices = shrink if of_matrices is None else of_matrices
        self.count += 1
        self._adam(self.of_others, rate, BETAS, shrink)
        if self.matrices:
            self.moves.zero_()
            self._adam(self.of_matrices, rate, BETAS_OF_MATRICES)
        for values, gradient, mean, moves in self.matrices:
            u = torch.lerp(gradient, mean, BETAS_OF_MATRICES[0])
            u /= _norm(u).clamp_min_(SMALLEST)
            direction = u.add(polar(u), alpha=OTHERS / math.sqrt(min(u.shape[1:])))
            values.mul_(1 - of_matrices).addcmul_(direction, _norm(moves), value=-DISTANCE)

    def _adam(self, vectors: tuple[Any, ...], rate: float, betas: tuple[float, float], shrink: float = 0.0) -> None:
        """Adam's step on the first of some vectors, by the others: gradient, mean and square."""
        first, second = (1 - beta**self.count for beta in betas)
        decayed = self.decayed if shrink else 0
        if self.kernels is not None:
            self.kernels.adamw(*vectors, decayed, 1 - shrink, rate / first, math.sqrt(second), betas, TINY)
            return
        values, gradient, mean, square = vectors
        values[:decayed].mul_(1 - shrink)
        mean.lerp_(gradient, 1 - betas[0])
        square.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
        values.addcdiv_(mean, (square.sqrt() / math.sqrt(second)).add_(TINY), value=-rate / first)

    def release(self) -> None:
        """Give every parameter memory of its own, and no gradient."""
        for p in self.parameters:
            p.data, p.grad = p.detach().clone(), None


def polar(u: Tensor) -> Tensor:
    """About (u u^T)^(-1/2) u: the directions of u, all nearly of length one. Shapes: u (count, r, c), of norm 1 each.

    Three rounds of an odd polynomial that has singular values from about 0.02 on near 1, the smaller ones lifted
    forty-fold (its numbers: Jordan et al. 2024):

        u <- 3.4445 u - 4.7750 u u^T u + 2.0315 (u u^T)^2 u
    """
    if u.shape[1] > u.shape[2]:
        return polar(u.transpose(1, 2)).transpose(1, 2)
    first, third, fifth = QUINTIC
    for _ in range(ROUNDS):
        square = torch.bmm(u, u.transpose(1, 2))
        u = torch.baddbmm(u, torch.baddbmm(square, square, square, beta=third, alpha=fifth), u, beta=first)
    return u


def _norm(matrices: Tensor) -> Tensor:
    return torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True)

"""AdamW on all parameters of a model as one long vector, so that a step is two kernels and not a hundred operations."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from cofrnet.core.ladder import fused_kernels

__all__ = ["AdamW"]

BETAS = 0.9, 0.999
TINY = 1e-8


def _decays(name: str) -> bool:
    return not name.endswith(("bias", "intercept"))


class AdamW:
    """Adam with decoupled weight decay, on parameters that become views of one vector.

        m <- 0.9 m + 0.1 g,   v <- 0.999 v + 0.001 g^2
        w <- (1 - shrink) w - rate m / (1 - 0.9^t) / (sqrt(v / (1 - 0.999^t)) + 1e-8)

    Biases and intercepts do not shrink, unless the model itself says by `decays(name)` what does. Until `release`,
    every parameter that is learned shares memory with `values`, and its `grad` with `gradient`: gradients must be
    written or added there in place. The numbers are those of ``torch.optim.AdamW`` with weight_decay = shrink / rate,
    to rounding.
    """

    def __init__(self, model: nn.Module, members: int = 1) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        kinds = sorted({f"{p.dtype} on {p.device}" for _, p in named})
        if len(kinds) != 1:
            raise ValueError(f"parameters must be of one dtype and on one device to be trained; got {kinds}.")
        decays = getattr(model, "decays", _decays)
        decayed, free = ([p for name, p in named if decays(name) == whether] for whether in (True, False))
        self.parameters = [*decayed, *free]
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
        kernels = fused_kernels(self.gradient)
        if kernels is not None:
            kernels.clip(self.gradient.numpy(), self.blocks, limit)
            return
        for i in range(self.blocks.shape[1]):
            parts = [self.gradient[start:stop] for start, stop in self.blocks[:, i]]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in parts]))
            for part in parts:
                part.mul_((limit / (norm + 1e-6)).clamp_max(1.0))

    def step(self, rate: float, shrink: float) -> None:
        """One step down the gradient."""
        self.count += 1
        first, second = (1 - beta**self.count for beta in BETAS)
        kernels = fused_kernels(self.values)
        vectors = self.values, self.gradient, self.mean, self.square
        if kernels is not None:
            arrays = [t.numpy() for t in vectors]
            kernels.adamw(*arrays, self.decayed, 1 - shrink, rate / first, math.sqrt(second), BETAS, TINY)
            return
        self.values[: self.decayed].mul_(1 - shrink)
        self.mean.lerp_(self.gradient, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(self.gradient, self.gradient, value=1 - BETAS[1])
        self.values.addcdiv_(self.mean, (self.square.sqrt() / math.sqrt(second)).add_(TINY), value=-rate / first)

    def release(self) -> None:
        """Give every parameter memory of its own, and no gradient."""
        for p in self.parameters:
            p.data, p.grad = p.detach().clone(), None

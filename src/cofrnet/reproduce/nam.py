"""A neural additive model (Agarwal et al., 2021), for comparison: one small ReLU network for each feature, summed.

Written here in plain torch, the networks of all features side by side, because no package of it runs with current
versions of what it needs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["NAM"]


class NAM:
    """A classifier on standardised columns: networks of 64, 64 and 32 units, Adam, dropout and a cosine schedule."""

    def __init__(self, hidden: tuple[int, ...] = (64, 64, 32), epochs: int = 60, random_state: int = 0) -> None:
        self.hidden, self.epochs, self.random_state = hidden, epochs, random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit to columns (n, p) and classes 0, 1, ... (n,)."""
        generator = torch.Generator().manual_seed(self.random_state)
        x, target = torch.as_tensor(np.asarray(X), dtype=torch.float32), torch.as_tensor(np.asarray(y))
        p, q = x.shape[1], int(target.max()) + 1
        sizes = (1, *self.hidden, q)
        self.layers = [
            (
                (torch.randn(p, a, b, generator=generator) * (2 / a) ** 0.5).requires_grad_(),
                torch.zeros(p, 1, b).requires_grad_(),
            )
            for a, b in pairwise(sizes)
        ]
        parameters = [t for layer in self.layers for t in layer]
        optimizer = torch.optim.Adam(parameters, lr=5e-3, weight_decay=1e-5)
        steps = self.epochs * -(-len(x) // 256)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(self.epochs):
            for rows in torch.randperm(len(x), generator=generator).split(256):
                optimizer.zero_grad()
                scores = self._scores(x[rows], dropout=0.1, generator=generator)
                nn.functional.cross_entropy(scores, target[rows]).backward()
                optimizer.step()
                schedule.step()
        return self

    def _scores(self, x: Tensor, dropout: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
        """Shapes: x (n, p); returns (n, q)."""
        found = x.T.unsqueeze(-1)  # (p, n, 1)
        for i, (weight, bias) in enumerate(self.layers):
            found = torch.baddbmm(bias, found, weight)
            if i < len(self.layers) - 1:
                found = found.relu()
                if dropout:
                    kept = torch.rand(found.shape, generator=generator) >= dropout
                    found = found * kept / (1 - dropout)
        return found.sum(0)

    def predict_proba(self, X: NDArray[Any]) -> NDArray[Any]:
        """Probabilities of the classes."""
        with torch.no_grad():
            x = torch.as_tensor(np.asarray(X), dtype=torch.float32)
            return torch.cat([self._scores(part).softmax(1) for part in x.split(4096)]).double().numpy()

"""A fitted classifier of texts for other runtimes, from the numbers of its words on.

    words (n, T)  ->  weights, embedding  ->  ladders  ->  scores  ->  probabilities

Words are numbers of features: for a bag the different ones of each text, in any order, -1 where there are no more; for
vectors the words in their order, 0 where there is none. The file tells the words by their numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cofrnet.export.program import probabilities
from cofrnet.nn import BagCoFrNet, VectorCoFrNet

__all__ = ["TextProgram"]


class TextProgram(nn.Module):
    """A fitted classifier of texts as a function of the numbers of words, in operations that every runtime has."""

    weights: Tensor

    def __init__(self, model: BagCoFrNet | VectorCoFrNet, weights: Tensor) -> None:
        super().__init__()
        self.model, self.is_bag = model, isinstance(model, BagCoFrNet)
        self.register_buffer("weights", weights)

    def forward(self, words: Tensor) -> Tensor:
        """Probabilities (n, C) of texts given as numbers of words (n, T)."""
        model: Any = self.model
        if self.is_bag:
            there = (words >= 0).to(self.weights.dtype)
            places = words.clamp(min=0)
            x = self.weights[places] * there  # (n, T)
            x = x / (x * x).sum(1, keepdim=True).sqrt().clamp(min=1e-30)
            x = x.to(model.linear.dtype).unsqueeze(-1)
            z, straight = (x * model.embedding[places]).sum(1), (x * model.linear[places]).sum(1)
        else:
            z, straight = model.embedded(words), 0.0
        scores = model.cofrnet.member_scores_by_autograd(z).mean(0).T + straight  # (n, q)
        return probabilities(scores)

    def example(self) -> tuple[Tensor, Any]:
        """Words to trace with, and which of their sizes are free."""
        rows = torch.export.Dim("rows")
        model: Any = self.model
        if self.is_bag:
            return torch.zeros(3, 5, dtype=torch.int64), ({0: rows, 1: torch.export.Dim("words")},)
        return torch.zeros(3, model.length, dtype=torch.int64), ({0: rows},)

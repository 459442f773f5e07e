"""A fitted classifier of images for other runtimes.

    images (n, channels, h, w), pixels from 0 to 255  ->  blocks  ->  scores  ->  probabilities

Means and variances are folded into the rungs of the ladders of every channel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cofrnet.core import ladder
from cofrnet.export.program import probabilities
from cofrnet.nn.conv import ChannelLadders

__all__ = ["ImageProgram"]


class _Folded(nn.Module):
    """Ladders of channels, with what normalises them folded into their rungs."""

    weight: Tensor
    bias: Tensor

    def __init__(self, channels: ChannelLadders) -> None:
        super().__init__()
        weight, bias = channels.folded()
        self.epsilon = channels.epsilon
        self.register_buffer("weight", weight.detach()[:, :, None, None])
        self.register_buffer("bias", bias.detach()[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """Bent channels, (n, C, h, w)."""
        a = self.weight.unsqueeze(1) * x + self.bias.unsqueeze(1)
        return ladder(a, "smooth", self.epsilon)


class ImageProgram(nn.Module):
    """A fitted classifier of images as a function of pixels, in operations that every runtime has."""

    def __init__(self, model: Any, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.model, self.shape = model, shape
        for module in list(model.modules()):
            if isinstance(getattr(module, "bend", None), ChannelLadders):
                module.bend = _Folded(module.bend)
        if hasattr(model, "precision"):
            model.precision = "float32"

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities (n, C) of images (n, channels, h, w)."""
        features = self.model.features(images)
        return probabilities(self.model.head.member_scores_by_autograd(features).mean(0).T)

    def example(self) -> tuple[Tensor, Any]:
        """Images to trace with, and which of their sizes are free."""
        return torch.zeros(2, *self.shape), ({0: torch.export.Dim("rows")},)

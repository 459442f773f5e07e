"""Batches of images in memory, cropped and flipped at random while training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cofrnet.training.batches import Batch
from cofrnet.training.together import crew

__all__ = ["Images"]


@dataclass(frozen=True)
class Images:
    """Images in memory, (n, channels, h, w) of uint8 or floats, with their targets and weights.

    In every epoch each is seen once: shifted by up to `shift` pixels, what is beyond its edge mirrored, and with `flip`
    half of them turned left to right.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    shift: int = 4
    flip: bool = True

    def __len__(self) -> int:
        return len(self.x)

    @property
    def tensors(self) -> list[Tensor]:
        """All numbers of the images."""
        return [self.x, self.y, *([] if self.weight is None else [self.weight])]

    @property
    def settings(self) -> str:
        """How they are varied."""
        return f"{self.shift}, {self.flip}"

    def to(self, device: torch.device) -> Images:
        """The same images on a device."""
        weight = None if self.weight is None else self.weight.to(device)
        return Images(self.x.to(device), self.y.to(device), weight, self.shift, self.flip)

    def n_batches(self, batch_size: int) -> int:
        """Batches of one epoch."""
        return max(1, round(len(self) / batch_size))

    def batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All images once, in a random order where there is a generator."""
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        together = crew()
        own = None if generator is None else together.own_generator(generator)
        for rows in map(together.share, order.tensor_split(self.n_batches(batch_size))):
            weight = None if self.weight is None else self.weight[rows]
            yield self.varied(rows, own), self.y[rows], weight

    def varied(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Some of the images, each shifted and flipped by chance; as they are where there is no generator."""
        x = self.x[rows]
        if generator is None or (self.shift == 0 and not self.flip):
            return x
        n, _, h, w = x.shape
        reach = min(self.shift, h - 1, w - 1)
        wide = nn.functional.pad(x.float(), (reach,) * 4, mode="reflect").to(x.dtype) if reach else x
        down, right = torch.randint(2 * reach + 1, (2, n), generator=generator)
        across = torch.arange(w).expand(n, w)
        if self.flip:
            turned = torch.randint(2, (n, 1), generator=generator).bool()
            across = torch.where(turned, across.flip(1), across)
        lines = (down[:, None] + torch.arange(h))[:, :, None]  # (n, h, 1)
        columns = (right[:, None] + across)[:, None, :]  # (n, 1, w)
        found = wide.permute(0, 2, 3, 1)[torch.arange(n)[:, None, None], lines, columns]  # (n, h, w, channels)
        return found.permute(0, 3, 1, 2)

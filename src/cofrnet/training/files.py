"""Batches of images from files, decoded and resized in worker processes, never all in memory."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.images import ImageError, decoded
from cofrnet.training.batches import Batch
from cofrnet.training.images import Images
from cofrnet.training.together import crew

__all__ = ["ImageFiles", "SkippedImagesWarning"]


class SkippedImagesWarning(UserWarning):
    """Some files could not be read as images, and were left out."""


class _Decoded(torch.utils.data.Dataset[Any]):
    """Images of files one by one, for worker processes: pixels, place and, where it cannot be read, what is wrong."""

    def __init__(self, files: Sequence[Any], size: tuple[int, int], channels: int) -> None:
        self.files, self.size, self.channels = files, size, channels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[NDArray[np.uint8] | None, int, str]:
        try:
            return decoded(self.files[place], self.size, self.channels), place, ""
        except ImageError as error:
            return None, place, str(error)


def _undisturbed(_: int) -> None:
    """Ctrl-C is for the process that trains; its workers end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass
class ImageFiles:
    """Images in files with their targets, read anew in every epoch by so many worker processes.

    With `on_error` "raise" a file that cannot be read ends the training; with "skip" it is left out and told: once, in
    a `SkippedImagesWarning`, and by name in `skipped`. Images are shifted and flipped as `Images` does it.
    """

    files: Sequence[Any]
    y: Tensor
    size: tuple[int, int]
    channels: int = 3
    shift: int = 0
    flip: bool = False
    workers: int = 2
    on_error: Literal["raise", "skip"] = "raise"
    remedy: str = ""
    skipped: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def tensors(self) -> list[Tensor]:
        """What tells these images from others: their targets, and names of the files."""
        names = "\n".join(map(str, self.files)).encode("utf-8", "surrogateescape")
        return [self.y, torch.frombuffer(bytearray(names), dtype=torch.uint8)]

    @property
    def settings(self) -> str:
        """What else does: how they are read and varied."""
        return f"{self.size}, {self.channels}, {self.shift}, {self.flip}, {self.on_error}"

    def to(self, device: torch.device) -> ImageFiles:
        """The same: batches are moved as they come."""
        return self

    def n_batches(self, batch_size: int) -> int:
        """Batches of one epoch."""
        return max(1, -(-len(self) // batch_size))

    def batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All images once, in a random order where there is a generator."""
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        together = crew()
        own = None if generator is None else together.own_generator(generator)
        parts = [together.share(part).tolist() for part in order.split(batch_size)]
        for images, places in self.read(parts):
            y = self.y[places]
            part = Images(images, y, shift=self.shift, flip=self.flip)
            yield part.varied(torch.arange(len(y)), own), y, None

    def read(self, parts: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images (n, channels, h, w) and their places, for one list of places after the other."""
        before = len(self.skipped)
        workers = self.workers if len(parts) > 1 else 0
        loader = torch.utils.data.DataLoader(
            _Decoded(self.files, self.size, self.channels), batch_sampler=[list(part) for part in parts],
            collate_fn=list, num_workers=workers, generator=torch.Generator(), worker_init_fn=_undisturbed,
            multiprocessing_context=("fork" if sys.platform == "linux" else "spawn") if workers else None,
        )  # fmt: skip
        for items in loader:
            good = [(pixels, place) for pixels, place, _ in items if pixels is not None]
            for _, place, wrong in items:
                if wrong:
                    if self.on_error == "raise":
                        raise ImageError(f"{wrong} Mend or remove it{self.remedy}.")
                    self.skipped[str(self.files[place])] = wrong
            none = np.empty((0, *self.size, self.channels), dtype=np.uint8)
            found = np.stack([own for own, _ in good]) if good else none
            pixels = torch.from_numpy(found).permute(0, 3, 1, 2)
            yield pixels, torch.tensor([place for _, place in good], dtype=torch.int64)
        if len(self.skipped) > before and before == 0:
            first = next(iter(self.skipped.values()))
            warnings.warn(
                f"{len(self.skipped)} of {len(self)} files cannot be read and are left out; the first: {first}",
                SkippedImagesWarning,
                stacklevel=2,
            )

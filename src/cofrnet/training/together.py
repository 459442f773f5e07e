"""Several processes that train one model together, as ``torchrun`` starts them.

Every process draws the same order of images, works on its own share of each batch, and takes the mean of all gradients;
so all have the same weights after every step, to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

__all__ = ["Crew", "crew", "joined"]


@dataclass(frozen=True)
class Crew:
    """One of the processes that train together: its number, and how many they are."""

    rank: int = 0
    size: int = 1

    def share(self, places: Tensor) -> Tensor:
        """Its own of the places of a batch."""
        return places[self.rank :: self.size]

    def own_generator(self, of_all: torch.Generator) -> torch.Generator:
        """What varies its own images: drawn from the generator of all, which stays as it is."""
        copy = torch.Generator()
        copy.set_state(of_all.get_state())
        return copy.manual_seed(int(torch.randint(2**62, (1,), generator=copy)) + self.rank)

    def average(self, gradient: Tensor, loss: Tensor, rows: int) -> tuple[Tensor, int]:
        """Put the mean over the rows of all processes into `gradient`; returns that of the losses, and all rows."""
        if self.size == 1:
            return loss, rows
        gradient.mul_(rows)
        dist.all_reduce(gradient)
        totals = torch.cat([loss.detach().reshape(-1).double() * rows, torch.tensor([float(rows)]).to(loss.device)])
        dist.all_reduce(totals)
        count = int(totals[-1])
        gradient.div_(max(1, count))
        return (totals[:-1] / max(1, count)).to(loss.dtype).view(loss.shape), count

    def agree(self, model: Any) -> None:
        """Give the running statistics of all processes their mean."""
        for buffer in model.buffers() if self.size > 1 else ():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer.div_(self.size)


def crew() -> Crew:
    """Who trains together: this process alone, unless it has joined others."""
    if dist.is_available() and dist.is_initialized():
        return Crew(dist.get_rank(), dist.get_world_size())
    return Crew()


@contextmanager
def joined(device: str = "auto") -> Iterator[tuple[Crew, str]]:
    """Within the context, train together with the processes that ``torchrun`` started beside this one, if it did.

    Yields who they are, and the device of this one.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield Crew(), device
        return
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield crew(), device
    finally:
        dist.destroy_process_group()

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

    def agreed(self, number: int) -> int:
        """The number that the first process has."""
        if self.size == 1:
            return number
        found = torch.tensor([number], dtype=torch.int64)
        self.take_from_first(found)
        return int(found)

    def take_from_first(self, *tensors: Tensor) -> None:
        """Put what the first process has into the tensors of all."""
        for tensor in tensors if self.size > 1 else ():
            on = tensor.to(torch.cuda.current_device()) if dist.get_backend() == "nccl" else tensor
            dist.broadcast(on, 0)
            if on is not tensor:
                tensor.copy_(on)

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


_crew = Crew()


def crew() -> Crew:
    """Who trains together: this process alone, but within `joined`."""
    return _crew


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
    global _crew
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    _crew = Crew(dist.get_rank(), dist.get_world_size())
    try:
        yield _crew, device
    finally:
        _crew = Crew()
        if own:
            dist.destroy_process_group()

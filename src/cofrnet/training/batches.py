"""Where rows come from: tensors in memory, or any iterable of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

__all__ = ["Batch", "Rows", "Source", "Stream"]

Batch: TypeAlias = tuple[Tensor, Tensor, Tensor | None]  # features, targets, weights


class Source(Protocol):
    """What the epoch loop needs of its data."""

    def n_batches(self, batch_size: int) -> int:
        """Batches of one epoch."""
        ...

    def batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """The batches of one epoch, shuffled where a generator is given and the source can."""
        ...


@dataclass(frozen=True)
class Rows:
    """Rows in memory: features (n, p), targets (n, ...), and weights, None or (n,) or (n, members), of mean 1.

    Features may also be a `Bag`, which can be indexed and split as a tensor can.
    """

    x: Any
    y: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def tensors(self) -> list[Tensor]:
        """All numbers of the rows."""
        x = [self.x] if isinstance(self.x, Tensor) else [self.x.offsets, self.x.ids, self.x.weights]
        return [*x, self.y, *([] if self.weight is None else [self.weight])]

    def n_batches(self, batch_size: int) -> int:
        """Batches of one epoch: none is smaller than half of `batch_size`, unless there is only one."""
        return max(1, round(len(self) / batch_size))

    def order(self, generator: torch.Generator) -> Tensor:
        """All rows once, in random order."""
        return torch.randperm(len(self), generator=generator)

    def ends(self, batch_size: int) -> list[int]:
        """Where the batches of an epoch end, from 0 on: each has as many rows as any other, or one more."""
        n, parts = len(self), self.n_batches(batch_size)
        return [i * (n // parts) + min(i, n % parts) for i in range(parts + 1)]

    def batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """All rows once. One gather a whole epoch; the batches are views of it."""
        x, y, weight = self.x, self.y, self.weight
        if generator is not None:
            order = self.order(generator).to(x.device)
            x = x.index_select(0, order) if isinstance(x, Tensor) else x[order]
            y, weight = y[order], None if weight is None else weight[order]
        parts = self.n_batches(batch_size)
        weights = [None] * parts if weight is None else weight.tensor_split(parts)
        yield from zip(x.tensor_split(parts), y.tensor_split(parts), weights, strict=True)

    def to(self, device: torch.device) -> Rows:
        """The same rows on a device."""
        weight = None if self.weight is None else self.weight.to(device)
        return Rows(self.x.to(device), self.y.to(device), weight)

    def double(self) -> Rows:
        """The same rows in float64."""
        return Rows(self.x.double(), self.y.double(), None if self.weight is None else self.weight.double())

    def bootstrapped(self, members: int, generator: torch.Generator) -> Rows:
        """The rows with a weight for each member: how often a sample with replacement draws them."""
        n = len(self)
        drawn = torch.randint(n, (members, n), generator=generator)
        counts = torch.stack([row.bincount(minlength=n) for row in drawn], dim=1).to(self.x.dtype)  # (n, members)
        return Rows(self.x, self.y, counts if self.weight is None else counts * self.weight.reshape(n, -1))

    def in_turn(self, held: Tensor) -> tuple[Rows, Rows]:
        """Rows to train on and rows to stop by, where each member has others to stop by: `held`, (n, members) bools."""
        weight = self.x.new_ones(len(self), 1) if self.weight is None else self.weight.reshape(len(self), -1)
        some = held.any(1)
        kept, own = weight * ~held, (weight * held)[some]
        return Rows(self.x, self.y, kept / kept.mean(0)), Rows(self.x[some], self.y[some], own / own.mean(0))

    def of_members(self) -> Iterator[Rows]:
        """The rows that each member trains on; all of them together, once, where members have no weights of their own.

        Their weights have a mean of 1 again.
        """
        if self.weight is None or self.weight.ndim == 1:
            yield self
            return
        for i in range(self.weight.shape[1]):
            own = self.of_member(i)
            assert own.weight is not None
            yield Rows(own.x, own.y, own.weight / own.weight.mean())

    def of_member(self, i: int) -> Rows:
        """The rows that count for member i, with its weights; all of them where all members have the same."""
        if self.weight is None or self.weight.ndim == 1:
            return self
        own = self.weight[:, i] > 0
        return Rows(self.x[own], self.y[own], self.weight[own, i])

    def select(self, index: Tensor) -> Rows:
        """Some of the rows."""
        return Rows(self.x[index], self.y[index], None if self.weight is None else self.weight[index])


@dataclass(frozen=True)
class Stream:
    """Batches that someone else makes: an iterable, such as a DataLoader, that can be gone through once an epoch.

    Its items are (x, y) or (x, y, weight), weights with a mean of 1 over all. `length` is the number of batches, needed
    where the iterable has no len().
    """

    iterable: Iterable[tuple[Tensor, ...]]
    length: int | None = None

    def n_batches(self, batch_size: int) -> int:
        """Batches of one epoch; the batch size is the iterable's own."""
        return len(self.iterable) if self.length is None else self.length  # type: ignore[arg-type]

    def batches(self, batch_size: int, generator: torch.Generator | None) -> Iterator[Batch]:
        """The iterable's batches, in its own order."""
        for x, y, *rest in self.iterable:
            yield x, y, rest[0] if rest else None

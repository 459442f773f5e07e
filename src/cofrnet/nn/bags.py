"""CoFrNets over bags: sparse rows of many inputs, such as the words of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cofrnet.core.ladder import fused_kernels
from cofrnet.nn.cofrnet import CoFrNet, CoFrNetSpec
from cofrnet.nn.specs import Spec

__all__ = ["Bag", "BagCoFrNet", "BagSpec", "bag_sums"]


@dataclass(frozen=True)
class Bag:
    """Sparse rows: row i has the entries from ``offsets[i]`` to ``offsets[i + 1]`` of `ids` and `weights`.

    It can be indexed and split by rows as a tensor can. Shapes: offsets (n + 1,), ids and weights (entries,).
    """

    offsets: Tensor
    ids: Tensor
    weights: Tensor

    def require_ids_below(self, n_inputs: int) -> None:
        """Raise unless all ids are those of so many inputs, and the offsets those of the entries."""
        ends = (int(self.offsets[0]), int(self.offsets[-1])) if len(self.offsets) else (0, -1)
        fit = (
            ends == (0, len(self.ids)) and bool((self.offsets.diff() >= 0).all()) and len(self.weights) == len(self.ids)
        )
        if not fit or (len(self.ids) and not 0 <= int(self.ids.min()) <= int(self.ids.max()) < n_inputs):
            raise ValueError(
                f"a bag must have ids from 0 to {n_inputs - 1} and offsets that rise from 0 to the number of its "
                "entries; it has others."
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.ids.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.weights.dtype

    def to(self, device: torch.device) -> Bag:
        """The same rows on a device."""
        return Bag(self.offsets.to(device), self.ids.to(device), self.weights.to(device))

    def __getitem__(self, rows: slice | Tensor) -> Bag:
        """Some of the rows; of consecutive ones, a view."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                stop = max(start, stop)
                first, last = int(self.offsets[start]), int(self.offsets[stop])
                return Bag(self.offsets[start : stop + 1] - first, self.ids[first:last], self.weights[first:last])
            rows = torch.arange(start, stop, step, device=self.device)
        counts = self.offsets.diff()[rows]
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        places = torch.repeat_interleave(self.offsets[:-1][rows] - offsets[:-1], counts)
        places += torch.arange(len(places), device=self.device)
        return Bag(offsets, self.ids[places], self.weights[places])

    def split(self, size: int) -> list[Bag]:
        """Parts of so many rows each, the last of fewer."""
        return [self[start : start + size] for start in range(0, len(self), size)]

    def tensor_split(self, parts: int) -> Iterator[Bag]:
        """So many parts, of nearly as many rows each."""
        sizes = torch.arange(len(self)).tensor_split(parts)
        return (self[int(own[0]) : int(own[-1]) + 1] if len(own) else self[:0] for own in sizes)

    def dense(self, n_inputs: int) -> Tensor:
        """The rows written out, (n, n_inputs)."""
        rows = torch.repeat_interleave(torch.arange(len(self), device=self.device), self.offsets.diff())
        found = self.weights.new_zeros(len(self), n_inputs)
        return found.index_put_((rows, self.ids), self.weights, accumulate=True)


@dataclass(frozen=True)
class BagSpec(Spec):
    """What a `BagCoFrNet` is made of.

    `width` is that of the embedding; None lets the rungs read the inputs themselves, with a weight for each.
    """

    n_inputs: int
    n_outputs: int = 1
    width: int | None = 32
    n_ladders: int = 16
    depth: int = 3
    pole: str = "smooth"
    epsilon: float | None = None
    n_members: int = 1

    def __post_init__(self) -> None:
        for name, least in {"n_inputs": 0, "n_outputs": 1, "n_ladders": 1, "depth": 0, "n_members": 1}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more; got {name}={getattr(self, name)}.")
        if self.width is not None and self.width < 1:
            raise ValueError(f"width must be None, or 1 or more; got width={self.width}.")

    @property
    def own_width(self) -> int:
        """Numbers that stand for an input, for each member."""
        return self.n_ladders * (self.depth + 1) if self.width is None else self.width

    @property
    def above(self) -> CoFrNetSpec:
        """The CoFrNet over the embedding; each of several members reads a part of its own."""
        return CoFrNetSpec(
            n_features=self.own_width * self.n_members,
            n_outputs=self.n_outputs,
            variant="F",
            n_ladders=self.n_ladders,
            depth=self.depth,
            pole=self.pole,
            epsilon=self.epsilon,
            n_members=self.n_members,
        )

    @property
    def n_parameters(self) -> int:
        """Numbers that the model has."""
        return self.n_inputs * (self.own_width * self.n_members + self.n_outputs) + self.above.n_parameters


class BagCoFrNet(nn.Module):
    """A linear function of a bag, and ladders over its embedding: a rational function of the inputs.

        z = sum_j x_j E_j,      score(x) = sum_j x_j U_j + CoFrNet(z)

    Only the inputs that a row has cost anything. The linear part U is meant to be set, and is not trained by gradients
    (`start_from_linear`): it is the ladders that learn what it leaves over. Without a width, z are the partial
    denominators themselves, a_k = w_k·x + b_k, with a weight for every input.

    Shapes: U (V, q), E (V, width); scores of n rows (n, q).
    """

    members_share = True  # the linear part, and tables with a row for each input

    def __init__(self, spec: BagSpec, generator: torch.Generator | None = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.spec = spec
        self.in_place_gradients = False  # whether backward adds to `embedding.grad` itself, as the epoch loop wants it
        self.cofrnet = CoFrNet(spec.above, generator=generator, dtype=dtype)
        factory: dict[str, Any] = {"dtype": self.cofrnet.head.dtype}
        self.linear = nn.Parameter(torch.zeros(spec.n_inputs, spec.n_outputs, **factory), requires_grad=False)
        width = spec.own_width * spec.n_members
        # A row's weights have a norm of 1: its embedding begins with numbers of this size.
        scale = 0.1 if spec.width is not None else 0.1 / math.sqrt(spec.depth + 1)
        start = torch.empty(spec.n_inputs, width, **factory).normal_(generator=generator) * scale
        self.embedding = nn.Parameter(start)
        assert self.cofrnet.full is not None
        if spec.width is None:  # each rung is one of the numbers
            weight = self.cofrnet.full.weight.requires_grad_(False)
            ones = torch.eye(spec.own_width, **factory).view(spec.depth + 1, spec.n_ladders, spec.own_width)
            with torch.no_grad():
                weight.zero_()
                for i, own in enumerate(weight.view(spec.n_members, spec.depth + 1, spec.n_ladders, width)):
                    own[..., i * spec.own_width : (i + 1) * spec.own_width] = ones

    @staticmethod
    def decays(name: str) -> bool:
        """Whether training lets a parameter shrink: what stands for an input, of which there may be too many."""
        return name == "embedding"

    def start_from_linear(self, weight: Tensor, intercept: Tensor) -> None:
        """Begin as a linear model: U (V, q) and intercepts (q,); the ladders add nothing yet."""
        with torch.no_grad():
            self.linear.copy_(weight)
            self.cofrnet.head.zero_()
            for own, value in ((self.cofrnet.linear, torch.zeros(1)), (self.cofrnet.intercept, intercept)):
                assert own is not None
                own.copy_(value.to(own.dtype).expand_as(own))

    def embedded(self, x: Bag) -> Tensor:
        """Embeddings of the rows, (n, width)."""
        x.require_ids_below(self.spec.n_inputs)
        return bag_sums(x, self.embedding, self.in_place_gradients)

    def member_scores(self, x: Bag) -> Tensor:
        """Scores of each member, (n, members, q)."""
        return self.cofrnet.member_scores(self.embedded(x)) + bag_sums(x, self.linear).unsqueeze(1)

    def forward(self, x: Bag) -> Tensor:
        """Scores, (n, q)."""
        return self.member_scores(x).mean(1)

    def clamped_share(self, x: Bag) -> Tensor:
        """Share of the rungs below the first that are clamped, of every row, (n,)."""
        return self.cofrnet.clamped_share(self.embedded(x))

    @classmethod
    def of_members(cls, members: list[BagCoFrNet]) -> BagCoFrNet:
        """One model whose members these are: embeddings beside each other, each read by its own ladders alone."""
        first = members[0]
        spec = BagSpec(**{**first.spec.to_dict(), "n_members": len(members)})
        whole = cls(spec, dtype=first.linear.dtype)
        states = [member.cofrnet.state_dict() for member in members]
        width = first.spec.own_width
        with torch.no_grad():
            whole.linear.copy_(torch.stack([member.linear for member in members]).mean(0))
            whole.embedding.copy_(torch.cat([member.embedding for member in members], dim=1))
            for name, value in whole.cofrnet.state_dict().items():
                for i, state in enumerate(states):
                    if value[i].shape == state[name].shape:
                        value[i] = state[name]
                    else:  # weights of what is read: zero but for the member's own part
                        value[i].zero_()
                        value[i][..., i * width : (i + 1) * width] = state[name]
        return whole


class _Sums(torch.autograd.Function):
    """Weighted sums of rows of a table; if so asked, the gradient by the table is added to its `grad` in place.

    A gradient as large as the table for every batch would be most of the work.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, x: Bag, kernels: Any, in_place: bool) -> Tensor:
        ctx.x, ctx.kernels, ctx.table, ctx.in_place = x, kernels, table, in_place
        found = table.new_empty(len(x), table.shape[1])
        kernels.bag_sums(*_arrays(x), table.detach().numpy(), found.numpy())
        return found

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, None, None, None]:
        grad = ctx.table.grad if ctx.in_place else None
        total = torch.zeros_like(ctx.table) if grad is None else grad
        ctx.kernels.add_bag_gradients(*_arrays(ctx.x), slopes.contiguous().numpy(), total.numpy())
        return (total if grad is None else None), None, None, None


def _arrays(x: Bag) -> list[Any]:
    return [t.numpy() for t in (x.offsets, x.ids, x.weights)]


def bag_sums(x: Bag, table: Tensor, in_place: bool = False) -> Tensor:
    """Weighted sums of rows of a table, (n, width); the ids must be places in it."""
    if not len(x.ids):
        return table.new_zeros(len(x), table.shape[1])
    kernels = fused_kernels(table, x.weights)
    if kernels is not None and table.is_contiguous() and not x.weights.requires_grad:
        return _Sums.apply(table, x, kernels, in_place)
    return nn.functional.embedding_bag(
        x.ids, table, x.offsets[:-1], mode="sum", per_sample_weights=x.weights.to(table.dtype)
    )

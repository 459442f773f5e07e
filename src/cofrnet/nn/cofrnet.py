"""The CoFrNet: a linear combination of ladders, described by one frozen spec."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from cofrnet.core import clamped
from cofrnet.nn import fused
from cofrnet.nn.ladders import DiagonalLadders, FullLadders, Ladders, SubsetLadders
from cofrnet.nn.specs import CoFrNetSpec, Variant

__all__ = ["CoFrNet", "CoFrNetSpec", "LadderDropout", "Variant"]


class LadderDropout(nn.Module):
    """Dropout of ladder values that can draw from a generator of its own instead of torch's global one."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.generator: torch.Generator | None = None

    def forward(self, values: Tensor) -> Tensor:
        """Values, with a share of them set to 0 in training and the rest scaled up by as much."""
        if not self.training or self.share == 0:
            return values
        where = values.device if self.generator is None else self.generator.device
        kept = torch.empty(values.shape, dtype=values.dtype, device=where)
        kept = kept.bernoulli_(1 - self.share, generator=self.generator).to(values.device)
        return values * kept.div_(1 - self.share)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.share:g}"


class CoFrNet(nn.Module):
    """A linear combination of ladders.

        score(x) = U x + c + H·[curves(x), subsets(x), full(x)]

    with the head H of shape (q, L). In "S" the full ladders read [x, curves(x)] instead of x. With several members,
    every parameter has a member axis in front and the score is the mean of the members' scores: a linear combination of
    CoFrNets is a CoFrNet.

    Parameters
    ----------
    spec : CoFrNetSpec, optional
        Or give its fields: ``CoFrNet(n_features=10, variant="DL")``.
    generator : torch.Generator, optional
        Source of the initial values; torch's own by default.
    device, dtype
        As for any torch module.
    """

    _curved: Tensor | None

    def __init__(
        self,
        spec: CoFrNetSpec | None = None,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **spec_fields: Any,
    ) -> None:
        super().__init__()
        if spec is not None and spec_fields:
            raise TypeError(f"give a spec or its fields, not both; got spec and {sorted(spec_fields)}.")
        self.spec = spec = spec or CoFrNetSpec(**spec_fields)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        options: dict[str, Any] = {
            "members": spec.n_members,
            "pole": spec.pole,
            "epsilon": spec.epsilon,
            "learn_epsilon": spec.learn_epsilon,
            "generator": generator,
            **factory,
        }
        p, q, depths = spec.n_features, spec.n_outputs, spec.full_depths
        self.curves = None
        reads = None
        if spec.n_curves:
            curved = spec.curved_features
            self.curves = DiagonalLadders(len(curved), spec.depth, spec.ladders_per_feature, **options)
            reads = None if len(curved) == p else torch.tensor(curved, device=device)
        self.register_buffer("_curved", reads, persistent=False)
        self.subsets = SubsetLadders(p, spec.subsets, spec.depth, **options) if spec.subsets else None
        first = spec.variant != "S"
        self.full = FullLadders(spec.full_width, len(depths), depths, first, **options) if depths else None
        self.dropout = LadderDropout(spec.dropout)
        lead = (spec.n_members,) if spec.n_members > 1 else ()
        self.head = nn.Parameter(torch.empty(*lead, q, spec.total_ladders, **factory))
        self.linear = nn.Parameter(torch.empty(*lead, q, p, **factory)) if spec.linear else None
        self.intercept = nn.Parameter(torch.empty(*lead, q, **factory)) if spec.linear else None
        self._reset_head(generator)

    def _reset_head(self, generator: torch.Generator | None) -> None:
        """Scores start with variance of order one from the ladders, and from 0 on the linear path."""
        with torch.no_grad():
            where = generator.device if generator is not None else None
            head = torch.empty(self.head.shape, device=where).normal_(generator=generator)
            self.head.copy_(head / math.sqrt(max(1, self.spec.total_ladders)))
            for parameter in (self.linear, self.intercept):
                if parameter is not None:
                    parameter.zero_()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all initial values anew."""
        for bank in (self.curves, self.subsets, self.full):
            if bank is not None:
                bank.reset_parameters(generator)
        self._reset_head(generator)

    @property
    def members_share(self) -> bool:
        """Whether some numbers belong to all members: the epsilons, where they are learned."""
        return self.spec.learn_epsilon

    @property
    def curved(self) -> Tensor:
        """Positions of the features that have curves."""
        return torch.arange(self.spec.n_features, device=self.head.device) if self._curved is None else self._curved

    def matrices(self) -> list[tuple[nn.Parameter, tuple[int, int]]]:
        """Parameters that training takes for matrices, and (rows, columns) of them: weights of ladders by inputs.

        There is one matrix for every rung of the full ladders, or one for all rungs where their depths differ.
        """
        if self.full is None:
            return []
        width, members = self.full.n_features, self.full.members
        rows = self.full.weight.numel() // (members * width) if self.full.is_uneven else self.full.n_ladders
        return [(self.full.weight, (rows, width))]

    def read_by_banks(self, x: Tensor) -> Iterator[tuple[str, Ladders, Tensor, Tensor]]:
        """Name, bank, what it reads, and its values, in the order of the head.

        Shapes: x (n, p); reads (n, inputs), (members, n, inputs) for the full ladders of "S"; values (members, L, n).
        """
        reads = x
        if self.curves is not None:
            curved = x if self._curved is None else x[:, self._curved]
            values = self.curves.values(curved)
            yield "curves", self.curves, curved, values
            if self.spec.variant == "S":
                features = x.T.expand(len(values), -1, -1)
                reads = torch.cat([features, values], dim=1).transpose(1, 2)  # (members, n, p + p m)
        if self.subsets is not None:
            yield "subsets", self.subsets, x, self.subsets.values(x)
        if self.full is not None:
            yield "full", self.full, reads, self.full.values(reads)

    def _values(self, x: Tensor) -> Tensor:
        """Values of all ladders, feature-first. Shapes: x (n, p); returns (members, L, n)."""
        parts = [values for _, _, _, values in self.read_by_banks(x)]
        if not parts:
            return x.new_empty(self.spec.n_members, 0, len(x))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def _rows(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.spec.n_features:
            raise ValueError(
                f"x must have {self.spec.n_features} features on its last axis; got shape {tuple(x.shape)}. "
                "Pass the columns the model was made for."
            )
        return x.reshape(-1, self.spec.n_features)

    def member_scores(self, x: Tensor) -> Tensor:
        """Scores of each member. Shapes: x (..., p); returns (..., members, q)."""
        rows = self._rows(x)
        scores = fused.member_scores(self, rows)
        if scores is None:
            scores = self.member_scores_by_autograd(rows)
        return scores.permute(2, 0, 1).reshape(*x.shape[:-1], self.spec.n_members, self.spec.n_outputs)

    def member_scores_by_autograd(self, x: Tensor) -> Tensor:
        """Scores of each member by torch operations alone. Shapes: x (n, p); returns (members, q, n)."""
        m, q = self.spec.n_members, self.spec.n_outputs
        head: Tensor = self.head.view(m, q, -1)
        values: Tensor = self.dropout(self._values(x))
        if self.linear is None or self.intercept is None:
            return head @ values
        straight = torch.addmm(self.intercept.reshape(-1, 1), self.linear.reshape(-1, x.shape[1]), x.T)
        return torch.baddbmm(straight.view(m, q, -1), head, values)

    def forward(self, x: Tensor) -> Tensor:
        """Scores. Shapes: x (..., p); returns (..., q)."""
        scores = self.member_scores(x)
        return scores.mean(-2) if self.spec.n_members > 1 else scores.squeeze(-2)

    @torch.no_grad()
    def clamped_share(self, x: Tensor) -> Tensor:
        """Share of the rungs below the first that are clamped, of every row. Shapes: x (n, p); returns (n,)."""
        inside, rungs = x.new_zeros(len(x)), 0
        if self.spec.pole == "clamp":
            for _, bank, reads, _ in self.read_by_banks(x):
                a = bank.partial_denominators(reads)  # (d+1, n, [members,] L)
                inside += clamped(a, bank.pole, bank.epsilon)[1:].transpose(0, 1).flatten(1).sum(1)
                rungs += bank.members * sum(bank.depths)
        return inside / max(1, rungs)

    def member(self, index: int) -> CoFrNet:
        """A CoFrNet that is one of the members, with parameters of its own."""
        if not 0 <= index < self.spec.n_members:
            raise ValueError(f"index must be from 0 to {self.spec.n_members - 1}; got index={index}.")
        factory: dict[str, Any] = {"device": self.head.device, "dtype": self.head.dtype}
        one = CoFrNet(replace(self.spec, n_members=1), generator=torch.Generator(), **factory)  # not torch's own
        if self.spec.n_members == 1:
            one.load_state_dict(self.state_dict())
        else:
            state = self.state_dict()
            one.load_state_dict({name: value[index] if value.ndim else value for name, value in state.items()})
        return one

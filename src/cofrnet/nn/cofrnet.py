"""The CoFrNet: a linear combination of ladders, described by one frozen spec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from cofrnet.core.poles import resolve_pole
from cofrnet.nn.ladders import DiagonalLadders, FullLadders, SubsetLadders, check_subset

__all__ = ["CoFrNet", "CoFrNetSpec", "Variant"]

Variant: TypeAlias = Literal["F", "D", "DL", "S"]


@dataclass(frozen=True, kw_only=True)
class CoFrNetSpec:
    """Which ladders a CoFrNet has, as data: hashable, comparable, and JSON by `to_dict` and `from_dict`.

    Parameters
    ----------
    n_features : int
    n_outputs : int
        Scores per row, q.
    variant : {"F", "D", "DL", "S"}
        "F": `n_ladders` full ladders. "D": `ladders_per_feature` single-feature ladders (curves) for each feature.
        "DL": both, the full ladders of increasing depth, starting at two. "S": curves as in "D", and full ladders
        that read every feature through its curves, a_k = w_k·[x, curves(x)] + b_k.
    depth : int
        Depth of the curves, and of the full ladders unless `depths` says otherwise.
    n_ladders : int
        Full ladders.
    depths : tuple of int, optional
        Depth of each full ladder. By default `depth` for each in "F" and "S", and 2, 3, ... in "DL".
    ladders_per_feature : int
    subsets : tuple of tuples of int
        Feature subsets, by position, that get a ladder of their own (pairs, for interactions), in any variant.
    pole, epsilon, learn_epsilon
        Pole handling, see `cofrnet.core.ladder`.
    dropout : float
        Share of ladder values dropped at random in training.
    linear : bool
        Whether the score has a linear path U x + c beside the ladders.

    Paper: Figure 2 for F, D and DL. S is ours.
    """

    n_features: int
    n_outputs: int = 1
    variant: Variant = "S"
    depth: int = 3
    n_ladders: int = 16
    depths: tuple[int, ...] | None = None
    ladders_per_feature: int = 1
    subsets: tuple[tuple[int, ...], ...] = ()
    pole: str = "smooth"
    epsilon: float | None = None
    learn_epsilon: bool = False
    dropout: float = 0.0
    linear: bool = True

    def __post_init__(self) -> None:
        for name in ("n_features", "n_outputs", "n_ladders", "ladders_per_feature"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {name}={getattr(self, name)}.")
        if self.variant not in get_args(Variant):
            raise ValueError(
                f"variant must be 'F', 'D', 'DL' or 'S'; got variant={self.variant!r}. Choose one of them."
            )
        if self.depth < 0:
            raise ValueError(f"depth must be 0 or more; got depth={self.depth}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1); got dropout={self.dropout}.")
        if self.depths is not None:
            object.__setattr__(self, "depths", tuple(self.depths))
            if len(self.depths) != self.n_ladders or min(self.depths) < 0:
                raise ValueError(
                    f"depths must give each of the n_ladders={self.n_ladders} full ladders a depth of 0 or more; "
                    f"got {self.depths}."
                )
        object.__setattr__(self, "subsets", tuple(tuple(subset) for subset in self.subsets))
        for subset in self.subsets:
            check_subset(subset, self.n_features)
        object.__setattr__(self, "epsilon", resolve_pole(self.pole, self.epsilon)[1])

    @property
    def n_curves(self) -> int:
        """Single-feature ladders."""
        return 0 if self.variant == "F" else self.n_features * self.ladders_per_feature

    @property
    def full_depths(self) -> tuple[int, ...]:
        """Depth of each full ladder; empty in "D"."""
        if self.variant == "D":
            return ()
        if self.depths is not None:
            return self.depths
        return tuple(range(2, self.n_ladders + 2)) if self.variant == "DL" else (self.depth,) * self.n_ladders

    @property
    def full_width(self) -> int:
        """Inputs that a full ladder reads: the features, and in "S" their curves."""
        return self.n_features + (self.n_curves if self.variant == "S" else 0)

    @property
    def total_ladders(self) -> int:
        """All ladders, in the order of the head: curves, subsets, full."""
        return self.n_curves + len(self.subsets) + len(self.full_depths)

    @property
    def n_parameters(self) -> int:
        """Numbers to be learned.

        A rung that reads s inputs has s + 1 of them. The supplement counts p L (d-1) + L q for CoFrNet-F, with the
        bias as one of its p inputs and with d - 1 rungs: its d is our depth plus two.
        """
        rungs = self.n_curves * (self.depth + 1) * 2
        rungs += sum((self.depth + 1) * (len(subset) + 1) for subset in self.subsets)
        rungs += sum((depth + 1) * (self.full_width + 1) for depth in self.full_depths)
        banks = (self.n_curves > 0) + (len(self.subsets) > 0) + (len(self.full_depths) > 0)
        linear = self.n_outputs * (self.n_features + 1) if self.linear else 0
        return rungs + self.n_outputs * self.total_ladders + linear + banks * self.learn_epsilon

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON values."""
        values = asdict(self)
        values["subsets"] = [list(subset) for subset in self.subsets]
        values["depths"] = None if self.depths is None else list(self.depths)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CoFrNetSpec:
        """The spec that `to_dict` wrote; unknown names are refused."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"a CoFrNetSpec must have known fields only; got {sorted(unknown)}. Remove them.")
        return cls(**values)


class CoFrNet(nn.Module):
    """A linear combination of ladders.

        score(x) = U x + c + H·[curves(x), subsets(x), full(x)]

    with the head H of shape (q, L). In "S" the full ladders read [x, curves(x)] instead of x.

    Parameters
    ----------
    spec : CoFrNetSpec, optional
        Or give its fields: ``CoFrNet(n_features=10, variant="DL")``.
    generator : torch.Generator, optional
        Source of the initial values; torch's own by default.
    device, dtype
        As for any torch module.
    """

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
        options: dict[str, Any] = {
            "pole": spec.pole,
            "epsilon": spec.epsilon,
            "learn_epsilon": spec.learn_epsilon,
            "generator": generator,
            "device": device,
            "dtype": dtype,
        }
        p, depths = spec.n_features, spec.full_depths
        self.curves = DiagonalLadders(p, spec.depth, spec.ladders_per_feature, **options) if spec.n_curves else None
        self.subsets = SubsetLadders(p, spec.subsets, spec.depth, **options) if spec.subsets else None
        self.full = FullLadders(spec.full_width, len(depths), depths, **options) if depths else None
        self.dropout = nn.Dropout(spec.dropout)
        self.head = nn.Parameter(torch.empty(spec.n_outputs, spec.total_ladders, device=device, dtype=dtype))
        self.linear = None
        if spec.linear:  # without torch's own initial values, which would draw from its global generator
            self.linear = nn.utils.skip_init(nn.Linear, p, spec.n_outputs, device=device or "cpu", dtype=dtype)
        self._reset_head(generator)

    def _reset_head(self, generator: torch.Generator | None) -> None:
        """Scores start with variance of order one from the ladders, and from 0 on the linear path."""
        with torch.no_grad():
            where = generator.device if generator is not None else None
            head = torch.empty(self.head.shape, device=where).normal_(generator=generator)
            self.head.copy_(head / math.sqrt(self.spec.total_ladders))
            if self.linear is not None:
                self.linear.weight.zero_()
                self.linear.bias.zero_()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all initial values anew."""
        for bank in (self.curves, self.subsets, self.full):
            if bank is not None:
                bank.reset_parameters(generator)
        self._reset_head(generator)

    def ladder_values(self, x: Tensor) -> Tensor:
        """Values of all ladders, in the order of the head. Shapes: x (..., p); returns (..., L)."""
        parts = []
        reads = x
        if self.curves is not None:
            curves = self.curves(x)
            parts.append(curves)
            if self.spec.variant == "S":
                reads = _joined([x, curves])
        if self.subsets is not None:
            parts.append(self.subsets(x))
        if self.full is not None:
            parts.append(self.full(reads))
        return _joined(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Scores. Shapes: x (..., p); returns (..., q)."""
        score = functional.linear(self.dropout(self.ladder_values(x)), self.head)
        return score if self.linear is None else score + self.linear(x)


def _joined(parts: list[Tensor]) -> Tensor:
    """Parts side by side on the last axis, kept feature-first in memory as the banks make and read them."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([part.movedim(-1, 0) for part in parts]).movedim(0, -1)

"""Banks of ladders: torch modules that turn features into partial denominators, and those into values.

A bank holds L ladders. What sets one kind of bank apart from another is only which features a ladder reads, that is,
how a_k = w_k·x + b_k is computed; the ladders themselves are evaluated by `cofrnet.core.ladder` for all of them.
Inside, tensors are feature-first, (L, n) in memory, so that one matrix product makes all rungs of all ladders; the
shapes seen from outside are torch's usual (..., n_features) -> (..., L).

A bank may hold several *members*: independent copies with initial values of their own, evaluated side by side. Then
parameters have a member axis in front, and values are (..., members, L).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cofrnet.core import feature_ladders, ladder
from cofrnet.core.poles import resolve_pole
from cofrnet.nn.specs import check_subset

__all__ = ["DiagonalLadders", "FullLadders", "Ladders", "SubsetLadders"]


class Ladders(nn.Module):
    """A bank of ladders; the base of the three kinds.

    Parameters
    ----------
    n_features : int
        Features of the input, whether or not every ladder reads them.
    depths : sequence of int
        Depth of each ladder. They may differ: rungs that a ladder does not have are no parameters, and are +inf in
        the partial denominators, which ends the ladder above them.
    sizes : sequence of int
        How many features each ladder reads.
    fan : tuple of int
        Trailing shape of the weights of one rung, () for a single feature or (largest size,).
    first : bool
        Whether the ladders have a rung 0; without it a_0 = 0, and parameters start at rung 1.
    members : int
        Independent copies of the ladders.
    pole, epsilon
        Pole handling, see `cofrnet.core.ladder`.
    learn_epsilon : bool
        Whether epsilon is one positive parameter of the bank, started at `epsilon`.
    generator : torch.Generator, optional
        Source of the initial values; torch's own by default.

    Attributes
    ----------
    weight, bias : Parameter
        (d+1, L, *fan) and (d+1, L) where all ladders have the same depth and size, else flat, with a member axis in
        front where there are several; `rungs` returns them in the full shape either way.
    """

    _rung_at: Tensor | None
    _weight_at: Tensor | None

    def __init__(
        self,
        n_features: int,
        depths: Sequence[int],
        sizes: Sequence[int],
        fan: tuple[int, ...],
        *,
        first: bool = True,
        members: int = 1,
        pole: str = "smooth",
        epsilon: float | None = None,
        learn_epsilon: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if n_features < 1:
            raise ValueError(f"n_features must be at least 1; got n_features={n_features}. Pass the width of X.")
        if not depths or min(depths) < 0:
            raise ValueError(f"depths must name at least one ladder, each 0 or more; got {list(depths)}.")
        if members < 1:
            raise ValueError(f"members must be at least 1; got members={members}.")
        self.n_features = n_features
        self.members = members
        self.depths = tuple(depths)
        self.first = first
        self.pole, value = resolve_pole(pole, epsilon)
        self._epsilon = float(value)
        self._shape = (max(depths) + first, len(depths), *fan)  # rungs that have parameters

        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        has_rung: Tensor | None = None  # where the ladders are uneven: which rungs, and which weights of them, exist
        has_weight: Tensor | None = None
        if len(set(depths)) > 1 or len(set(sizes)) > 1:
            has_rung = torch.arange(self._shape[0])[:, None] < torch.tensor(self.depths) + first  # (d+1, L)
            has_weight = has_rung.reshape(*has_rung.shape, *(1 for _ in fan)).expand(self._shape)
            if fan:
                has_weight = has_weight & (torch.arange(fan[0]) < torch.tensor(sizes)[:, None])
        self.register_buffer("_rung_at", _places(has_rung, device), persistent=False)
        self.register_buffer("_weight_at", _places(has_weight, device), persistent=False)
        weights = self._shape if has_weight is None else (int(has_weight.sum()),)
        biases = self._shape[:2] if has_rung is None else (int(has_rung.sum()),)
        lead = (members,) if members > 1 else ()
        self.weight = nn.Parameter(torch.empty(*lead, *weights, **factory))
        self.bias = nn.Parameter(torch.empty(*lead, *biases, **factory))
        self.log_epsilon = nn.Parameter(torch.empty((), **factory)) if learn_epsilon else None
        self._fan_in = torch.tensor(sizes, dtype=torch.float32)
        self.reset_parameters(generator)

    @property
    def n_ladders(self) -> int:
        """Ladders of one member, L."""
        return len(self.depths)

    @property
    def is_uneven(self) -> bool:
        """Whether the ladders differ in depth or in the number of features they read."""
        return self._rung_at is not None

    @property
    def epsilon(self) -> float | Tensor:
        """The epsilon of the pole handling: a number, or a tensor where it is learned."""
        return self._epsilon if self.log_epsilon is None else self.log_epsilon.exp()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw initial values that keep tails where the reciprocal has a slope, whatever the number of features.

        For inputs of order one, w·x has a standard deviation of `spread` because weights are scaled by the number of
        features the rung really reads. With the clamp, biases of 1 to 2 keep every tail above rung 0 several standard
        deviations from the dead zone. The smooth reciprocal has no dead zone and is steepest at 0: its biases are
        spread around 0. Rung 0 starts without a bias.
        """
        spread, low, high = (0.25, 1.0, 2.0) if self.pole == "clamp" else (1.0, -1.0, 1.0)
        spread, low, high = (x * (self._epsilon if self.pole == "smooth" else 1.0) for x in (spread, low, high))
        scale = (spread / self._fan_in.sqrt()).reshape(1, -1, *(1 for _ in self._shape[2:])).expand(self._shape)
        where = generator.device if generator is not None else None
        with torch.no_grad():
            for weight, bias in zip(_per_member(self.weight, self), _per_member(self.bias, self), strict=True):
                draw = torch.empty(self._shape[:2], device=where).uniform_(low, high, generator=generator)
                if self.first:
                    draw[0] = 0
                bias.copy_(_packed(draw.cpu(), self._rung_at))
                draw = torch.empty(self._shape, device=where).normal_(generator=generator)
                weight.copy_(_packed(draw.cpu() * scale, self._weight_at))
            if self.log_epsilon is not None:
                self.log_epsilon.fill_(math.log(self._epsilon))

    def rungs(self) -> tuple[Tensor, Tensor]:
        """Weights ([members,] d+1, L, *fan) and biases ([members,] d+1, L) of all rungs.

        Weight 0 and bias +inf where a ladder is not as deep, 0 and 0 for a first rung that is left out.
        """
        weight, bias = self.full_rungs()
        if not self.first:
            weight, bias = (torch.cat([torch.zeros_like(part[:, :1]), part], dim=1) for part in (weight, bias))
        return (weight, bias) if self.members > 1 else (weight[0], bias[0])

    def full_rungs(self) -> tuple[Tensor, Tensor]:
        """The same, always with the member axis, and starting at the first rung that has parameters."""
        weight = _unpacked(self.weight.view(self.members, -1), self._weight_at, self._shape, 0.0)
        bias = _unpacked(self.bias.view(self.members, -1), self._rung_at, self._shape[:2], math.inf)
        return weight, bias  # (members, d+1, L, *fan), (members, d+1, L)

    def packed(self, full: Tensor, weights: bool) -> Tensor:
        """Those entries of (..., all weights or biases) that are parameters."""
        places = self._weight_at if weights else self._rung_at
        return full if places is None else full[..., places]

    def partial_denominators(self, x: Tensor) -> Tensor:
        """a_k = w_k·x + b_k for every row, rung and ladder. Shapes: x (n, p); returns (d+1, n, [members,] L)."""
        a = self.stored_denominators(x).permute(1, 3, 0, 2)  # (d+1, n, members, L)
        return a if self.members > 1 else a.squeeze(2)

    def stored_denominators(self, x: Tensor) -> Tensor:
        """The same, as it lies in memory. Shapes: x (n, p), or (members, n, p); returns (members, d+1, L, n)."""
        raise NotImplementedError

    def reads(self, x: Tensor) -> Tensor:
        """What the weights of each ladder multiply. Shapes: x as above; returns (1 or members, n, 1 or L, *fan)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Values of the ladders. Shapes: x (..., p); returns (..., [members,] L)."""
        if x.shape[-1] != self.n_features:
            raise ValueError(
                f"x must have {self.n_features} features on its last axis; got shape {tuple(x.shape)}. "
                "Pass the columns the bank was made for."
            )
        values = self.values(x.reshape(-1, self.n_features)).permute(2, 0, 1)  # (n, members, L)
        return values.reshape(*x.shape[:-1], *([self.members] if self.members > 1 else []), self.n_ladders)

    def values(self, x: Tensor) -> Tensor:
        """Values as they lie in memory. Shapes: x (n, p); returns (members, L, n)."""
        a = self.stored_denominators(x).transpose(0, 1)  # (d+1, members, L, n)
        return ladder(a, self.pole, self.epsilon)

    def extra_repr(self) -> str:
        """What `print(bank)` shows."""
        low, high = min(self.depths), max(self.depths)
        depth = str(low) if low == high else f"{low}..{high}"
        epsilon = f"{self._epsilon:g}, learned" if self.log_epsilon is not None else f"{self._epsilon:g}"
        members = f"{self.members} members of " if self.members > 1 else ""
        what = f"{self.n_features}, {members}{self.n_ladders} ladders"
        return f"{what}, depth={depth}, pole={self.pole!r}, epsilon={epsilon}"


class FullLadders(Ladders):
    """Ladders that read every feature at every rung.

        f_l(x) = a_0 + 1/(a_1 + ... 1/a_d),   a_k = w_kl·x + b_kl

    Paper: Figure 2a (CoFrNet-F).

    Parameters
    ----------
    n_features, n_ladders : int
    depth : int or sequence of int
        One depth for all ladders, or one for each.
    first : bool
        Whether the ladders have a first rung. Without it a_0 = 0, for use where something else reads the same inputs
        linearly; `depth` must then be 1 or more.
    **options
        members, pole, epsilon, learn_epsilon, generator, device, dtype, see `Ladders`.
    """

    def __init__(
        self, n_features: int, n_ladders: int, depth: int | Sequence[int] = 2, first: bool = True, **options: Any
    ) -> None:
        depths = _one_each(depth, n_ladders, "n_ladders")
        if not first and min(depths, default=1) < 1:
            raise ValueError(f"depth must be 1 or more for ladders without a first rung; got depth={depth}.")
        super().__init__(n_features, depths, [n_features] * n_ladders, (n_features,), first=first, **options)

    def stored_denominators(self, x: Tensor) -> Tensor:  # noqa: D102
        weight, bias = self.full_rungs()
        if x.ndim == 2:  # all members read the same features: one product for all
            a = torch.addmm(bias.reshape(-1, 1), weight.reshape(-1, self.n_features), x.T)  # (members (d+1) L, n)
        else:
            a = torch.baddbmm(bias.flatten(1).unsqueeze(-1), weight.flatten(1, 2), x.transpose(1, 2))
        a = a.view(self.members, *self._shape[:2], -1)
        return a if self.first else nn.functional.pad(a, (0, 0, 0, 0, 1, 0))  # (members, d+1, L, n)

    def reads(self, x: Tensor) -> Tensor:  # noqa: D102
        return (x if x.ndim == 3 else x.unsqueeze(0)).unsqueeze(2)  # (1 or members, n, 1, p)


class DiagonalLadders(Ladders):
    """Ladders that read one feature each, the same at every rung: the curves of an additive model.

        f_jm(x) = a_0 + 1/(a_1 + ... 1/a_d),   a_k = w_kjm x_j + b_kjm

    Ladders are ordered by feature: those of feature j are j*ladders_per_feature and the following. Weights are
    (d+1, L) with L = n_features * ladders_per_feature; nothing is larger than the partial denominators themselves.

    Paper: Figure 2b (CoFrNet-D).

    Parameters
    ----------
    n_features : int
    depth : int or sequence of int
        One depth for all ladders, or one for each.
    ladders_per_feature : int
    **options
        pole, epsilon, learn_epsilon, generator, device, dtype, see `Ladders`.
    """

    def __init__(
        self, n_features: int, depth: int | Sequence[int] = 2, ladders_per_feature: int = 1, **options: Any
    ) -> None:
        if ladders_per_feature < 1:
            raise ValueError(f"ladders_per_feature must be at least 1; got {ladders_per_feature}.")
        n_ladders = n_features * ladders_per_feature
        super().__init__(n_features, _one_each(depth, n_ladders, "ladders"), [1] * n_ladders, (), **options)
        self.ladders_per_feature = ladders_per_feature

    def stored_denominators(self, x: Tensor) -> Tensor:  # noqa: D102
        shape = (self.members, self._shape[0], self.n_features, self.ladders_per_feature, 1)
        weight, bias = (part.view(shape) for part in self.full_rungs())
        a = torch.addcmul(bias, weight, x.T.unsqueeze(1))  # (members, d+1, p, m, n)
        return a.flatten(2, 3)  # (members, d+1, L, n)

    def reads(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.repeat_interleave(self.ladders_per_feature, dim=1).unsqueeze(0)  # (1, n, L)

    def values(self, x: Tensor) -> Tensor:  # noqa: D102
        shape = (self.members, self._shape[0], self.n_features, self.ladders_per_feature)
        weight, bias = (part.view(shape) for part in self.full_rungs())
        return feature_ladders(x.T, weight, bias, self.pole, self.epsilon).flatten(1, 2)  # (members, L, n)


class SubsetLadders(Ladders):
    """Ladders that read a few features each: curves, pairs, triples, named one by one.

        f_l(x) = a_0 + 1/(a_1 + ... 1/a_d),   a_k = sum over j in subset l of w_klj x_j + b_kl

    Parameters
    ----------
    n_features : int
    subsets : sequence of sequences of int
        The features each ladder reads, by position. A subset may occur more than once; subsets may differ in size.
    depth : int or sequence of int
        One depth for all ladders, or one for each.
    **options
        pole, epsilon, learn_epsilon, generator, device, dtype, see `Ladders`.
    """

    _reads: Tensor

    def __init__(
        self, n_features: int, subsets: Sequence[Sequence[int]], depth: int | Sequence[int] = 2, **options: Any
    ) -> None:
        for subset in subsets:
            check_subset(subset, n_features)
        sizes = [len(subset) for subset in subsets]
        largest = max(sizes, default=0)
        super().__init__(n_features, _one_each(depth, len(subsets), "subsets"), sizes, (largest,), **options)
        self.subsets = tuple(tuple(subset) for subset in subsets)
        reads = torch.tensor([[*subset, *[subset[0]] * (largest - len(subset))] for subset in self.subsets])  # (L, s)
        self.register_buffer("_reads", reads.to(self.weight.device), persistent=False)

    def stored_denominators(self, x: Tensor) -> Tensor:  # noqa: D102
        weight, bias = self.full_rungs()
        a = weight.transpose(1, 2) @ x.T[self._reads]  # (members, L, d+1, s) @ (L, s, n)
        return a.transpose(1, 2) + bias.unsqueeze(-1)  # (members, d+1, L, n)

    @property
    def read_positions(self) -> Tensor:
        """Which features each ladder reads, (L, s); of a smaller subset the first stands for what it has not."""
        return self._reads

    def reads(self, x: Tensor) -> Tensor:  # noqa: D102
        return x[:, self._reads].unsqueeze(0)  # (1, n, L, s)


def _one_each(depth: int | Sequence[int], count: int, counted: str) -> list[int]:
    depths = [depth] * count if isinstance(depth, int) else list(depth)
    if len(depths) != count:
        raise ValueError(
            f"depth must be one number or one for each of the {count} {counted}; got {len(depths)} depths."
        )
    return depths


def _places(exists: Tensor | None, device: torch.device | str | None) -> Tensor | None:
    return None if exists is None else exists.flatten().nonzero().flatten().to(device)


def _per_member(parameter: Tensor, bank: Ladders) -> Tensor:
    return parameter if bank.members > 1 else parameter.unsqueeze(0)


def _packed(full: Tensor, places: Tensor | None) -> Tensor:
    return full if places is None else full.flatten()[places.to(full.device)]


def _unpacked(packed: Tensor, places: Tensor | None, shape: tuple[int, ...], absent: float) -> Tensor:
    """Shapes: packed (members, count); returns (members, *shape)."""
    if places is not None:
        packed = packed.new_full((len(packed), math.prod(shape)), absent).index_copy(1, places, packed)
    return packed.view(-1, *shape)

"""What models are made of, as data: plain values, and the way back from them. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, TypeAlias, get_args

from cofrnet.compiled.settings import with_epsilon

__all__ = ["CoFrNetSpec", "Spec", "Variant", "check_subset"]


class Spec:
    """The base of the frozen dataclasses that say what a model is made of."""

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON values."""
        return {name: _plain(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The spec that `to_dict` wrote; unknown names are refused."""
        unknown = set(values) - {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if unknown:
            raise ValueError(f"a {cls.__name__} must have known fields only; got {sorted(unknown)}. Remove them.")
        return cls(**values)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


Variant: TypeAlias = Literal["F", "D", "DL", "S"]


@dataclass(frozen=True, kw_only=True)
class CoFrNetSpec(Spec):
    """Which ladders a CoFrNet has, as data: hashable, comparable, and JSON by `to_dict` and `from_dict`.

    Parameters
    ----------
    n_features : int
    n_outputs : int
        Scores per row, q.
    variant : {"F", "D", "DL", "S"}
        "F": `n_ladders` full ladders. "D": `ladders_per_feature` single-feature ladders (curves) for each feature.
        "DL": both, the full ladders of increasing depth, starting at two. "S": curves as in "D", and full ladders
        that read every feature through its curves, a_k = w_k·[x, curves(x)] + b_k; they have no rung 0, because the
        head and the linear path read [x, curves(x)] already.
    depth : int
        Depth of the curves, and of the full ladders unless `depths` says otherwise.
    n_ladders : int
        Full ladders.
    depths : tuple of int, optional
        Depth of each full ladder. By default `depth` for each in "F" and "S", and 2, 3, ... in "DL".
    ladders_per_feature : int
    curved : tuple of int, optional
        Features that have curves, by position; by default all. A feature of two values needs none: the linear path and
        the full ladders read it as it is.
    subsets : tuple of tuples of int
        Feature subsets, by position, that get a ladder of their own (pairs, for interactions), in any variant.
    pole, epsilon, learn_epsilon
        Pole handling, see `cofrnet.core.ladder`.
    dropout : float
        Share of ladder values dropped at random in training.
    linear : bool
        Whether the score has a linear path U x + c beside the ladders.
    n_members : int
        Independent copies of everything above, side by side; the score is their mean.

    Paper: Figure 2 for F, D and DL. S is ours.
    """

    n_features: int
    n_outputs: int = 1
    variant: Variant = "S"
    depth: int = 3
    n_ladders: int = 16
    depths: tuple[int, ...] | None = None
    ladders_per_feature: int = 1
    curved: tuple[int, ...] | None = None
    subsets: tuple[tuple[int, ...], ...] = ()
    pole: str = "smooth"
    epsilon: float | None = None
    learn_epsilon: bool = False
    dropout: float = 0.0
    linear: bool = True
    n_members: int = 1

    def __post_init__(self) -> None:
        for name in ("n_features", "n_outputs", "n_ladders", "ladders_per_feature", "n_members"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {name}={getattr(self, name)}.")
        if self.variant not in get_args(Variant):
            raise ValueError(
                f"variant must be 'F', 'D', 'DL' or 'S'; got variant={self.variant!r}. Choose one of them."
            )
        if self.depth < 0:
            raise ValueError(f"depth must be 0 or more; got depth={self.depth}.")
        if self.variant == "S" and min(self.depths or (self.depth,)) < 1:
            raise ValueError(f"depth must be 1 or more for variant='S'; got depth={self.depths or self.depth}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1); got dropout={self.dropout}.")
        if self.depths is not None:
            object.__setattr__(self, "depths", tuple(self.depths))
            if len(self.depths) != self.n_ladders or min(self.depths) < 0:
                raise ValueError(
                    f"depths must give each of the n_ladders={self.n_ladders} full ladders a depth of 0 or more; "
                    f"got {self.depths}."
                )
        if self.curved is not None:
            object.__setattr__(self, "curved", tuple(self.curved))
            if self.curved:
                check_subset(self.curved, self.n_features)
        object.__setattr__(self, "subsets", tuple(tuple(subset) for subset in self.subsets))
        for subset in self.subsets:
            check_subset(subset, self.n_features)
        object.__setattr__(self, "epsilon", with_epsilon(self.pole, self.epsilon)[1])

    @property
    def n_curves(self) -> int:
        """Single-feature ladders."""
        return 0 if self.variant == "F" else len(self.curved_features) * self.ladders_per_feature

    @property
    def curved_features(self) -> tuple[int, ...]:
        """Features that have curves, unless the variant has none."""
        return tuple(range(self.n_features)) if self.curved is None else self.curved

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
        """Ladders of one member, in the order of the head: curves, subsets, full."""
        return self.n_curves + len(self.subsets) + len(self.full_depths)

    @property
    def n_parameters(self) -> int:
        """Numbers to be learned.

        A rung that reads s inputs has s + 1 of them. The supplement counts p L (d-1) + L q for CoFrNet-F, with the
        bias as one of its p inputs and with d - 1 rungs: its d is our depth plus two.
        """
        rungs = self.n_curves * (self.depth + 1) * 2
        rungs += sum((self.depth + 1) * (len(subset) + 1) for subset in self.subsets)
        rungs += sum((depth + (self.variant != "S")) * (self.full_width + 1) for depth in self.full_depths)
        banks = (self.n_curves > 0) + (len(self.subsets) > 0) + (len(self.full_depths) > 0)
        linear = self.n_outputs * (self.n_features + 1) if self.linear else 0
        own = rungs + self.n_outputs * self.total_ladders + linear
        return self.n_members * own + banks * self.learn_epsilon


def check_subset(subset: Sequence[int], n_features: int) -> None:
    """Raise unless `subset` names distinct features by position."""
    if len(subset) == 0 or len(set(subset)) < len(subset) or not all(0 <= j < n_features for j in subset):
        raise ValueError(
            f"a subset must name one or more distinct features from 0 to {n_features - 1}; got {tuple(subset)}. "
            "Give positions of columns."
        )

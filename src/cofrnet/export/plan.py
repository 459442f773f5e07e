"""A fitted model written down as plain numbers: what every formula and every program is made from.

inputs   z of each numeric column (linear between knots), whether it is missing, its hats, and effects of its codes
         (linear between codes); 0 or 1 for each of the first levels of a column of levels, and effects of all levels
ladders  each reads some of v = [inputs, values of the ladders before it], and is its rungs: bias and weights
scores   offset + scale * mean over members of (intercept + linear·inputs + head·values)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from torch import Tensor

from cofrnet.explain.subject import Subject

__all__ = ["ColumnPlan", "LadderPlan", "MemberPlan", "Plan", "digits_of", "number", "plan_of"]


@dataclass(frozen=True)
class ColumnPlan:
    """A column: knots, values and hats of a numeric one, or levels; where levels are missing and other, -1 for nowhere.

    `aliases` are other words for levels, and where those are.
    Hats are inputs of knots, by position: linear between the knots, `height` at theirs, 0 at others and for missing.
    Levels beyond the first `frequent` have no input and are other there.
    `effects` are inputs: some numbers for each level, 0 where there is none; or those at `codes`, linear between them.
    """

    name: str
    knots: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    bounded: bool = True
    has_missing: bool = False
    hats: tuple[int, ...] = ()
    height: float = 1.0
    levels: tuple[str, ...] = ()
    missing: int = -1
    other: int = -1
    aliases: tuple[tuple[str, int], ...] = ()
    frequent: int = 0
    codes: tuple[float, ...] = ()
    effects: tuple[tuple[float, ...], ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers."""
        return len(self.knots) > 0

    @property
    def first_hat(self) -> int:
        """Which of the inputs of a numeric column is the first hat."""
        return 1 + self.has_missing

    @property
    def width(self) -> int:
        """Inputs that it becomes."""
        return self.first_effect + self.n_effects

    @property
    def first_effect(self) -> int:
        """Which of the inputs is the first effect."""
        return self.first_hat + len(self.hats) if self.numeric else self.frequent

    @property
    def n_effects(self) -> int:
        """Effects of each code or level."""
        return len(self.effects[0]) if self.effects else 0


@dataclass(frozen=True)
class LadderPlan:
    """What a ladder reads, by position in v, and its rungs from the first to the last: (bias, weights)."""

    reads: tuple[int, ...]
    rungs: tuple[tuple[float, tuple[float, ...]], ...]


@dataclass(frozen=True)
class MemberPlan:
    """Linear path (q, p) and intercept (q,), ladders in the order of the head (q, L)."""

    linear: tuple[tuple[float, ...], ...]
    intercept: tuple[float, ...]
    ladders: tuple[LadderPlan, ...]
    head: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Plan:
    """The whole estimator, up to its scores."""

    columns: tuple[ColumnPlan, ...]
    members: tuple[MemberPlan, ...]
    pole: str
    epsilon: float
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    output_names: tuple[str, ...]
    unit: str
    input_names: tuple[str, ...]

    @property
    def starts(self) -> list[int]:
        """Where the inputs of each column begin."""
        return list(accumulate((column.width for column in self.columns), initial=0))[:-1]

    @property
    def read_names(self) -> tuple[str, ...]:
        """Names of all that ladders can read: the inputs, and the ladders f1, f2, ... by their place in the head."""
        return (*self.input_names, *(f"f{i + 1}" for i in range(len(self.members[0].ladders))))

    @property
    def terms(self) -> int:
        """How many terms the scores have when they are written in full, each ladder wherever it is read."""
        twice = 1 if self.pole == "clamp" else 2  # t stands twice in t / (t^2 + epsilon^2)
        total = 0
        for member in self.members:
            sizes = [1] * len(self.input_names)
            for ladder in member.ladders:
                t = 0
                for _, weights in reversed(ladder.rungs):
                    t = 1 + twice * t + sum(sizes[i] for i, w in zip(ladder.reads, weights, strict=True) if w != 0)
                sizes.append(t)
            for linear, head in zip(member.linear, member.head, strict=True):
                total += sum(size for size, w in zip(sizes, (*linear, *head), strict=True) if w != 0)
        return total

    def heading(self, comment: str) -> str:
        """What a program begins with, as lines of comment; no name among them can end the comment."""
        lines = [
            "Written by cofrnet: the scores of a fitted model.",
            f"Outputs: {', '.join(self.output_names)}.",
            f"Scale: {self.unit}.",
            "Columns, from 0:",
            *(f"  {column.name} ({'number' if column.numeric else 'text'})" for column in self.columns),
        ]
        plain = ["".join(c if c.isprintable() and c not in "*/\\" else "?" for c in line) for line in lines]
        return "\n".join(f"{comment} {line}" for line in plain)


def digits_of(value: float) -> str:
    """A number in as many digits as it takes: nine for those of float32."""
    short = f"{value:.9g}"
    return short if float(np.float32(value)) == value else repr(value)


def number(value: float) -> str:
    """The same, as a program writes what is not an integer."""
    text = digits_of(value)
    return text if any(c in text for c in ".en") else text + ".0"


def plan_of(subject: Subject) -> Plan:
    """The plan of a fitted model."""
    model = subject.model
    epsilon = model.spec.epsilon
    for bank in (model.curves, model.subsets, model.full):
        if bank is not None and bank.log_epsilon is not None:
            raise ValueError("a model with learned epsilons cannot be written as a formula; fit it with epsilon given.")
    return Plan(
        columns=tuple(_column(column) for column in subject.columns),
        members=tuple(_member(model.member(i)) for i in range(model.spec.n_members)),
        pole=model.spec.pole,
        epsilon=float(epsilon or 0),
        scale=tuple(subject.scale.tolist()),
        offset=tuple(subject.offset.tolist()),
        output_names=subject.output_names,
        unit=subject.unit,
        input_names=subject.input_names,
    )


def _column(column: Any) -> ColumnPlan:
    if hasattr(column, "knots"):
        codes, effects = map(_tuples, column.effect_map) if column.effects else ((), ())
        return ColumnPlan(
            column.name, column.knots, column.values, column.bounded, column.has_missing, column.hats, column.height,
            codes=codes, effects=effects,
        )  # fmt: skip
    missing, other = column.place_of_missing, column.place_of_other
    aliases = tuple(column.aliases.items())
    return ColumnPlan(
        column.name, levels=column.levels, missing=missing, other=other, aliases=aliases,
        frequent=column.first_effect, effects=column.effects,
    )  # fmt: skip


def _numbers(t: Tensor) -> Any:
    return t.detach().double().numpy()


def _tuples(array: Any) -> Any:
    return tuple(map(_tuples, array)) if np.ndim(array) else float(array)


def _member(model: Any) -> MemberPlan:
    spec = model.spec
    ladders: list[LadderPlan] = []
    for name in ("curves", "subsets", "full"):
        bank = getattr(model, name)
        if bank is None:
            continue
        weight, bias = (_numbers(part) for part in bank.rungs())  # (d+1, L, *fan), (d+1, L)
        for ladder in range(bank.n_ladders):
            if name == "curves":
                reads: tuple[int, ...] = (spec.curved_features[ladder // spec.ladders_per_feature],)
            else:
                reads = bank.subsets[ladder] if name == "subsets" else _read_by_full(spec)
            rungs = tuple(
                (float(bias[k, ladder]), tuple(np.atleast_1d(weight[k, ladder])[: len(reads)].tolist()))
                for k in range(bank.depths[ladder] + 1)
            )
            ladders.append(LadderPlan(tuple(reads), rungs))
    q, p = spec.n_outputs, spec.n_features
    linear = np.zeros((q, p)) if model.linear is None else _numbers(model.linear)
    intercept = np.zeros(q) if model.intercept is None else _numbers(model.intercept)
    return MemberPlan(_tuples(linear), _tuples(intercept), tuple(ladders), _tuples(_numbers(model.head)))


def _read_by_full(spec: Any) -> tuple[int, ...]:
    """The inputs, and in "S" the curves, which come first among the ladders."""
    return tuple(range(spec.full_width))

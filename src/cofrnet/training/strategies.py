"""Ways to build a CoFrNet up in stages: ladders in groups, or rung by rung.

Paper: Section 4, "Training Strategies".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from cofrnet.nn import CoFrNet, CoFrNetSpec
from cofrnet.nn.ladders import Ladders
from cofrnet.training.loop import Trained

LEVEL = 1.5  # of the tails of new rungs with the clamp

__all__ = ["Boosted", "add_rung", "boosted", "rungwise", "shallower", "summed"]


class Boosted(nn.Module):
    """A stage on top of earlier ones: its scores are added to theirs, which stay as they are.

    Trained by any loss, the stage learns what the earlier ones leave over: the gradient of the loss at their scores,
    with rows weighted by how wrong they still are.
    """

    def __init__(self, earlier: Sequence[CoFrNet], stage: CoFrNet) -> None:
        super().__init__()
        self.spec = stage.spec
        self.stage = stage
        self._earlier = [model.requires_grad_(False).eval() for model in earlier]  # in a list: not trained, not saved

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Boosted:
        """Earlier stages go where the stage goes, such as to a GPU."""
        for model in self._earlier:
            model._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def member_scores(self, x: Tensor) -> Tensor:
        """Scores of all stages together. Shapes: x (n, p); returns (n, 1, q)."""
        scores = self.stage.member_scores(x)
        with torch.no_grad():
            offset = sum(model.member_scores(x) for model in self._earlier)
        return scores + offset

    def matrices(self) -> list[tuple[nn.Parameter, tuple[int, int]]]:
        """Parameters of the stage that training takes for matrices."""
        return self.stage.matrices()

    def clamped_share(self, x: Tensor) -> Tensor:
        """Share of the stage's rungs that are clamped, of every row."""
        return self.stage.clamped_share(x)


def boosted(
    spec: CoFrNetSpec,
    groups: int,
    start: Callable[[CoFrNet], None],
    fit: Callable[[CoFrNet | Boosted], Trained],
    generator: torch.Generator | None = None,
) -> tuple[CoFrNet, Trained]:
    """A CoFrNet of `groups` groups of ladders, each fitted to what those before it leave over.

    `start` gives the first group its initial values; the others start at 0. `fit` trains a module in place.
    """
    each = replace(
        spec,
        n_ladders=max(1, spec.n_ladders // groups),
        depths=None,
        ladders_per_feature=max(1, spec.ladders_per_feature // groups),
    )
    stages: list[CoFrNet] = []
    trained = Trained()
    for _ in range(groups):
        stage = CoFrNet(each, generator=generator)
        if stages:
            with torch.no_grad():
                stage.head.zero_()
        else:
            start(stage)
        trained = trained.then(fit(Boosted(stages, stage) if stages else stage))
        stages.append(stage)
        if trained.interrupted or trained.stopped:
            break
    return summed(stages).requires_grad_(True).eval(), trained


def rungwise(
    spec: CoFrNetSpec,
    start: Callable[[CoFrNet], None],
    fit: Callable[[CoFrNet | Boosted], Trained],
    generator: torch.Generator | None = None,
) -> tuple[CoFrNet, Trained]:
    """A CoFrNet whose ladders were grown rung by rung, those there are being the start of the next.

    `start` gives the ladders of depth one their initial values; `fit` trains a module in place.
    """
    model = CoFrNet(shallower(spec, 1), generator=generator)
    start(model)
    trained = fit(model)
    for depth in range(2, max(spec.depth, *spec.full_depths, 1) + 1):
        if trained.interrupted or trained.stopped:
            break
        model = add_rung(model, shallower(spec, depth))
        trained = trained.then(fit(model))
    return model, trained


def summed(stages: Sequence[CoFrNet]) -> CoFrNet:
    """One CoFrNet whose score is the sum of the stages' scores; they must have one spec, with one member each."""
    count = len(stages)
    if count == 1:
        return stages[0]
    spec = stages[0].spec
    if any(stage.spec != spec for stage in stages) or spec.n_members != 1:
        raise ValueError("stages must have the same spec, with n_members=1; got different ones.")
    model = CoFrNet(replace(spec, n_members=count), dtype=stages[0].head.dtype)
    states = [stage.state_dict() for stage in stages]
    stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    for name in ("head", "linear", "intercept"):  # the members are averaged
        if name in stacked:
            stacked[name] *= count
    model.load_state_dict(stacked)
    return model


def shallower(spec: CoFrNetSpec, depth: int) -> CoFrNetSpec:
    """The spec with no ladder deeper than `depth`."""
    depths = tuple(min(depth, d) for d in spec.full_depths) or None
    return replace(spec, depth=min(depth, spec.depth), depths=depths)


def add_rung(model: CoFrNet, spec: CoFrNetSpec) -> CoFrNet:
    """A CoFrNet of the deeper `spec` that starts as the same function: its ladders get rungs that change nothing yet.

    For the smooth reciprocal a new rung is 0, where r = 0 and steepest. For the clamp its tail is a number b well away
    from the pole, and the bias of the rung above is less by 1/b. Either way it can learn from the first step on.
    """
    grown = CoFrNet(spec, dtype=model.head.dtype)
    with torch.no_grad():
        for name in ("head", "linear", "intercept"):
            parameter = getattr(grown, name)
            if parameter is not None:
                parameter.copy_(getattr(model, name))
        for name in ("curves", "subsets", "full"):
            bank: Ladders | None = getattr(grown, name)
            if bank is not None:
                _copy_rungs(getattr(model, name), bank)
    return grown


def _copy_rungs(old: Ladders, new: Ladders) -> None:
    (old_weight, old_bias), (weight, bias) = old.full_rungs(), new.full_rungs()  # (members, rungs, L, ...)
    weight, exists = torch.zeros_like(weight), ~bias.isinf()
    rungs = old_weight.shape[1]
    weight[:, :rungs] = old_weight
    known = torch.zeros_like(exists)
    known[:, :rungs] = ~old_bias.isinf()
    bias = torch.zeros_like(bias)
    bias[:, :rungs][known[:, :rungs]] = old_bias[known[:, :rungs]]
    if new.pole == "clamp":
        level = max(LEVEL, 2 * float(new.epsilon))
        added = exists & ~known
        bias[added] = level
        bias[:, :-1][added[:, 1:]] -= 1 / level  # of the rung above one that is added, itself new or not
    new.weight.copy_(new.packed(weight.flatten(1), weights=True).view(new.weight.shape))
    new.bias.copy_(new.packed(bias.flatten(1), weights=False).view(new.bias.shape))
    if new.log_epsilon is not None and old.log_epsilon is not None:
        new.log_epsilon.copy_(old.log_epsilon)

"""Explanations of the whole model: curves, surfaces, importances, interactions."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.core import tails
from cofrnet.explain import inputs
from cofrnet.explain.data import Curve, GlobalExplanation, Interaction, Surface
from cofrnet.explain.subject import Subject, TableProfile, evenly

__all__ = ["curve", "explain", "importances", "interactions", "surface"]

Floats = NDArray[np.floating[Any]]

POINTS, SURFACE_POINTS = 64, 24
ROWS, HESSIAN_ROWS = 1000, 128  # that importances and interactions are taken over, at most, in training
BACKGROUNDS = 64  # rows that curves and surfaces are averaged over, at most
MOST_INPUTS, MOST_COLUMNS, MOST_PAIRS, MOST_CURVES = 64, 16, 10, 50

IMPORTANCE = "mean absolute contribution over the rows, from the mean row"
STRENGTH = "root mean square of the second derivative by both features, each per standard deviation of its input"


def importances(subject: Subject, x: Tensor) -> Floats:
    """Mean absolute contribution of each feature over the rows, from the mean row. Shapes: x (n, p); returns (q, P)."""
    found = inputs.contributions(subject.model, x, subject.baseline("mean"), tolerance=1e-3)
    own = subject.by_column(found.values.double().numpy())
    return np.abs(own).mean(0) * subject.scale[:, None]


def interactions(
    subject: Subject, x: Tensor, importance: Floats, spreads: Floats
) -> tuple[tuple[int, int, tuple[float, ...]], ...]:
    """The strongest pairs among the most important features: positions, and strength for each score.

        sqrt(mean over rows of sum over the inputs i, j of both of (sd_i sd_j d2s/dx_i dx_j)^2)

    Shapes: x (n, p), importance (q, P), spreads (p,).
    """
    if len(subject.columns) < 2:
        return ()
    chosen: list[int] = []
    count = 0
    for j in np.argsort(-importance.mean(0), kind="stable").tolist()[:MOST_COLUMNS]:
        width = len(subject.columns[j].inputs)
        if count + width <= MOST_INPUTS:
            chosen.append(j)
            count += width
    chosen.sort()
    positions = [i for j in chosen for i in range(subject.places[j].start, subject.places[j].stop)]
    owner = np.array([a for a, j in enumerate(chosen) for _ in range(len(subject.columns[j].inputs))])
    second = inputs.hessians(subject.model, x, torch.tensor(positions, dtype=torch.long)).double().numpy()
    second = second * (spreads[positions][:, None] * spreads[positions]) * subject.scale[:, None, None]
    squares = (second**2).mean(0)  # (q, k, k)
    found = []
    for a in range(len(chosen)):
        for b in range(a + 1, len(chosen)):
            strength = np.sqrt(squares[:, owner == a][:, :, owner == b].sum((1, 2)))
            found.append((chosen[a], chosen[b], tuple(strength.tolist())))
    found.sort(key=lambda pair: -sum(pair[2]))
    return tuple(pair for pair in found[:MOST_PAIRS] if sum(pair[2]) > 0)


def _check_points(points: int) -> None:
    if not isinstance(points, Integral) or points < 2:
        raise ValueError(f"points must be 2 or more; got points={points!r}.")


def curve(subject: Subject, j: int, backgrounds: Tensor, points: int = POINTS) -> Curve:
    """The curve of column j: the others stay as in the background rows, over which it is averaged, (m, p)."""
    _check_points(points)
    grid, own_inputs = subject.grid(j, points)
    column, place = subject.columns[j], subject.places[j]
    extra = getattr(column, "missing", None)
    if extra is not None:
        own_inputs = torch.cat([own_inputs, torch.as_tensor(extra, dtype=own_inputs.dtype)[None]])
    moved = backgrounds.repeat(len(own_inputs), 1)
    moved[:, place] = own_inputs.repeat_interleave(len(backgrounds), 0)
    with torch.no_grad():
        scores = subject.model.member_scores(moved) - subject.model.member_scores(backgrounds).repeat(
            len(own_inputs), 1, 1
        )
    each = scores.view(len(own_inputs), len(backgrounds), *scores.shape[1:]).mean(1).double().numpy()
    each = each.transpose(2, 1, 0) * subject.scale[:, None, None]  # (q, members, G)
    values = each.mean(1)
    spread = 2 * each.std(1, ddof=1) if each.shape[1] > 1 else np.zeros_like(values)
    own, margin = _own_ladders(subject, place, own_inputs, backgrounds)
    last = len(grid)
    profile = subject.profiles[j]
    return Curve(
        feature=column.name,
        categorical=subject.is_categorical(j),
        grid=grid,
        values=values[:, :last].copy(),
        own=own[:, :last].copy(),
        low=(values - spread)[:, :last],
        high=(values + spread)[:, :last],
        missing=values[:, last].copy() if extra is not None else np.full(len(values), np.nan),
        edges=np.asarray(profile.edges),
        counts=np.asarray(profile.counts),
        margin=margin[:last],
        output_names=subject.output_names,
        unit=subject.unit,
    )


def _own_ladders(subject: Subject, place: slice, own_inputs: Tensor, backgrounds: Tensor) -> tuple[Floats, Floats]:
    """The additive part of a column: its linear path and its single-feature ladders, (q, G); and the pole margin."""
    model, spec = subject.model, subject.model.spec
    members, q = spec.n_members, spec.n_outputs
    rows = backgrounds.mean(0, keepdim=True).repeat(len(own_inputs) + 1, 1)
    rows[: len(own_inputs), place] = own_inputs
    total = rows.new_zeros(q, len(rows))
    margin = np.full(len(own_inputs), np.nan)
    with torch.no_grad():
        if model.linear is not None:
            total += model.linear.view(members, q, -1).mean(0) @ rows.T
        if model.curves is not None:
            curved = list(spec.curved_features)
            read = rows[:, curved]
            head = model.head.view(members, q, -1)[:, :, : spec.n_curves] / members
            total += (head @ model.curves.values(read)).sum(0)
            if place.start in curved:
                m, first = spec.ladders_per_feature, curved.index(place.start) * spec.ladders_per_feature
                a = model.curves.stored_denominators(read)[:, :, first : first + m].transpose(0, 1)
                t = tails(a, model.curves.pole, model.curves.epsilon)[1:].abs() / float(model.curves.epsilon)
                if len(t):
                    margin = t.amin((0, 1, 2)).double().numpy()[: len(own_inputs)]
    values = (total[:, :-1] - total[:, -1:]).double().numpy() * subject.scale[:, None]
    return values, margin


def surface(subject: Subject, i: int, j: int, backgrounds: Tensor, points: int = SURFACE_POINTS) -> Surface:
    """What columns i and j do together, averaged over the background rows, (m, p)."""
    _check_points(points)
    if i == j:
        raise ValueError(f"a surface needs two different features; got {subject.columns[i].name!r} twice.")
    (grid_i, inputs_i), (grid_j, inputs_j) = subject.grid(i, points), subject.grid(j, points)
    grids, parts = [grid_i, grid_j], [inputs_i, inputs_j]
    for side in (0, 1):  # few points are enough for a picture
        if len(grids[side]) > points:
            some = np.linspace(0, len(grids[side]) - 1, points).round().astype(int)
            grids[side], parts[side] = grids[side][some], parts[side][torch.as_tensor(some)]
    shape = (len(grids[0]), len(grids[1]))
    places = subject.places[i], subject.places[j]

    def effect(first: bool, second: bool) -> Floats:
        moved = backgrounds.repeat(shape[0] * shape[1], 1, 1)  # (G1 G2, m, p)
        if first:
            moved[:, :, places[0]] = parts[0].repeat_interleave(shape[1], 0).unsqueeze(1)
        if second:
            moved[:, :, places[1]] = parts[1].repeat(shape[0], 1).unsqueeze(1)
        scores = subject.scores(moved.flatten(0, 1)).reshape(*shape, len(backgrounds), -1)
        return scores.mean(2).transpose(2, 0, 1)  # (q, G1, G2)

    base = subject.scores(backgrounds).mean(0)[:, None, None]
    both = effect(True, True)
    return Surface(
        features=(subject.columns[i].name, subject.columns[j].name),
        first=grids[0],
        second=grids[1],
        values=both - effect(True, False) - effect(False, True) + base,
        joint=both - base,
        output_names=subject.output_names,
        unit=subject.unit,
    )


def explain(
    subject: Subject,
    profile: TableProfile,
    x: Tensor | None,
    own_pairs: Sequence[tuple[int, int]],
    features: Sequence[int] | None = None,
    points: int = POINTS,
) -> GlobalExplanation:
    """Importances, curves, interactions: of the training rows by what the fit remembers, or of the rows x, (n, p).

    Curves are those of `features`, by position, or of the fifty most important. Surfaces are those of the model's own
    pairs, else of the three strongest interactions.
    """
    importance, pairs = profile.importances, profile.pairs
    backgrounds, rows = subject.baseline("mean")[None], "training"
    if x is not None:
        importance = importances(subject, x)
        some = x[evenly(len(x), HESSIAN_ROWS)]
        pairs = interactions(subject, some, importance, profile.input_spreads)
        backgrounds, rows = x[evenly(len(x), BACKGROUNDS)], "given"
    names = subject.feature_names
    if features is None:
        features = sorted(np.argsort(-importance.mean(0), kind="stable").tolist()[:MOST_CURVES])
    shown = list(own_pairs) or [(i, j) for i, j, _ in pairs[:3]]
    return GlobalExplanation(
        importances=importance,
        curves=tuple(curve(subject, j, backgrounds, points) for j in features),
        surfaces=tuple(surface(subject, i, j, backgrounds) for i, j in shown),
        interactions=tuple(Interaction((names[i], names[j]), np.array(strength)) for i, j, strength in pairs),
        feature_names=names,
        output_names=subject.output_names,
        unit=subject.unit,
        definition=f"{IMPORTANCE} ({rows} rows)",
        interactions_definition=STRENGTH,
    )

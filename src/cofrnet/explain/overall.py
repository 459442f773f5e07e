"""Explanations of the whole model: curves, surfaces, importances, interactions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.core import tails
from cofrnet.explain import inputs
from cofrnet.explain.data import Curve, GlobalExplanation, Interaction, Surface
from cofrnet.explain.subject import CHUNK, Subject, TableProfile, evenly
from cofrnet.nn.ladders import Ladders

__all__ = ["curve", "explain", "importances", "interactions", "surface"]

Floats = NDArray[np.floating[Any]]

POINTS, SURFACE_POINTS = 64, 24
ROWS, HESSIAN_ROWS = 500, 128  # that importances and interactions are taken over, at most, in training
BACKGROUNDS = 64  # rows that curves and surfaces are averaged over, at most
MOST_INPUTS, MOST_COLUMNS, MOST_PAIRS, MOST_CURVES = 128, 16, 10, 50

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
    chosen: dict[int, range] = {}  # columns, and their inputs; of numbers at least the first
    count = 0
    for j in np.argsort(-importance.mean(0), kind="stable").tolist()[:MOST_COLUMNS]:
        place = subject.places[j]
        own = range(place.start, place.stop)
        if count + len(own) > MOST_INPUTS and not subject.is_categorical(j):
            own = own[:1]
        if count + len(own) <= MOST_INPUTS:
            chosen[j] = own
            count += len(own)
    positions = [i for j in sorted(chosen) for i in chosen[j]]
    owner = np.array([j for j in sorted(chosen) for _ in chosen[j]])
    second = inputs.hessians(subject.model, x, torch.tensor(positions, dtype=torch.long)).double().numpy()
    second = second * (spreads[positions][:, None] * spreads[positions]) * subject.scale[:, None, None]
    squares = (second**2).mean(0)  # (q, k, k)
    found = []
    for i, j in combinations(sorted(chosen), 2):
        strength = np.sqrt(squares[:, owner == i][:, :, owner == j].sum((1, 2)))
        found.append((i, j, tuple(strength.tolist())))
    found.sort(key=lambda pair: -sum(pair[2]))
    return tuple(pair for pair in found[:MOST_PAIRS] if sum(pair[2]) > 0)


def _check_points(points: int) -> None:
    if not isinstance(points, Integral) or points < 2:
        raise ValueError(f"points must be 2 or more; got points={points!r}.")


def curve(subject: Subject, j: int, backgrounds: Tensor, points: int = POINTS) -> Curve:
    """The curve of column j: the others stay as in the background rows, over which it is averaged, (m, p)."""
    _check_points(points)
    grid, own_inputs = _points(subject, j, points)
    column, place, profile = subject.columns[j], subject.places[j], subject.profiles[j]
    moved = backgrounds.repeat(len(own_inputs), 1)
    moved[:, place] = own_inputs.repeat_interleave(len(backgrounds), 0)
    each = _mean_scores(subject, moved, len(backgrounds)) - _mean_scores(subject, backgrounds, len(backgrounds))
    values, low, high = _band(each)  # (q, G)
    own, ladders, margin = _own_ladders(subject, place, own_inputs, backgrounds)
    last, counts = len(grid), np.asarray(profile.counts)
    if subject.is_categorical(j):
        counts = counts[subject.levels_shown(j, points)]
    return Curve(
        feature=column.name,
        categorical=subject.is_categorical(j),
        grid=grid,
        values=values[:, :last],
        own=own[:, :last],
        ladders=ladders[:, :, :last],
        low=low[:, :last],
        high=high[:, :last],
        missing=values[:, last] if len(own_inputs) > last else np.full(len(values), np.nan),
        edges=np.asarray(profile.edges),
        counts=counts,
        margin=margin[:last],
        output_names=subject.output_names,
        unit=subject.unit,
        is_date=subject.is_date(j),
        levels=len(column.levels) if subject.is_categorical(j) else 0,
    )


def _points(subject: Subject, j: int, points: int) -> tuple[NDArray[Any], Tensor]:
    """Values to look at column j at, (G,), and their inputs, with those of a missing value last where it has any."""
    grid, own_inputs = subject.grid(j, points)
    missing = getattr(subject.columns[j], "missing", None)
    if missing is not None:
        own_inputs = torch.cat([own_inputs, torch.as_tensor(missing, dtype=own_inputs.dtype)[None]])
    return grid, own_inputs


def _mean_scores(subject: Subject, rows: Tensor, each: int) -> Floats:
    """Scores of the members, each the mean of so many rows that follow each other: (n, p) to (q, members, n / each)."""
    with torch.no_grad():
        scores = torch.cat([subject.model.member_scores(part) for part in rows.split(CHUNK)])
    means = scores.view(-1, each, *scores.shape[1:]).mean(1).double().numpy()
    return np.asarray(means.transpose(2, 1, 0) * subject.scale[:, None, None])


def _band(each: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean over the members, axis 1, and two standard deviations of them to either side."""
    mean = each.mean(1)
    spread = 2 * each.std(1, ddof=1) if each.shape[1] > 1 else np.zeros_like(mean)
    return mean, mean - spread, mean + spread


def _margin(bank: Ladders, reads: Tensor, ladders: Sequence[int]) -> Floats:
    """Least |t_k| / epsilon below rung 0 of some ladders, for every row: (n,); NaN where they have no such rung."""
    with torch.no_grad():
        a = bank.stored_denominators(reads)[:, :, list(ladders)].transpose(0, 1)
        t = tails(a, bank.pole, bank.epsilon)[1:].abs() / float(bank.epsilon)
    return np.asarray(t.amin((0, 1, 2)).double().numpy()) if t.numel() else np.full(len(reads), np.nan)


def _own_ladders(
    subject: Subject, place: slice, own_inputs: Tensor, backgrounds: Tensor
) -> tuple[Floats, Floats, Floats]:
    """The additive part of a column, (q, G): its linear path and its single-feature ladders; each of those, times its
    head, (q, members m, G); and the pole margin, (G,). All from the mean of the backgrounds.
    """
    model, spec = subject.model, subject.model.spec
    members, q, count = spec.n_members, spec.n_outputs, len(own_inputs)
    rows = backgrounds.mean(0, keepdim=True).repeat(count + 1, 1)
    rows[:count, place] = own_inputs
    total, ladders = rows.new_zeros(q, count + 1), rows.new_zeros(q, 0, count + 1)
    margin = np.full(count, np.nan)
    with torch.no_grad():
        if model.linear is not None:
            total += model.linear.view(members, q, -1).mean(0) @ rows.T
        curved = [at for at, i in enumerate(spec.curved_features) if place.start <= i < place.stop]
        if model.curves is not None and curved:
            m = spec.ladders_per_feature
            own = slice(curved[0] * m, (curved[-1] + 1) * m)  # side by side
            read = rows[:, model.curved]
            head = model.head.view(members, q, -1)[:, :, own] / members
            values = model.curves.values(read)[:, own]  # (members, m, G + 1)
            ladders = (head.unsqueeze(-1) * values.unsqueeze(1)).transpose(0, 1).flatten(1, 2)
            total += ladders.sum(1)
            margin = _margin(model.curves, read, range(own.start, own.stop))[:count]
    from_mean = [
        (part[..., :-1] - part[..., -1:]).double().numpy() * subject.scale.reshape(-1, *(1 for _ in part.shape[1:]))
        for part in (total, ladders)
    ]
    return from_mean[0], from_mean[1], margin


def surface(subject: Subject, i: int, j: int, backgrounds: Tensor, points: int = SURFACE_POINTS) -> Surface:
    """What columns i and j do together, averaged over the background rows, (m, p)."""
    _check_points(points)
    if i == j:
        raise ValueError(f"a surface needs two different features; got {subject.columns[i].name!r} twice.")
    grids, parts = [], []
    for column in (i, j):
        grid, own_inputs = _points(subject, column, points)
        if len(grid) > points:  # few points are enough for a picture
            some = evenly(len(grid), points)
            own_inputs = torch.cat([own_inputs[some], own_inputs[len(grid) :]])
            grid = grid[some]
        if len(own_inputs) > len(grid):
            grid = np.append(grid, np.nan)
        grids.append(grid)
        parts.append(own_inputs)
    shape, places, m = (len(grids[0]), len(grids[1])), (subject.places[i], subject.places[j]), len(backgrounds)

    def moved(rows: Tensor, first: bool, second: bool) -> Tensor:
        found = rows.repeat(shape[0] * shape[1], 1, 1)  # (G1 G2, m, p)
        if first:
            found[:, :, places[0]] = parts[0].repeat_interleave(shape[1], 0).unsqueeze(1)
        if second:
            found[:, :, places[1]] = parts[1].repeat(shape[0], 1).unsqueeze(1)
        return found.flatten(0, 1)

    base = _mean_scores(subject, backgrounds, m)  # (q, members, 1)
    both, one, two = (
        _mean_scores(subject, moved(backgrounds, *which), m) for which in ((True, True), (True, False), (False, True))
    )
    q, bank = len(base), subject.model.subsets
    values, low, high = (part.reshape(q, *shape) for part in _band(both - one - two + base))
    margin = np.full(shape[0] * shape[1], np.nan)
    pair = {*range(places[0].start, places[0].stop), *range(places[1].start, places[1].stop)}
    own = [] if bank is None else [k for k, subset in enumerate(bank.subsets) if set(subset) == pair]
    if bank is not None and own:
        margin = _margin(bank, moved(backgrounds.mean(0, keepdim=True), True, True), own)
    profiles = subject.profiles[i], subject.profiles[j]
    return Surface(
        features=(subject.columns[i].name, subject.columns[j].name),
        first=grids[0],
        second=grids[1],
        values=values,
        low=low,
        high=high,
        joint=(both - base).mean(1).reshape(q, *shape),
        edges=tuple(profile.edges for profile in profiles),
        counts=tuple(profile.counts for profile in profiles),
        margin=margin.reshape(shape),
        output_names=subject.output_names,
        unit=subject.unit,
        are_dates=(subject.is_date(i), subject.is_date(j)),
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

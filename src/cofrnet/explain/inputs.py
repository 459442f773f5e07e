"""Closed forms of a CoFrNet in the space of its inputs: slopes, contributions and second derivatives of its scores.

The score is a function g of v = [x, curves(x)]: linear but for the full and the subset ladders, which read a_k = w_k·v.
Whatever is asked of those, one factor for each rung of each ladder and row answers it, S_k: the sensitivities df/da_k
for a slope, their mean along a path for a contribution. Contracted with weights and head it gives the derivatives by v,

    dg/dv = [U, H_curves] + sum over ladders l and rungs k of H_l S_kl w_kl

and those reach x directly and through the curves: by their slopes, or by their differences along the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cofrnet.core import curvature, feature_slopes, mean_sensitivities, secant_sensitivities, sensitivities
from cofrnet.core.ladder import tails
from cofrnet.core.poles import slope
from cofrnet.nn import CoFrNet, SubsetLadders
from cofrnet.nn.ladders import Ladders

__all__ = ["Contributions", "clamped_share", "contributions", "hessians", "mean_slopes", "path_contributions", "slopes"]

NUMBERS_AT_ONCE = 2**21  # for bounded memory
NODES = (8, 16, 32, 64, 128)  # of the integrals, for rows where fewer do not suffice
SECANTS = 64


def _chunks(model: CoFrNet, n: int) -> Iterator[slice]:
    spec = model.spec
    rungs = sum(depth + 1 for depth in spec.full_depths) + len(spec.subsets) * (spec.depth + 1)
    each = spec.n_members * (rungs + (spec.n_outputs + 1) * (spec.full_width + spec.n_curves))
    rows = max(16, NUMBERS_AT_ONCE // max(1, each))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


@torch.no_grad()
def slopes(model: CoFrNet, x: Tensor) -> Tensor:
    """Derivative of every score by every input, in O(L d p) for each row and score.

        ds/dx_j = sum_k w_kj df/da_k,   summed over ladders with the head

    Equal to what autograd gives, clamped rungs included (their slope is 0).

    Paper: Proposition 1.

    x : (n, p). Returns (n, q, p).
    """
    spec = model.spec
    found = x.new_empty(len(x), spec.n_outputs, spec.n_features)
    for rows in _chunks(model, len(x)):
        part = x[rows]
        by_curves = None
        if model.curves is not None:
            by_curves = _curve_slopes(model, part)
        ones = torch.ones_like(part).T
        found[rows] = _collected(model, _rung_factors(model, part), ones, by_curves)
    return found


@dataclass(frozen=True)
class Contributions:
    """What each input adds on the way from a baseline to a row.

    values : (n, q, p); gap : (n, q), what they fall short of score(x) - score(baseline) by.
    """

    values: Tensor
    gap: Tensor


@torch.no_grad()
def contributions(model: CoFrNet, x: Tensor, baseline: Tensor, tolerance: float | Tensor = 1e-5) -> Contributions:
    """Integrated gradients from a baseline to every row, on the straight line in the space of inputs and curves.

        c_j = dx_j (U_j + sum_k w_kj S_k) + the same for the differences of the curves of x_j

    with S_k the mean of df/da_k along the line: d+1 integrals per ladder, however many inputs. Integrals are refined
    for rows whose contributions still move by more than `tolerance`, or do not sum to score(x) - score(baseline) within
    it; where a clamped ladder jumps on the way, so that no integral sees the whole difference, secants take their place
    and account for it.

    x : (n, p), baseline : (p,) or (n, p), tolerance : number or (q,), in units of the score.
    """
    baseline = baseline.expand_as(x)
    spec = model.spec
    values = x.new_empty(len(x), spec.n_outputs, spec.n_features)
    gap = x.new_empty(len(x), spec.n_outputs)
    additive = model.full is None and model.subsets is None  # the first answer is exact
    for rows in _chunks(model, len(x)):
        start, end = baseline[rows], x[rows]

        def path(left: Tensor, nodes: int | None, start: Tensor = start, end: Tensor = end) -> Tensor:
            return path_contributions(model, start[left], end[left], nodes)

        values[rows], gap[rows] = _refined(path, model(end) - model(start), None, tolerance, additive)
    return Contributions(values, gap)


@torch.no_grad()
def mean_slopes(model: CoFrNet, x: Tensor, baseline: Tensor, tolerance: float | Tensor = 1e-5) -> Contributions:
    """Means of the slopes along the straight line from a baseline to every row, of a model without curves.

        m_j = U_j + sum_k w_kj S_k,     so that (x_j - baseline_j) m_j are the contributions

    For inputs that are sums themselves, such as an embedding: what each summand adds is its own share times m. Refined
    as `contributions` are.

    x : (n, p), baseline : (p,) or (n, p), tolerance : number or (q,), in units of the score.
    """
    if model.curves is not None:
        raise ValueError("mean slopes must be asked of a model without curves; got one with curves.")
    baseline = baseline.expand_as(x)
    spec = model.spec
    values = x.new_empty(len(x), spec.n_outputs, spec.n_features)
    gap = x.new_empty(len(x), spec.n_outputs)
    for rows in _chunks(model, len(x)):
        start, end = baseline[rows], x[rows]

        def path(left: Tensor, nodes: int | None, start: Tensor = start, end: Tensor = end) -> Tensor:
            factors = _rung_factors(model, start[left], end[left], nodes)
            return _collected(model, factors, torch.ones_like(start[left]).T, None)

        values[rows], gap[rows] = _refined(path, model(end) - model(start), end - start, tolerance)
    return Contributions(values, gap)


def _refined(
    path: Callable[[Tensor, int | None], Tensor],
    difference: Tensor,
    steps: Tensor | None,
    tolerance: float | Tensor,
    exact: bool = False,
) -> tuple[Tensor, Tensor]:
    """What `path` finds for each row with more and more nodes, until it stands still and accounts for the difference.

    Shapes: path (rows, nodes) to (rows, q, p), contributions, or slopes where `steps` (n, p) are given that they are to
    be multiplied by; difference (n, q). Returns what was found, (n, q, p), and what it falls short by, (n, q).
    """
    left = torch.arange(len(difference))
    found: Tensor | None = None
    gap = torch.empty_like(difference)
    before = torch.tensor(torch.inf)
    for nodes in (*NODES, None):
        part = path(left, nodes)
        terms = part if steps is None else part * steps[left].unsqueeze(1)
        short = difference[left] - terms.sum(2)
        found = torch.empty(len(difference), *part.shape[1:], dtype=part.dtype) if found is None else found
        found[left], gap[left] = part, short
        unsure = short.abs() > tolerance
        if nodes != NODES[-1]:
            unsure |= (terms - before).abs().amax(2) > tolerance
        unsure = unsure.any(1)
        left, before = left[unsure], terms[unsure]
        if len(left) == 0 or exact:
            break
    assert found is not None
    return found, gap


def path_contributions(model: CoFrNet, start: Tensor, end: Tensor, nodes: int | None, secants: int = SECANTS) -> Tensor:
    """Contributions with so many nodes for the integrals or, where these are None, so many secants.

    start, end : (n, p). Returns (n, q, p).
    """
    change = None
    if model.curves is not None:
        change = model.curves.values(end[:, model.curved]) - model.curves.values(start[:, model.curved])
    return _collected(model, _rung_factors(model, start, end, nodes, secants), (end - start).T, change)


def _rung_factors(
    model: CoFrNet, start: Tensor, end: Tensor | None = None, nodes: int | None = None, secants: int = SECANTS
) -> dict[str, tuple[Ladders, Tensor]]:
    """Of the subset and full ladders, S_k for every rung: sensitivities at `start`, or their mean on the way to `end`.

    Returns the bank and (d+1, members, L, n) by name.
    """
    found = {}
    others = model.read_by_banks(end) if end is not None else iter(())
    for name, bank, reads, _ in model.read_by_banks(start):
        there = next(others, None)
        if name == "curves":
            continue
        a = bank.stored_denominators(reads).transpose(0, 1)  # (d+1, members, L, n)
        if there is None:
            factors = sensitivities(a, bank.pole, bank.epsilon)
        else:
            b = bank.stored_denominators(there[2]).transpose(0, 1)
            if nodes is None:
                factors = secant_sensitivities(a, b, secants, bank.pole, bank.epsilon)
            else:
                factors = mean_sensitivities(a, b, nodes, bank.pole, bank.epsilon)
        found[name] = bank, factors
    return found


def _curve_slopes(model: CoFrNet, x: Tensor) -> Tensor:
    """Slopes of the curves by their feature. Shapes: x (n, p); returns (members, C, n)."""
    curves = model.curves
    assert curves is not None
    features = x.T[model.curved]
    weight, bias = (
        part.view(curves.members, -1, curves.n_features, curves.ladders_per_feature) for part in curves.full_rungs()
    )
    return feature_slopes(features.contiguous(), weight, bias, curves.pole, curves.epsilon).flatten(1, 2)


def _collected(
    model: CoFrNet, factors: dict[str, tuple[Ladders, Tensor]], by_x: Tensor, by_curves: Tensor | None
) -> Tensor:
    """Derivatives by v, times what x and the curves change by; summed for each input.

    Shapes: factors (d+1, members, L, n), by_x (p, n), by_curves (members, C, n); returns (n, q, p).
    """
    spec = model.spec
    members, q, p, n = spec.n_members, spec.n_outputs, spec.n_features, by_x.shape[1]
    head = model.head.view(members, q, -1) / members
    total = by_x.new_zeros(q, p, n)
    if model.linear is not None:
        total += model.linear.view(members, q, p).mean(0).unsqueeze(-1)
    by_values = head[:, :, : spec.n_curves].unsqueeze(-1)  # (members, q, C, 1 or n)
    if "full" in factors:
        by_reads = _by_reads(model, *factors["full"])
        total += by_reads[:, :, :p].sum(0)
        if spec.full_width > p:
            by_values = by_values + by_reads[:, :, p:]
    total *= by_x
    if "subsets" in factors:
        subsets, rungs = factors["subsets"]
        own = head[:, :, spec.n_curves : spec.n_curves + subsets.n_ladders]
        weight = subsets.full_rungs()[0]
        by_reads = torch.einsum("mql,mkls,kmln->qlsn", own, weight, rungs)  # (q, L, s, n)
        reads = _reads(subsets).flatten()
        total.index_add_(1, reads, by_reads.flatten(1, 2) * by_x[reads])
    if by_curves is not None:
        each = (by_values * by_curves.unsqueeze(1)).sum(0)  # (q, C, n)
        each = each.view(q, -1, spec.ladders_per_feature, n).sum(2)
        if len(each[0]) == p:  # every input is curved
            total += each
        else:
            total.index_add_(1, model.curved, each)
    return total.permute(2, 0, 1)


def _through_curves(model: CoFrNet, weight: Tensor, slopes: Tensor, inputs: Tensor) -> Tensor:
    """Weights of the chosen inputs of stacked ladders at every row: their own, and those of their curves times slopes.

    Shapes: weight (members, d+1, L, p + C, 1), slopes (members, C, n); returns (members, d+1, L, k, n).
    """
    spec, m = model.spec, model.spec.ladders_per_feature
    found = weight[:, :, :, inputs].repeat(1, 1, 1, 1, slopes.shape[-1])
    curved = {feature: place for place, feature in enumerate(spec.curved_features)}
    for i, feature in enumerate(inputs.tolist()):
        if feature in curved:
            first = curved[feature] * m
            own = weight[:, :, :, spec.n_features + first : spec.n_features + first + m]
            found[:, :, :, i] += (own * slopes[:, None, None, first : first + m]).sum(3)
    return found


def _reads(bank: Ladders) -> Tensor:
    """Which features each ladder reads, (L, s)."""
    assert isinstance(bank, SubsetLadders)
    return bank.read_positions


def _by_reads(model: CoFrNet, bank: Ladders, rungs: Tensor) -> Tensor:
    """Derivatives of the scores by what the full ladders read: (d+1, members, L, n) to (members, q, width, n)."""
    members, q, n = model.spec.n_members, model.spec.n_outputs, rungs.shape[-1]
    weight = bank.full_rungs()[0]  # (members, rungs, L, width)
    rungs = rungs.transpose(0, 1)[:, -weight.shape[1] :]  # without a rung 0 that has no weight
    own = model.head.view(members, q, -1)[:, :, -bank.n_ladders :] / members
    mixed = own[:, :, None, :, None] * weight.unsqueeze(1)  # (members, q, rungs, L, width)
    mixed = mixed.permute(0, 1, 4, 2, 3).reshape(members, q * bank.n_features, -1)
    return (mixed @ rungs.reshape(members, -1, n)).view(members, q, bank.n_features, n)


@torch.no_grad()
def clamped_share(model: CoFrNet, x: Tensor) -> Tensor:
    """Share of the rungs below the first that are clamped, of every row, in bounded memory: (n, p) to (n,)."""
    found = x.new_zeros(len(x))
    for rows in _chunks(model, len(x)):
        found[rows] = model.clamped_share(x[rows])
    return found


@torch.no_grad()
def hessians(model: CoFrNet, x: Tensor, inputs: Tensor | None = None) -> Tensor:
    """Second derivatives of every score by pairs of inputs, in O(L d p^2) for each row and score.

        Hessian of f = sum_{i=1..d} (df/da_{i-1}) r''(t_i) g_i g_i^T,     g_i = grad t_i = w_i + r'(t_{i+1}) g_{i+1}

    and curves, which bend by themselves, add to the diagonal. `inputs` chooses some of them, by position.

    x : (n, p). Returns (n, q, k, k) for k chosen inputs.
    """
    spec = model.spec
    inputs = torch.arange(spec.n_features) if inputs is None else inputs
    k = len(inputs)
    found = x.new_zeros(len(x), spec.n_outputs, k, k)
    rungs = sum(depth + 1 for depth in spec.full_depths) + len(spec.subsets) * (spec.depth + 1)
    at_once = max(1, NUMBERS_AT_ONCE // (1 + spec.n_members * rungs * k * (1 + spec.ladders_per_feature)))
    for start in range(0, len(x), at_once):
        rows = slice(start, min(start + at_once, len(x)))
        _add_hessians(model, x[rows], inputs, found[rows])
    return found


def _add_hessians(model: CoFrNet, x: Tensor, inputs: Tensor, out: Tensor) -> None:
    spec = model.spec
    members, q, p, n = spec.n_members, spec.n_outputs, spec.n_features, len(x)
    head = model.head.view(members, q, -1) / members
    curved = model.curved
    first = 0
    bends: Tensor | None = None  # of the curves: their second derivatives, (members, C, n)
    by_values = head[:, :, : spec.n_curves].unsqueeze(-1)  # of the scores by the curves, (members, q, C, 1 or n)
    for name, bank, reads, _ in model.read_by_banks(x):
        own = head[:, :, first : first + bank.n_ladders]
        first += bank.n_ladders
        a = bank.stored_denominators(reads).transpose(0, 1)  # (d+1, members, L, n)
        t, s = tails(a, bank.pole, bank.epsilon), sensitivities(a, bank.pole, bank.epsilon)
        bent = s[:-1] * curvature(t[1:], bank.pole, bank.epsilon)  # (d, members, L, n), of rung 1 and on
        falls = slope(t, bank.pole, bank.epsilon)
        weight = bank.full_rungs()[0]
        if not bank.first:
            weight = torch.cat([torch.zeros_like(weight[:, :1]), weight], dim=1)
        weight = weight.unsqueeze(-1)  # (members, d+1, L, *fan, 1)
        if name == "full" and spec.variant == "S" and model.curves is not None:
            by_values = by_values + _by_reads(model, bank, s)[:, :, p:]
            weight = _through_curves(model, weight, _curve_slopes(model, x), inputs)
        elif name == "subsets":
            chosen = (_reads(bank).unsqueeze(-1) == inputs).to(weight.dtype)  # (L, s, k)
            weight = torch.einsum("mklsi,lsj->mklji", weight, chosen)
        elif name == "full":
            weight = weight[:, :, :, inputs]  # (members, d+1, L, k, 1 or n)
        gradient = torch.zeros_like(weight[:, 0])  # of the tail t_i, from the last rung up
        for i in range(len(a) - 1, 0, -1):
            lower = falls[i + 1] if i + 1 < len(a) else torch.zeros_like(falls[i])
            gradient = weight[:, i] + (lower if name == "curves" else lower.unsqueeze(2)) * gradient
            if name == "curves":
                bends = bent[i - 1] * gradient**2 + (0 if bends is None else bends)
            else:
                scaled = own.unsqueeze(-1) * bent[i - 1].unsqueeze(1)  # (members, q, L, n)
                wide = gradient.expand(*gradient.shape[:-1], n)
                out += torch.einsum("mqln,mlin,mljn->nqij", scaled, wide, wide)
    if bends is not None:
        each = (by_values * bends.unsqueeze(1)).sum(0).view(q, -1, spec.ladders_per_feature, n).sum(2)
        diagonal = x.new_zeros(q, p, n).index_add_(1, curved, each)
        places = torch.arange(len(inputs))
        out[:, :, places, places] += diagonal[:, inputs].permute(2, 0, 1)

"""Closed forms in the space of inputs, against autograd and against brute-force integration."""

import pytest
import torch

from cofrnet import core
from cofrnet.explain import inputs
from cofrnet.nn import CoFrNet

MODELS = {
    "S": {"variant": "S", "n_ladders": 3, "ladders_per_feature": 2},
    "S, curved": {"variant": "S", "n_ladders": 3, "ladders_per_feature": 2, "curved": (0, 2)},
    "DL": {"variant": "DL", "n_ladders": 3},
    "D": {"variant": "D", "ladders_per_feature": 2},
    "F": {"variant": "F", "n_ladders": 3, "depth": 4},
    "pairs": {"variant": "D", "subsets": ((0, 1), (1, 3), (0, 2, 3))},
    "members": {"variant": "S", "n_ladders": 2, "n_members": 3, "n_outputs": 2},
    "classes": {"variant": "DL", "n_ladders": 2, "n_outputs": 3, "subsets": ((1, 2),)},
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def model_of(name, pole, dtype=torch.float64):
    model = CoFrNet(n_features=4, pole=pole, dtype=dtype, generator=seeded(), **MODELS[name])
    with torch.no_grad():
        model.linear.normal_(generator=seeded(3))
    return model


def rows(n=40, dtype=torch.float64, seed=1):
    return 1.5 * torch.randn(n, 4, generator=seeded(seed), dtype=dtype)


@pytest.mark.parametrize("way", ["auto", "reference"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("name", MODELS)
def test_slopes_are_those_of_autograd(name, pole, way):
    model, x = model_of(name, pole), rows()
    with core.backend(way):
        found = inputs.slopes(model, x)
    exact = torch.stack([torch.autograd.functional.jacobian(model, row) for row in x])
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
    single = inputs.slopes(model.float(), x.float())
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("name", MODELS)
def test_second_derivatives_are_those_of_autograd(name, pole):
    model, x = model_of(name, pole), rows(70)
    exact = torch.stack(
        [
            torch.stack(
                [torch.autograd.functional.hessian(lambda r, c=c: model(r)[c], row) for c in range(len(model(row)))]
            )
            for row in x
        ]
    )
    torch.testing.assert_close(inputs.hessians(model, x), exact, rtol=1e-9, atol=1e-9)
    some = torch.tensor([2, 0])
    torch.testing.assert_close(inputs.hessians(model, x, some), exact[:, :, some][..., some], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_contributions_are_integrated_gradients(name):
    """On the straight line in the space of inputs and curves, by many midpoints and autograd."""
    model, x = model_of(name, "smooth"), rows(5)
    baseline = torch.tensor([0.3, -0.2, 0.1, 0.5], dtype=torch.float64)
    found = inputs.contributions(model, x, baseline)
    torch.testing.assert_close(found.values.sum(2), model(x) - model(baseline[None]), rtol=1e-5, atol=1e-5)
    if model.spec.variant == "S":  # the line bends in x: integrate over [x, curves]
        return
    total = torch.zeros_like(found.values)
    steps = 2000
    for i in range(steps):
        at = baseline + (i + 0.5) / steps * (x - baseline)
        total += inputs.slopes(model, at) / steps
    torch.testing.assert_close(found.values, total * (x - baseline).unsqueeze(1), rtol=1e-4, atol=1e-4)


def test_contributions_of_stacked_ladders_are_collected_feature_by_feature():
    model, x = model_of("members", "smooth"), rows(6)
    baseline = rows(1, seed=5)[0]
    found = inputs.contributions(model, x, baseline).values
    total = torch.zeros_like(found)
    for i in range(model.spec.n_members):
        one = model.member(i)
        curves, full = one.curves, one.full

        def score(v, one=one, full=full):
            straight = v[:, :4] @ one.linear.T + one.intercept
            return straight + torch.cat([v[:, 4:], full(v)], dim=1) @ one.head.T

        ends = [torch.cat([r, curves(r)], dim=1) for r in (baseline.expand_as(x), x)]
        for step in range(1000):
            at = torch.lerp(*ends, (step + 0.5) / 1000).requires_grad_()
            for c in range(2):
                (g,) = torch.autograd.grad(score(at)[:, c].sum(), at)
                each = g * (ends[1] - ends[0]) / 1000 / model.spec.n_members
                total[:, c] += each[:, :4] + each[:, 4:].view(len(x), 4, -1).sum(2)
    torch.testing.assert_close(found, total.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_contributions_across_clamped_jumps_sum_to_the_difference(name):
    model, x = model_of(name, "clamp"), rows(60)
    found = inputs.contributions(model, x, torch.zeros(4, dtype=torch.float64), tolerance=1e-6)
    difference = model(x) - model(torch.zeros(1, 4, dtype=torch.float64))
    torch.testing.assert_close(found.values.sum(2), difference, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(found.gap, difference - found.values.sum(2))


def test_contributions_of_an_additive_model_are_differences_of_its_curves():
    model, x = model_of("D", "smooth"), rows(9)
    baseline = rows(1, seed=7)[0]
    found = inputs.contributions(model, x, baseline).values
    for j in range(4):
        moved = baseline.repeat(len(x), 1)
        moved[:, j] = x[:, j]
        torch.testing.assert_close(found[:, :, j], model(moved) - model(baseline[None]), rtol=1e-10, atol=1e-10)


def test_rows_in_chunks_are_rows_at_once(monkeypatch):
    model, x = model_of("members", "smooth"), rows(50)
    whole = inputs.slopes(model, x), inputs.contributions(model, x, x[0]).values
    monkeypatch.setattr(inputs, "NUMBERS_AT_ONCE", 1)
    torch.testing.assert_close((inputs.slopes(model, x), inputs.contributions(model, x, x[0]).values), whole)


@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("way", ["auto", "reference"])
def test_secants_account_for_the_whole_difference(pole, way):
    a, b = torch.randn(2, 5, 400, generator=seeded(), dtype=torch.float64)
    a[3:, :50] = b[3:, :50] = torch.inf  # ladders that are not as deep
    with core.backend(way):
        secants = core.secant_sensitivities(a, b, 1, pole)
        means = core.mean_sensitivities(a, b, 64, pole)
        fine = core.secant_sensitivities(a, b, 4000, pole)
    difference = core.ladder(b, pole) - core.ladder(a, pole)
    step = torch.where(a == b, 0.0, b - a)
    torch.testing.assert_close((secants * step).sum(0), difference, rtol=1e-8, atol=1e-8)
    if pole == "smooth":
        torch.testing.assert_close((means * step).sum(0), difference, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(means, fine, rtol=1e-3, atol=1e-4)


def test_the_clamped_share_is_that_of_each_row():
    model, x = model_of("DL", "clamp"), rows(30)
    for row, share in zip(x, inputs.clamped_share(model, x), strict=True):
        inside = count = 0
        for bank in (model.curves, model.full):
            weight, bias = (part.detach() for part in bank.rungs())
            for ladder, depth in enumerate(bank.depths):
                own = row[ladder] if bank is model.curves else row
                a = [float((weight[k, ladder] * own).sum() + bias[k, ladder]) for k in range(depth + 1)]
                t = a[-1]
                for k in range(depth, 0, -1):
                    inside += abs(t) < 0.1
                    count += 1
                    t = a[k - 1] + (1 if t >= 0 else -1) / max(abs(t), 0.1)
        assert float(share) == pytest.approx(inside / count)
    assert (inputs.clamped_share(model_of("DL", "smooth"), x) == 0).all()


def test_secants_see_a_jump_however_narrow():
    a, b = torch.tensor([[0.0], [-1e-9]], dtype=torch.float64), torch.tensor([[0.0], [1e-9]], dtype=torch.float64)
    secants = core.secant_sensitivities(a, b, 1, "clamp")
    assert float((secants * (b - a)).sum()) == pytest.approx(20.0)

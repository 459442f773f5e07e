import math

import pytest
import torch

from cofrnet.core import DEFAULT_EPSILON, curvature, ladder, reciprocal, slope

KINDS = ("smooth", "clamp")
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 1e38, -1e38, 1e19, 0.1, -0.1, 1.0]


@pytest.mark.parametrize("pole", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_are_defined(pole, dtype):
    t = torch.tensor(EDGES, dtype=dtype)
    epsilon = DEFAULT_EPSILON[pole]
    r = reciprocal(t, pole, epsilon)
    assert torch.isnan(r).tolist() == torch.isnan(t).tolist()
    assert not torch.isinf(r).any()
    assert r[2] == r[3] == 0
    at_zero = (0.0, 0.0) if pole == "smooth" else (10.0, 10.0)
    assert r[:2].tolist() == pytest.approx(at_zero)
    s = slope(t, pole, epsilon)
    assert s[2] == s[3] == 0
    assert s[:2].tolist() == pytest.approx([1.0, 1.0] if pole == "smooth" else [0.0, 0.0])
    assert torch.isnan(s).tolist() == torch.isnan(t).tolist()


@pytest.mark.parametrize("pole", KINDS)
def test_far_from_the_pole_both_kinds_are_one_over_t(pole):
    t = torch.tensor([3e9, -7e20, 2e38], dtype=torch.float32)
    assert torch.equal(reciprocal(t, pole, DEFAULT_EPSILON[pole]), 1 / t)


@pytest.mark.parametrize("pole", KINDS)
def test_derivatives_are_those_of_the_function(pole):
    t = torch.linspace(-3, 3, 400, dtype=torch.float64, requires_grad=True)
    epsilon = DEFAULT_EPSILON[pole]
    (first,) = torch.autograd.grad(reciprocal(t, pole, epsilon).sum(), t, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t)
    torch.testing.assert_close(first, slope(t, pole, epsilon))
    torch.testing.assert_close(second, curvature(t, pole, epsilon))


def test_clamp_keeps_its_slope_on_the_boundary():
    t = torch.tensor([0.5, -0.5, 0.49999], dtype=torch.float64)
    assert slope(t, "clamp", 0.5).tolist() == [-4.0, -4.0, 0.0]


@pytest.mark.parametrize("pole", KINDS)
def test_gradient_at_infinity_is_zero_not_nan(pole):
    t = torch.tensor([math.inf, -math.inf, 0.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(reciprocal(t, pole, 1.0).sum(), t)
    assert gradient[:2].tolist() == [0.0, 0.0]
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 1e-30])
def test_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"epsilon must lie in \[1e-12, 1e\+06\]; got epsilon="):
        ladder(torch.ones(3, 2), "clamp", epsilon)


def test_unknown_pole_is_refused():
    with pytest.raises(ValueError, match="pole must be 'smooth' or 'clamp'; got pole='sharp'"):
        ladder(torch.ones(3, 2), "sharp")

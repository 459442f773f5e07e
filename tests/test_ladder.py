"""Laws of ladders, against oracles that share no code with them: exact rationals, determinants, finite differences."""

import math
from fractions import Fraction

import pytest
import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cofrnet import core
from cofrnet.errors import PoleError
from tests.tolerances import DIFFERENCES, EXACT, PRODUCTS, ROUNDING, SMALL_EPSILON

KINDS = ("smooth", "clamp")

rationals = st.fractions(min_value=-5, max_value=5, max_denominator=12)
rungs = st.lists(rationals, min_size=1, max_size=9)


def exact_value(a):
    """The fraction from the bottom up; None where a tail vanishes."""
    t = a[-1]
    for rung in reversed(a[:-1]):
        if t == 0:
            return None
        t = rung + 1 / t
    return t


def exact_tails(a):
    return [exact_value(a[k:]) for k in range(len(a))]


def exact_smooth(a, epsilon):
    t = a[-1]
    for rung in reversed(a[:-1]):
        t = rung + t / (t * t + epsilon * epsilon)
    return t


def as_tensor(a):
    return torch.tensor([float(x) for x in a], dtype=torch.float64)


@given(rungs)
def test_value_is_a_ratio_of_continuants(a):
    value = exact_value(a)
    assume(value is not None)
    k = core.continuants(a)
    assume(k[-2] != 0)
    assert k[-1] / k[-2] == value


@given(rungs)
def test_continuants_are_tridiagonal_determinants(a):
    matrix = sympy.zeros(len(a), len(a))
    for i, x in enumerate(a):
        matrix[i, i] = sympy.Rational(x.numerator, x.denominator)
        if i + 1 < len(a):
            matrix[i, i + 1], matrix[i + 1, i] = 1, -1
    determinant = matrix.det(method="bareiss")
    assert core.continuants(a)[-1] == Fraction(int(determinant.p), int(determinant.q))


@given(st.lists(rationals, min_size=2, max_size=8), st.data())
def test_continuant_identity_of_the_lemma(a, data):
    d = len(a) - 1
    k = data.draw(st.integers(0, d))

    def K(part):
        return core.continuants(part)[-1] if part else Fraction(1)

    K_before = K(a[1:k]) if k > 0 else 0  # K_{k-1}(a_1..a_{k-1}), with K_{-1} = 0
    assert K(a[:k]) * K(a[1:]) - K_before * K(a) == (-1) ** k * K(a[k + 1 :])


@given(rungs)
def test_proposition_1_in_exact_rationals(a):
    """(-1)^k (K_{d-k}/K_d)^2 against the derivative of the symbolic fraction."""
    assume(core.continuants(a)[-2] != 0)
    assume(len(a) <= 5)
    symbols = sympy.symbols(f"a0:{len(a)}")
    numerator, denominator = core.continuants(list(symbols))[-1], core.continuants(list(symbols))[-2]
    at = {s: sympy.Rational(x.numerator, x.denominator) for s, x in zip(symbols, a, strict=True)}
    expected = [sympy.diff(numerator / denominator, s).subs(at) for s in symbols]
    assert [sympy.Rational(s.numerator, s.denominator) for s in core.continuant_sensitivities(a)] == expected


def off_the_clamp(a, margin=Fraction(1, 8)):
    tails = exact_tails(a)
    return all(t is not None and abs(t) > margin for t in tails[1:])


@given(rungs)
def test_clamped_ladder_is_exact_off_the_clamp(a):
    assume(off_the_clamp(a))
    tensor = as_tensor(a)
    assert float(core.ladder(tensor, "clamp", 0.1)) == pytest.approx(float(exact_value(a)), abs=EXACT)
    assert not core.clamped(tensor, "clamp", 0.1).any()
    sensitivities = core.sensitivities(tensor, "clamp", 0.1).tolist()
    assert sensitivities == pytest.approx([float(s) for s in core.continuant_sensitivities(a)], rel=EXACT, abs=EXACT)


@given(rungs)
def test_smooth_ladder_is_the_exact_rational_function(a):
    value = exact_smooth(a, Fraction(1))
    assert float(core.ladder(as_tensor(a), "smooth", 1.0)) == pytest.approx(float(value), abs=EXACT)


@given(rungs)
def test_smooth_and_clamp_tend_to_the_exact_value(a):
    assume(off_the_clamp(a, Fraction(1, 100)))
    exact = float(exact_value(a))
    tensor = as_tensor(a)
    assert float(core.ladder(tensor, "smooth", 1e-6)) == pytest.approx(exact, rel=SMALL_EPSILON, abs=SMALL_EPSILON)
    assert float(core.ladder(tensor, "clamp", 1e-6)) == pytest.approx(exact, rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("pole", KINDS)
@pytest.mark.parametrize("depth", [0, 1, 2, 5, 12])
def test_sensitivities_are_the_chain_of_slopes_autograd_and_differences(pole, depth):
    a = torch.randn(depth + 1, 200, generator=torch.Generator().manual_seed(depth), dtype=torch.float64)
    sensitivities = core.sensitivities(a, pole)
    if pole == "clamp" and depth > 1:
        assert core.clamped(a, pole).any(), "the example should meet the clamp"

    t = core.tails(a, pole)
    chain = torch.ones_like(a)
    for k in range(1, depth + 1):
        chain[k] = chain[k - 1] * core.slope(t[k], pole, core.DEFAULT_EPSILON[pole])
    torch.testing.assert_close(sensitivities, chain, rtol=PRODUCTS[a.dtype], atol=PRODUCTS[a.dtype])

    with core.backend("reference"):
        b = a.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(core.ladder(b, pole).sum(), b)
    torch.testing.assert_close(sensitivities, gradient, rtol=PRODUCTS[a.dtype], atol=PRODUCTS[a.dtype])

    near_kink = ((t.abs() - 0.1).abs() < 1e-3).any(0) if pole == "clamp" else torch.zeros(200, dtype=torch.bool)
    gentle = (sensitivities.abs().amax(0) < 100) & ~near_kink
    step = 1e-6
    for k in range(depth + 1):
        up, down = a.clone(), a.clone()
        up[k] += step
        down[k] -= step
        difference = (core.ladder(up, pole) - core.ladder(down, pole)) / (2 * step)
        scale = 1 + t.abs().amax(0) ** 3 * 1e4  # curvature of steep examples
        error = ((difference - sensitivities[k]).abs() / scale)[gentle]
        assert error.max() < DIFFERENCES


@pytest.mark.parametrize("pole", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (5, 4, 3), (13, 64, 9), (3,), (4, 2, 3, 2, 2), (6, 0, 3), (7, 1)])
def test_fused_equals_reference(pole, dtype, shape):
    a = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()
    with core.backend("fused"):
        value, sensitivities = core.ladder(a, pole), core.sensitivities(a, pole)
        weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
        (gradient,) = torch.autograd.grad(value, a, weights)
    with core.backend("reference"):
        expected, expected_sensitivities = core.ladder(a, pole), core.sensitivities(a, pole)
        (expected_gradient,) = torch.autograd.grad(expected, a, weights)
    assert value.shape == expected.shape == a.shape[1:]
    for ours, theirs, tolerance in [
        (value, expected, ROUNDING),
        (sensitivities, expected_sensitivities, PRODUCTS),
        (gradient, expected_gradient, PRODUCTS),
    ]:
        torch.testing.assert_close(ours, theirs, rtol=tolerance[dtype], atol=tolerance[dtype])


@pytest.mark.parametrize("how", ["fused", "reference"])
@pytest.mark.parametrize("pole", KINDS)
class TestEdges:
    def test_nan_in_any_rung_gives_nan(self, pole, how):
        for k in range(4):
            a = torch.ones(4, 3)
            a[k, 1] = math.nan
            with core.backend(how):
                f = core.ladder(a, pole)
            assert torch.isnan(f).tolist() == [False, True, False]

    def test_an_infinite_rung_ends_the_ladder_above_it(self, pole, how):
        a = torch.randn(6, 50, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        short = a[:3]
        for end in (math.inf, -math.inf):
            a[3] = end
            with core.backend(how):
                a.requires_grad_()
                f = core.ladder(a, pole)
                (gradient,) = torch.autograd.grad(f.sum(), a)
                a = a.detach()
                torch.testing.assert_close(f.detach(), core.ladder(short, pole))
                torch.testing.assert_close(gradient[:3], core.sensitivities(short, pole))
            assert (gradient[3:] == 0).all()

    def test_zero_tails_never_give_infinity(self, pole, how):
        a = torch.zeros(9, 5)
        with core.backend(how):
            assert torch.isfinite(core.ladder(a, pole)).all()
            assert torch.isfinite(core.sensitivities(a, pole)).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("depth", [39, 250, 1000])
    def test_deep_ladders_do_not_overflow(self, pole, how, depth, dtype):
        generator = torch.Generator().manual_seed(depth)
        for scale in (0.01, 1.0, 10.0, 1e4):
            a = scale * torch.randn(depth + 1, 20, generator=generator, dtype=dtype)
            with core.backend(how):
                assert torch.isfinite(core.ladder(a, pole)).all()
                sensitivities = core.sensitivities(a, pole)
            assert not torch.isnan(sensitivities).any()

    def test_depth_zero_is_the_first_rung(self, pole, how):
        a = torch.randn(1, 3, 2)
        with core.backend(how):
            assert torch.equal(core.ladder(a, pole), a[0])
            assert torch.equal(core.sensitivities(a, pole), torch.ones(1, 3, 2))


def test_golden_ratio_is_the_ladder_of_ones():
    a = torch.ones(60, dtype=torch.float64)
    assert float(core.ladder(a, "clamp")) == pytest.approx((1 + math.sqrt(5)) / 2, abs=1e-15)


@pytest.mark.parametrize("pole", KINDS)
def test_convergents_are_the_ladders_cut_short(pole):
    a = torch.randn(8, 30, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    convergents = core.convergents(a, pole)
    for k in range(8):
        torch.testing.assert_close(convergents[k], core.ladder(a[: k + 1], pole), rtol=0, atol=ROUNDING[a.dtype])
    torch.testing.assert_close(convergents[-1], core.tails(a, pole)[0], rtol=0, atol=ROUNDING[a.dtype])


def test_clamped_names_the_rungs():
    a = torch.tensor([[0.0], [5.0], [-10.0], [0.1]], dtype=torch.float64)  # tails from below: 0.1, 0, 5 + 10, ...
    assert core.clamped(a, "clamp", 0.1).flatten().tolist() == [False, False, True, False]
    assert not core.clamped(a, "smooth").any()


def test_learned_epsilon_has_the_right_gradient():
    a = torch.randn(5, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    for pole in KINDS:
        epsilon = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda e, pole=pole: core.ladder(a, pole, e), epsilon)
        torch.testing.assert_close(core.ladder(a, pole, epsilon), core.ladder(a, pole, 0.7))


def test_half_precision_falls_back_to_the_recurrence():
    a = torch.randn(4, 10, generator=torch.Generator().manual_seed(6))
    for dtype in (torch.float16, torch.bfloat16):
        f = core.ladder(a.to(dtype))
        assert f.dtype == dtype
        torch.testing.assert_close(f.float(), core.ladder(a), rtol=0.05, atol=0.05)


@given(st.lists(rationals, min_size=1, max_size=6))
def test_eulers_formula(a):
    product, total = Fraction(1), Fraction(0)
    for factor in a:
        product *= factor
        total += product
    assert core.fraction(*core.euler_form(a)) == total


@settings(max_examples=30)
@given(
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), rationals, min_size=1, max_size=5),
    rationals,
    rationals,
)
def test_every_polynomial_is_a_sum_of_euler_ladders(terms, x, y):
    ladders = core.polynomial_ladders(terms)
    assert len(ladders) <= 2 * len(terms)
    assert sum(f([x, y]) for f in ladders) == sum(c * x**i * y**j for (i, j), c in terms.items())


def test_euler_ladders_take_tensors():
    x, y = torch.randn(2, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    matyas = core.polynomial_ladders({(2, 0): 0.26, (0, 2): 0.26, (1, 1): -0.48})
    torch.testing.assert_close(sum(f([x, y]) for f in matyas), 0.26 * (x**2 + y**2) - 0.48 * x * y)


def test_a_fraction_without_value_is_an_error():
    with pytest.raises(PoleError, match="must not vanish"):
        core.fraction([1, 1], [Fraction(-1), Fraction(1)])  # 1/(-1 + 1/1)
    with pytest.raises(ValueError, match="as many numerators as denominators"):
        core.fraction([1, 2], [1])


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        ([1.0, 2.0], TypeError, "a must be a floating-point tensor; got list"),
        (torch.ones(3, dtype=torch.int64), TypeError, r"got torch\.int64"),
        (torch.ones(()), ValueError, r"shape \(d\+1, \.\.\.\)"),
        (torch.ones(0, 3), ValueError, r"got shape \(0, 3\)"),
    ],
)
def test_bad_partial_denominators_are_refused(a, error, message):
    for function in (core.ladder, core.tails, core.sensitivities, core.convergents, core.clamped):
        with pytest.raises(error, match=message):
            function(a)


@pytest.mark.parametrize("function", [core.feature_ladders, core.feature_slopes])
@pytest.mark.parametrize(
    ("x", "weight", "bias", "message"),
    [
        ((3, 8), (1, 2, 5, 2), (1, 2, 5, 2), r"x must have shape \(p, n\) with p=5.*got \(3, 8\)"),
        ((5, 8), (1, 2, 3, 2), (1, 2, 3, 2), r"x must have shape \(p, n\) with p=3.*got \(5, 8\)"),
        ((3, 8), (1, 2, 3, 2), (1, 2, 3, 1), r"weight and bias must have one shape.*\(1, 2, 3, 1\)"),
    ],
)
def test_features_of_shapes_that_do_not_fit_are_refused(function, x, weight, bias, message):
    with pytest.raises(ValueError, match=message):
        function(*(torch.ones(shape) for shape in (x, weight, bias)))


@pytest.mark.parametrize("way", ["auto", "reference"])
def test_slopes_and_means_along_a_path_can_be_differentiated(way):
    generator = torch.Generator().manual_seed(0)
    x, w, b = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 4), (1, 3, 2, 2), (1, 3, 2, 2))
    )
    with core.backend(way):
        assert torch.autograd.gradcheck(core.feature_slopes, (x, w, b))
        assert torch.autograd.gradcheck(core.mean_sensitivities, (w[0], b[0]))


@pytest.mark.parametrize("way", ["auto", "reference"])
def test_the_ends_of_a_path_broadcast(way):
    a, b = torch.randn(3, 1), torch.randn(3, 4)
    with core.backend(way):
        torch.testing.assert_close(core.mean_sensitivities(a, b), core.mean_sensitivities(a.expand(3, 4), b))
        torch.testing.assert_close(core.mean_sensitivities(b, a), core.mean_sensitivities(b, a.expand(3, 4)))

"""Power series: against SymPy's own, exact in rationals, and what must hold of those of fitted models."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import sympy
import torch

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.core.series import Terms, exact, ladder_series, reciprocal
from cofrnet.errors import PoleWarning
from cofrnet.explain.series import model_series
from cofrnet.nn import CoFrNet

X1, X2 = sympy.symbols("x1 x2")


def rational(value):
    return sympy.Rational(Fraction(value.item()))


def smooth(t, epsilon=1):
    return t / (t**2 + sympy.Integer(epsilon) ** 2)


def symbolic_series(expression, order, kind="total"):
    """Coefficients by SymPy: along a line for the total order, one variable after the other for each."""
    if kind == "total":
        h = sympy.Symbol("h")
        along = expression.subs({X1: h * X1, X2: h * X2}, simultaneous=True)
        found = sympy.series(along, h, 0, order + 1).removeO().subs(h, 1)
    else:
        found = expression
        for variable in (X1, X2):
            found = sympy.series(found, variable, 0, order + 1).removeO()
    return sympy.Poly(sympy.expand(found), X1, X2)


@pytest.mark.parametrize("kind", ["total", "each"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
def test_ladders_against_sympy(pole, kind):
    rng = np.random.default_rng(0)
    order = 4 if kind == "total" else 1
    terms = Terms(2, order, kind)
    bias, weight = rng.integers(1, 5, 3), rng.integers(-3, 4, (3, 2))
    rungs = [terms.linear(exact(b)[()], exact(w)) for b, w in zip(bias, weight, strict=True)]
    found = ladder_series(terms, rungs, pole, Fraction(1) if pole == "smooth" else Fraction(1, 10))
    a = [int(b) + int(w[0]) * X1 + int(w[1]) * X2 for b, w in zip(bias, weight, strict=True)]
    r = smooth if pole == "smooth" else (lambda t: 1 / t)
    expected = symbolic_series(a[0] + r(a[1] + r(a[2])), order, kind)
    for powers, value in zip(terms.exponents.tolist(), found, strict=True):
        assert isinstance(value, Fraction)
        assert sympy.Rational(value) == expected.coeff_monomial(X1 ** powers[0] * X2 ** powers[1])


MODELS = {
    "F": {"variant": "F", "n_ladders": 2},
    "D": {"variant": "D", "ladders_per_feature": 2},
    "DL": {"variant": "DL", "n_ladders": 2},
    "S": {"variant": "S", "n_ladders": 2, "depth": 1},
    "pairs": {"variant": "D", "depth": 1, "subsets": ((0, 1),)},
    "members": {"variant": "D", "depth": 1, "n_members": 2, "n_outputs": 2},
}


def symbolic_scores(model):
    """The scores of a CoFrNet as SymPy expressions, written anew."""
    spec = model.spec
    total = [sympy.Integer(0)] * spec.n_outputs
    r = (lambda t: smooth(t)) if spec.pole == "smooth" else (lambda t: 1 / t)
    for i in range(spec.n_members):
        one = model.member(i).requires_grad_(False)
        values = []
        reads = [X1, X2]
        for name in ("curves", "subsets", "full"):
            bank = getattr(one, name)
            if bank is None:
                continue
            weight, bias = (part.detach().numpy() for part in bank.rungs())
            for ladder in range(bank.n_ladders):
                tail = None
                for k in range(len(weight) - 1, -1, -1):
                    if not np.isfinite(bias[k, ladder]):
                        continue
                    own = {"curves": [[X1, X2][ladder // spec.ladders_per_feature]], "subsets": [X1, X2]}.get(
                        name, reads
                    )
                    rung = rational(bias[k, ladder]) + sum(
                        rational(w) * x for w, x in zip(np.atleast_1d(weight[k, ladder]), own, strict=True)
                    )
                    tail = rung if tail is None else rung + r(tail)
                values.append(tail)
            if name == "curves" and spec.variant == "S":
                reads = [X1, X2, *values]
        for c in range(spec.n_outputs):
            score = rational(one.intercept[c]) + rational(one.linear[c, 0]) * X1 + rational(one.linear[c, 1]) * X2
            score += sum(rational(h) * v for h, v in zip(one.head[c].detach().numpy(), values, strict=True))
            total[c] += score / spec.n_members
    return total


@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("name", MODELS)
def test_models_against_sympy(name, pole):
    model = CoFrNet(n_features=2, pole=pole, dtype=torch.float64, **{"depth": 2, **MODELS[name]},
                    generator=torch.Generator().manual_seed(1))  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((8 * p).round() / 8)  # small fractions, for SymPy's sake
    terms = Terms(2, 2)
    found = model_series(model, terms, np.zeros(2), np.eye(2))
    same = model_series(model, terms, exact(np.zeros(2)), exact(np.eye(2)))
    for c, expression in enumerate(symbolic_scores(model)):
        for t, (i, j) in enumerate(terms.exponents.tolist()):
            derived = sympy.diff(expression, (X1, i), (X2, j)).subs({X1: 0, X2: 0})
            value = derived / sympy.factorial(i) / sympy.factorial(j)
            assert float(found[c, t]) == pytest.approx(float(value), rel=1e-9, abs=1e-9)
            assert sympy.Rational(same[c, t]) == value


def test_products_and_reciprocals_obey_algebra():
    rng = np.random.default_rng(0)
    terms = Terms(3, 4)
    a, b, c = rng.normal(size=(3, 5, len(terms)))
    np.testing.assert_allclose(terms.product(a, b), terms.product(b, a))
    left, right = terms.product(terms.product(a, b), c), terms.product(a, terms.product(b, c))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
    a[:, 0] = 2.0
    one = terms.product(a, reciprocal(terms, a, "clamp", 0.1))
    np.testing.assert_allclose(one, terms.constant(np.ones(5)), atol=1e-9)
    x = rng.normal(size=(7, 3)) * 0.1
    by_hand = [(a[0] * (row**terms.exponents).prod(1)).sum() for row in x]
    np.testing.assert_allclose(terms.evaluate(a, x)[0], by_hand)
    assert Terms(0, 3).product(np.array([2.0]), np.array([3.0])).tolist() == [6.0]
    assert len(terms) == 35
    assert len(Terms(3, 2, "each")) == 27
    assert Terms(2, 0).exponents.tolist() == [[0, 0]]
    assert len(Terms(0, 3)) == 1


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(5, 2, 800), "b": rng.normal(-1, 0.5, 800), "c": rng.choice(["u", "v"], 800)})
    y = 10 * X["a"] + 4 * X["a"] * X["b"] + 3 * (X["c"] == "u")
    return CoFrNetRegressor(max_epochs=20, random_state=0, scaling="standard").fit(X, y), X


def test_series_of_an_estimator_is_the_estimator_near_the_centre(fitted):
    """The error falls as the power of the distance that comes after the order: every coefficient up to it is right."""
    model, X = fitted
    row = X.iloc[[4]]
    try:
        model.model_.double()
        for order in (1, 2, 3, 4):
            series = model.power_series(order, center=row, features=["a", "b"])
            errors = [
                series.error(row.assign(a=row["a"] + 2 * step, b=row["b"] - 0.5 * step))["largest"]
                for step in (0.01, 0.005)
            ]
            assert errors[1] < errors[0] / 2 ** (order + 0.7)
        gradient = model.explain_local(row, method="gradient").values[0, 0]
        assert series.terms[(0, 0)] == pytest.approx(model.predict(row)[0], rel=1e-9)
        assert series.terms[(1, 0)] == pytest.approx(gradient[0], rel=1e-9)
        assert series.terms[(0, 1)] == pytest.approx(gradient[1], rel=1e-9)
        assert series.predict(row)[0, 0] == pytest.approx(model.predict(row)[0], rel=1e-9)
    finally:
        model.model_.float()


def test_edges_of_series(fitted):
    model, X = fitted
    assert model.power_series(2, features=["a", "a"]) == model.power_series(2, features=["a"])
    alone = model.power_series(2, features=[])
    assert alone.terms == {(): pytest.approx(float(alone.coefficients[0, 0]))}
    gaps = X.iloc[:5].assign(a=[np.nan, 1, 2, 3, 4])
    assert np.isfinite(model.power_series(1).error(gaps)["largest"])
    with pytest.raises(ValueError, match="misses no value"):
        model.power_series(1).error(gaps[:1])
    several = CoFrNetRegressor(max_epochs=1, n_members=2, n_ladders=2, random_state=0).fit(X[["a"]], X["a"])
    total = several.model_.spec.total_ladders
    first, second = (several.power_series(2, ladder=k) for k in (0, total))
    assert first != second
    with pytest.raises(ValueError, match=f"from 0 to {2 * total - 1}"):
        several.power_series(2, ladder=2 * total)


def test_coefficients_are_in_the_units_of_the_columns(fitted):
    model, X = fitted
    series = model.power_series(2, features=["a", "b"])
    assert series.terms[(1, 1)] == pytest.approx(4, rel=0.3)  # what y was made with
    assert series.variables == ("a", "b")
    np.testing.assert_allclose(series.center, [X["a"].mean(), X["b"].mean()], rtol=1e-6)
    assert series.radius > 0.3
    symbols = sympy.symbols("a b", real=True)
    expression = series.to_sympy(expand=True)
    at = dict(zip(symbols, series.center + 0.1, strict=True))
    assert float(expression.subs(at)) == pytest.approx(series.evaluate([series.center + 0.1])[0, 0], rel=1e-6)
    everything = model.power_series(1)
    assert everything.variables == ("a", "b", "c=u", "c=v")
    assert "c=u" in str(everything)
    assert everything == model.power_series(1)
    assert everything.to_dict()["order"] == 1
    assert everything.to_frame()["term"].tolist()[0] == "1"


def test_one_ladder_and_exact_fractions():
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 2, size=(200, 2))
    model = CoFrNetRegressor(variant="D", ladders_per_feature=1, depth=1, max_epochs=2, random_state=0,
                             solver="adamw", scaling="standard").fit(X, X[:, 0])  # fmt: skip
    whole = model.power_series(2, rational=True)
    floats = model.power_series(2)
    assert all(isinstance(c, Fraction) for c in whole.coefficients.flat)
    np.testing.assert_allclose(whole.coefficients.astype(float), floats.coefficients, rtol=1e-9, atol=1e-12)
    ladder = model.power_series(3, ladder=1, features=["x1"])
    assert ladder.output_names == ("ladder 1",)
    with pytest.raises(ValueError, match="needs its model"):
        ladder.error(X)


def test_series_that_would_take_too_much_memory_are_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 300))
    model = CoFrNetRegressor(max_epochs=1, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="45451 terms of 300 variables"):
        model.power_series(2)
    assert len(model.power_series(2, features=[0, 1, 2]).terms) == 10


def test_several_classes_have_several_polynomials():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    model = CoFrNetClassifier(max_epochs=3, n_ladders=2, random_state=0).fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    series = model.power_series(2)
    assert series.coefficients.shape == (3, 6)
    assert len(series.to_sympy()) == 3
    assert set(series.error(X)) == {"largest", "mean", "r2"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": 2.5}, "order must be an integer"),
        ({"order": -1}, "order must be an integer"),
        ({"center": "zero"}, "center must be"),
        ({"ladder": 10**6}, "ladder must be from 0"),
        ({"order": 300}, r"got \d+ terms and \d+ products for order=300 in 4 variables. Lower the order"),
    ],
)
def test_impossible_series_are_refused(fitted, arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted[0].power_series(**arguments)
    with pytest.raises(ValueError, match="got 2 rows"):
        fitted[0].power_series(center=fitted[1].iloc[:2])


def test_a_clamped_centre_is_said():
    model = CoFrNet(n_features=1, variant="F", n_ladders=1, depth=1, pole="clamp", dtype=torch.float64)
    with torch.no_grad():
        model.full.bias.zero_()
    with pytest.warns(PoleWarning, match="rung 1 of ladder 0 of the full ladders is clamped"):
        model_series(model, Terms(1, 2), np.zeros(1), np.eye(1))

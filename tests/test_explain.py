"""Explanations of fitted estimators: against autograd through the whole estimator, and what must hold among them."""

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.estimators.columns import as_columns, as_given
from cofrnet.explain.data import LocalExplanation, beside

FAST = {"max_epochs": 8, "n_ladders": 4, "ladders_per_feature": 2, "random_state": 0}
CODED = FAST | {"max_categories": 20}


@pytest.fixture(scope="module")
def messy():
    """Numbers with heavy tails, gaps or few values, levels, and a target in units of its own."""
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n).astype(float),
            "income": np.exp(rng.normal(10, 1, n)),
            "city": rng.choice(["Bern", "Oslo", "Rome"], n),
            "member": rng.random(n) > 0.5,
            "rooms": rng.choice([1, 2, 2.5, 4], n),
        }
    )
    frame.loc[rng.random(n) < 0.1, ["age", "rooms"]] = np.nan
    y = 100 * np.sin(frame["age"].fillna(30) / 10) + 5 * np.log(frame["income"]) + 40 * (frame["city"] == "Rome")
    y += 120 * (frame["rooms"] == 2)
    return frame, y.to_numpy() + rng.normal(size=n)


def with_codes(X, y):
    """The table twice, with a number and a text of many values in it that y goes by."""
    X, y, rng = pd.concat([X, X], ignore_index=True), np.concatenate([y, y]), np.random.default_rng(1)
    X.insert(0, "street", [f"street {i}" for i in rng.integers(0, 100, len(X))])
    X.insert(0, "shop", rng.integers(0, 80, len(X)) / 8)
    effects = rng.choice([-200, 200], 200)
    return X, y + effects[(8 * X["shop"]).astype(int)] + effects[[100 + int(s.split()[1]) for s in X["street"]]]


KINDS = ["regression", "two classes", "three classes", "members", "D", "pairs", "clamp", "codes", "codes of classes"]


@pytest.fixture(scope="module", params=KINDS)
def fitted(request, messy):
    X, y = messy
    if "codes" in request.param:
        X, y = with_codes(X, y)
        classify = "classes" in request.param
        model = CoFrNetClassifier(**CODED) if classify else CoFrNetRegressor(**CODED, variant="D")
        model.fit(X, pd.qcut(y, 3, labels=False) if classify else y)
        assert [column.name for column in model.encoder_.columns if column.effects] == ["shop", "street"]
        return model, X
    settings = {
        "D": {"variant": "D"},
        "pairs": {"variant": "D", "interactions": [("age", "income"), ("city", "member")]},
        "clamp": {"variant": "DL", "pole": "clamp"},
        "members": {"n_members": 3},
    }.get(request.param, {})
    if request.param == "two classes":
        return CoFrNetClassifier(**FAST).fit(X, np.where(y > np.median(y), "yes", "no")), X
    if request.param == "three classes":
        return CoFrNetClassifier(**FAST).fit(X, pd.qcut(y, 3, labels=False)), X
    model = CoFrNetRegressor(**FAST, **settings).fit(X, y)
    assert model.encoder_.columns[-1].hats
    return model, X


def scores_of(model, X):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def interpolated(column, value):
    """The inputs of a column in torch operations, for autograd."""
    knots = torch.tensor(column.knots, dtype=torch.float64)
    corners = np.zeros((len(knots), len(column.inputs)))  # all inputs are linear between the knots
    corners[:, 0] = column.values
    hats = slice(1 + column.has_missing, column.first_effect)
    corners[:, hats] = column.height * np.eye(len(knots))[:, list(column.hats)]
    found = between(knots, torch.from_numpy(corners), value)
    if column.codes:
        codes, effects = map(torch.from_numpy, column.effect_map)
        found = torch.cat([found[: column.first_effect], between(codes, effects, value)])
    return found


def between(knots, values, value):
    i = int(torch.searchsorted(knots, value.detach(), right=True).clamp(1, len(knots) - 1))
    if value.detach() < knots[0] or value.detach() > knots[-1]:
        return values[0 if value < knots[0] else -1] + 0 * value
    return values[i - 1] + (value - knots[i - 1]) * (values[i] - values[i - 1]) / (knots[i] - knots[i - 1])


@pytest.mark.parametrize("wide", [True, False])
def test_gradients_are_those_of_autograd_through_the_estimator(fitted, wide):
    model, X = fitted
    X = X.iloc[:12]
    net = model.model_
    X = X.assign(rooms=X["rooms"].where(X["rooms"] != 4, 3.1))  # between the values of training
    try:
        net.to(torch.float64 if wide else torch.float32)
        found = model.explain_local(X, method="gradient")
        x = torch.from_numpy(model.encoder_.encode(model._read(X, reset=False), np.float64))
        net.double()
        for i in range(len(X)):
            for j, column in enumerate(model.encoder_.columns):
                own = model.encoder_.column_inputs[j]
                if not hasattr(column, "knots") or pd.isna(X.iloc[i, j]):
                    assert np.isnan(found.values[i, :, j]).all()
                    continue
                value = torch.tensor(float(X.iloc[i, j]), dtype=torch.float64, requires_grad=True)
                row = torch.cat([x[i, : own[0]], interpolated(column, value), x[i, own[-1] + 1 :]])
                for c, score in enumerate(net(row[None])[0]):
                    (exact,) = torch.autograd.grad(score, value, retain_graph=True)
                    exact = float(exact) * found_scale(model)[c]
                    error = {"rel": 1e-10, "abs": 1e-12} if wide else {"rel": 2e-4, "abs": 1e-5 * found_scale(model)[c]}
                    assert found.values[i, c, j] == pytest.approx(exact, **error)
    finally:
        net.float()


def found_scale(model):
    return getattr(model, "target_scale_", np.ones(model.model_.spec.n_outputs))


@pytest.mark.parametrize("baseline", ["mean", "median", "row", "sample"])
def test_contributions_sum_to_the_score(fitted, baseline):
    model, X = fitted
    rows = {"row": X.iloc[[3]], "sample": X.iloc[10:15]}.get(baseline, baseline)
    found = model.explain_local(X.iloc[:50], baseline=rows)
    scores = scores_of(model, X.iloc[:50]).reshape(50, -1)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-5 * np.abs(scores).max())
    allowed = 1e-4 * np.ptp(np.concatenate([found.scores, found.base_values[None]]))
    assert np.abs(found.values.sum(2) + found.base_values - found.scores).max() <= allowed
    np.testing.assert_allclose(
        found.gap, found.scores - found.base_values - found.values.sum(2), atol=1e-5 * np.abs(scores).max()
    )
    if not isinstance(rows, str):
        expected = scores_of(model, rows).reshape(len(rows), -1).mean(0)
        np.testing.assert_allclose(found.base_values, expected, rtol=1e-4, atol=1e-5)
    if baseline == "row":
        assert np.abs(model.explain_local(rows, baseline=rows).values).max() < 1e-5 * np.abs(scores).max()


def test_a_sample_of_baselines_is_the_mean_over_them(messy):
    X, y = messy
    model = CoFrNetRegressor(**FAST).fit(X, y)
    together = model.explain_local(X[:5], baseline=X[20:23]).values
    alone = [model.explain_local(X[:5], baseline=X[i : i + 1]).values for i in range(20, 23)]
    np.testing.assert_allclose(together, np.mean(alone, axis=0), rtol=1e-3, atol=2e-3)


def test_curves_of_an_additive_model_are_its_contributions(messy):
    X, y = messy
    model = CoFrNetRegressor(**FAST, variant="D").fit(X, y)
    for name in X.columns:
        curve = model.curve(name)
        rows = pd.concat([X.iloc[[0]]] * len(curve.grid), ignore_index=True)
        rows[name] = [v == "True" for v in curve.grid] if name == "member" else curve.grid
        j = X.columns.get_loc(name)
        scale = np.abs(curve.values).max() + 1
        np.testing.assert_allclose(model.explain_local(rows).values[:, 0, j], curve.values[0], atol=1e-5 * scale)
        np.testing.assert_allclose(curve.own, curve.values, atol=1e-4 * scale)
    gaps = X.iloc[:1].assign(age=np.nan)
    missing = model.explain_local(gaps).values[0, 0, 0]
    assert missing == pytest.approx(model.curve("age").missing[0], abs=1e-3)
    assert np.isnan(model.curve("income").missing).all()
    together = model.surface("age", "city")
    assert np.abs(together.values).max() < 1e-3 * np.abs(together.joint).max()


def test_curves_have_bands_density_and_margin(messy):
    X, y = messy
    several = CoFrNetRegressor(**FAST, n_members=3).fit(X, y)
    curve = several.curve("income", X)
    assert ((curve.high - curve.low) > 0).any()
    assert (curve.low <= curve.values).all()
    assert curve.counts.sum() == len(X)
    assert len(curve.edges) == len(curve.counts) + 1
    assert (curve.margin > 0).all()
    assert several.curve("city").grid.tolist() == ["Bern", "Oslo", "Rome"]
    one = CoFrNetRegressor(**FAST).fit(X, y).curve("income")
    np.testing.assert_array_equal(one.low, one.high)


def test_curves_of_codes_are_those_of_values_that_there_are(messy):
    X, y = with_codes(*messy)
    model = CoFrNetRegressor(**CODED | {"max_epochs": 20}).fit(X, y)
    curve = model.curve("shop", points=30)
    assert set(curve.grid) < set(X["shop"])
    means = (y - y.mean() + 0 * X["shop"]).groupby(X["shop"]).mean()
    assert np.corrcoef(curve.values[0], means[curve.grid])[0, 1] > 0.9
    curve = model.curve("street", points=30)
    most = X["street"].value_counts()
    assert len(curve.grid) == len(curve.counts) == 30
    assert list(curve.counts) == list(most[curve.grid])
    assert min(curve.counts) >= most.iloc[30], "the most frequent are shown"
    assert len(model.curve("street", points=500).grid) > 90
    means = (y - y.mean() + 0 * X["shop"]).groupby(X["street"]).mean()
    assert np.corrcoef(curve.values[0], means[curve.grid])[0, 1] > 0.9


def test_importances_find_what_matters():
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(1500, 5)), columns=list("abcde"))
    y = 3 * X["a"] + X["b"] * X["c"] * 2 + 0.01 * rng.normal(size=1500)
    model = CoFrNetRegressor(max_epochs=25, random_state=0).fit(X, y)
    for found in (model.explain_global(), model.explain_global(X)):
        names = [found.feature_names[j] for j in found.order]
        assert names[0] == "a"
        assert set(names[:3]) == {"a", "b", "c"}
        assert found.interactions[0].features == ("b", "c")
        assert found.interactions[0].strength[0] > 4 * found.interactions[1].strength[0]
        assert "mean absolute contribution" in found.definition
        assert "a" in str(found)
    together = model.surface("b", "c", points=9)
    expected = 2 * np.outer(together.first, together.second)
    assert np.corrcoef(together.values[0].ravel(), expected.ravel())[0, 1] > 0.93


def test_columns_of_many_inputs_have_interactions_too():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.integers(0, 30, 3000) for name in "abcde"} | {"x": rng.normal(size=3000)})
    y = 3.0 * np.where((X["a"] > 15) ^ (X["b"] > 15), 1, -1) + 0.1 * rng.normal(size=3000)
    found = CoFrNetRegressor(max_epochs=20, random_state=0).fit(X, y).explain_global(features=[])
    assert found.interactions[0].features == ("a", "b")
    assert {name for pair in found.interactions for name in pair.features} == set(X.columns)


def test_explanations_are_frozen_data(fitted):
    model, X = fitted
    found = model.explain_local(X.iloc[:4])
    with pytest.raises(AttributeError):
        found.values = 0
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 0
    assert found == model.explain_local(X.iloc[:4])
    assert found != model.explain_local(X.iloc[1:5])
    assert found[1:3] == model.explain_local(X.iloc[:4])[1:3]
    overall = model.explain_global(features=["age"])
    assert overall == model.explain_global(features=["age"])
    for explanation in (found, overall, overall.curves[0], *overall.surfaces, model.explain_local(X[:3], "gradient")):
        plain = json.loads(explanation.to_json())
        assert plain == explanation.to_dict()
        assert len(explanation.to_frame()) == len(explanation.to_frame("polars")) > 0
        assert isinstance(explanation.to_frame("polars"), pl.DataFrame)
        assert len(str(explanation)) > 20
    assert set(X.columns) <= set(found.to_frame().columns)
    with pytest.raises(ValueError, match="backend must be"):
        found.to_frame("spark")


def test_shap_draws_our_explanations(fitted):
    matplotlib = pytest.importorskip("matplotlib")
    shap = pytest.importorskip("shap")
    matplotlib.use("Agg")
    model, X = fitted
    theirs = model.explain_local(X.iloc[:20]).to_shap()
    one = theirs if theirs.values.ndim == 2 else theirs[..., 0]
    shap.plots.bar(one, show=False)
    shap.plots.waterfall(one[0], show=False)
    matplotlib.pyplot.close("all")
    total = one.values.sum(1) + one.base_values
    scores = scores_of(model, X.iloc[:20]).reshape(20, -1)[:, 0]
    np.testing.assert_allclose(total, scores, atol=2e-4 * np.ptp(scores))


def test_summary_says_what_the_model_is(fitted):
    model, X = fitted
    text = model.summary()
    assert type(model).__name__ in text
    assert "parameters" in text
    assert all(name in text for name in X.columns)


def test_wide_tables_are_explained_without_their_square():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 400))
    model = CoFrNetRegressor(max_epochs=2, random_state=0).fit(X, X[:, 7])
    found = model.explain_global()
    assert len(found.curves) == 50
    assert found.importances.shape == (1, 400)
    assert len(model.explain_local(X[:3]).values[0, 0]) == 400


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, X: m.explain_local(X, method="shap"), "method must be 'integrated' or 'gradient'"),
        (lambda m, X: m.explain_local(X, baseline="zero"), "baseline must be 'mean', 'median' or rows"),
        (lambda m, X: m.explain_local(X[["age", "income"]]), "feature names"),
        (lambda m, X: m.curve("nothing"), "nothing"),
        (lambda m, X: m.explain_global(features=["nothing"]), "nothing"),
    ],
)
def test_impossible_explanations_are_refused(messy, call, message):
    X, y = messy
    model = CoFrNetRegressor(**{**FAST, "max_epochs": 1}).fit(X, y)
    with pytest.raises(ValueError, match=message):
        call(model, X)


def test_models_in_pickles_explain(messy):
    import pickle

    X, y = messy
    model = CoFrNetRegressor(**{**FAST, "max_epochs": 2}).fit(X, y)
    assert pickle.loads(pickle.dumps(model)).explain_local(X[:3]) == model.explain_local(X[:3])
    assert isinstance(model.explain_local(X[:3]), LocalExplanation)
    plain = CoFrNetClassifier(**{**FAST, "max_epochs": 2}).fit(X[["income"]].to_numpy(), y > 0)
    assert plain.explain_local(X[["income"]].to_numpy()[:3]).feature_names == ("x0",)


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
    model = CoFrNetRegressor(**FAST).fit(X, X["a"] * X["b"] + X["c"])
    usual, ordered = model.explain_global(X), model.explain_global(X.sort_values("a"))
    reach = np.ptp(usual.curve("b").values)
    assert np.abs(usual.curve("b").values - ordered.curve("b").values).max() < 0.15 * reach
    np.testing.assert_array_equal(ordered.curve("b").values, model.curve("b", X.sort_values("a")).values)


def test_parts_that_come_later_are_explained_too():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    model = CoFrNetRegressor(random_state=0, learning_rate=0.5).partial_fit(X, 0.1 * X["a"])
    for _ in range(30):
        model.partial_fit(X, 3 * X["b"])
    assert model.explain_global().order[0] == 1


def test_features_may_have_any_name():
    rng = np.random.default_rng(0)
    names = ["row", "output", "base", "score", "clamped", "values", "high", "low"]
    X = pd.DataFrame(rng.normal(size=(100, len(names))), columns=names)
    model = CoFrNetRegressor(**{**FAST, "max_epochs": 1}).fit(X, X["score"] + X["high"])
    found = model.explain_local(X[:3])
    frame = found.to_frame()
    np.testing.assert_allclose(frame["score (feature)"], found.values[:, 0, 3])
    np.testing.assert_allclose(frame["score"], found.scores[:, 0])
    curve = model.curve("high")
    np.testing.assert_allclose(curve.to_frame()["high (feature)"], curve.grid)
    assert model.surface("values", "joint" if "joint" in names else "low").to_frame().shape[1] == 7


@pytest.mark.parametrize(
    "column", [np.full(60, 1e20), 1.7e18 + 256.0 * (np.arange(60) % 5), np.where(np.arange(60) % 2, 1.7e308, -1.7e308)]
)
def test_extreme_columns_are_explained(column):
    X = pd.DataFrame({"a": column, "b": np.arange(60.0)})
    model = CoFrNetRegressor(**{**FAST, "max_epochs": 2}).fit(X, X["b"])
    assert np.isfinite(model.explain_local(X[:5]).values).all()
    assert np.isfinite(model.curve("a").values).all()


def test_a_model_without_ladders_is_explained():
    X = pd.DataFrame({"c": ["u", "v"] * 40})
    model = CoFrNetRegressor(**FAST, variant="D", pole="clamp").fit(X, (X["c"] == "u").astype(float))
    found = model.explain_local(X[:4])
    assert (found.clamped == 0).all()
    assert np.abs(found.gap).max() < 1e-5
    assert model.power_series(1).terms


def test_explanations_do_not_lend_their_arrays():
    X = np.random.default_rng(0).normal(size=(80, 2))
    model = CoFrNetRegressor(**{**FAST, "max_epochs": 1}).fit(X, X[:, 0])
    assert model.explain_global().importances is not model.profile_.importances
    assert model.profile_.importances.flags.writeable


def test_the_summary_says_that_the_start_was_best():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    model = CoFrNetRegressor(random_state=0, max_epochs=2, learning_rate=30.0).fit(X, X[:, 0])
    assert model.best_epoch_ == -1
    assert "the linear start was best" in model.summary()


def test_targets_of_a_frame_keep_their_names(tmp_path):
    import cofrnet

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = pd.DataFrame({"weight": X[:, 0], "waist": X[:, 1]})
    model = CoFrNetRegressor(**{**FAST, "max_epochs": 1}).fit(X, y)
    assert model.explain_local(X[:2]).output_names == ("weight", "waist")
    assert cofrnet.load(model.save(tmp_path / "m.cofrnet")).explain_global().output_names == ("weight", "waist")


def test_single_ladders_make_up_a_curve(messy):
    X, y = messy
    model = CoFrNetRegressor(**FAST, variant="D", n_members=3).fit(X, y)
    curve, net = model.curve("income"), model.model_
    assert curve.ladders.shape == (1, 3 * FAST["ladders_per_feature"], len(curve.grid))
    place = model.encoder_.column_inputs[1][0]
    z = model.encoder_.columns[1].scaled(curve.grid) - float(model._subject().baseline("mean")[place])
    straight = float(net.linear.detach()[:, 0, place].mean()) * model.target_scale_[0] * z
    scale = np.abs(curve.own).max()
    np.testing.assert_allclose(curve.ladders.sum(1)[0] + straight, curve.own[0], atol=1e-4 * scale)
    assert model.curve("city").ladders.shape[1] == 0


def test_surfaces_have_bands_gaps_density_and_margin(messy):
    X, y = messy
    model = CoFrNetRegressor(**FAST, variant="D", n_members=3, interactions=[("age", "city")]).fit(X, y)
    found = model.surface("age", "city")
    assert np.isnan(found.first[-1])
    assert np.isfinite(found.first[:-1].astype(float)).all()
    assert (found.low <= found.values).all()
    assert (found.high > found.values).any()
    assert (found.margin > 0).all()
    assert sum(found.counts[1]) == len(X)
    assert len(found.edges[0]) == len(found.counts[0]) + 1
    rows = pd.concat([X.iloc[[0]]] * 2, ignore_index=True).assign(age=[np.nan, np.nan], city=["Bern", "Rome"])
    predicted = model.predict(rows)
    differ = found.joint[0, -1, 2] - found.joint[0, -1, 0]  # additive but for the pair: others cancel
    assert predicted[1] - predicted[0] == pytest.approx(differ, rel=1e-3, abs=1e-2)
    assert np.isnan(model.surface("income", "city").margin).all()
    assert CoFrNetRegressor(**FAST).fit(X, y).surface("income", "age").low.shape == (1, 24, 25)


def test_the_mean_row_is_like_rows_that_there_are():
    """A column that is 0 but in a few rows, where it is large: its mean is like none of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    X[:, 1] = np.where(rng.random(2000) < 0.01, rng.choice([1.0, 100.0, 400.0], 2000), 0.0)
    model = CoFrNetRegressor(max_epochs=10, random_state=0).fit(X, X[:, 0] + rng.normal(size=2000))
    subject = model._subject()
    assert subject.middle(0, "mean") == pytest.approx(X[:, 0].mean(), abs=1e-6)
    assert subject.middle(1, "mean") == subject.middle(1, "median") == 0
    importances = model.explain_global().importances[0]
    assert importances[1] < 0.1 * importances[0]
    assert model.explain_local([[0.0, 0.0]]).values.ravel()[1] == pytest.approx(0, abs=1e-4)


def test_missing_levels_are_shown_as_missing():
    levels = pa.array(["a", None, "b", "a"]).dictionary_encode()
    data = as_given(as_columns(pa.table({"level": levels, "number": [1.0, 2.0, 3.0, 4.0]})))
    assert data[:, 0].tolist() == ["a", None, "b", "a"]


@pytest.mark.parametrize(
    ("value", "changes", "text"),
    [
        (1.01926, [0.5], "1.019"),
        (1e9 + 0.004, [-0.0026, 0.1], "1000000000.004"),
        (0.0, [0.0], "0"),
        (1e300, [1e-10], "1e+300"),
        (math.nan, [1.0], "nan"),
        (math.inf, [1.0], "inf"),
        (2.0, [], "2"),
    ],
)
def test_scores_have_digits_that_tell_them_apart(value, changes, text):
    assert beside(value, np.array(changes)) == text

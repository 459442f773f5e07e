"""Effects of the values of a column: their formula, that no row sees its own target, and what they are good for."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

import cofrnet
from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.estimators.effects import FOLDS, effects_explain, out_of_fold, shrunken_means
from cofrnet.estimators.scoring import TableScorer

QUICK = {"max_epochs": 15, "n_ladders": 8, "random_state": 0}


def panel(n=3000, shops=300, spread=1.0, seed=0):
    """Shops with an effect of their own, which their numbers do not tell, beside a column that matters everywhere."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"shop": rng.permutation(10 * shops)[:shops][rng.integers(0, shops, n)], "x": rng.normal(size=n)})
    effects = dict(zip(X["shop"].unique(), spread * rng.normal(size=shops), strict=False))
    return X, X["shop"].map(effects).to_numpy() + X["x"].to_numpy() + 0.3 * rng.normal(size=n)


def test_means_are_drawn_to_the_mean_of_all_by_their_formula():
    rng = np.random.default_rng(0)
    places, y = rng.integers(-1, 20, 500), rng.normal(size=(500, 2))
    y[:, 0] += rng.normal(size=20)[places] * (places >= 0)
    known = y[places >= 0] - y[places >= 0].mean(0)
    groups = {v: known[places[places >= 0] == v] for v in range(20)}
    within = sum(((g - g.mean(0)) ** 2).sum() for g in groups.values()) / (len(known) - 20)
    between = (sum(len(g) * (g.mean(0) ** 2).sum() for g in groups.values()) - 20 * within) / len(known)
    expected = [groups[v].sum(0) / (len(groups[v]) + within / between) for v in range(20)]
    found = shrunken_means(places, y, None, 22)
    np.testing.assert_allclose(found[:20], expected, rtol=1e-10)
    assert (found[20:] == 0).all(), "values of no row"


def test_values_that_decide_all_have_finite_effects():
    places, y = np.arange(80) % 4, np.tile([[1.0], [0.0]], (40, 1))
    np.testing.assert_array_equal(shrunken_means(places, y, None, 5)[:, 0], [0.5, -0.5, 0.5, -0.5, 0.0])
    X = pd.DataFrame({"shop": [f"shop {i}" for i in np.arange(2000) % 100]})
    model = CoFrNetClassifier(**QUICK).fit(X, np.arange(2000) % 2)
    assert model.encoder_.columns[0].effects
    assert np.isfinite(model.predict_proba(pd.DataFrame({"shop": ["new", None, "shop 1"]}))).all()


def test_weights_are_repetitions():
    rng = np.random.default_rng(1)
    places, y, weight = rng.integers(0, 9, 80), rng.normal(size=(80, 1)), rng.integers(1, 4, 80)
    found = shrunken_means(places, y, weight.astype(float), 9)
    np.testing.assert_allclose(found, shrunken_means(places.repeat(weight), y.repeat(weight, axis=0), None, 9))


def test_no_row_has_an_effect_of_its_own_target():
    rng = np.random.default_rng(2)
    places, y, folds = rng.integers(-1, 9, 90), rng.normal(size=(90, 2)), rng.permutation(90) % FOLDS
    found = out_of_fold(places, y, None, 9, folds)
    assert (found[places < 0] == 0).all()
    for i in range(90):
        other = y.copy()
        other[folds == folds[i]] += rng.normal(size=2)
        np.testing.assert_array_equal(out_of_fold(places, other, None, 9, folds)[i], found[i])


@pytest.mark.parametrize("ordered", [True, False])
def test_codes_stand_out_and_noise_does_not(ordered):
    rng = np.random.default_rng(3)
    folds = rng.permutation(2000) % FOLDS
    noise = [(rng.integers(0, 200, 2000), rng.normal(size=(2000, 1))) for _ in range(50)]
    assert not any(effects_explain(places, y, None, 200, folds, ordered) for places, y in noise)
    effects = 0.7 * rng.normal(size=(200, 1))
    assert all(effects_explain(places, y + effects[places], None, 200, folds, ordered) for places, y in noise)
    curve = 2 * np.sin(np.arange(200) / 30)[:, None]
    smooth = [effects_explain(places, y + curve[places], None, 200, folds, ordered) for places, y in noise]
    assert not any(smooth) if ordered else all(smooth), "what neighbours share is for a curve"


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_columns_of_many_codes_are_learnt(kind):
    X, y = panel()
    if kind == "texts":
        X["shop"] = "shop " + X["shop"].astype(str)
    model = CoFrNetRegressor(**QUICK).fit(X[:2000], y[:2000])
    assert [bool(column.effects) for column in model.encoder_.columns] == [True, False]
    assert r2_score(y[2000:], model.predict(X[2000:])) > 0.85
    several = CoFrNetClassifier(**QUICK).fit(X[:2000], np.digitize(y[:2000], [-1, 1]))
    assert len(several.encoder_.columns[0].effects[0]) == 3
    assert several.score(X[2000:], np.digitize(y[2000:], [-1, 1])) > 0.75


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_codes_without_effects_have_none(kind):
    X, y = panel(spread=0.0)
    if kind == "texts":
        X["shop"] = "shop " + X["shop"].astype(str)
    model = CoFrNetRegressor(**QUICK).fit(X[:2000], y[:2000])
    assert not any(column.effects for column in model.encoder_.columns)
    rng = np.random.default_rng(0)
    smooth = pd.DataFrame({"x": rng.integers(0, 300, 3000)})
    model = CoFrNetRegressor(**QUICK).fit(smooth, np.sin(smooth["x"] / 40) + 0.1 * rng.normal(size=3000))
    assert not model.encoder_.columns[0].effects


def test_values_never_seen_have_no_effect():
    X, y = panel()
    model = CoFrNetRegressor(**QUICK).fit(X, y)
    column = model.encoder_.columns[0]
    unseen = [-1e9, 1e9, np.nan, *sorted(set(range(3000)) - set(X["shop"]))]
    assert (column.at(unseen)[:, column.first_effect] == 0).all()
    known = np.array(column.codes)
    np.testing.assert_allclose(column.at(known)[:, column.first_effect], np.array(column.effects)[:, 0], rtol=1e-6)
    fractions = replace(column, codes=tuple((known / 7).tolist()))
    rounded = fractions.at((known / 7).astype(np.float32))[:, column.first_effect]
    np.testing.assert_array_equal(rounded, column.at(known)[:, column.first_effect])
    assert (column.slopes(known)[:, column.first_effect] == 0).all()
    texts = X.assign(shop="shop " + X["shop"].astype(str))
    model = CoFrNetRegressor(**QUICK).fit(texts, y)
    column = model.encoder_.columns[0]
    inputs = model.encoder_.encode(model._read(texts[:1].assign(shop="new"), reset=False))[0]
    assert inputs[column.first_effect] == 0
    assert inputs[column.place_of_other] == 1


def test_levels_called_other_have_no_effect_to_give_away():
    rng = np.random.default_rng(0)
    shop = rng.integers(0, 200, 4000)
    X = pd.DataFrame({"shop": np.where(rng.random(4000) < 0.2, "other", [f"shop {i}" for i in shop])})
    y = np.where(X["shop"] == "other", 5.0, rng.normal(size=200)[shop]) + 0.1 * rng.normal(size=4000)
    model = CoFrNetRegressor(**QUICK).fit(X, y)
    column = model.encoder_.columns[0]
    assert column.effects[column.place_of_other] == (0.0,)
    assert model.predict(pd.DataFrame({"shop": ["other"]}))[0] == pytest.approx(5, abs=0.5), "it has its input"


def test_levels_without_inputs_stand_out_by_themselves():
    rng = np.random.default_rng(0)
    level = np.concatenate([rng.integers(0, 64, 2100), np.repeat(np.arange(64, 164), 4)])
    y = rng.normal(size=164)[level] + 0.5 * rng.normal(size=2500)
    X = pd.DataFrame({"name": [f"n{i}" for i in level]})
    assert CoFrNetRegressor(**QUICK).fit(X, y).encoder_.columns[0].effects


@pytest.mark.parametrize("kind", ["parts", "warm start"])
def test_other_codes_later_do_no_harm_to_explanations(kind):
    X, y = panel(n=600, shops=60)
    other = pd.concat([X, X], ignore_index=True).assign(shop=lambda t: t["shop"] + 5000)
    if kind == "parts":
        model = CoFrNetRegressor(random_state=0).partial_fit(X, y).partial_fit(other, np.concatenate([y, y]))
    else:
        model = CoFrNetRegressor(**QUICK, warm_start=True).fit(X, y).fit(other, np.concatenate([y, y]))
    assert model.encoder_.columns[0].effects
    assert set(model.curve("shop").grid) <= set(X["shop"])
    assert model.summary()


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_the_mean_row_has_the_mean_effect(kind):
    X, y = panel()
    if kind == "texts":
        X["shop"] = "shop " + X["shop"].astype(str)
    model = CoFrNetRegressor(**QUICK, variant="D").fit(X, y)
    found = model.explain_local(X)
    np.testing.assert_allclose(found.values.mean(0), 0, atol=0.15 * found.values.std(0).max())


def test_going_on_sees_no_own_target_either():
    X, y = panel(n=1500, shops=500)
    model = CoFrNetRegressor(**QUICK, warm_start=True).fit(X[:1000], y[:1000])
    before = r2_score(y[1000:], model.predict(X[1000:]))
    for _ in range(3):
        model.fit(X[:1000], y[:1000])
    assert r2_score(y[1000:], model.predict(X[1000:])) > before - 0.05


def test_parts_learn_effects_of_the_first():
    X, y = panel()
    model = CoFrNetRegressor(random_state=0, learning_rate=0.1).partial_fit(X[:1500], y[:1500])
    effects = model.encoder_.columns[0].effects
    for start in range(0, 1000, 100):
        model.partial_fit(X[1500 + start : 1600 + start], y[1500 + start : 1600 + start])
    assert model.encoder_.columns[0].effects == effects
    assert r2_score(y[2500:], model.predict(X[2500:])) > 0.6


def test_monotone_columns_have_no_effects():
    X, y = panel()
    model = CoFrNetRegressor(**QUICK, monotonic_cst={"shop": 1}).fit(X, y)
    assert not model.encoder_.columns[0].effects
    grid = X[:200].assign(shop=np.linspace(-100, 4000, 200), x=0.0)
    free = CoFrNetRegressor(**QUICK, warm_start=True).fit(X, y)
    assert free.encoder_.columns[0].effects
    free.set_params(monotonic_cst={"shop": 1}).fit(X, y)
    assert (np.diff(free.predict(grid)) >= -1e-6).all(), "those of the fit before are put on the shelf"


def test_the_same_seed_gives_the_same_effects_and_files_keep_them(tmp_path):
    X, y = panel()
    X["street"] = "street " + (X["shop"] // 20).astype(str)
    models = [CoFrNetRegressor(**QUICK).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))
    assert all(column.effects for column in (models[0].encoder_.columns[0],))
    path = models[0].save(tmp_path / "m.cofrnet")
    again = cofrnet.load(path)
    assert again.encoder_ == models[0].encoder_
    np.testing.assert_array_equal(again.predict(X), models[0].predict(X))
    import pyarrow as pa

    np.testing.assert_allclose(TableScorer.read(path).predict(pa.Table.from_pandas(X)), again.predict(X), atol=1e-4)


def test_weights_count_in_effects():
    X, y = panel(n=2000, shops=60)
    other = X["shop"] * 0 + np.random.default_rng(0).normal(size=len(X)) * 3
    both = pd.concat([X, X], ignore_index=True)
    weight = np.concatenate([np.ones(len(X)), np.full(len(X), 1e-9)])
    model = CoFrNetRegressor(**QUICK, early_stopping=False).fit(both, np.concatenate([y, other]), sample_weight=weight)
    alone = CoFrNetRegressor(**QUICK, early_stopping=False).fit(X, y)
    found, wanted = (np.array(m.encoder_.columns[0].effects)[:, 0] * m.encoder_.columns[0].unit for m in (model, alone))
    np.testing.assert_allclose(found * model.target_scale_, wanted * alone.target_scale_, rtol=0.05, atol=0.02)


def test_files_with_strange_effects_are_refused(tmp_path):
    from cofrnet.errors import ModelFileError
    from cofrnet.estimators.contents import read_column
    from cofrnet.files import Fields

    numeric = {"name": "a", "knots": [0, 1], "values": [0, 1], "bounded": True, "has_missing": False, "unit": 1}
    levels = {"name": "a", "levels": ["u", "other", "v"], "frequent": 2, "unit": 1}
    read_column(Fields({**numeric, "codes": [0, 1], "effects": [[1], [2]]}, "here"))
    read_column(Fields({**levels, "effects": [[1], [2], [3]]}, "here"))
    for strange in (
        {**numeric, "codes": [1, 0], "effects": [[1], [2]]},
        {**numeric, "codes": [0, 1], "effects": [[1]]},
        {**numeric, "codes": [0, 1], "effects": [[1], [2, 3]]},
        {**numeric, "codes": [0, 1], "effects": [[1], ["x"]]},
        {**numeric, "codes": [0, 1]},
        {**numeric, "codes": [0, 1], "effects": [[1], [2]], "unit": 0},
        {**levels, "effects": [[1], [2]]},
        {**levels, "effects": [[1], [2], [3]], "frequent": 1},
        {**levels, "effects": [[1], [2], [3]], "frequent": 9},
        {**levels, "effects": [[], [], []]},
    ):
        with pytest.raises(ModelFileError):
            read_column(Fields(strange, "here"))

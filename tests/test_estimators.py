"""The estimators on messy tables, on nonsense, and inside scikit-learn's tools."""

import datetime as dt
import pickle
import pkgutil
import signal
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from sklearn import set_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight

from cofrnet import CoFrNetClassifier, CoFrNetRegressor, load
from cofrnet.estimators.defaults import N_LADDERS
from cofrnet.estimators.interactions import stands_out
from cofrnet.training import FitInterruptedWarning
from tests.tolerances import PLACES

QUICK = {"n_ladders": 8, "ladders_per_feature": 4, "max_epochs": 15, "random_state": 0}


def messy(n=600, seed=0):
    """A table with numbers, heavy tails, missing values, text, bools and a date, and a target that uses them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "income": rng.lognormal(8, 2, n),
            "city": rng.choice(["Rome", "Oslo", "Lima"], n),
            "member": rng.random(n) < 0.5,
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    logit = (
        (frame["age"] - 50) / 15 + 2.0 * (frame["city"] == "Oslo") - frame["member"] + (np.log(frame["income"]) - 8) / 2
    )
    frame.loc[rng.random(n) < 0.15, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "city"] = None
    y = np.where(logit + rng.logistic(0, 0.5, n) > 0, "yes", "no")
    return frame, y, logit.to_numpy()


def test_classifier_on_a_messy_frame():
    X, y, _ = messy(1500)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = CoFrNetClassifier(random_state=0).fit(X_train, y_train)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.score(X_test, y_test) > 0.8
    probabilities = model.predict_proba(X_test)
    assert probabilities.sum(1) == pytest.approx(1)
    scores = model.decision_function(X_test)
    assert 1 / (1 + np.exp(-scores)) == pytest.approx(probabilities[:, 1])
    assert (model.predict(X_test) == np.where(scores > 0, "yes", "no")).all()
    assert log_loss(y_test, probabilities) < 0.4


def test_pandas_and_polars_give_the_same_model():
    X, y, _ = messy()
    one = CoFrNetClassifier(**QUICK).fit(X, y)
    two = CoFrNetClassifier(**QUICK).fit(pl.from_pandas(X), pl.Series(y))
    assert np.array_equal(one.decision_function(X), two.decision_function(pl.from_pandas(X)))


def test_regressor_on_a_messy_frame_and_several_targets():
    X, _, target = messy(1500)
    target = 1000 + 50 * target
    rows = train_test_split(np.arange(1500), random_state=0)
    model = CoFrNetRegressor(random_state=0).fit(X.iloc[rows[0]], target[rows[0]])
    assert model.score(X.iloc[rows[1]], target[rows[1]]) > 0.7
    both = np.column_stack([target, -2 * target])
    model = CoFrNetRegressor(random_state=0).fit(X.iloc[rows[0]], both[rows[0]])
    assert model.predict(X).shape == (1500, 2)
    assert model.score(X.iloc[rows[1]], both[rows[1]]) > 0.7


def test_multiclass_with_string_labels():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = CoFrNetClassifier(random_state=0).fit(X, names)
    assert model.score(X, names) > 0.93
    assert model.predict_proba(X).shape == (150, 3)
    assert model.decision_function(X).shape == (150, 3)


def test_better_than_a_line_where_there_is_a_curve():
    X, y = make_friedman1(1500, noise=0.5, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    assert CoFrNetRegressor(random_state=0).fit(X_train, y_train).score(X_test, y_test) > 0.9


def test_not_worse_than_a_line_where_there_is_nothing_else():
    X, y = load_breast_cancer(return_X_y=True)
    ours = cross_val_score(CoFrNetClassifier(random_state=0), X, y, cv=4).mean()
    line = cross_val_score(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), X, y, cv=4).mean()
    assert ours > line - 0.02


@pytest.mark.parametrize("variant", ["S", "D", "DL", "F"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
def test_every_variant_and_pole(variant, pole):
    X, y, _ = messy()
    model = CoFrNetClassifier(**{**QUICK, "variant": variant, "pole": pole}).fit(X, y)
    assert model.score(X, y) > 0.75
    assert ("clamped" in model.history_) == (pole == "clamp")
    assert set(model.history_) >= {"loss", "validation_loss", "accuracy", "learning_rate"}
    assert model.n_iter_ == 15


def test_members_are_one_model_and_better_on_average():
    X, y = make_friedman1(900, noise=1.0, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = CoFrNetRegressor(**{**QUICK, "n_members": 4, "bootstrap": True}).fit(X_train, y_train)
    x = model._inputs(X_test)[0]
    scaled = (y_test - model.target_mean_) / model.target_scale_
    with torch.no_grad():
        members = torch.stack([model.model_.member(i)(x) for i in range(4)]).squeeze(-1)  # (4, n)
        torch.testing.assert_close(members.mean(0), model.model_(x).squeeze(-1), rtol=1e-5, atol=1e-5)
    assert members.std(0).mean() > 0.01, "members differ"
    errors = ((members.numpy() - scaled) ** 2).mean(1)
    assert ((members.mean(0).numpy() - scaled) ** 2).mean() < errors.mean()


def test_members_left_to_us_are_many_where_rows_are_few():
    X, y = make_friedman1(3000, noise=1.0, random_state=0)
    few = CoFrNetRegressor(random_state=0).fit(X[:300], y[:300])
    assert few.n_members == "auto"
    assert few.model_.spec.n_members == 8
    one = CoFrNetRegressor(n_members=1, random_state=0).fit(X[:300], y[:300])
    assert few.score(X[1000:], y[1000:]) > one.score(X[1000:], y[1000:])
    solved = CoFrNetRegressor(solver="least_squares", variant="F", n_ladders=1).fit(X[:300], y[:300])
    assert solved.model_.spec.n_members == 1
    boosted = CoFrNetRegressor(max_epochs=4, strategy="boosted").fit(X[:300], y[:300])
    assert boosted.model_.spec.n_members == 4, "its groups"
    assert CoFrNetRegressor().partial_fit(X[:300], y[:300]).model_.spec.n_members == 1
    for settings, members in [
        ({"variant": "D", "n_ladders": 1}, 8),
        ({"variant": "F", "ladders_per_feature": 1}, 8),
        ({"n_ladders": N_LADDERS - 1}, 1),
        ({"variant": "D", "ladders_per_feature": 2}, 1),
    ]:
        model = CoFrNetRegressor(max_epochs=1, **settings).fit(X[:300], y[:300])
        assert model.model_.spec.n_members == members, settings


def test_patience_of_members_is_that_of_their_mean():
    X, y = make_friedman1(300, noise=3.0, random_state=0)
    model = CoFrNetRegressor(n_iter_no_change=4, random_state=0).fit(X, y)
    losses = model.history_["validation_loss"]
    assert model.model_.spec.n_members == 8
    assert model.n_iter_ < 50
    assert model.best_epoch_ == int(np.argmin(losses)) == model.n_iter_ - 5


def test_rows_are_held_out_in_turn():
    y = np.repeat([0, 1, 2, 3], [200, 40, 10, 9])
    rng = np.random.RandomState(0)
    held = CoFrNetClassifier()._held_in_turn(rng.permutation(y), 8, np.random.RandomState(1)).numpy()
    labels = np.random.RandomState(0).permutation(y)
    assert held.shape == (len(y), 8)
    assert held.sum(1).max() == 1, "no row is held out by two"
    for label, each in ((0, 20), (1, 4), (2, 1), (3, 0)):  # those of a class that are fewer than the parts by none
        assert held[labels == label].sum(0).tolist() == [each] * 8
    for share in (0.05, 0.25, 0.3, 0.9):
        numbers = CoFrNetRegressor(validation_fraction=share)
        held = numbers._held_in_turn(np.zeros(200), 6, rng)
        assert held.sum(0).tolist() == [round(200 * share)] * 6
        assert (held.sum(1).max() > 1) == (6 * share > 1)
    assert numbers._held_in_turn(np.zeros(39), 8, rng) is None
    for heavy in ([0], range(0, 200, 50)):  # of which some member would have none, or nothing else
        weight = np.ones(200)
        weight[heavy] = 1e60
        assert numbers._held_in_turn(np.zeros(200), 8, rng, weight) is None
    assert CoFrNetRegressor(early_stopping=False)._held_in_turn(np.zeros(500), 8, rng) is None
    assert CoFrNetClassifier()._held_in_turn(np.arange(40) % 20, 8, rng) is None


@pytest.mark.parametrize("more", [{}, {"monotonic_cst": {"income": 1}}, {"bootstrap": True}, {"interactions": 2}])
def test_members_of_a_messy_frame_go_on(more):
    X, y, _ = messy(400)
    weight = np.where(np.arange(400) % 7 == 0, 0.0, 1.0 + np.arange(400) % 2)
    model = CoFrNetClassifier(max_epochs=15, random_state=0, warm_start=True, **more).fit(X, y, sample_weight=weight)
    assert model.model_.spec.n_members == 8
    before = log_loss(y, model.predict_proba(X))
    assert log_loss(y, model.fit(X, y, sample_weight=weight).predict_proba(X)) < before + 0.02
    assert before < 0.9 * np.log(2)
    if "monotonic_cst" in more:
        rows = pd.concat([X.iloc[[3]]] * 50).assign(income=np.geomspace(1, 1e6, 50))
        assert (np.diff(model.decision_function(rows)) >= -1e-9).all()


def test_same_seed_same_model_other_seed_other_model():
    X, y, _ = messy()
    state = torch.get_rng_state()
    one, two, other = (
        CoFrNetClassifier(**{**QUICK, "dropout": 0.1, "random_state": seed}).fit(X, y).decision_function(X)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("parameters", [{}, {"n_members": 3}, {"interactions": 2}, {"variant": "F"}])
def test_a_row_alone_scores_as_among_others(parameters):
    X, y, _ = messy(250)
    model = CoFrNetClassifier(**QUICK | parameters).fit(X, y)
    together = model.decision_function(X)
    np.testing.assert_allclose([model.decision_function(X.iloc[[i]])[0] for i in range(20)], together[:20], **PLACES)
    np.testing.assert_allclose(model.decision_function(X.iloc[100:200]), together[100:200], **PLACES)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_fits_where_torch_takes_no_gradients(context):
    X, y, _ = messy(200)
    expected = CoFrNetClassifier(**QUICK).fit(X, y).predict_proba(X)
    with context():
        fitted = CoFrNetClassifier(**QUICK).fit(X, y)
        assert fitted.explain_local(X[:5]).values.shape == (5, 1, X.shape[1])
    np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    fitted.partial_fit(X, y)


def test_pickle_joblib_and_clone(tmp_path):
    X, y, _ = messy()
    model = CoFrNetClassifier(**QUICK).fit(X, y)
    expected = model.decision_function(X)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).decision_function(X), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    assert np.array_equal(joblib.load(tmp_path / "model.joblib").decision_function(X), expected)
    assert not hasattr(clone(model), "model_")
    assert clone(model).get_params() == model.get_params()


def test_tools_of_scikit_learn():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), CoFrNetClassifier(**QUICK))
    assert pipeline.fit(X, y).score(X, y) > 0.8
    search = GridSearchCV(CoFrNetClassifier(**QUICK), {"depth": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["depth"] in (1, 2)
    calibrated = CalibratedClassifierCV(CoFrNetClassifier(**QUICK), cv=2).fit(X, y)
    assert calibrated.predict_proba(X).shape == (150, 3)
    set_config(enable_metadata_routing=True)
    try:
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, CoFrNetClassifier(**QUICK).set_fit_request(sample_weight=True))
        routed.fit(X, y, sample_weight=np.ones(150))
    finally:
        set_config(enable_metadata_routing=False)


def test_class_weight_moves_the_decision():
    X, y, _ = messy()
    shares = [
        (CoFrNetClassifier(**QUICK, class_weight=weight).fit(X, y).predict(X) == "yes").mean()
        for weight in ({"yes": 0.1, "no": 1}, None, {"yes": 10, "no": 1})
    ]
    assert shares[0] < shares[1] < shares[2]
    CoFrNetClassifier(**QUICK, class_weight="balanced").fit(X, y)


def test_validation_rows_can_be_given():
    X, y, _ = messy()
    model = CoFrNetClassifier(**QUICK).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    assert model.score(X[400:], y[400:]) > max(model.history_["accuracy"]) - 0.05


@pytest.mark.parametrize("how", ["warm start", "partial fit", "anew"])
def test_a_fit_that_fails_harms_nothing(how):
    X, y, _ = messy(300)
    model = CoFrNetClassifier(**QUICK, warm_start=how == "warm start")
    fit = model.fit
    if how == "partial fit":
        fit = model.partial_fit
        fit(X, y, ["no", "yes"])
    else:
        fit(X, y)
    before, known = model.predict_proba(X), {name for name in vars(model) if name.endswith("_")}
    bad = X.assign(age=np.inf)
    with pytest.raises(ValueError, match="age"):
        fit(bad, y)

    def fails(epoch):
        raise ValueError("not finite")

    model.set_params(learning_rate=1e30, callbacks=[fails])  # a pass of partial_fit has no callbacks
    with pytest.raises(ValueError, match="finite"):
        fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert {name for name in vars(model) if name.endswith("_")} == known


def test_ctrl_c_outside_the_epochs_harms_nothing(monkeypatch):
    X, y = make_friedman1(200, random_state=0)
    model = CoFrNetRegressor(**QUICK).fit(X, y)
    before = model.predict(X)

    def interrupted(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(CoFrNetRegressor, "_linear_model", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(100 * X, 50 * y + 7)
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("where", ["cofrnet.training.loop._Run.finish", "cofrnet.explain.overall.importances"])
def test_ctrl_c_after_the_epochs_keeps_the_model(where, monkeypatch):
    X, y = make_friedman1(200, random_state=0)
    whole = CoFrNetRegressor(**QUICK).fit(X, y)
    real = pkgutil.resolve_name(where)

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(where, interrupted)
    with pytest.warns(FitInterruptedWarning, match="its training was over; the model is kept"):
        model = CoFrNetRegressor(**QUICK).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    np.testing.assert_array_equal(model.explain_global().importances, whole.explain_global().importances)


@pytest.mark.parametrize("parameters", [{"strategy": "boosted"}, {"strategy": "rungwise"}, {"interactions": 2}])
def test_ctrl_c_ends_every_stage(parameters, monkeypatch):
    X, y = make_friedman1(300, random_state=0)
    epochs = []

    def interrupt(self, number):
        epochs.append(number)
        raise KeyboardInterrupt

    monkeypatch.setattr("cofrnet.training.loop._Run.epoch", interrupt)
    with pytest.warns(FitInterruptedWarning):
        model = CoFrNetRegressor(**QUICK, **parameters).fit(X, y)
    assert epochs == [0]
    assert np.isfinite(model.predict(X)).all()


def test_a_first_pass_that_fails_leaves_nothing():
    X, y, _ = messy(300)
    model = CoFrNetClassifier(**QUICK)
    with pytest.raises(ValueError, match="age"):
        model.partial_fit(X.assign(age=np.inf), y, ["no", "yes"])
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not hasattr(model, "classes_")
    model.partial_fit(X, y, ["no", "yes"]).partial_fit(X, y, ["yes", "no"])
    with pytest.raises(ValueError, match=r"classes must be those of the first call .* got \['no', 'perhaps'\]"):
        model.partial_fit(X, y, ["no", "perhaps"])


def test_parts_have_the_pairs_that_are_asked_for():
    X, y = make_friedman1(400, random_state=0)
    assert CoFrNetRegressor(**QUICK, variant="D", interactions=[(0, 1)]).partial_fit(X, y).pairs_ == [(0, 1)]
    assert CoFrNetRegressor(**QUICK, variant="D", interactions=1).partial_fit(X, y).pairs_ == [(0, 1)]


@pytest.mark.parametrize("class_weight", ["balanced", {"no": 0.3, "yes": 2.0}])
def test_rows_to_stop_by_have_the_weights_of_their_classes(class_weight):
    X, y, _ = messy(600)
    rare = np.flatnonzero((y == "yes") | (np.arange(600) % 3 > 0))
    model = CoFrNetClassifier(**QUICK, class_weight=class_weight)
    model.fit(X.iloc[rare[:300]], y[rare[:300]], X_val=X.iloc[rare[300:]], y_val=y[rare[300:]])
    weight = compute_class_weight(class_weight, classes=model.classes_, y=y[rare[:300]])
    expected = log_loss(
        y[rare[300:]], model.predict_proba(X.iloc[rare[300:]]), sample_weight=weight[(y[rare[300:]] == "yes") * 1]
    )
    assert model.history_["validation_loss"][model.best_epoch_] == pytest.approx(expected, rel=1e-4)


def test_warm_start_goes_on():
    X, y = make_friedman1(400, random_state=0)
    model = CoFrNetRegressor(**QUICK, warm_start=True).fit(X, y)
    encoder, first = model.encoder_, model.history_["loss"][0]
    model.fit(X, y)
    assert model.encoder_ is encoder
    assert model.history_["loss"][0] < 0.9 * first


def test_checkpoint_is_written_and_resumed(tmp_path):
    X, y, _ = messy()
    path = tmp_path / "fit.ckpt"
    whole = CoFrNetClassifier(**QUICK).fit(X, y).decision_function(X)

    def interrupt(epoch):
        if epoch.number == 6:
            raise KeyboardInterrupt

    with pytest.warns(FitInterruptedWarning):
        CoFrNetClassifier(**QUICK, checkpoint=path, callbacks=[interrupt]).fit(X, y)
    resumed = CoFrNetClassifier(**QUICK, checkpoint=path).fit(X, y)
    assert resumed.n_iter_ == 15
    assert np.array_equal(resumed.decision_function(X), whole)
    with pytest.raises(ValueError, match="must belong to the same data and settings"):
        CoFrNetClassifier(**QUICK, checkpoint=path).fit(X, y[::-1])


def test_a_checkpoint_needs_no_random_state_and_takes_any_loss(tmp_path):
    X, y = make_friedman1(300, random_state=0)

    def make(stopped):
        def loss(scores, y):  # another function each time, as in another process
            return (scores - y.unsqueeze(1)).abs().mean(-1)

        def interrupt(epoch):
            if stopped and epoch.number == 3:
                raise KeyboardInterrupt

        options = QUICK | {"random_state": None, "loss": loss, "max_epochs": 6}
        return CoFrNetRegressor(**options, checkpoint=tmp_path / "fit.ckpt", callbacks=[interrupt])

    with pytest.warns(FitInterruptedWarning):
        first = make(True).fit(X, y)
    resumed = make(False).fit(X, y)
    assert resumed.n_iter_ == 6
    assert resumed.history_["loss"][: first.n_iter_] == first.history_["loss"]
    assert np.array_equal(make(False).fit(X, y).predict(X), resumed.predict(X))


SMALL = {"variant": "F", "n_ladders": 2, "depth": 2, "random_state": 0}


def test_training_goes_on_from_least_squares():
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = X[:, 0] ** 2 + X[:, 1]
    model = CoFrNetRegressor(**SMALL).fit(X, y)
    assert model.model_.head.dtype == torch.float64
    assert model.partial_fit(X, y).score(X, y) > 0.9
    model = CoFrNetRegressor(**SMALL, warm_start=True, solver="least_squares").fit(X, y)
    assert model.set_params(solver="adamw", max_epochs=2).fit(X, y).score(X, y) > 0.9


def test_least_squares_ignores_nothing_that_is_asked_for(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 2))
    epochs = []
    model = CoFrNetRegressor(**SMALL, max_epochs=3, callbacks=[lambda epoch: epochs.append(epoch.number)])
    model.fit(X, X[:, 0])
    assert epochs == [0, 1, 2]
    with pytest.raises(ValueError, match="solver must be 'adamw' or 'auto' with callbacks"):
        model.set_params(solver="least_squares").fit(X, X[:, 0])
    asked = [
        {"max_epochs": 2},
        {"learning_rate": 0.01},
        {"weight_decay": 1.0},
        {"dropout": 0.1},
        {"n_iter_no_change": 2},
    ]
    for parameters in asked:
        assert CoFrNetRegressor(**SMALL, **parameters).fit(X, X[:, 0]).model_.head.dtype == torch.float32
    model = CoFrNetRegressor(**SMALL, solver="least_squares", warm_start=True).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="solver must be 'adamw' to go on from the model there is"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"must have few parameters.* got \d+ of them and 5000 rows"):
        CoFrNetRegressor(solver="least_squares").fit(np.zeros((5000, 10)) + np.arange(5000)[:, None], np.arange(5000.0))


def test_rows_without_weight_say_nothing_of_pairs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    first = np.arange(2000) < 1000
    y = np.where(first, X[:, 0] * X[:, 1], 3 * X[:, 2] * X[:, 3])
    model = CoFrNetRegressor(**QUICK, interactions=1).fit(X, y, sample_weight=first.astype(float))
    assert model.pairs_ == [(0, 1)]


def test_the_linear_start_reads_all_of_a_sorted_table():
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(30_000, 1)), axis=0)
    y = (X[:, 0] > 0.7).astype(int)
    still = {"learning_rate": 1e-9, "weight_decay": 0, "early_stopping": False, "max_epochs": 1}
    model = CoFrNetClassifier(variant="D", **still, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.95


def test_pairs_of_an_earlier_fit_are_forgotten():
    X, y = crossed(300)
    model = CoFrNetRegressor(**QUICK, interactions=2).fit(X, y)
    name = X.columns[model.pairs_[0][0]]
    assert all(X.columns.get_loc(name) not in p for p in model.set_params(monotonic_cst={name: 1}).fit(X, y).pairs_)


def test_targets_without_validation_rows_are_refused():
    X, y, _ = messy(100)
    with pytest.raises(ValueError, match="X_val and y_val must be given together"):
        CoFrNetClassifier(**QUICK).fit(X, y, y_val=y)


@pytest.mark.parametrize(
    "loss", ["squared_error", "absolute_error", "huber", lambda s, y: (s - y.unsqueeze(1)).pow(4).mean(-1)]
)
def test_regression_losses(loss):
    X, y = make_friedman1(300, random_state=0)
    assert CoFrNetRegressor(**QUICK, loss=loss).fit(X, y).score(X, y) > 0.5


def test_progress_bar_only_when_asked(capsys):
    X, y, _ = messy()
    CoFrNetClassifier(**QUICK).fit(X, y)
    assert capsys.readouterr() == ("", "")
    CoFrNetClassifier(**QUICK, verbose=1).fit(X, y)
    assert "epoch 15 of 15" in capsys.readouterr().err


ONES = np.ones((30, 2))
GOOD = np.arange(60.0).reshape(30, 2)
BINARY = np.tile([0, 1], 15)


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        (np.empty((0, 2)), np.empty(0), ValueError, "0 sample"),
        (np.empty((30, 0)), BINARY, ValueError, "0 feature"),
        (pd.DataFrame({"a": []}), [], ValueError, "at least one row and one column"),
        (GOOD, np.zeros(30), ValueError, "two classes or more; got one class"),
        (GOOD, np.where(BINARY == 1, np.nan, 0.0), ValueError, "y must be finite numbers; got nan in row [0-9]"),
        (GOOD, np.where(BINARY == 1, np.inf, 0.0), ValueError, "y must be finite numbers; got inf in row [0-9]"),
        (GOOD, BINARY[:20], ValueError, "inconsistent numbers of samples: 30 and 20"),
        (
            np.where(GOOD == 7, np.inf, GOOD),
            BINARY,
            ValueError,
            r"column 'x1' must hold finite numbers .* got inf in row 3",
        ),
        (pd.DataFrame({"a": [{}] * 30}), BINARY, TypeError, "column 'a' must hold strings"),
        (scipy.sparse.csr_matrix(GOOD), BINARY, TypeError, "[Ss]parse"),
        (GOOD[:1], [0], ValueError, "one class"),
        (GOOD, None, ValueError, "y must be given"),
        (GOOD[:, 0], BINARY, ValueError, "Expected 2D array"),
        (GOOD + 1j, BINARY, ValueError, "Complex data not supported"),
    ],
)
def test_nonsense_gets_a_clear_error(X, y, error, message):
    with pytest.raises(error, match=message):
        CoFrNetClassifier(**QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(30, np.nan), "y must be finite numbers; got nan in row [0-9]"),
        (np.full(30, np.inf), "y must be finite numbers; got inf in row [0-9]"),
        (["1"] * 7 + ["a"] * 23, "y must be finite numbers; got 'a' in row 7"),
    ],
)
def test_nonsense_targets_of_a_regression(y, message):
    with pytest.raises(ValueError, match=message):
        CoFrNetRegressor(**QUICK).fit(GOOD, y)
    with pytest.raises(ValueError, match="n_samples=1"):
        CoFrNetRegressor(**QUICK).fit(GOOD[:1], [1.0])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.where(BINARY == 1, -1.0, 1.0), "sample_weight must be 0 or more; got -1 in row 1"),
        (np.zeros(30), "sample_weight must not be zero for every row"),
        (np.ones(29), r"sample_weight must have one number a row, shape \(30,\); got shape \(29,\)"),
        (np.full(30, np.nan), "sample_weight must be finite numbers; got nan in row 0"),
    ],
)
def test_nonsense_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        CoFrNetClassifier(**QUICK).fit(GOOD, BINARY, sample_weight=weight)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": "X"}, "variant must be"),
        ({"depth": -1}, "depth must be"),
        ({"max_epochs": 0}, "max_epochs must be 'auto', or 1 or more; got max_epochs=0"),
        ({"max_epochs": "soon"}, "max_epochs must be 'auto', or 1 or more; got max_epochs='soon'"),
        ({"learning_rate": 0}, "learning_rate must be 'auto' or positive"),
        ({"learning_rate": "fast"}, "learning_rate must be 'auto' or positive and finite; got learning_rate='fast'"),
        ({"weight_decay": None}, "weight_decay must be 'auto', or 0 or more and finite; got weight_decay=None"),
        ({"weight_decay": -1}, "weight_decay must be 'auto', or 0 or more"),
        ({"validation_fraction": 1.5}, "validation_fraction must be between 0 and 1"),
        ({"validation_fraction": "x"}, "validation_fraction must be between 0 and 1; got validation_fraction='x'"),
        ({"learning_rate": float("inf")}, "learning_rate must be 'auto' or positive and finite; got learning_rate=inf"),
        ({"dropout": "x"}, "dropout must be 0 or more and less than 1; got dropout='x'"),
        ({"epsilon": "x"}, "epsilon must be None or positive and finite; got epsilon='x'"),
        ({"scaling": "log"}, "scaling must be"),
        ({"categorical_features": ["nope"]}, "categorical_features must name columns of X; got 'nope'"),
        ({"categorical_features": [99]}, "categorical_features must name columns, or count them from 0 to 4; got 99"),
        ({"categorical_features": ["age"]}, "got column 'city', which categorical_features leaves out"),
    ],
)
def test_nonsense_parameters(parameters, message):
    X, y, _ = messy(100)
    with pytest.raises(ValueError, match=message):
        CoFrNetClassifier(**{**QUICK, **parameters}).fit(X, y)


def test_columns_are_checked_when_predicting():
    X, y, _ = messy()
    model = CoFrNetClassifier(**QUICK).fit(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.rename(columns={"age": "years"}))
    with pytest.raises(ValueError, match="same order"):
        model.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match="now missing:\n- age"):
        model.predict(X.drop(columns="age"))
    later = X.head(5).assign(city="Atlantis", age=np.nan, income=1e300)
    assert np.isfinite(model.predict_proba(later)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.int8, bool])
def test_every_numeric_dtype(dtype):
    X = (GOOD % 7).astype(dtype)
    model = CoFrNetClassifier(**QUICK).fit(X, BINARY)
    assert np.isfinite(model.predict_proba(X)).all()


def test_shapes_at_the_edge():
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((20, 200))
    assert CoFrNetClassifier(**QUICK).fit(wide, BINARY[:20]).predict(wide).shape == (20,)
    assert CoFrNetRegressor(**QUICK).fit(wide[:2], [1.0, 2.0]).predict(wide).shape == (20,)
    missing = pd.DataFrame({"gone": [np.nan] * 30, "a": GOOD[:, 0], "again": GOOD[:, 0]})
    assert np.isfinite(CoFrNetRegressor(**QUICK).fit(missing, GOOD[:, 1]).predict(missing)).all()
    constant = CoFrNetRegressor(**QUICK).fit(GOOD, np.full(30, 7.0))
    assert constant.predict(GOOD) == pytest.approx(7.0)
    huge = CoFrNetRegressor(**QUICK).fit(GOOD * 1e300, GOOD[:, 0])
    assert np.isfinite(huge.predict(GOOD * 1e300)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        duplicated = np.repeat(GOOD, 2, axis=1)
        CoFrNetClassifier(**QUICK).fit(duplicated, BINARY).predict(duplicated)


def test_unfitted_and_unknown_labels():
    with pytest.raises(ValueError, match="not fitted"):
        CoFrNetClassifier().predict(GOOD)
    with pytest.raises(ValueError, match=r"y must hold known classes; got 2. The classes are \[0, 1\]"):
        CoFrNetClassifier(**QUICK).fit(GOOD, BINARY, X_val=GOOD, y_val=BINARY + 1)


def crossed(n=2000, seed=0):
    """Columns a to f; y is made of a*b and of d alone."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-1, 1, (n, 6)), columns=list("abcdef"))
    return X, (3 * X["a"] * X["b"] + X["d"] + 0.1 * rng.standard_normal(n)).to_numpy()


def test_interactions_are_found_and_help():
    X, y = crossed()
    plain = CoFrNetRegressor(**QUICK, variant="D").fit(X[:1500], y[:1500])
    paired = CoFrNetRegressor(**QUICK, variant="D", interactions=1).fit(X[:1500], y[:1500])
    assert paired.pairs_ == [(0, 1)]
    assert plain.score(X[1500:], y[1500:]) < 0.4
    assert paired.score(X[1500:], y[1500:]) > 0.8
    named = CoFrNetRegressor(**QUICK, variant="D", interactions=[("b", "a")]).fit(X[:1500], y[:1500])
    assert named.score(X[1500:], y[1500:]) > 0.8


def test_interactions_with_categories():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"k": rng.choice(["p", "q"], 2000), "x": rng.uniform(-1, 1, 2000), "z": rng.uniform(-1, 1, 2000)})
    y = np.where(X["k"] == "p", 1.0, -1.0) * X["x"]
    model = CoFrNetRegressor(**QUICK, variant="D", interactions=1).fit(X, y)
    assert model.pairs_ == [(0, 1)]
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("variant", ["D", "S", "DL"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
def test_monotone_columns_are_monotone_everywhere(variant, sign, pole):
    X, y = crossed(1000)
    y = (
        y - 2 * sign * np.sin(3 * X["c"].to_numpy()) + sign * X["e"].to_numpy()
    )  # against the constraint in c, with it in e
    model = CoFrNetRegressor(**QUICK, variant=variant, pole=pole, monotonic_cst={"c": sign, "e": sign}).fit(X, y)
    rng = np.random.default_rng(1)
    grid = np.linspace(-3, 3, 200)
    rows = X.sample(20, random_state=0)
    for column in ("c", "e"):
        lines = rows.loc[rows.index.repeat(200)].assign(**{column: np.tile(grid, 20)})
        steps = np.diff(model.predict(lines).reshape(20, 200), axis=1) * sign
        assert steps.min() >= -1e-5
    moved = X.assign(e=X["e"] + rng.uniform(0, 1, len(X)))
    assert (model.predict(moved) - model.predict(X)).mean() * sign > 0.05, "it is not just constant"


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_monotone_columns_stay_so_beyond_the_rows(scaling):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 1))
    model = CoFrNetRegressor(**QUICK, variant="D", monotonic_cst=[1], scaling=scaling).fit(X, 1 / (2.1 - X[:, 0]))
    line = model.predict(np.linspace(-8, 8, 4000).reshape(-1, 1))
    assert np.diff(line).min() >= -1e-6
    assert line[-1] > line[0] + 1


def test_monotone_columns_stay_so_through_narrow_parts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(600, 1))
    model = CoFrNetRegressor(**QUICK, variant="D", monotonic_cst=[1]).partial_fit(X, np.exp(X[:, 0]))
    for _ in range(20):
        part = rng.uniform(-0.1, 0.1, size=(200, 1))
        model.partial_fit(part, -5 * part[:, 0])
    assert np.diff(model.predict(np.linspace(-3, 3, 2000).reshape(-1, 1))).min() >= -1e-6


def test_values_stand_out_where_they_explain_more_than_noise():
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 12, size=(200, 1000))
    residual = rng.normal(size=(1000, 2))
    assert sum(stands_out(column, residual) for column in columns) <= 5, "of pure noise"
    effect = rng.normal(size=(12, 2)) * 0.3
    assert all(stands_out(column, residual + effect[column]) for column in columns)


@pytest.mark.parametrize("variant", ["D", "S"])
def test_codes_are_learnt_as_such_and_made_monotone_on_request(variant):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"code": rng.integers(0, 6, 2000), "x": rng.normal(size=2000)})
    effects = np.array([3.0, -2.0, 4.0, 0.0, 5.0, -1.0])
    model = CoFrNetRegressor(variant=variant, random_state=0).fit(X, effects[X["code"]] + X["x"])
    found = model.curve("code")
    np.testing.assert_allclose(np.diff(found.values[0]), np.diff(effects), atol=0.3)
    model.set_params(monotonic_cst={"code": 1}, warm_start=True, max_epochs=10).fit(X, effects[X["code"]] + X["x"])
    assert (np.diff(model.curve("code").values[0]) >= -1e-6).all(), "the hats of the fit before are put on the shelf"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"monotonic_cst": {"nope": 1}}, "monotonic_cst must name columns of X; got 'nope'"),
        ({"monotonic_cst": {"a": 2}}, "monotonic_cst must be made of -1, 0 and 1"),
        ({"monotonic_cst": [1, 0]}, "monotonic_cst must be a dict, or one of -1, 0, 1 for each column"),
        ({"monotonic_cst": {"a": 1}, "variant": "F"}, "variant must be one with curves for monotonic_cst"),
        ({"monotonic_cst": {"a": 1}, "interactions": [("a", "b")]}, "pairs of columns that are not monotone"),
        ({"interactions": [("a", "a")]}, "interactions must be pairs of different columns"),
        ({"interactions": -1}, "interactions must be 0 or more"),
    ],
)
def test_impossible_constraints_are_refused(parameters, message):
    X, y = crossed(100)
    with pytest.raises(ValueError, match=message):
        CoFrNetRegressor(**QUICK, **parameters).fit(X, y)


def test_partial_fit_learns_from_parts():
    X, y, _ = messy(1200)
    model = CoFrNetClassifier(**QUICK)
    with pytest.raises(ValueError, match="classes must be given to the first call of partial_fit"):
        model.partial_fit(X, y)
    for _ in range(5):
        for start in range(0, 1000, 250):
            rows = slice(start, start + 250)
            model.partial_fit(X[rows], y[rows], classes=["no", "yes"])
    assert model.score(X[1000:], y[1000:]) > 0.8
    X, y = make_friedman1(1000, random_state=0)
    regressor = CoFrNetRegressor(**QUICK).partial_fit(X[:200], y[:200])
    before = regressor.score(X[800:], y[800:])
    for _ in range(20):
        regressor.partial_fit(X[:800], y[:800])
    assert regressor.score(X[800:], y[800:]) > before + 0.05
    with pytest.raises(ValueError, match="features"):
        regressor.partial_fit(X[:, :3], y)


def test_statistics_are_those_of_the_largest_part():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    model = CoFrNetRegressor(**QUICK).partial_fit(X, X[:, 0])
    before = model.profile_
    model.partial_fit(np.full((1, 2), 9.0), [9.0])
    assert model.profile_.columns == before.columns
    model.partial_fit(3 + rng.normal(size=(500, 2)), np.zeros(500))
    assert model.profile_.columns[0].mean == pytest.approx(3, abs=0.3)


def test_one_row_of_each_class_leaves_none_to_hold_out():
    rows, held = CoFrNetClassifier()._split(np.arange(420), np.random.RandomState(0), False)
    assert held is None
    np.testing.assert_array_equal(rows, np.arange(420))


def test_bools_may_be_given_as_ones_and_zeros():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=300), "b": rng.random(300) < 0.5})
    model = CoFrNetRegressor(**QUICK).fit(X, X["x"] + 4 * X["b"])
    for kind in (int, float, "Int64", object):
        np.testing.assert_array_equal(model.predict(X.assign(b=X["b"].astype(int).astype(kind))), model.predict(X))


def test_dates_are_no_targets():
    X, _, _ = messy(50)
    with pytest.raises(ValueError, match="y must hold numbers; got dates"):
        CoFrNetRegressor(**QUICK).fit(X, X["joined"])


def test_lazy_frames_are_to_be_collected():
    with pytest.raises(ValueError, match=r"got a LazyFrame. Call its collect\(\) first"):
        CoFrNetRegressor(**QUICK).fit(pl.LazyFrame({"a": [1.0, 2.0]}), [1.0, 2.0])


def test_a_class_that_the_first_part_has_not_is_hardly_ever_said():
    X, y = load_iris(return_X_y=True)
    model = CoFrNetClassifier(**QUICK).partial_fit(X[:100], y[:100], [0, 1, 2])
    assert model.predict_proba(X[:100])[:, 2].mean() < 0.05
    assert model.score(X[:100], y[:100]) > 0.95


def test_rows_of_no_weight_are_as_if_they_were_not_there():
    X, y = make_friedman1(300, random_state=0)
    spoilt, weight = y.copy(), np.ones(300)
    spoilt[::10], weight[::10] = -1e9, 0
    X[::10] *= 100
    counts = weight > 0
    model = CoFrNetRegressor(**QUICK).fit(X, spoilt, sample_weight=weight)
    alone = CoFrNetRegressor(**QUICK).fit(X[counts], y[counts])
    assert model.target_mean_ == alone.target_mean_
    assert model.score(X[counts], y[counts]) > alone.score(X[counts], y[counts]) - 0.05
    parts = CoFrNetRegressor(**QUICK).partial_fit(X, spoilt, sample_weight=weight)
    assert parts.encoder_ == CoFrNetRegressor(**QUICK).partial_fit(X[counts], y[counts]).encoder_


def test_the_same_columns_in_other_types():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    days = np.datetime64("2020-01-01") + rng.integers(0, 300, 400)
    days[::7] = np.datetime64("NaT")
    gaps = np.where(rng.random(400) < 0.2, np.nan, x)
    pairs = {
        "sparse": (pd.DataFrame({"a": x}), pd.DataFrame({"a": pd.arrays.SparseArray(x)})),
        "objects with NA": (
            pd.DataFrame({"a": gaps}),
            pd.DataFrame({"a": pd.Series(gaps, dtype=object).fillna(pd.NA)}),
        ),
        "masked": (gaps[:, None], np.ma.masked_invalid(gaps[:, None])),
        "dates of numpy": (pd.DataFrame({"x0": days}), days[:, None].astype("M8[s]")),
        "durations of numpy": (
            pd.DataFrame({"x0": days - np.datetime64("2020-01-01")}),
            (days - np.datetime64("2020-01-01"))[:, None].astype("m8[h]"),
        ),
    }
    for name, (usual, other) in pairs.items():
        y = x > 0 if "numpy" not in name else days > np.datetime64("2020-05-01")
        models = [CoFrNetClassifier(**QUICK).fit(X, y) for X in (usual, other)]
        columns = [model.encoder_.columns[0] for model in models]
        assert columns[0].knots == columns[1].knots, name
        assert columns[0].has_missing == columns[1].has_missing, name
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*feature names")
            for model in models:
                found = [model.predict_proba(X) for X in (usual, other)]
                np.testing.assert_array_equal(*found, err_msg=name)


def test_categories_of_short_floats_have_one_name():
    codes = np.random.default_rng(0).integers(0, 3, 300)
    X = pd.DataFrame({"g": np.array([0.1, 0.2, 0.3], dtype=np.float32)[codes]})
    model = CoFrNetClassifier(**QUICK, categorical_features=["g"]).fit(X, codes == 1)
    others = [pl.from_pandas(X), pa.Table.from_pandas(X), X.astype("float64").round(1), X.to_numpy()]
    for other in others:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*feature names")
            assert model.score(other, codes == 1) == 1
    assert model.encoder_.columns[0].levels == ("0.1", "0.2", "0.3")


def test_labels_that_are_missing_or_objects():
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = X[:, 0] > 0
    missing = {
        "NA": pd.Series(y, dtype="boolean").mask(X[:, 0] > 1),
        "None": pl.Series([None if x > 1 else "low" for x in X[:, 0]]),
        "a masked value": np.ma.masked_where(X[:, 0] > 1, y),
    }
    for what, labels in missing.items():
        with pytest.raises(ValueError, match=f"y must not be missing; got .*{what}"):
            CoFrNetClassifier(**QUICK).fit(X, labels)
    for kind in (bool, int):
        with pytest.raises(ValueError, match=rf"y must be an array of {kind.__name__}.* Convert it"):
            CoFrNetClassifier(**QUICK).fit(X, y.astype(kind).astype(object))
    labels = np.where(y, "a", "b").astype(object)
    assert CoFrNetClassifier(**QUICK).fit(X, labels).score(X, labels) > 0.9
    with pytest.raises(ValueError, match=r"classes must be two or more; got \[0\]"):
        CoFrNetClassifier(**QUICK).partial_fit(X, np.zeros(200), [0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"monotonic_cst": [0.5, 0, 0]}, "monotonic_cst must be made of -1, 0 and 1"),
        ({"monotonic_cst": {"a": 1, 0: -1}}, "monotonic_cst must be of one sign for column 'a'"),
        ({"monotonic_cst": {0.7: 1}}, "monotonic_cst must name columns, or count them from 0 to 2; got 0.7"),
        ({"monotonic_cst": 1}, "monotonic_cst must be a dict"),
        ({"monotonic_cst": {"a": "+"}}, "monotonic_cst must be made of"),
        ({"interactions": [(0.7, 1)]}, "interactions must name columns"),
        ({"interactions": 2.5}, "interactions must be a number, or pairs"),
        ({"interactions": [("a", 0)]}, "interactions must be pairs of different columns"),
        ({"categorical_features": 4}, "categorical_features must be 'auto', or a list"),
        ({"callbacks": print}, "callbacks must be None, or a list"),
        ({"checkpoint": "."}, "checkpoint must be the path of a file, not of a folder"),
        ({"device": "cpu:x"}, "device must be one of auto, cpu"),
        ({"learning_rate": np.ones(2)}, "learning_rate must be 'auto' or positive"),
    ],
)
def test_parameters_of_wrong_kinds_are_refused(parameters, message):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 3)), columns=list("abc"))
    with pytest.raises(ValueError, match=message):
        CoFrNetClassifier(**(QUICK | parameters)).fit(X, X["a"] > 0)


def test_constraints_of_a_series_go_by_its_names():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=list("abc"))
    model = CoFrNetRegressor(**QUICK, monotonic_cst=pd.Series({"c": 0, "a": 1, "b": 0})).fit(X, -X["a"] + X["b"])
    low, high = (model.predict(X.assign(a=value)) for value in (-1.0, 1.0))
    assert (high >= low - 1e-6).all()


@pytest.mark.parametrize("changed", [{"variant": "D"}, {"n_members": 4}, {"depth": 2}, {"interactions": [(0, 1)]}])
def test_warm_starts_refuse_another_structure(changed):
    X, y = make_friedman1(200, random_state=0)
    model = CoFrNetRegressor(**QUICK, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=f"{next(iter(changed))} must be .* the fit to go on from"):
        model.set_params(**changed).fit(X, y)


@pytest.mark.parametrize(
    "parameters",
    [
        {"interactions": 3, "monotonic_cst": [1, 1, 0]},
        {"interactions": [{0, 1}]},
        {"interactions": [range(2)]},
        {"monotonic_cst": pd.Series([1, 0, 0])},
        {"device": torch.device("cpu")},
    ],
)
def test_fits_go_on_with_what_was_asked_for_also_from_a_file(parameters, tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = CoFrNetRegressor(**QUICK, **parameters, warm_start=True).fit(X, X[:, 0]).fit(X, X[:, 0])
    model.save(tmp_path / "m.cofrnet")
    again = load(tmp_path / "m.cofrnet")
    assert again.partial_fit(X, X[:, 0]).pairs_ == model.pairs_
    assert again._signs() == model._signs()


def test_pairs_may_come_from_an_iterator():
    X, y = make_friedman1(200, random_state=0)
    assert CoFrNetRegressor(**QUICK, interactions=zip([0, 1], [2, 3], strict=True)).fit(X, y).pairs_ == [(0, 2), (1, 3)]


def test_weights_that_leave_no_row_are_refused():
    X = np.random.default_rng(0).normal(size=(100, 2))
    y = (X[:, 0] > 0) * 1
    model = CoFrNetClassifier(**QUICK, class_weight={0: 0, 1: 5})
    with pytest.raises(ValueError, match="class_weight and sample_weight must leave some row its weight"):
        model.partial_fit(X, y, [0, 1], sample_weight=1 - y)
    model.fit(X, y, X_val=X[y == 0], y_val=y[y == 0])  # rows to stop by that have no weight all count
    with pytest.raises(ValueError, match="at least two rows whose weight is not 0; got 1"):
        CoFrNetRegressor(**QUICK).fit(X, y, sample_weight=np.arange(100) == 3)


def test_numbers_at_the_ends_of_what_floats_hold():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    for X in (10.0 ** -rng.uniform(0, 324, (300, 1)), np.where(x > 0, 1, -1) * np.finfo(float).max, x * 1e-310):
        model = CoFrNetClassifier(**QUICK).fit(np.c_[X, x], x[:, 0] > 0)
        assert model.score(np.c_[X, x], x[:, 0] > 0) > 0.95
    with pytest.raises(ValueError, match="column 'x0' must have a mean and spread in reach of numbers"):
        CoFrNetClassifier(**QUICK, scaling="standard").fit(1e16 + x.round(), x[:, 0] > 0)
    with pytest.raises(ValueError, match=r"y must have a spread that is not lost to rounding.* Scale it up"):
        CoFrNetRegressor(**QUICK).fit(x, x[:, 0] * 1e-200)
    large = CoFrNetRegressor(**QUICK).fit(x, x[:, 0] * 1e150)
    assert large.quality(x, x[:, 0] * 1e150).metrics[0].value > 0.9


def test_targets_of_decimals_and_texts_have_a_report(tmp_path):
    X, y = make_friedman1(200, random_state=0)
    for target in (pl.Series(y).cast(pl.Decimal(20, 6)), y.astype(str)):
        model = CoFrNetRegressor(**QUICK).fit(X, target)
        assert model.report(tmp_path / "page.html", X, target).exists()
    wide = pl.DataFrame({"a": pl.Series(range(200), dtype=pl.Int128)})
    assert CoFrNetRegressor(**QUICK).fit(wide, y).explain_local(wide[:3]).values.shape == (3, 1, 1)


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
def test_huge_values_have_scores(scaling):
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = CoFrNetClassifier(**QUICK, scaling=scaling).fit(X, X[:, 0] > 0)
    assert np.isfinite(model.predict_proba([[1e39, 0.0], [-1e300, 1e300]])).all()


def test_times_of_day_and_intervals_are_read_as_they_come():
    rng = np.random.default_rng(0)
    seconds = rng.integers(0, 86_400, 200)
    times = [dt.time(s // 3600, s // 60 % 60, s % 60) for s in seconds.tolist()]
    x, y = rng.normal(size=200), np.sin(seconds / 20_000)
    expected = CoFrNetRegressor(**QUICK).fit(pl.DataFrame({"t": seconds, "x": x}), y)
    for make in (pl.DataFrame, pa.table):
        frame = make({"t": times, "x": x})
        found = CoFrNetRegressor(**QUICK).fit(frame, y).predict(frame)
        np.testing.assert_array_equal(found, expected.predict(pl.DataFrame({"t": seconds, "x": x})))
    gaps = pd.DataFrame({"t": pd.Series([None, *times[1:]], dtype=pd.ArrowDtype(pa.time64("us"))), "x": x})
    assert np.isfinite(CoFrNetRegressor(**QUICK).fit(gaps, y).predict(gaps)).all()
    cut = pd.DataFrame({"part": pd.cut(x, 4), "y": y})
    assert CoFrNetRegressor(**QUICK).fit(cut[["part"]], x).score(cut[["part"]], x) > 0.8


def test_what_has_no_meaning_is_named_with_its_remedy():
    days = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=60), "c": ["u", "v"] * 30})
    y = np.arange(60.0)
    model = CoFrNetRegressor(**QUICK).fit(days, y)
    with pytest.raises(ValueError, match=r"'day' must hold dates.* got '1 May'. Convert the column with pandas.to_dat"):
        model.predict(pd.DataFrame({"day": ["1 May"], "c": ["u"]}))
    with pytest.raises(ValueError, match=r"got a Series of 2 values. For one row of a frame use X.iloc\[\[i\]\]"):
        model.explain_local(days.iloc[0])
    for values, remedy in (
        (pd.period_range("2020-01", periods=60, freq="M"), r"dt.to_timestamp\(\)"),
        (np.array([dt.time(1, 2)] * 60, dtype=object), "seconds since midnight"),
    ):
        with pytest.raises(TypeError, match=f"column 'p' must hold .* Convert the column .*{remedy}"):
            CoFrNetRegressor(**QUICK).fit(pd.DataFrame({"p": values, "x": y}), y)
    with pytest.raises(ValueError, match=r"text or numbers; got 'a' in row 0 and 1 in row 2. Turn them all into text"):
        CoFrNetClassifier(**QUICK).fit(y[:60, None], np.array(["a", "b", 1] * 20, dtype=object))


def test_dates_of_rows_are_short_texts():
    days = pd.DataFrame({"day": pd.to_datetime(["2020-01-05", None, "2021-02-03"] * 20)})
    days["long"] = days["day"] - days["day"].min()
    model = CoFrNetRegressor(**QUICK).fit(days, np.arange(60.0))
    shown = model.explain_local(days[:3]).data.tolist()
    assert shown == [["2020-01-05", "0:00:00"], [None, None], ["2021-02-03", "395 days, 0:00:00"]]
    assert "missing" in str(model.explain_local(days[1:2]))

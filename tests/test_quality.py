"""Metrics against scikit-learn, and their intervals against the bootstrap."""

import numpy as np
import pytest
from sklearn import metrics

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.explain.quality import quality_of_classes, quality_of_numbers

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_rows():
    """Every test draws the same rows, whichever ran before."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def classes(n=2000, count=2, round_to=None):
    scores = RNG.normal(size=(n, count))
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    if round_to is not None:
        p = p.round(round_to)
        p = (p + 1e-3) / (p + 1e-3).sum(1, keepdims=True)
    y = np.array([RNG.choice(count, p=own) for own in p])
    return p, y


@pytest.mark.parametrize("count", [2, 4])
def test_metrics_of_classes_are_those_of_scikit_learn(count):
    p, y = classes(count=count, round_to=1)
    found = quality_of_classes(p, y, [str(c) for c in range(count)])
    predicted = p.argmax(1)
    assert found["accuracy"].value == pytest.approx(metrics.accuracy_score(y, predicted), abs=0.02)  # ties
    assert found["log-loss"].value == pytest.approx(metrics.log_loss(y, p))
    scale = "auto" if count == 2 else False
    assert found["Brier score"].value == pytest.approx(metrics.brier_score_loss(y, p, scale_by_half=scale))
    if count == 2:
        assert found["AUC"].value == pytest.approx(metrics.roc_auc_score(y, p[:, 1]))
    shares = np.bincount(y) / len(y)
    constant = np.tile(shares, (len(y), 1))
    assert found["log-loss"].constant == pytest.approx(metrics.log_loss(y, constant))
    assert found["accuracy"].constant == shares.max()
    assert found.confusion.sum() == len(y)
    assert np.trace(found.confusion) / len(y) == pytest.approx(found["accuracy"].value)
    assert found["balanced accuracy"].value == pytest.approx((np.diag(found.confusion) / found.confusion.sum(1)).mean())
    np.testing.assert_allclose(found.calibration[:, :, 2].sum(1), len(y))
    means = (found.calibration[:, :, 1] * found.calibration[:, :, 2]).sum(1) / len(y)
    np.testing.assert_allclose(means, shares)


def test_metrics_of_numbers_are_those_of_scikit_learn():
    y = RNG.normal(size=(500, 2)) * [1, 100]
    predicted = y + RNG.normal(size=y.shape) * [0.5, 30]
    found = quality_of_numbers(predicted, y, ["a", "b"])
    for c, name in enumerate("ab"):
        assert found[f"R² of {name}"].value == pytest.approx(metrics.r2_score(y[:, c], predicted[:, c]))
        assert found[f"MAE of {name}"].value == pytest.approx(metrics.mean_absolute_error(y[:, c], predicted[:, c]))
        mse = metrics.mean_squared_error(y[:, c], predicted[:, c])
        assert found[f"RMSE of {name}"].value == pytest.approx(np.sqrt(mse))
    assert found.points.shape == (500, 2, 2)


def bootstrap(make, n, names, draws=400):
    found = {name: [] for name in names}
    for _ in range(draws):
        quality = make(RNG.integers(0, n, n))
        for name in names:
            found[name].append(quality[name].value)
    return {name: 1.96 * np.std(values) for name, values in found.items()}


def test_intervals_are_those_of_the_bootstrap():
    p, y = classes(600)
    target = RNG.normal(size=(400, 1))
    guess = target + RNG.standard_t(6, size=target.shape) * 0.7
    of_classes = ("log-loss", "Brier score", "balanced accuracy", "AUC", "accuracy")
    cases = [
        (lambda i: quality_of_classes(p[i], y[i], ["a", "b"]), 600, of_classes),
        (lambda i: quality_of_numbers(guess[i], target[i]), 400, ("R²", "RMSE", "MAE")),
    ]
    for make, n, names in cases:
        whole = make(np.arange(n))
        for name, half in bootstrap(make, n, names).items():
            assert (whole[name].high - whole[name].low) / 2 == pytest.approx(half, rel=0.2), name


def test_perfect_predictions_keep_an_interval():
    y = np.array([0, 1] * 20)
    found = quality_of_classes(np.eye(2)[y], y, ["a", "b"])
    assert found["accuracy"].value == 1
    assert found["accuracy"].low < 0.95
    assert found["AUC"].value == 1
    numbers = quality_of_numbers(np.arange(5.0)[:, None], np.arange(5.0)[:, None])
    assert (numbers["R²"].value, numbers["RMSE"].value) == (1, 0)


def test_constant_targets_and_absent_classes():
    found = quality_of_classes(np.full((10, 3), 1 / 3), np.zeros(10, dtype=int), ["a", "b", "c"])
    assert "AUC" not in str(found)
    assert found["accuracy"].constant == 1
    numbers = quality_of_numbers(np.ones((4, 1)), np.zeros((4, 1)))
    assert [m.name for m in numbers.metrics] == ["RMSE", "MAE"]
    with pytest.raises(KeyError, match="there is no metric 'R²'"):
        numbers["R²"]


def test_of_estimators():
    X = RNG.normal(size=(300, 3))
    y = X[:, 0] + 0.1 * RNG.normal(size=300)
    fast = {"max_epochs": 3, "random_state": 0, "n_ladders": 4, "ladders_per_feature": 2}
    classifier = CoFrNetClassifier(**fast).fit(X, np.where(y > 0, "yes", "no"))
    found = classifier.quality(X, np.where(y > 0, "yes", "no"))
    assert found["accuracy"].value == pytest.approx(classifier.score(X, np.where(y > 0, "yes", "no")))
    assert found.class_names == ("no", "yes")
    regressor = CoFrNetRegressor(**fast).fit(X, y)
    assert regressor.quality(X, y)["R²"].value == pytest.approx(regressor.score(X, y))
    assert "95 % interval" in str(found)
    assert list(found.to_frame().columns) == ["metric", "value", "low", "high", "constant"]
    with pytest.raises(ValueError, match="known classes; got maybe"):
        classifier.quality(X, np.full(300, "maybe"))
    with pytest.raises(ValueError, match="as many rows"):
        regressor.quality(X, y[:-1])
    with pytest.raises(ValueError, match="1 output"):
        regressor.quality(X, np.stack([y, y], 1))


def test_rows_of_one_probability_are_one_point_of_the_calibration():
    y = np.sort(RNG.integers(0, 2, 100))
    bins = quality_of_classes(np.full((100, 2), 0.5), y, ["a", "b"]).calibration[1]
    np.testing.assert_allclose(bins[:, 1], y.mean())

"""What is chosen where the user leaves it to us."""

import math

import numpy as np
import pytest
from sklearn.datasets import make_gaussian_quantiles
from sklearn.linear_model import LogisticRegression

from cofrnet import CoFrNetClassifier
from cofrnet.estimators.defaults import AutomaticDecay, automatic_members, loop_options
from cofrnet.training import Decay


def options(n=3000, columns=10, goal="two classes", additive=False, linear_loss=0.5, **more):
    auto = {"max_epochs": "auto", "learning_rate": "auto", "weight_decay": "auto", "batch_size": 512, "patience": None}
    auto |= {"reads": 90}
    return loop_options(n, columns, goal=goal, additive=additive, linear_loss=linear_loss, **(auto | more))


def test_decay_goes_by_what_ladders_gain_on_a_line():
    decay = AutomaticDecay(linear_loss=0.5)
    assert decay(0.0, math.inf) == decay(0.2, 0.1) == (1, 1), "first it finds out"
    for gain in (1.0, 0.5, 0.1):
        assert decay(0.3, 0.5 * (1 - gain)) == pytest.approx((2 / gain, 2 / gain))
    for nothing in (0.499, 0.5, 3.0, math.inf, math.nan):
        assert decay(0.9, nothing) == (32, 32)
    assert AutomaticDecay(linear_loss=0.0)(0.9, 0.0) == (32, 32)
    assert AutomaticDecay(0.5, share=0.25)(0.9, 0.25) == (1, 1)


def test_full_ladders_that_read_many_inputs_are_decayed_more():
    widths = [options(reads=reads).weight_decay.width for reads in (10, 100, 250, 2000)]
    assert widths == [1, 1, 2.5, 5]
    wide = AutomaticDecay(0.5, width=2.5)
    assert wide(0.0, math.inf) == Decay(matrices=2.5, others=1)
    assert wide(0.9, 0.25) == Decay(matrices=10, others=4)
    assert wide(0.9, 0.5) == Decay(matrices=48, others=32)


def test_decay_of_additive_models_members_and_stages():
    assert options().weight_decay == AutomaticDecay(0.5)
    assert options(additive=True).weight_decay == AutomaticDecay(0.5, share=pytest.approx(0.4))
    assert options(n=300, additive=True).weight_decay == AutomaticDecay(0.5, share=2.0)
    assert options(members=64).weight_decay == AutomaticDecay(0.5, share=pytest.approx(0.5))
    assert options(stages=3, share=1 / 3).weight_decay == AutomaticDecay(0.5, share=pytest.approx(1 / 3))
    assert options(weight_decay=3, share=0.5).weight_decay == 1.5


def test_decay_of_few_steps():
    for epochs in (50, 500):
        assert options(max_epochs=epochs).weight_decay == AutomaticDecay(0.5)
    assert options(max_epochs=5).weight_decay == AutomaticDecay(0.5, share=0.2, most=pytest.approx(6.4))


def test_decay_without_validation_rows_grows_with_the_columns():
    found = [options(columns=columns, linear_loss=None).weight_decay for columns in (1, 10, 30, 1000)]
    assert found == pytest.approx([2, 8, 24, 32])


def test_epochs_and_steps_by_rows():
    small, middle, large = (options(n=n) for n in (300, 14_000, 1_000_000))
    assert [o.max_epochs for o in (small, middle, large)] == [50, 25, 10]
    assert [o.learning_rate for o in (small, middle, large)] == pytest.approx([0.015, 0.04, 0.04])
    assert [o.batch_size for o in (small, middle, large)] == [18, 512, 512]
    assert options(stages=3, n=300).max_epochs == 16
    assert [options(n=n, goal="numbers").learning_rate for n in (300, 14_000)] == [0.02, 0.02]
    assert [options(n=14_000, goal=goal).max_epochs for goal in ("two classes", "classes", "numbers")] == [25, 50, 50]


def test_small_tables_have_members():
    assert [automatic_members(n, 10) for n in (30, 2600, 5500, 11_000, 12_000)] == [8, 8, 4, 3, 3]
    assert [automatic_members(n, 10) for n in (12_300, 1_000_000)] == [3, 3]
    assert [automatic_members(500, columns) for columns in (1, 30, 100, 110, 5000)] == [8, 8, 3, 2, 1]
    assert [automatic_members(n, 10, pairs=True) for n in (30, 11_000, 12_300)] == [8, 2, 1]


def test_few_rows_without_any_straight_line_are_learnt():
    """Spheres within spheres: a linear model knows nothing, and must not make ladders shrink to nothing."""
    X, y = make_gaussian_quantiles(n_samples=5000, n_features=8, n_classes=3, random_state=0)
    line = LogisticRegression().fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])
    ours = CoFrNetClassifier(random_state=0).fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])
    assert line < 0.4
    assert ours > 0.85


def test_noise_beside_a_straight_line_is_not_learnt():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 20))
    y = rng.random(4000) < 1 / (1 + np.exp(-X[:, :5] @ [1.5, -1.0, 0.5, 1.0, -0.5]))
    line = LogisticRegression().fit(X[:1000], y[:1000]).score(X[1000:], y[1000:])
    ours = CoFrNetClassifier(random_state=0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:])
    assert ours > line - 0.015

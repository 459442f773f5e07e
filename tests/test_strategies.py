import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_friedman1

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.core import tails
from cofrnet.nn import CoFrNet
from cofrnet.training import Trained
from cofrnet.training.strategies import Boosted, add_rung, shallower, summed


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("variant", ["F", "D", "DL", "S"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
def test_a_new_rung_changes_nothing_yet(variant, pole):
    spec = CoFrNet(n_features=3, variant=variant, depth=3, n_ladders=3, pole=pole, subsets=((0, 1),), n_members=2).spec
    model = CoFrNet(shallower(spec, 1), dtype=torch.float64, generator=seeded())
    assert max(model.spec.full_depths or (1,)) == 1
    x = torch.randn(20, 3, generator=seeded(1), dtype=torch.float64)
    for depth in (2, 3, 4):
        grown = add_rung(model, shallower(spec, depth))
        torch.testing.assert_close(grown(x), model(x), rtol=0, atol=1e-10)
        model = grown
    assert model.spec == shallower(spec, 4)


@pytest.mark.parametrize(("pole", "epsilon"), [("smooth", None), ("clamp", None), ("clamp", 3.0)])
def test_new_rungs_can_learn(pole, epsilon):
    fields = {"n_features": 2, "variant": "D", "pole": pole, "epsilon": epsilon}
    model = CoFrNet(depth=1, **fields, generator=seeded(), dtype=torch.float64)
    with torch.no_grad():
        model.curves.weight[1] *= 0.1
        model.curves.bias[1] = 8.0
    x = torch.randn(10, 2, generator=seeded(1), dtype=torch.float64)
    for depth in (2, 4):  # one rung, and several at once
        grown = add_rung(model, CoFrNet(depth=depth, **fields).spec)
        torch.testing.assert_close(grown(x), model(x), rtol=0, atol=1e-10)
        grown(x).sum().backward()
        assert grown.curves.weight.grad[2].abs().min() > 1e-6


def test_rungs_with_the_clamp_are_used():
    X, y = make_friedman1(400, random_state=0)
    model = CoFrNetRegressor(strategy="rungwise", variant="D", pole="clamp", depth=3, random_state=0).fit(X, y)
    with torch.no_grad():
        a = model.model_.curves.partial_denominators(torch.from_numpy(model.encoder_.encode(list(X.T))))
        below = tails(a, "clamp")[2:]
    assert below.std(1).max() > 0.1, "what lies below a rung varies with the feature"
    assert below.abs().median() < 10, "and is not so large that its reciprocal is nothing"


def test_boosted_stages_are_their_sum_and_earlier_ones_stay():
    stages = [CoFrNet(n_features=3, n_ladders=2, dtype=torch.float64, generator=seeded(s)) for s in range(3)]
    x = torch.randn(10, 3, generator=seeded(9), dtype=torch.float64)
    total = sum(stage(x) for stage in stages)
    torch.testing.assert_close(summed(stages)(x), total)
    boosted = Boosted(stages[:2], stages[2])
    torch.testing.assert_close(boosted.member_scores(x).squeeze(1), total)
    assert {name for name, _ in boosted.named_parameters()} == {f"stage.{n}" for n, _ in stages[2].named_parameters()}
    assert {p.device.type for m in (boosted.to("meta"), *stages) for p in m.parameters()} == {"meta"}
    with pytest.raises(ValueError, match="stages must have the same spec"):
        summed([stages[0], CoFrNet(n_features=3, n_ladders=3)])


@pytest.mark.parametrize("strategy", ["joint", "boosted", "rungwise"])
@pytest.mark.parametrize("variant", ["S", "D", "DL"])
def test_strategies_fit_both_tasks(strategy, variant):
    settings = {"strategy": strategy, "variant": variant, "n_ladders": 8, "ladders_per_feature": 4, "random_state": 0}
    X, y = make_friedman1(600, noise=0.5, random_state=0)
    regressor = CoFrNetRegressor(**settings).fit(X[:450], y[:450])
    assert regressor.score(X[450:], y[450:]) > 0.65
    assert regressor.n_iter_ > 20
    X, y = load_iris(return_X_y=True)
    rows = np.random.default_rng(0).permutation(150)
    classifier = CoFrNetClassifier(**settings).fit(X[rows[:100]], y[rows[:100]])
    assert classifier.score(X[rows[100:]], y[rows[100:]]) > 0.8


def test_impossible_strategies_are_refused():
    X, y = make_friedman1(100, random_state=0)
    with pytest.raises(ValueError, match="strategy must be 'joint', 'boosted' or 'rungwise'; got strategy='greedy'"):
        CoFrNetRegressor(strategy="greedy").fit(X, y)
    with pytest.raises(ValueError, match="n_members must be 1 for strategy='boosted'"):
        CoFrNetRegressor(strategy="boosted", n_members=2).fit(X, y)
    with pytest.raises(ValueError, match="checkpoint must be None unless strategy='joint'"):
        CoFrNetRegressor(strategy="rungwise", checkpoint="x").fit(X, y)


def test_warm_starts_go_on_from_rungs_and_refuse_groups():
    X, y = make_friedman1(300, random_state=0)
    settings = {"n_ladders": 4, "ladders_per_feature": 4, "max_epochs": 8, "random_state": 0, "warm_start": True}
    rungs = CoFrNetRegressor(strategy="rungwise", **settings).fit(X, y)
    before = rungs.predict(X)
    np.testing.assert_allclose(rungs.set_params(learning_rate=1e-9).fit(X, y).predict(X), before, atol=1e-3)
    groups = CoFrNetRegressor(strategy="boosted", **settings).fit(X, y)
    before = groups.predict(X)
    for go_on in (groups.fit, groups.partial_fit):
        with pytest.raises(ValueError, match="a model to go on from must not be boosted"):
            go_on(X, y)
    with pytest.raises(ValueError, match="n_ladders must be 1, as in the fit to go on from; got n_ladders=4"):
        groups.set_params(strategy="joint").fit(X, y)
    np.testing.assert_array_equal(groups.predict(X), before)
    fewest = settings | {"variant": "F", "n_ladders": 1, "ladders_per_feature": 1, "solver": "adamw"}
    one = CoFrNetRegressor(strategy="boosted", **fewest).fit(X, y)
    with pytest.raises(ValueError, match="n_members must be 4, as in the fit to go on from; got n_members='auto'"):
        one.set_params(strategy="joint").fit(X, y)


def test_an_interrupted_stage_keeps_the_history_of_those_before():
    first = Trained({"loss": [3.0, 2.0], "validation_loss": [3.0, 4.0]}, best_epoch=0)
    nothing = first.then(Trained({}, best_epoch=-1, interrupted=True))
    assert (nothing.history, nothing.best_epoch, nothing.interrupted) == (first.history, 0, True)
    more = first.then(Trained({"loss": [1.0], "validation_loss": [2.0]}, best_epoch=0))
    assert (more.history["loss"], more.best_epoch) == ([3.0, 2.0, 1.0], 2)


@pytest.mark.parametrize("strategy", ["boosted", "rungwise"])
def test_a_callback_that_ends_the_training_ends_all_stages(strategy):
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = CoFrNetClassifier(strategy=strategy, max_epochs=20, callbacks=[lambda epoch: True], random_state=0)
    assert model.fit(X, X[:, 0] > 0).n_iter_ == 1

import numpy as np
import pytest
import torch

from cofrnet import CoFrNetRegressor
from cofrnet.nn import CoFrNet
from cofrnet.training import Rows, jacobian, least_squares


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("variant", ["F", "D", "DL", "S"])
@pytest.mark.parametrize("pole", ["smooth", "clamp"])
@pytest.mark.parametrize("more", [{}, {"subsets": ((0, 1), (2,)), "curved": (0, 2)}, {"linear": False}])
def test_closed_form_jacobian_is_autograd(variant, pole, more):
    model = CoFrNet(
        n_features=3,
        variant=variant,
        n_ladders=2,
        ladders_per_feature=2,
        n_members=2,
        pole=pole,
        dtype=torch.float64,
        generator=seeded(),
        **more,
    )
    x = torch.randn(6, 3, generator=seeded(1), dtype=torch.float64)
    scores = model.member_scores(x)
    for member in range(2):
        for row in range(6):
            gradients = torch.autograd.grad(scores[row, member, 0], list(model.parameters()), retain_graph=True)
            expected = torch.cat([g[member].flatten() for g in gradients])
            torch.testing.assert_close(jacobian(model, x)[member, row], expected, rtol=1e-11, atol=1e-11)


def test_jacobian_refuses_what_it_does_not_cover():
    with pytest.raises(ValueError, match="one output and a fixed epsilon; got n_outputs=2"):
        jacobian(CoFrNet(n_features=2, n_outputs=2), torch.ones(3, 2))


def test_a_ladder_finds_itself():
    """Data from a ladder are fitted to rounding by a ladder of the same shape."""
    truth = CoFrNet(
        n_features=2, variant="F", n_ladders=1, depth=2, linear=False, dtype=torch.float64, generator=seeded(5)
    )
    x = torch.rand(300, 2, generator=seeded(), dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        y = truth(x)
    model = CoFrNet(
        n_features=2,
        variant="F",
        n_ladders=1,
        depth=2,
        linear=False,
        n_members=10,
        dtype=torch.float64,
        generator=seeded(1),
    )
    trained = least_squares(model, Rows(x, y))
    assert float(trained.member_losses.min()) < 1e-12 * float(y.var())
    assert trained.history["loss"] == sorted(trained.history["loss"], reverse=True)


def matyas(X):
    return 0.26 * (X**2).sum(1) - 0.48 * X[:, 0] * X[:, 1]


def test_auto_solver_takes_small_regressions():
    X = np.random.default_rng(0).uniform(-10, 10, (300, 2))
    small = {
        "variant": "F",
        "n_ladders": 1,
        "depth": 2,
        "scaling": "minmax",
        "early_stopping": False,
        "random_state": 0,
    }
    second = CoFrNetRegressor(**small).fit(X, matyas(X))
    first = CoFrNetRegressor(**small, solver="adamw").fit(X, matyas(X))
    assert second.model_.head.dtype == torch.float64
    assert first.model_.head.dtype == torch.float32
    fresh = np.random.default_rng(1).uniform(-10, 10, (1000, 2))

    def error(model):
        return np.abs(model.predict(fresh) - matyas(fresh)).mean() / np.ptp(matyas(fresh))

    assert error(second) < 0.01
    assert error(second) < 0.2 * error(first)
    assert CoFrNetRegressor().fit(X, matyas(X)).model_.head.dtype == torch.float32, "the default model is not small"


def test_solver_is_checked():
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    with pytest.raises(ValueError, match="solver must be 'adamw' or 'auto' unless the loss is squared or absolute"):
        CoFrNetRegressor(solver="least_squares", loss="huber").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="solver must be auto, adamw or least_squares; got solver='newton'"):
        CoFrNetRegressor(solver="newton").fit(X, X[:, 0])


def test_members_and_weights():
    X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    weight = np.r_[np.ones(100), np.zeros(100)]
    y = np.where(weight > 0, X[:, 0] ** 2, 100.0)
    model = CoFrNetRegressor(
        solver="least_squares", variant="F", n_ladders=2, depth=2, n_members=3, early_stopping=False, random_state=0
    ).fit(X, y, sample_weight=weight)
    assert model.model_.spec.n_members == 3
    assert np.abs(model.predict(X[:100]) - y[:100]).mean() < 0.05


def test_validation_rows_without_weight_do_not_count():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 1, generator=generator, dtype=torch.float64)
    y = x.sin()
    right = Rows(x[:40], y[:40])
    spoiled = Rows(x[:80], torch.cat([y[:40], y[40:80] + 9]), torch.cat([torch.full((40,), 2.0), torch.zeros(40)]))
    losses = []
    for validation in (right, spoiled):
        model = CoFrNet(n_features=1, n_ladders=1, variant="F", depth=2, n_members=3, dtype=torch.float64,
                        generator=torch.Generator().manual_seed(1))  # fmt: skip
        trained = least_squares(model, Rows(x[80:], y[80:]), validation=validation.double(), iterations=20)
        losses.append(trained.member_losses)
    torch.testing.assert_close(losses[0], losses[1])

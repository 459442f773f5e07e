"""Second-order least squares: Levenberg-Marquardt with the closed-form Jacobian, many starts side by side.

For small regressions, where one step with curvature is worth thousands without: the paper's functions of two variables,
calibration curves, physical laws. Works in float64. The starts are the members of one CoFrNet.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from cofrnet.core import sensitivities
from cofrnet.nn import CoFrNet
from cofrnet.training.batches import Rows
from cofrnet.training.interrupts import FitInterruptedWarning
from cofrnet.training.loop import Trained
from cofrnet.training.threads import threads_for

__all__ = ["jacobian", "least_absolute", "least_squares", "levenberg_marquardt"]


def jacobian(model: CoFrNet, x: Tensor) -> Tensor:
    """Derivative of the score by every parameter, for each row and member, in closed form.

        d score / d w_k = (d score / d f) (df/da_k) x,      d score / d b_k = (d score / d f) (df/da_k)

    where d score / d f is the head's weight of the ladder; for a curve of variant "S", plus what the full ladders make
    of it. Parameters are in the order of ``model.named_parameters()``, flattened.

    Shapes: x (n, p), one output; returns (members, n, parameters of a member).
    """
    spec, members, n = model.spec, model.spec.n_members, len(x)
    if spec.n_outputs != 1 or spec.learn_epsilon:
        raise ValueError(
            f"a jacobian must be of one output and a fixed epsilon; got n_outputs={spec.n_outputs}, "
            f"learn_epsilon={spec.learn_epsilon}."
        )
    starts = {"curves": 0, "subsets": spec.n_curves, "full": spec.n_curves + len(spec.subsets)}
    with torch.no_grad():
        head = model.head.view(members, 1, -1)
        banks = list(model.read_by_banks(x))
        parts = {"head": torch.cat([values for *_, values in banks], dim=1).transpose(1, 2)}  # (members, n, L)
        if spec.linear:
            parts["linear"] = x.expand(members, -1, -1)
            parts["intercept"] = x.new_ones(members, n, 1)
        towards_curves: Tensor | float = 0.0
        for name, bank, reads, _ in reversed(banks):  # full ladders before the curves they read
            by_value = head[..., starts[name] : starts[name] + bank.n_ladders]
            by_value = by_value.expand(members, n, -1) + (towards_curves if name == "curves" else 0.0)
            a = bank.partial_denominators(reads).reshape(-1, n, members, bank.n_ladders)  # (d+1, n, members, L)
            by_a = sensitivities(a, bank.pole, bank.epsilon).permute(2, 1, 0, 3) * by_value.unsqueeze(2)
            by_a = by_a if bank.first else by_a[:, :, 1:]  # (members, n, rungs, L)
            read = bank.reads(reads).unsqueeze(2)  # (1 or members, n, 1, 1 or L, *fan)
            by_weight = by_a.reshape(*by_a.shape, *(1 for _ in read.shape[4:])) * read
            parts[f"{name}.weight"] = bank.packed(by_weight.flatten(2), weights=True)
            parts[f"{name}.bias"] = bank.packed(by_a.flatten(2), weights=False)
            if name == "full" and spec.variant == "S":
                weight = bank.full_rungs()[0][..., spec.n_features :]  # (members, rungs, L, curves)
                towards_curves = torch.einsum("mnkl,mklc->mnc", by_a, weight)
        return torch.cat([parts[name].reshape(members, n, -1) for name, _ in model.named_parameters()], dim=2)


def least_squares(
    model: CoFrNet, data: Rows, *, validation: Rows | None = None, iterations: int = 200, tolerance: float = 1e-9
) -> Trained:
    """What came of fitting the members of `model`, each from its own start, to squared error; in place, float64.

    With validation rows each member keeps its best. History: the loss of the best member.
    """
    x, y = data.x, data.y.reshape(-1)
    weight = None if data.weight is None else data.weight.reshape(-1)

    def validated(theta: Tensor) -> Tensor:
        assert validation is not None
        _scatter(model, theta)
        squares = (validation.y.reshape(-1) - _scores(model, validation.x)).square()
        return (squares if validation.weight is None else squares * validation.weight.reshape(-1)).mean(1)

    theta = _gather(model)
    with threads_for(len(x) * theta.numel() * theta.shape[1]):
        chosen = None if validation is None else validated
        kept, trained = levenberg_marquardt(theta, *_functions(model, x), y, weight, chosen, iterations, tolerance)
    _scatter(model, kept)
    return trained


Function = Callable[[Tensor], Tensor]


def _functions(model: CoFrNet, x: Tensor) -> tuple[Function, Function]:
    """Scores of the rows x and their slopes, as functions of the parameters."""

    def scores(theta: Tensor) -> Tensor:
        _scatter(model, theta)
        return _scores(model, x)

    def slopes(theta: Tensor) -> Tensor:
        _scatter(model, theta)
        return jacobian(model, x)

    return scores, slopes


def levenberg_marquardt(
    theta: Tensor,
    scores: Function,
    slopes: Function,
    y: Tensor,
    weight: Tensor | None = None,
    validated: Function | None = None,
    iterations: int = 200,
    tolerance: float = 1e-9,
) -> tuple[Tensor, Trained]:
    """The best parameters found from every start, and what came of it: of any model that has scores and their slopes.

        (J^T J + damping diag(J^T J)) step = J^T residual

    Damping falls after a step that lowers the loss and rises, tenfold, after one that does not, which is not taken.

    theta : (members, parameters), the starts; scores(theta) : (members, n); slopes(theta) : (members, n, parameters);
    y : (n,); weight : (n,) or (members, n); validated(theta) : (members,), losses to choose by, those of training where
    there are none.
    """
    trained = Trained()
    root = torch.ones_like(y) if weight is None else weight.sqrt()
    damping = torch.full((len(theta), 1), 1e-2, dtype=theta.dtype)
    residual = (y - scores(theta)) * root  # (members, n)
    loss = residual.square().mean(1)
    best, kept = loss if validated is None else validated(theta), theta.clone()
    try:
        for _ in range(iterations):
            before = loss
            trial = theta + _step(slopes(theta) * root.unsqueeze(-1), residual, damping)
            new_residual = (y - scores(trial)) * root
            new_loss = new_residual.square().mean(1).nan_to_num(float("inf"))
            better = new_loss < loss
            taken = better.unsqueeze(1)
            theta, residual = torch.where(taken, trial, theta), torch.where(taken, new_residual, residual)
            loss = torch.where(better, new_loss, loss)
            damping = torch.where(taken, damping / 5, damping * 10).clamp(1e-12, 1e9)
            found = loss if validated is None else validated(theta)
            improved = found < best
            best, kept = torch.where(improved, found, best), torch.where(improved.unsqueeze(1), theta, kept)
            trained.history.setdefault("loss", []).append(float(loss.min()))
            if validated is not None:
                trained.history.setdefault("validation_loss", []).append(float(best.min()))
            if ((before - loss) <= tolerance * before).all() and (damping > 1e6).all():
                break
    except KeyboardInterrupt:
        trained.interrupted = True
        warnings.warn("the fit was interrupted; the best model so far is kept.", FitInterruptedWarning, stacklevel=2)
    trained.best_epoch = len(trained.history.get("loss", [])) - 1
    trained.member_losses = best
    return kept, trained


def least_absolute(
    model: CoFrNet, data: Rows, *, validation: Rows | None = None, rounds: int = 8, iterations: int = 25
) -> Trained:
    """What came of fitting the members of `model` on, in place, to absolute instead of squared error.

        weights 1 / max(|residual|, a fiftieth of their mean), then least squares with them, and again

    Each member keeps its best, by validation rows where there are some. Start from what `least_squares` found. Losses
    of members: their mean absolute errors.
    """
    x, y = data.x, data.y.reshape(-1)
    scores, slopes = _functions(model, x)
    own = torch.ones_like(y) if data.weight is None else data.weight.reshape(-1)
    judged = data if validation is None else validation

    def error_of(theta: Tensor) -> Tensor:
        _scatter(model, theta)
        errors = (judged.y.reshape(-1) - _scores(model, judged.x)).abs()
        return (errors if judged.weight is None else errors * judged.weight.reshape(-1)).mean(1)

    theta = _gather(model)
    kept, best = theta.clone(), error_of(theta)
    trained = Trained()
    with threads_for(len(x) * theta.numel() * theta.shape[1]):
        for _ in range(rounds):
            residual = (y - scores(theta)).abs()
            weight = own / residual.clamp_min(0.02 * residual.mean(1, keepdim=True) + 1e-12)  # (members, n)
            weight = weight / weight.mean(1, keepdim=True)
            theta, found = levenberg_marquardt(theta, scores, slopes, y, weight, None, iterations)
            error = error_of(theta)
            better = error < best
            best, kept = torch.where(better, error, best), torch.where(better.unsqueeze(1), theta, kept)
            trained.interrupted = found.interrupted
            if found.interrupted:
                break
    _scatter(model, kept)
    trained.member_losses = best
    return trained


def _step(j: Tensor, residual: Tensor, damping: Tensor) -> Tensor:
    """Steps (members, parameters); none where the equations have no solution."""
    normal, right = j.transpose(1, 2) @ j, (j.transpose(1, 2) @ residual.unsqueeze(-1))
    diagonal = normal.diagonal(dim1=1, dim2=2)
    lift = damping * diagonal + 1e-12 * diagonal.amax(1, keepdim=True) + 1e-12
    factor, broken = torch.linalg.cholesky_ex(normal + torch.diag_embed(lift))
    step = torch.cholesky_solve(right, factor).squeeze(-1).nan_to_num(0, 0, 0)
    return torch.where((broken == 0).view(-1, 1), step, torch.zeros_like(step))


def _scores(model: CoFrNet, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model.member_scores(x).squeeze(-1).T  # (members, n)


def _gather(model: CoFrNet) -> Tensor:
    return torch.cat([p.detach().reshape(model.spec.n_members, -1) for p in model.parameters()], dim=1)


def _scatter(model: CoFrNet, theta: Tensor) -> None:
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            size = parameter.numel() // model.spec.n_members
            parameter.copy_(theta[:, start : start + size].reshape(parameter.shape))
            start += size

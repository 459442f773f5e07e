"""Fitting and predicting a table, ours and the alternatives' in turns, and where the time of a training step goes.

The table is MAGIC (12 363 rows to fit, 6657 to predict) where COFRNET_DATA has it, else generated Waveform data.
LightGBM and EBM are measured where they are installed: after `make peers`, by
`.venv-peers/bin/python -m benchmarks tabular`.
"""

import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from benchmarks.measure import best_seconds
from cofrnet import CoFrNetClassifier
from cofrnet.core import prepare
from cofrnet.core.ladder import fused_kernels
from cofrnet.datasets import load_table, waveform
from cofrnet.estimators.defaults import loop_options
from cofrnet.nn import CoFrNet
from cofrnet.training import LogLoss, LoopOptions, Rows, train


def table() -> tuple[str, Any, Any, Any]:
    """Name, X and y to fit, X to predict."""
    if "COFRNET_DATA" not in os.environ:
        return "waveform", *waveform(5000, seed=0), waveform(5000, seed=1)[0]
    X, y = load_table("magic")
    X, X_test, y, _ = train_test_split(X, y, test_size=0.35, random_state=0, stratify=y)
    return "magic", X, y, X_test


def alternatives(quick: bool) -> dict[str, tuple[Any, float | None, float | None]]:
    """Each with how many times as long as ours it must take to fit and to predict; None where nothing is promised."""
    found: dict[str, tuple[Any, float | None, float | None]] = {
        "histogram boosting": (HistGradientBoostingClassifier(), None, None)
    }
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        found["LightGBM"] = LGBMClassifier(verbose=-1), 0.1, None
    if importlib.util.find_spec("interpret"):
        from interpret.glassbox import ExplainableBoostingClassifier

        found["EBM without pairs"] = ExplainableBoostingClassifier(interactions=0), 10.0, None
        if not quick:
            found["EBM"] = ExplainableBoostingClassifier(), 20.0, 1.0
    return found


def seconds_of(model: Any, X: Any, y: Any) -> float:
    """Time of one fit."""
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def against_alternatives(quick: bool) -> list[dict[str, Any]]:
    name, X, y, X_test = table()
    others = alternatives(quick)
    ours = CoFrNetClassifier(random_state=0)
    models: dict[str, Any] = {"CoFrNet": ours} | {other: model for other, (model, _, _) in others.items()}
    fit = {}  # of each alternative and of ours: as often as it, and right before it
    for method, (model, _, _) in others.items():
        turns = [(seconds_of(ours, X, y), seconds_of(model, X, y)) for _ in range(1 if "EBM" in method else 3)]
        fit[method] = dict(zip(("CoFrNet", method), map(min, *turns) if len(turns) > 1 else turns[0], strict=True))
    predict = best_seconds({method: partial(model.predict, X_test) for method, model in models.items()}, 2.0)
    rows = []
    for method, (_, *targets) in others.items():
        for what, seconds, target in zip(("fit", "predict"), (fit[method], predict), targets, strict=True):
            rows.append(
                {
                    "what": f"{what}, {method} / ours",
                    "where": name,
                    "ours": f"{seconds['CoFrNet']:.3g} s",
                    "other": f"{seconds[method]:.3g} s",
                    "measured": f"{seconds[method] / seconds['CoFrNet']:.2f}×",
                    "target": "" if target is None else f"≥ {target:g}×",
                }
            )
    return rows


def bare_arithmetic(model: CoFrNet, x: torch.Tensor) -> Callable[[], None]:
    """The matrix products and ladder kernels of a step, with nothing around them."""
    kernels, curves, full = fused_kernels(), model.curves, model.full
    assert kernels is not None
    assert curves is not None
    assert full is not None
    p, m, n = curves.n_features, curves.ladders_per_feature, len(x)
    features, v = x.T.contiguous(), torch.randn(model.spec.n_features + model.spec.total_ladders, n)
    w, b = curves.weight.detach().view(1, -1, p, m), curves.bias.detach().view(1, -1, p, m)
    weight, z = full.weight.detach().flatten(0, 1), v[: full.n_features]
    readout, g, g_curves = torch.randn(1, len(v)), torch.randn(1, n), torch.randn(1, p, m, n)

    def run() -> None:
        kernels.feature_values(features, w, b, 1.0, True)
        a = (weight @ z).view(1, -1, full.n_ladders * n)
        values = kernels.value(a, 1.0, True, False)
        readout @ v, g @ v.T, readout.T @ g
        by_a = kernels.sensitivity_products(values, a, 1.0, True, False).view(len(weight), n)
        by_a @ z.T, weight.T @ by_a, by_a.sum(1)
        kernels.feature_gradients(g_curves, features, w, b, 1.0, True, False)

    return run


def step_overhead(batch: int, quick: bool) -> dict[str, Any]:
    """Time of a step of the loop beyond its bare arithmetic."""
    n, p, epochs = batch * 40, 10, 1 if quick else 3
    generator = torch.Generator().manual_seed(0)
    data = Rows(torch.randn(n, p, generator=generator), (torch.rand(n, generator=generator) > 0.5).float())
    ours = CoFrNetClassifier()
    model = CoFrNet(
        n_features=p, n_ladders=ours.n_ladders, ladders_per_feature=ours.ladders_per_feature, generator=generator
    )
    loss, once = LogLoss(), bare_arithmetic(model, data.x[:batch])
    automatic = loop_options(
        n, p, reads=model.spec.full_width, goal="two classes", additive=False, linear_loss=0.69, max_epochs="auto",
        batch_size=batch, learning_rate="auto", weight_decay="auto", patience=None,
    )  # fmt: skip
    options = LoopOptions(epochs, batch, automatic.learning_rate, automatic.weight_decay)

    def arithmetic() -> None:
        for _ in range(epochs * 40):
            once()

    seconds = best_seconds(
        {"steps": lambda: train(model, loss, data, options=options, generator=generator), "arithmetic": arithmetic},
        1.0 if quick else 4.0,
    )
    each = {key: value / (epochs * 40) for key, value in seconds.items()}
    return {
        "what": "training step: arithmetic / all the rest",
        "where": f"batch {batch}",
        "ours": f"{(each['steps'] - each['arithmetic']) * 1e6:.0f} µs",
        "other": f"{each['arithmetic'] * 1e6:.0f} µs",
        "measured": f"{each['arithmetic'] / max(each['steps'] - each['arithmetic'], 1e-9):.2f}×",
        "target": "≥ 1×",
    }


def measure(quick: bool = False) -> list[dict[str, Any]]:
    prepare()
    return [*(step_overhead(batch, quick) for batch in (256, 512)), *against_alternatives(quick)]

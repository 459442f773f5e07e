"""Explanations against the alternatives: autograd, captum, SHAP and SymPy, on the same model and rows.

captum and shap are measured where they are installed (they are among the development tools), TreeSHAP where LightGBM is
(after `make peers`, by `.venv-peers/bin/python -m benchmarks explanations`).
"""

import importlib.util
import itertools
import time
import warnings
from typing import Any

import numpy as np
import sympy
import torch

from benchmarks.measure import best_seconds
from cofrnet.core import backend, prepare
from cofrnet.core.series import Terms, ladder_series
from cofrnet.explain import inputs
from cofrnet.nn import CoFrNet


def model_of(outputs: int) -> CoFrNet:
    """A DL model of MAGIC's size: ten features, twelve full ladders of depth 2 to 13."""
    generator = torch.Generator().manual_seed(0)
    return CoFrNet(n_features=10, n_outputs=outputs, variant="DL", depth=4, n_ladders=12, generator=generator)


def by_autograd(model: CoFrNet, x: torch.Tensor) -> torch.Tensor:
    """Slopes of every output by autograd, one backward pass each."""
    leaf = x.clone().requires_grad_()
    scores = model(leaf).sum(0)
    found = [torch.autograd.grad(score, leaf, retain_graph=True)[0] for score in scores]
    return torch.stack(found, 1)


def row(what: str, where: str, ours: float, other: float, target: float | None) -> dict[str, Any]:
    return {
        "what": what,
        "where": where,
        "ours": f"{ours:.3g} s",
        "other": f"{other:.3g} s",
        "measured": f"{other / ours:.1f}×",
        "target": "" if target is None else f"≥ {target:g}×",
    }


def slopes_and_contributions(n: int, quick: bool) -> list[dict[str, Any]]:
    x = torch.randn(n, 10, generator=torch.Generator().manual_seed(1))
    zero, seconds = torch.zeros(10), 1.0 if quick else 3.0
    rows = []
    for outputs in (1, 3):
        model = model_of(outputs)
        where = f"DL, {n} rows, {outputs} output{'s' * (outputs > 1)}"

        def plain(model: CoFrNet = model) -> Any:
            with backend("reference"):
                return by_autograd(model, x)

        tasks = {
            "ours": lambda m=model: inputs.slopes(m, x),
            "plain": plain,
            "fused": lambda m=model: by_autograd(m, x),
        }
        integrals = {"ours": lambda m=model: inputs.contributions(m, x, zero, 1e-4)}
        if importlib.util.find_spec("captum"):
            from captum.attr import IntegratedGradients, Saliency

            def saliency(model: CoFrNet = model, outputs: int = outputs) -> Any:
                with backend("reference"):
                    leaf = x.clone().requires_grad_()
                    return [Saliency(model).attribute(leaf, target=c, abs=False) for c in range(outputs)]

            def integrated(model: CoFrNet = model, outputs: int = outputs) -> Any:
                return [IntegratedGradients(model).attribute(x, target=c, n_steps=50) for c in range(outputs)]

            tasks["captum"], integrals["captum"] = saliency, integrated
        torch.testing.assert_close(tasks["ours"](), tasks["plain"](), rtol=1e-3, atol=1e-4)
        found = best_seconds(tasks, seconds)
        rows.append(row("IC: autograd through the recurrence / ours", where, found["ours"], found["plain"], 3))
        rows.append(row("IC: autograd through our operation / ours", where, found["ours"], found["fused"], 1))
        if "captum" in tasks:
            rows.append(row("IC: captum's Saliency on the recurrence / ours", where, found["ours"], found["captum"], 3))
            found = best_seconds(integrals, seconds)
            rows.append(row("contributions: captum, 50 steps / ours", where, found["ours"], found["captum"], 10))
    return rows


def against_shap(quick: bool) -> list[dict[str, Any]]:
    if not importlib.util.find_spec("shap"):
        return []
    import shap

    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 10)).astype(np.float32)
    model = model_of(1)
    explainer = shap.KernelExplainer(
        lambda z: model(torch.as_tensor(z, dtype=torch.float32)).detach().numpy()[:, 0], np.zeros((1, 10))
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer.shap_values(x, silent=True)
    kernel = time.perf_counter() - started
    given = torch.as_tensor(x)
    ours = best_seconds({"ours": lambda: inputs.contributions(model, given, torch.zeros(10), 1e-4)}, 1.0)["ours"]
    rows = [row("contributions: KernelSHAP / ours", "DL, 20 rows", ours, kernel, None)]
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        wide = rng.normal(size=(10_000, 10))
        trees = LGBMClassifier(verbose=-1).fit(wide, wide[:, 0] * wide[:, 1] > 0)
        tree = shap.TreeExplainer(trees)
        many = torch.as_tensor(wide, dtype=torch.float32)
        found = best_seconds(
            {
                "ours": lambda: inputs.contributions(model, many, torch.zeros(10), 1e-4),
                "tree": lambda: tree.shap_values(wide),
            },
            2.0,
        )
        where = "DL and 100 trees, 10000 rows"
        rows.append(row("contributions: TreeSHAP of LightGBM / ours", where, found["ours"], found["tree"], None))
    return rows


def series_against_sympy() -> list[dict[str, Any]]:
    """One smooth ladder of depth 2 in two variables, order 4."""
    rng = np.random.default_rng(0)
    bias, weight = rng.integers(1, 5, 3), rng.integers(1, 4, (3, 2))

    def ours() -> Any:
        terms = Terms(2, 4)
        rungs = [terms.linear(np.array(float(b)), w.astype(float)) for b, w in zip(bias, weight, strict=True)]
        return terms, ladder_series(terms, rungs, "smooth", 1.0)

    x, y, h = sympy.symbols("x y h")
    started = time.perf_counter()
    a = [int(b) + h * (int(w[0]) * x + int(w[1]) * y) for b, w in zip(bias, weight, strict=True)]
    tail = a[2]
    for rung in (a[1], a[0]):
        tail = rung + tail / (tail**2 + 1)
    whole = sympy.Poly(sympy.series(tail, h, 0, 5).removeO().subs(h, 1).expand(), x, y)
    other = time.perf_counter() - started
    terms, found = ours()
    for powers, value in zip(terms.exponents.tolist(), found, strict=True):
        assert abs(float(whole.coeff_monomial(x ** powers[0] * y ** powers[1])) - value) < 1e-9
    seconds = best_seconds({"ours": ours}, 1.0)["ours"]
    return [row("power series: SymPy / ours", "one ladder, depth 2, order 4", seconds, other, 100)]


def large_series() -> list[dict[str, Any]]:
    import tracemalloc

    rng = np.random.default_rng(0)
    tracemalloc.start()
    started = time.perf_counter()
    terms = Terms(40, 3)
    rungs = [terms.linear(rng.normal(size=32), rng.normal(size=(32, 40)) / 6) for _ in range(5)]
    ladder_series(terms, rungs, "smooth", 1.0)
    seconds = time.perf_counter() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [
        {
            "what": "power series: seconds and memory",
            "where": f"{len(terms)} terms, 32 ladders of depth 4",
            "ours": f"{seconds:.2g} s",
            "other": "",
            "measured": f"{peak / 2**30:.2f} GB",
            "target": "< 1 GB",
        }
    ]


def measure(quick: bool = False) -> list[dict[str, Any]]:
    prepare()
    parts = (slopes_and_contributions(10_000, quick), against_shap(quick), series_against_sympy(), large_series())
    return list(itertools.chain(*parts))

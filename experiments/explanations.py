"""Are the explanations right? Functions whose structure is known, and deletion tests on MAGIC.

    python -m experiments.explanations                            # what needs no peer
    .venv-peers/bin/python -m experiments.explanations            # with EBM, SHAP and LassoNet, after `make peers`

Writes experiments/results/explanations.json and docs/explanations.md.

- Coefficients: Matyas and Rosenbrock on [-1, 1]^2, 300 points, six full ladders of depth 2 fitted by second-order least
  squares; the power series about 0 beside the true coefficients. Ladders are no polynomials: two that are as close to
  the function may bend otherwise at the centre. Of five random states the one whose series is nearest to the model on
  its own rows is shown, as `error` tells; of the others on Rosenbrock some are far off.
- Ranking: Friedman 1 with 10 features (five of them noise), and y = x1 x2 with 8 (six noise), 2000 rows, defaults.
- Deletion, local: of 500 test rows of MAGIC the k features that matter most for the row are set to their mean; the
  share of the score's distance from the baseline that goes is what counts: the better the ranking, the sooner. Same
  model for all rankings: the default CoFrNet.
- Deletion, global: histogram boosting, a judge that is nobody's own, fitted to the k features each ranking puts first.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.datasets import FUNCTIONS, load_table
from cofrnet.reproduce.functions import TRUE_TERMS

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "explanations.md"


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def coefficients() -> list[dict[str, Any]]:
    rows = []
    for name, truth in TRUE_TERMS.items():
        function = FUNCTIONS[name].value
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.uniform(-1, 1, (300, 2)), columns=["x", "y"])
        degree = max(sum(powers) for powers in truth)
        center, every = pd.DataFrame({"x": [0.0], "y": [0.0]}), []
        for state in range(5):
            model = CoFrNetRegressor(
                variant="F", n_ladders=6, depth=2, solver="least_squares", scaling="minmax", random_state=state
            ).fit(X, function(X["x"], X["y"]))
            every.append(model.power_series(degree, center=center))
        found = min(every, key=lambda series: series.error(X)["mean"]).terms
        least = 0.02 * max(map(abs, truth.values()))
        rows += [
            {
                "function": name,
                "term": "1" if powers == (0, 0) else f"x^{powers[0]} y^{powers[1]}",
                "true": truth.get(powers, 0),
                "found": round(float(found[powers]), 4),
            }
            for powers in found
            if powers in truth or abs(found[powers]) > least
        ]
    return rows


def rankings() -> list[dict[str, Any]]:
    rows = []
    X, y = make_friedman1(2000, n_features=10, noise=1.0, random_state=0)
    found = CoFrNetRegressor(random_state=0).fit(X, y).explain_global()
    rows.append(
        {
            "function": "Friedman 1 (x0 to x4 matter, x0 × x1 interact)",
            "method": "CoFrNet",
            "first": [found.feature_names[j] for j in found.order[:5]],
            "pair": " × ".join(found.interactions[0].features),
        }
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=2000)
    model = CoFrNetRegressor(random_state=0).fit(X, y)
    found = model.explain_global()
    rows.append(
        {
            "function": "x0 x1 alone, among 8 features",
            "method": "CoFrNet",
            "first": [found.feature_names[j] for j in found.order[:2]],
            "pair": " × ".join(found.interactions[0].features),
        }
    )
    if has("lassonet"):
        from lassonet import LassoNetRegressor

        path = LassoNetRegressor(hidden_dims=(32,), verbose=False, random_state=0, torch_seed=0)
        path.path(X.astype(np.float32), y.astype(np.float32))
        importance = path.feature_importances_.numpy()
        order = np.argsort(-importance, kind="stable")[:2]
        rows.append(
            {
                "function": "x0 x1 alone, among 8 features",
                "method": "LassoNet",
                "first": [f"x{j}" for j in order],
                "pair": "does not name pairs",
            }
        )
    return rows


def deletion() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    X, y = load_table("magic")
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    model = CoFrNetClassifier(random_state=0).fit(X_train, y_train)
    some = X_test.iloc[:500]
    ours = model.explain_local(some)
    mean = X_train.mean()
    local: dict[str, Any] = {
        "CoFrNet, integrated": np.abs(ours.values[:, 0]),
        "CoFrNet, |slope × distance|": np.abs(
            model.explain_local(some, method="gradient").values[:, 0] * (some - mean).to_numpy()
        ),
        "at random": np.random.default_rng(0).random(some.shape),
    }
    overall: dict[str, Any] = {"CoFrNet": model.explain_global().importances[0]}
    if has("shap"):
        import shap

        centre = mean.to_frame().T
        kernel = shap.KernelExplainer(
            lambda z: model.decision_function(pd.DataFrame(z, columns=X.columns)), centre, seed=0
        )
        local["KernelSHAP of the same model"] = np.abs(kernel.shap_values(some, silent=True))
        overall["KernelSHAP of the same model"] = local["KernelSHAP of the same model"].mean(0)
    if has("interpret"):
        from interpret.glassbox import ExplainableBoostingClassifier

        ebm = ExplainableBoostingClassifier(interactions=0, random_state=0).fit(X_train, y_train)
        parts = ebm.eval_terms(some)
        local["EBM's contributions"] = np.abs(parts)
        overall["EBM"] = np.asarray(ebm.term_importances())
    if has("lightgbm") and has("shap"):
        from lightgbm import LGBMClassifier

        trees = LGBMClassifier(verbose=-1, random_state=0).fit(X_train, y_train)
        overall["TreeSHAP of LightGBM"] = np.abs(shap.TreeExplainer(trees).shap_values(X_test)).mean(0)
    base = model.decision_function(mean.to_frame().T)[0]
    away = np.abs(model.decision_function(some) - base)
    locally = []
    for name, importance in local.items():
        order = np.argsort(-importance, axis=1)
        left = []
        for k in range(1, 6):
            changed = some.to_numpy(copy=True)
            rows = np.arange(len(some))[:, None]
            changed[rows, order[:, :k]] = mean.to_numpy()[order[:, :k]]
            scores = model.decision_function(pd.DataFrame(changed, columns=X.columns))
            left.append(round(float(np.abs(scores - base).mean() / away.mean()), 3))
        locally.append({"ranking": name, "left after 1 to 5": left})
    judged = []
    for name, importance in overall.items():
        order = np.argsort(-importance)
        accuracy = []
        for k in range(1, 7):
            columns = X.columns[order[:k]]
            judge = HistGradientBoostingClassifier(random_state=0).fit(X_train[columns], y_train)
            accuracy.append(round(float(judge.score(X_test[columns], y_test)), 4))
        judged.append({"ranking": name, "first": list(X.columns[order[:6]]), "accuracy with 1 to 6": accuracy})
    return locally, judged


def table(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells).replace("|slope × distance|", "absolute slope × distance") + " |")
    return "\n".join(lines)


def main() -> None:
    locally, judged = deletion()
    results = {"coefficients": coefficients(), "rankings": rankings(), "local": locally, "global": judged}
    (FOLDER / "results" / "explanations.json").write_text(json.dumps(results, indent=1) + "\n")
    page = [
        "# Are the explanations right?",
        "",
        "Written by `python -m experiments.explanations`, whose docstring states how each was done.",
        "",
        "## Coefficients of the power series beside the true ones",
        "",
        "True terms, and any other above 2 % of the largest; of five random states the one whose series is nearest to "
        "its model on the rows.",
        "",
        table(results["coefficients"]),
        "",
        "## What matters, and which pair",
        "",
        table(results["rankings"]),
        "",
        "## Deletion, row by row (MAGIC)",
        "",
        "Share of the score's distance from the baseline that is left when the first features of each ranking are set",
        "to their mean; less is better.",
        "",
        table(locally),
        "",
        "## Deletion, overall (MAGIC)",
        "",
        "Test accuracy of histogram boosting that sees only the first features of each ranking; more is better.",
        "",
        table(judged),
        "",
    ]
    PAGE.write_text("\n".join(page))
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()

"""Accuracy and speed on tables, ours and the peers', on the same rows in the same run.

    python -m experiments.tabular                  # ours
    python -m experiments.tabular --methods all    # with the peers, in the environment that `make peers` creates
    python -m experiments.tabular --methods strategies      # the three ways of training

Protocol: for seeds 0 to 4 (0 to 2 for regression), 30 % of the rows are the test set, stratified for classes, and 5/70
of the rest are validation rows: a method that can stop by given rows gets them, the others do without. Every method has
the same settings for all tables. Ours draws at random by default, so it is fitted to each split with eight random
states, the default with sixteen; strategies and peers have one. Results are appended to
experiments/results/tabular.jsonl (strategies.jsonl for those) as they come; what is there already is not run again.
"""

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cofrnet
from cofrnet import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.core import prepare
from cofrnet.datasets import TABLES
from cofrnet.reproduce.data_tables import rows_of

FOLDER = Path(__file__).parent / "results"
STATES, STATES_OF_DEFAULT = 8, 16


def ours(regression: bool, **settings: Any) -> Any:
    return (CoFrNetRegressor if regression else CoFrNetClassifier)(**{"random_state": 0} | settings)


def numeric(X: Any) -> list[str]:
    return [c for c in X.columns if X[c].dtype.kind in "if"]


class Encoded:
    """A model behind one-hot categories, mean-filled and standardised numbers (pyGAM does not fit into a pipeline)."""

    def __init__(self, model: Any, X: Any) -> None:
        numbers = numeric(X)
        others = [c for c in X.columns if c not in numbers]
        self.model = model
        self.encoder = make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            (OneHotEncoder(handle_unknown="ignore", max_categories=64, sparse_output=False), others),
        )

    def fit(self, X: Any, y: Any) -> "Encoded":
        self.model.fit(self.encoder.fit_transform(X), y)
        return self

    def __getattr__(self, name: str) -> Any:
        if name not in ("predict", "predict_proba"):
            raise AttributeError(name)
        method = getattr(self.model, name)
        return lambda X: method(self.encoder.transform(X))


def dates_as_days(X: Any) -> Any:
    """The table with columns of dates as numbers of days, for methods that know numbers and categories alone."""
    for c in X.columns:
        if c not in numeric(X) and X[c].astype(str).str.fullmatch(r"\d{4}-\d{2}-\d{2}").all():
            X = X.assign(**{c: pd.to_datetime(X[c]).astype("int64") // 86_400_000_000_000})
    return X


class Peer:
    """A peer and how it wants its table."""

    def __init__(self, make: Callable[[bool], Any], table: str = "encoded") -> None:
        self.make, self.table = make, table

    def fit(self, X: Any, y: Any, regression: bool) -> Any:
        model, X = self.make(regression), self.prepare(X)
        return (Encoded(model, X) if self.table == "encoded" else model).fit(X, y)

    def prepare(self, X: Any) -> Any:
        X = dates_as_days(X)
        if self.table == "category":
            X = X.astype({c: str for c in X.columns if X[c].dtype.kind == "b"})  # XGBoost knows no categories of bools
            return X.astype({c: "category" for c in X.columns if c not in numeric(X)})
        return X


def logistic(regression: bool) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    return RidgeCV(np.logspace(-3, 3, 7)) if regression else LogisticRegression(max_iter=2000)


def histogram_boosting(regression: bool) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    return kind(categorical_features="from_dtype", random_state=0)


def mlp(regression: bool) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    kind = MLPRegressor if regression else MLPClassifier
    return kind(hidden_layer_sizes=(100, 50), early_stopping=True, max_iter=300, random_state=0)


def lightgbm(regression: bool) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    return (LGBMRegressor if regression else LGBMClassifier)(verbose=-1, random_state=0)


def xgboost(regression: bool) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    return (XGBRegressor if regression else XGBClassifier)(enable_categorical=True, random_state=0)


def ebm(**settings: Any) -> Callable[[bool], Any]:
    def make(regression: bool) -> Any:
        from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

        kind = ExplainableBoostingRegressor if regression else ExplainableBoostingClassifier
        return kind(random_state=0, **settings)

    return make


def pygam(regression: bool) -> Any:
    from pygam import LinearGAM, LogisticGAM

    return LinearGAM() if regression else LogisticGAM()


OURS: dict[str, dict[str, Any]] = {
    "CoFrNet": {},
    "CoFrNet, 8 members": {"n_members": 8},
    "CoFrNet-D": {"variant": "D"},
    "CoFrNet-D, 15 pairs": {"variant": "D", "interactions": 15},
}
STRATEGIES: dict[str, dict[str, Any]] = {name: {"strategy": name} for name in ("joint", "boosted", "rungwise")}
PEERS = {
    "logistic / ridge": Peer(logistic),
    "MLP": Peer(mlp),
    "histogram boosting": Peer(histogram_boosting, "category"),
    "LightGBM": Peer(lightgbm, "category"),
    "XGBoost": Peer(xgboost, "category"),
    "pyGAM": Peer(pygam),
    "EBM without pairs": Peer(ebm(interactions=0), "as it is"),
    "EBM": Peer(ebm(), "as it is"),
}


def quality(model: Any, X: Any, y: Any, regression: bool) -> dict[str, float]:
    if regression:
        return {"r2": r2_score(y, model.predict(X))}
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X), dtype=float)
        p = np.column_stack([1 - p, p]) if p.ndim == 1 else p
        found = {"accuracy": accuracy_score(y, p.argmax(1)), "log_loss": log_loss(y, p)}
        return found | ({"auc": roc_auc_score(y, p[:, 1])} if p.shape[1] == 2 else {})
    return {"accuracy": accuracy_score(y, model.predict(X))}


def run(name: str, seed: int, method: str, state: int) -> dict[str, Any]:
    X, y, X_val, y_val, X_test, y_test = rows_of(name, seed)
    regression = TABLES[name].task == "regression"
    started = time.perf_counter()
    if method not in PEERS:
        model = ours(regression, random_state=state, **(OURS | STRATEGIES)[method])
        model.fit(X, y, X_val=X_val, y_val=y_val)
    else:
        model = PEERS[method].fit(X, y, regression)
        X_test = PEERS[method].prepare(X_test)
    fitted = time.perf_counter()
    model.predict(X_test)
    predicted = time.perf_counter()
    result = quality(model, X_test, y_test, regression)
    return result | {"fit_seconds": fitted - started, "predict_seconds": predicted - fitted}


def states_of(method: str, asked: list[int] | None) -> Iterable[int]:
    if method not in OURS:
        return [0]
    return asked or range(STATES if OURS[method] else STATES_OF_DEFAULT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["ours"], help="ours, peers, all, strategies, or names")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=None)
    parser.add_argument("--states", nargs="+", type=int, default=None, help="random states of ours")
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    arguments = parser.parse_args()
    groups: dict[str, Iterable[str]] = {"ours": OURS, "peers": PEERS, "strategies": STRATEGIES, "all": [*OURS, *PEERS]}
    methods = [m for given in arguments.methods for m in groups.get(given, [given])]
    FOLDER.mkdir(exist_ok=True)
    paths = {method: FOLDER / ("strategies.jsonl" if method in STRATEGIES else "tabular.jsonl") for method in methods}
    lines = [line for path in {*paths.values()} if path.exists() for line in path.read_text().splitlines()]
    done = {(r["table"], r["seed"], r["method"], r["state"]) for r in map(json.loads, lines)}
    warnings.simplefilter("ignore")
    prepare()
    for name in arguments.tables:
        splits = arguments.seeds or range(3 if TABLES[name].task == "regression" else 5)
        for method in methods:
            for state, seed in itertools.product(states_of(method, arguments.states), splits):
                if not arguments.again and (name, seed, method, state) in done:
                    continue
                if method == "pyGAM" and name == "waveform":  # pyGAM has two classes
                    continue
                result = {"table": name, "seed": seed, "method": method, "state": state, "cofrnet": cofrnet.__version__}
                result |= {key: round(value, 5) for key, value in run(name, seed, method, state).items()}
                with paths[method].open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

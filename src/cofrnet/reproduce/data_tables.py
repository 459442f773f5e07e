"""Table "realexp", its columns of tabular data, and the curves of Figure 4.

Five random splits into 65 % training, 5 % validation and 30 % test rows, stratified, the same for every method. A
method that can stop by given rows gets the validation rows, the others do without. CoFrNet-DL and CoFrNet-D are run in
the paper's setting (clamp, epsilon 0.1, min-max scaling, Adam) and in ours (smooth, quantile scaling). Credit card is
run as it is and with as many rows of either class: the paper's figures lie below the share of the larger class.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from cofrnet import datasets
from cofrnet.datasets import load_table
from cofrnet.estimators import CoFrNetClassifier
from cofrnet.reproduce.nam import NAM

__all__ = ["PAPER", "curves_of", "figure4_tasks", "fit_table", "realexp_tasks"]

# Accuracies as the paper prints them.
PAPER = {
    "CoFrNet-DL": {"waveform": 0.87, "magic": 0.86, "credit_card": 0.71},
    "CoFrNet-D": {"waveform": 0.69, "magic": 0.76, "credit_card": 0.66},
    "GAM": {"waveform": 0.85, "magic": 0.85, "credit_card": 0.72},
    "NAM": {"waveform": 0.86, "magic": 0.81, "credit_card": 0.69},
    "EBM": {"waveform": 0.85, "magic": 0.85, "credit_card": 0.72},
    "CART": {"waveform": 0.75, "magic": 0.79, "credit_card": 0.69},
    "LassoNet": {"waveform": 0.84, "magic": 0.76, "credit_card": 0.67},
    "MLP": {"waveform": 0.34, "magic": 0.65, "credit_card": 0.50},
    "boosted trees": {"waveform": 0.86, "magic": 0.86, "credit_card": 0.75},
}
TABLES = ("waveform", "magic", "credit_card", "credit_card, balanced")
SPLITS = 5
PAPERS_SETTING = {"pole": "clamp", "epsilon": 0.1, "scaling": "minmax"}


def _ours(**settings: Any) -> Callable[[], Any]:
    return lambda: CoFrNetClassifier(random_state=0, **settings)


OURS: dict[str, Callable[[], Any]] = {
    "CoFrNet-DL, paper": _ours(variant="DL", n_ladders=11, **PAPERS_SETTING),
    "CoFrNet-D, paper": _ours(variant="D", depth=12, ladders_per_feature=1, **PAPERS_SETTING),
    "CoFrNet-DL": _ours(variant="DL"),
    "CoFrNet-D": _ours(variant="D"),
    "CoFrNet-S": _ours(),
    "CoFrNet-S, 8 members": _ours(n_members=8),
}


def _cart() -> Any:
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    leaves = {"min_samples_leaf": [5, 20, 50, 100]}
    return GridSearchCV(DecisionTreeClassifier(random_state=0), leaves, cv=3)


def _mlp() -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(hidden_layer_sizes=(100, 50), early_stopping=True, max_iter=300, random_state=0)


def _gam() -> Any:
    from pygam import LogisticGAM
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.multiclass import OneVsRestClassifier

    class GAM(ClassifierMixin, BaseEstimator):
        """pyGAM with what scikit-learn asks of a classifier."""

        def fit(self, X: Any, y: Any) -> GAM:
            self.classes_ = np.unique(y)
            self.gam_ = LogisticGAM().fit(X, y)
            return self

        def predict_proba(self, X: Any) -> Any:
            p = self.gam_.predict_proba(X)
            return np.column_stack([1 - p, p])

        def predict(self, X: Any) -> Any:
            return self.classes_[self.predict_proba(X).argmax(1)]

    return OneVsRestClassifier(GAM())


def _ebm() -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(random_state=0)


def _boosted() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, random_state=0)


class _LassoNet:
    """LassoNet along its path of penalties; the place on it is chosen by a tenth of the training rows."""

    def fit(self, X: Any, y: Any) -> _LassoNet:
        from lassonet import LassoNetClassifier
        from sklearn.model_selection import train_test_split

        X, X_val, y, y_val = train_test_split(X, y, test_size=0.1, random_state=0, stratify=y)
        self.model = LassoNetClassifier(
            hidden_dims=(100,), path_multiplier=1.1, batch_size=512, n_iters=(100, 20), patience=(10, 5), verbose=False,
            random_state=0, torch_seed=0,
        )  # fmt: skip
        path = self.model.path(X, y, X_val=X_val, y_val=y_val, return_state_dicts=True)
        self.model.load(min(path, key=lambda place: place.val_loss).state_dict)
        return self

    def predict_proba(self, X: Any) -> Any:
        return self.model.predict_proba(X)


# What each peer is made by, the package it comes from, and whether it wants standardised columns.
PEERS: dict[str, tuple[Callable[[], Any], str, bool]] = {
    "CART": (_cart, "sklearn", False),
    "MLP": (_mlp, "sklearn", True),
    "boosted trees": (_boosted, "lightgbm", False),
    "NAM": (NAM, "torch", True),
    "GAM": (_gam, "pygam", True),
    "EBM": (_ebm, "interpret", False),
    "LassoNet": (_LassoNet, "lassonet", True),
}


def realexp_tasks(splits: int = SPLITS) -> Iterator[dict[str, Any]]:
    """What is to be run: peers where they are installed."""
    methods = [*OURS, *(name for name, (_, package, _) in PEERS.items() if find_spec(package) is not None)]
    for method in methods:
        for table in TABLES:
            for split in range(splits):
                yield {"table": table, "method": method, "split": split}


def rows_of(table: str, split: int) -> tuple[Any, ...]:
    """Training, validation and test rows: X, y, X_val, y_val, X_test, y_test; classes by number, and stratified."""
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import LabelEncoder

    name = table.partition(",")[0]
    X, y = load_table(name)
    classes = datasets.TABLES[name].task == "classification"
    if classes:
        y = LabelEncoder().fit_transform(y)
    if table.endswith("balanced"):
        rng = np.random.default_rng(split)
        least = np.bincount(y).min()
        kept = np.sort(np.concatenate([rng.permutation(np.flatnonzero(y == c))[:least] for c in np.unique(y)]))
        X, y = X.iloc[kept], y[kept]
    part = partial(train_test_split, random_state=split)
    X, X_test, y, y_test = part(X, y, test_size=0.3, stratify=y if classes else None)
    X, X_val, y, y_val = part(X, y, test_size=5 / 70, stratify=y if classes else None)
    return X, y, X_val, y_val, X_test, y_test


def fit_table(table: str, method: str, split: int) -> dict[str, Any]:
    """Accuracy, log-loss and seconds of a method on a split; of a peer that fails, what it says."""
    from sklearn.metrics import log_loss
    from sklearn.preprocessing import StandardScaler

    X, y, X_val, y_val, X_test, y_test = rows_of(table, split)
    started = time.perf_counter()
    if method in OURS:
        model = OURS[method]().fit(X, y, X_val=X_val, y_val=y_val)
    else:
        make, _, scaled = PEERS[method]
        if scaled:
            scaler = StandardScaler().fit(X)
            X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
        model = make()
        try:
            model.fit(X, y)
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}", "seconds": time.perf_counter() - started}
    seconds = time.perf_counter() - started
    probabilities = np.asarray(model.predict_proba(X_test), dtype=float)
    found = {"accuracy": float((probabilities.argmax(1) == y_test).mean()), "seconds": seconds}
    return found | {"log_loss": float(log_loss(y_test, np.clip(probabilities, 1e-15, 1)))}


# ---------------------------------------------------------------------------------------------- Figure 4


def figure4_tasks() -> Iterator[dict[str, Any]]:
    """What is to be run."""
    for table in TABLES[:3]:
        for method in ("CoFrNet-DL", "CoFrNet-S, 8 members"):
            yield {"table": table, "method": method}


def curves_of(table: str, method: str, points: int = 48) -> dict[str, Any]:
    """Curves of the three most important features on the first split."""
    X, y, X_val, y_val, X_test, _ = rows_of(table, 0)
    model = OURS[method]().fit(X, y, X_val=X_val, y_val=y_val)
    overall = model.explain_global(X_test, features=[], points=points)
    chosen = [overall.feature_names[j] for j in overall.order[:3]]
    found = []
    for name in chosen:
        curve = model.curve(name, X_test, points)
        found.append(
            {
                "feature": name,
                "grid": curve.grid.tolist(),
                "values": curve.values.tolist(),
                "low": curve.low.tolist(),
                "high": curve.high.tolist(),
                "outputs": list(curve.output_names),
                "unit": curve.unit,
            }
        )
    return {"curves": found, "ranking": [overall.feature_names[j] for j in overall.order]}

"""What the paper says beside its tables, checked: depth, ladders, epsilon, poles, variants, strategies.

Accuracy on the test rows of the first splits, one setting changed at a time from the default of this library, with as
many seeds for error bars.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cofrnet.estimators import CoFrNetClassifier
from cofrnet.reproduce.data_tables import rows_of

__all__ = ["CHANGES", "check_claim", "claims_tasks"]

TABLES = ("waveform", "magic")
SPLITS = 3

# What is varied: name of the ablation, then settings by the word that stands for them.
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "depth of DL's longest ladder": {
        str(depth): {"variant": "DL", "n_ladders": depth - 1} for depth in (2, 4, 8, 12, 25, 50)
    },
    "depth of S": {str(depth): {"depth": depth} for depth in (1, 2, 3, 4, 6, 12)},
    "full ladders of S": {str(count): {"n_ladders": count} for count in (4, 12, 28, 84)},
    "epsilon, smooth": {str(epsilon): {"epsilon": epsilon} for epsilon in (0.1, 0.3, 1.0, 3.0)},
    "epsilon, clamp": {str(epsilon): {"pole": "clamp", "epsilon": epsilon} for epsilon in (0.01, 0.1, 0.3, 1.0)},
    "variant": {variant: {"variant": variant} for variant in ("F", "D", "DL", "S")},
    "strategy": {strategy: {"strategy": strategy} for strategy in ("joint", "boosted", "rungwise")},
}


def claims_tasks(splits: int = SPLITS) -> Iterator[dict[str, Any]]:
    """What is to be run."""
    for change, settings in CHANGES.items():
        for setting in settings:
            for table in TABLES:
                for split in range(splits):
                    yield {"change": change, "setting": setting, "table": table, "split": split}


def check_claim(change: str, setting: str, table: str, split: int) -> dict[str, float]:
    """Accuracy, log-loss and parameters of a setting on a split; of one member, whatever the setting."""
    X, y, X_val, y_val, X_test, y_test = rows_of(table, split)
    model = CoFrNetClassifier(random_state=split, n_members=1, **CHANGES[change][setting])
    model.fit(X, y, X_val=X_val, y_val=y_val)
    quality = model.quality(X_test, y_test)
    return {
        "accuracy": quality["accuracy"].value,
        "log_loss": quality["log-loss"].value,
        "parameters": model.model_.spec.n_parameters,
    }

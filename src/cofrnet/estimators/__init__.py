"""scikit-learn's way in: estimators for tables, texts and images, each imported when first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofrnet.estimators.image import CoFrNetImageClassifier
    from cofrnet.estimators.saving import load
    from cofrnet.estimators.tabular import CoFrNetClassifier, CoFrNetRegressor
    from cofrnet.estimators.text import CoFrNetTextClassifier

__all__ = ["CoFrNetClassifier", "CoFrNetImageClassifier", "CoFrNetRegressor", "CoFrNetTextClassifier", "load"]

_MODULES = {
    "CoFrNetClassifier": "tabular",
    "CoFrNetRegressor": "tabular",
    "CoFrNetTextClassifier": "text",
    "CoFrNetImageClassifier": "image",
    "load": "saving",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cofrnet.estimators' has no attribute {name!r}")
    return getattr(import_module(f"cofrnet.estimators.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

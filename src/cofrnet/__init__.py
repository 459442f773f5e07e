"""Interpretable neural models made of continued fractions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofrnet.estimators import (
        CoFrNetClassifier,
        CoFrNetImageClassifier,
        CoFrNetRegressor,
        CoFrNetTextClassifier,
        load,
    )

__version__ = "0.1.0"

__all__ = [
    "CoFrNetClassifier",
    "CoFrNetImageClassifier",
    "CoFrNetRegressor",
    "CoFrNetTextClassifier",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """The estimators, imported when first asked for: `import cofrnet` alone loads nothing heavy."""
    if name in __all__ and name != "__version__":
        from cofrnet import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'cofrnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""scikit-learn's way in: estimators for tables and texts."""

from cofrnet.estimators.saving import load
from cofrnet.estimators.tabular import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.estimators.text import CoFrNetTextClassifier

__all__ = ["CoFrNetClassifier", "CoFrNetRegressor", "CoFrNetTextClassifier", "load"]

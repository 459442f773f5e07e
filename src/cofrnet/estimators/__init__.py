"""scikit-learn's way in: estimators for tables."""

from cofrnet.estimators.saving import load
from cofrnet.estimators.tabular import CoFrNetClassifier, CoFrNetRegressor

__all__ = ["CoFrNetClassifier", "CoFrNetRegressor", "load"]

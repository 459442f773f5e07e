"""Estimators that follow scikit-learn."""

from cofrnet.estimators.tabular import CoFrNetClassifier, CoFrNetRegressor

__all__ = ["CoFrNetClassifier", "CoFrNetRegressor"]

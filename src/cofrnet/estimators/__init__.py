"""scikit-learn's way in: estimators for tables, texts and images."""

from cofrnet.estimators.image import CoFrNetImageClassifier
from cofrnet.estimators.saving import load
from cofrnet.estimators.tabular import CoFrNetClassifier, CoFrNetRegressor
from cofrnet.estimators.text import CoFrNetTextClassifier

__all__ = ["CoFrNetClassifier", "CoFrNetImageClassifier", "CoFrNetRegressor", "CoFrNetTextClassifier", "load"]

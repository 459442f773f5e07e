"""What the classifiers share: what y means, and what becomes of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from cofrnet.estimators.checks import as_plain, require_finite, require_same_length
from cofrnet.estimators.contents import read_classes
from cofrnet.estimators.scoring import probabilities
from cofrnet.explain.data import OF_CLASSES
from cofrnet.explain.quality import Quality, quality_of_classes
from cofrnet.files import Fields
from cofrnet.training import LogLoss, Loss, MultinomialLogLoss

__all__ = ["Classes"]

Floats = NDArray[np.floating[Any]]

ABSENT = 5.0  # how much lower the score of a class starts that no row has


class Classes:
    """Targets that are classes: labels of any kind, one score for two of them and one each for more."""

    classes_: NDArray[Any]
    class_weight: Any
    _scores: Any  # the method that gives scores (n, q)

    def _checked_targets(self, y: Any, reset: bool, weight: Floats | None = None) -> NDArray[Any]:
        y = _of_one_kind(column_or_1d(as_plain(y), warn=True))
        if y.dtype.kind in "mM":
            raise ValueError("y must hold text, numbers or true and false; got dates. Turn them into text.")
        if len(y) == 0:
            raise ValueError("y must have at least one row; got none. Pass some.")
        require_finite(y, "y")
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y must have two classes or more; got one class, {self.classes_[0]}. Pass rows of both."
                )
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[codes] != y)
        if len(unknown):
            raise ValueError(
                f"y must hold known classes; got {y[unknown[0]]}. The classes are {self.classes_.tolist()}."
            )
        return codes.astype(np.float32) if len(self.classes_) == 2 else codes

    def _balance(self, y: NDArray[Any], weight: Floats | None, like: NDArray[Any] | None = None) -> Floats | None:
        """Weights of rows with targets y, those of their classes included, which are made for the targets `like`."""
        if self.class_weight is None:
            return weight
        codes = (y if like is None else like).astype(np.int64)
        known, of_classes = np.unique(codes), np.ones(len(self.classes_))
        of_classes[known] = compute_class_weight(
            self.class_weight, classes=self.classes_[known], y=self.classes_[codes]
        )
        balanced = of_classes[y.astype(np.int64)]
        if balanced.min() < 0 or not np.isfinite(balanced).all() or (like is None and not balanced.any()):
            raise ValueError(
                "class_weight must be 0 or more for each class, and not 0 for all; "
                f"got class_weight={self.class_weight!r}."
            )
        total = balanced if weight is None else balanced * weight
        if like is None and not total.any():
            raise ValueError(
                "class_weight and sample_weight must leave some row its weight; got 0 for the product of every row."
            )
        return total

    def _logistic(
        self, regression: LogisticRegression, x: Any, y: NDArray[Any], weight: Floats | None
    ) -> tuple[Floats, Floats]:
        """Weights (q, p) and intercepts (q,) of a logistic regression on rows that may not have all classes.

        What is never seen is hardly ever said; where there is one class alone, all are 0.
        """
        present, q = np.unique(y).astype(np.int64), self._count_outputs()
        coefficients, intercepts = np.zeros((q, x.shape[1])), np.zeros(q)
        if len(present) < 2:
            return coefficients, intercepts
        fitted = regression.fit(x, y, sample_weight=weight)
        if q == 1:
            return fitted.coef_, fitted.intercept_
        intercepts[:] = -ABSENT
        shares = np.array([[-0.5], [0.5]]) if len(present) == 2 else 1.0  # of one score for the second of two
        coefficients[present], intercepts[present] = shares * fitted.coef_, np.ravel(shares * fitted.intercept_)
        return coefficients, intercepts

    def _score_scale(self) -> tuple[Floats, Floats, tuple[str, ...], str]:
        q = self._count_outputs()
        names = tuple(str(name) for name in (self.classes_[1:] if q == 1 else self.classes_))
        unit = f"log-odds of class {names[0]}" if q == 1 else OF_CLASSES
        return np.ones(q), np.zeros(q), names, unit

    def _target_fields(self) -> dict[str, Any]:
        kind = {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(self.classes_.dtype.kind, "text")
        values = [str(c) for c in self.classes_] if kind == "text" else self.classes_.tolist()
        return {"kind": kind, "classes": values}

    def _restore_target(self, fields: Fields) -> int:
        self.classes_ = read_classes(fields)
        return self._count_outputs()

    def _count_outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        if len(self.classes_) == 2:
            return LogLoss(), {"accuracy": lambda s, y: ((s[..., 0] > 0) == (y.unsqueeze(1) > 0.5)).to(s.dtype)}
        return MultinomialLogLoss(), {"accuracy": lambda s, y: (s.argmax(-1) == y.unsqueeze(1)).to(s.dtype)}

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores: log-odds of the second class (n,), or one score a class (n, q)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, (n, n_classes)."""
        return probabilities(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        scores = self._scores(X)
        codes = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(1)
        return self.classes_[codes]

    def _losses_of(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Log-loss of each row."""
        codes = self._checked_targets(y, reset=False).astype(np.int64)
        return -np.log(np.maximum(self.predict_proba(X)[np.arange(len(codes)), codes], 1e-15))

    def quality(self, X: Any, y: Any) -> Quality:
        """How good the probabilities are: metrics with 95 % intervals, calibration and confusion."""
        probabilities, codes = self.predict_proba(X), self._checked_targets(y, reset=False).astype(np.int64)
        require_same_length(len(probabilities), len(codes))
        return quality_of_classes(probabilities, codes, [str(name) for name in self.classes_])


def _of_one_kind(y: NDArray[Any]) -> NDArray[Any]:
    """Labels that come as objects; none may be missing, and they must be text."""
    if y.dtype.kind not in "OT":
        return y
    values = y.tolist()
    for i, value in enumerate(values):
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            raise ValueError(f"y must not be missing; got {value} in row {i}. Leave such rows out.")
    for name, kinds in (("bool", bool | np.bool_), ("int", int | np.integer)):
        if all(isinstance(value, kinds) for value in values):
            raise ValueError(
                f"y must be an array of {name}, as scikit-learn wants it (Unknown label type); got one of objects. "
                f"Convert it: y.astype({name})."
            )
    texts = [isinstance(value, str) for value in values]
    if any(texts) and not all(texts):
        i = texts.index(not texts[0])
        raise ValueError(
            f"y must hold classes of one kind, text or numbers; got {values[0]!r} in row 0 and {values[i]!r} in row "
            f"{i}. Turn them all into text."
        )
    return y.astype(object)

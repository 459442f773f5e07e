"""Predictions of a model file of tables by numpy alone.

torch, scikit-learn and compiled code take longer to load than a million rows take to score. What the estimator in the
file would predict, this predicts to rounding:

    V = [1; x; curves; full]  (1 + p + C + L, n),     scores = [c, U, H] V

where the full ladders read x, or [x; curves] in "S".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cofrnet.errors import ModelFileError
from cofrnet.estimators.contents import fits, read_classes, read_scale, read_table
from cofrnet.files import Fields, read_tensors
from cofrnet.nn.specs import CoFrNetSpec

__all__ = ["TableScorer", "probabilities"]

Array = NDArray[Any]

NUMBERS_AT_ONCE, FEWEST_ROWS = 2**18, 64  # V and what is made of it stay in the cache


def probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of the classes, (n, classes), from scores (n, q): the softmax, with a score of 0 where q = 1."""
    if scores.shape[1] == 1:
        s = scores[:, 0]
        power = np.exp(-np.abs(s))
        larger = 1 / (1 + power)
        power *= larger
        found = np.empty((len(s), 2))
        found[:, 0], found[:, 1] = np.where(s > 0, power, larger), np.where(s > 0, larger, power)
        return found
    powers: NDArray[np.float64] = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


class TableScorer:
    """What predicts rows of a table as the estimator in a file does. Several threads may use it at once."""

    def __init__(self, arrays: Mapping[str, Array], about: Fields) -> None:
        target = about.object("target")
        self.classes_: NDArray[Any] | None = None
        if about.text("estimator") == "CoFrNetClassifier":
            self.classes_ = read_classes(target)
            outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        else:
            self.target_mean_, self.target_scale_, self._flat_target = read_scale(target)
            outputs = len(self.target_mean_)
        self.encoder_, names, self._spec = read_table(about, sum(array.size for array in arrays.values()), outputs)
        fits(names is not None, "feature_names", "there")
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        fits(len({array.dtype for array in arrays.values()}) == 1, "tensors", "of one dtype")
        self._dtype = next(iter(arrays.values())).dtype
        self._banks = _Banks(self._spec, {name.removeprefix("model/"): array for name, array in arrays.items()})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self | None:
        """The scorer of a file; None where that needs its estimator, or holds none: `load` then says what is wrong."""
        arrays, values = read_tensors(path)
        if values.get("estimator") not in ("CoFrNetClassifier", "CoFrNetRegressor"):
            return None
        try:
            return cls(arrays, Fields(values, str(path)))
        except (ModelFileError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None

    def _scores(self, X: Any) -> NDArray[np.float64]:
        columns = [X[str(name)] for name in self.feature_names_in_]
        x = self.encoder_.encode(columns, self._dtype, compiled=False)
        return self._banks.scores(x).astype(np.float64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, (n, n_classes), for an Arrow table with the columns of training."""
        return probabilities(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, or predictions in the units of y."""
        scores = self._scores(X)
        if self.classes_ is not None:
            return self.classes_[probabilities(scores).argmax(1)]
        y = scores * self.target_scale_ + self.target_mean_
        return y[:, 0] if self._flat_target else y


class _Banks:
    """The ladders, linear path and head of a CoFrNet, its members in front of all of them.

    Intercepts and the biases of full ladders are weights of an input that is 1. Shapes: readout (members, q, 1 + p + C
    + L); curves (members, d+1, curved, m, 1) for weights and biases; full (members, rungs times L, 1 + width).
    """

    def __init__(self, spec: CoFrNetSpec, arrays: Mapping[str, Array]) -> None:
        depths = spec.full_depths
        if spec.subsets or spec.learn_epsilon or not spec.linear or len(set(depths)) > 1:
            raise ModelFileError("the model has ladders of other kinds.")
        self.spec, members, q = spec, spec.n_members, spec.n_outputs
        read = [arrays[name].reshape(members, q, -1) for name in ("intercept", "linear", "head")]
        self.readout: Array = np.concatenate(read, axis=2)
        self.curved = np.array(spec.curved_features) if spec.n_curves else np.empty(0, dtype=np.int64)
        if spec.n_curves:
            shape = (members, spec.depth + 1, len(self.curved), spec.ladders_per_feature, 1)
            self.curves: list[Array] = [arrays[f"curves.{name}"].reshape(shape) for name in ("weight", "bias")]
        self.rungs = depths[0] + (spec.variant != "S") if depths else 0
        if depths:
            rungs = self.rungs * len(depths)
            own = [arrays[f"full.{name}"].reshape(members, rungs, -1) for name in ("bias", "weight")]
            self.full: Array = np.concatenate(own, axis=2)

    def scores(self, x: Array) -> Array:
        """Means of the members' scores, (n, q), for rows x (n, p), in parts of bounded memory."""
        members, q, height = self.readout.shape
        found = np.empty((q, len(x)), dtype=x.dtype)
        size = max(NUMBERS_AT_ONCE // (members * height), FEWEST_ROWS)
        for start in range(0, len(x), size):
            rows = x[start : start + size].T
            found[:, start : start + size] = self._part(rows, np.empty((members, height, rows.shape[1]), x.dtype))
        return found.T

    def _part(self, x: Array, v: Array) -> Array:
        """Scores (q, n) of some rows x (p, n), with memory for V."""
        (members, _, n), after = v.shape, 1 + len(x)
        v[:, 0], v[:, 1:after] = 1, x
        if self.spec.n_curves:
            w, b = self.curves
            features = x[self.curved][:, None]
            t = v[:, after : after + self.spec.n_curves].reshape(members, *w.shape[2:4], n)  # the same memory
            np.multiply(w[:, -1], features, out=t)
            t += b[:, -1]
            for k in range(self.spec.depth - 1, -1, -1):
                r = self._reciprocal(t)
                np.multiply(w[:, k], features, out=t)
                t += b[:, k]
                t += r
        if self.rungs:
            a = (self.full @ v[:, : self.full.shape[2]]).reshape(members, self.rungs, -1, n)
            for k in range(self.rungs - 1, 0, -1):
                a[:, k - 1] += self._reciprocal(a[:, k])
            v[:, -a.shape[2] :] = self._reciprocal(a[:, 0]) if self.spec.variant == "S" else a[:, 0]
        scores: Array = self.readout @ v
        return scores.mean(0)

    def _reciprocal(self, t: Array) -> Array:
        """r(t), see `cofrnet.core.poles`; where t^2 would overflow, that is 0 to rounding."""
        epsilon = t.dtype.type(self.spec.epsilon)
        if self.spec.pole == "smooth":
            with np.errstate(over="ignore"):
                square = t * t
            square += epsilon * epsilon
            return np.divide(t, square, out=square)
        size = np.maximum(np.abs(t), epsilon)
        return np.copysign(1 / size, np.where(t < 0, t.dtype.type(-1), t.dtype.type(1)))

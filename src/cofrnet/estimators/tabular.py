"""scikit-learn estimators for tables: `CoFrNetClassifier` and `CoFrNetRegressor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.validation import column_or_1d

from cofrnet.errors import ModelFileError
from cofrnet.estimators.base import TabularCoFrNet
from cofrnet.estimators.checks import as_plain, finite, require, require_same_length
from cofrnet.estimators.classes import Classes
from cofrnet.estimators.contents import read_scale
from cofrnet.estimators.defaults import LADDERS_PER_FEATURE, N_LADDERS
from cofrnet.estimators.encoding import Scaling
from cofrnet.estimators.fitting import unharmed
from cofrnet.explain.quality import Quality, quality_of_numbers
from cofrnet.files import Fields
from cofrnet.nn import CoFrNet, Variant
from cofrnet.training import (
    AbsoluteError,
    Callback,
    Huber,
    Loss,
    Rows,
    SquaredError,
    least_absolute,
    least_squares,
)

__all__ = ["CoFrNetClassifier", "CoFrNetRegressor"]

Floats = NDArray[np.floating[Any]]

STARTS, SMALL_PARAMETERS, SMALL_ROWS = 20, 100, 5000  # of second-order least squares
MOST_PARAMETERS, MOST_NUMBERS = 1000, 100_000_000  # of a member; of slopes, 0.8 GB, several of which it has at a time
MOST_PRODUCTS = 3_000_000_000  # of slopes with each other in an iteration, of which there are up to 200: minutes


# The constructors are written out, twice: scikit-learn reads their signature.


class CoFrNetClassifier(Classes, ClassifierMixin, TabularCoFrNet):
    """Classifier made of continued fractions.

    Parameters
    ----------
    variant : {"S", "DL", "D", "F"}
        Which ladders: stacked ("S"), the paper's single-feature and full ladders ("DL"), single-feature ladders alone,
        an additive model ("D"), or full ladders alone ("F").
    depth : int
        Depth of the ladders.
    n_ladders : int
        Full ladders, in every variant but "D".
    ladders_per_feature : int
        Single-feature ladders for each numeric feature, in every variant but "F".
    interactions : int or list of pairs
        Pairs of columns that get ladders of their own, by name or position; a number takes that many, the strongest on
        what an additive model leaves over.
    n_members : int or "auto"
        Models trained side by side and averaged; the result is one CoFrNet. Each holds out other rows to stop by.
        "auto" takes 8 where rows and columns are few (2600 rows of 10 columns), fewer where they are more, and three
        from 5800 rows of 10 columns on; with interactions, or more than a hundred columns, one from 12 000 rows of 10
        columns on; one where fewer ladders than the default are asked for. One makes the shortest formulas and
        programs, and the fastest predictions.
    bootstrap : bool
        Whether each member sees a bootstrap sample of the rows.
    strategy : {"joint", "boosted", "rungwise"}
        All ladders at once; in four groups, each fitted to what those before it leave over; or grown rung by rung.
    pole, epsilon
        Pole handling: "smooth" or "clamp" (the paper's), and its epsilon.
    max_epochs : int or "auto"
        Passes over the rows; "auto" makes 50; fewer, but at least 10, from 7000 rows on for two classes, and
        from 14000 on for more classes and for numbers (10000 for "D").
    batch_size : int
        Rows of one step; fewer where there are not enough for sixteen steps an epoch.
    learning_rate : float or "auto"
        Highest of the one cycle it goes through; "auto" is 0.05 for "D"; for the others it is 0.02 for numbers, and for
        classes grows with the number of rows, 0.02 at 5000, from 0.015 to 0.04.
    weight_decay : float or "auto"
        How much a weight that the data do not hold shrinks over the whole training: by exp(-weight_decay). "auto"
        is at most 32, and the less, the more the ladders gain on a linear model on the rows held out; without such
        rows it grows with the columns. With them, full ladders that read more than 100 inputs have more of it.
    dropout : float
        Share of ladder values dropped in training.
    early_stopping : bool
        Whether to hold out rows and keep the weights that are best on them.
    validation_fraction : float
        Share of rows held out, by several members in turn; none are where this makes fewer than 20, or 40 of all
        members together.
    n_iter_no_change : int, optional
        Epochs without improvement after which training ends; None goes through all.
    class_weight : dict, "balanced" or None
    categorical_features : "auto" or list
        Names or positions; "auto" takes columns of strings, categories and bools.
    max_categories : int
        Most levels of a categorical column that get an input of their own; the others share one. Where there are more,
        and y goes by them, all have an effect in one input besides, as have numbers that are codes of many values.
    monotonic_cst : dict or list, optional
        {column: +1 or -1}, by name or position, or one of +1, -1, 0 for each column: the score must rise or fall with
        it. Holds exactly. Such a column acts alone: full ladders and pairs do not read it.
    scaling : {"quantile", "standard", "minmax"}
        How numeric columns are scaled; "quantile" withstands heavy tails and outliers.
    warm_start : bool
        Whether `fit` goes on from the model there is, all of it at once; a boosted one is refused.
    checkpoint : path, optional
        File that the fit writes every `checkpoint_every` epochs and resumes from.
    checkpoint_every : int
    callbacks : iterable of callables, optional
        Called after each epoch with a `cofrnet.training.Epoch`; a true answer ends the training.
    device : str
        "auto", "cpu", "cuda", ...
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : ndarray
    model_ : CoFrNet
        The fitted torch module; it reads what `encoder_` makes of a table.
    encoder_ : TableEncoder
    history_ : dict of lists
        Losses, metrics and learning rate of each epoch.
    n_iter_, best_epoch_ : int
    n_features_in_, feature_names_in_
    """

    def __init__(
        self,
        variant: Variant = "S",
        depth: int = 3,
        n_ladders: int = N_LADDERS,
        ladders_per_feature: int = LADDERS_PER_FEATURE,
        interactions: int | Sequence[Sequence[Any]] = 0,
        n_members: int | Literal["auto"] = "auto",
        bootstrap: bool = False,
        strategy: Literal["joint", "boosted", "rungwise"] = "joint",
        pole: str = "smooth",
        epsilon: float | None = None,
        max_epochs: int | Literal["auto"] = "auto",
        batch_size: int = 512,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float | Literal["auto"] = "auto",
        dropout: float = 0.0,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        class_weight: Any = None,
        categorical_features: Any = "auto",
        max_categories: int = 64,
        monotonic_cst: Any = None,
        scaling: Scaling = "quantile",
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        callbacks: Iterable[Callback] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.variant = variant
        self.depth = depth
        self.n_ladders = n_ladders
        self.ladders_per_feature = ladders_per_feature
        self.interactions = interactions
        self.n_members = n_members
        self.bootstrap = bootstrap
        self.strategy = strategy
        self.pole = pole
        self.epsilon = epsilon
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.monotonic_cst = monotonic_cst
        self.scaling = scaling
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to rows X (array, pandas or polars frame) and labels y; categories and missing values as they come.

        `X_val`, `y_val` are rows to stop by; without them a share of X is held out.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on from the model there is with one pass over some rows, for data that come in parts.

        The first call learns the columns (scales, categories, effects of codes) from its rows, and must be told all
        `classes`. Its rows are best not given again: effects of codes know their y.
        """
        first = not hasattr(self, "model_")
        if classes is not None and len(np.unique(classes)) < 2:
            raise ValueError(f"classes must be two or more; got {np.unique(classes).tolist()}. Pass all there will be.")
        if not first:
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes must be those of the first call of partial_fit, {self.classes_.tolist()}; got "
                    f"{np.unique(classes).tolist()}. Fit a new model for others."
                )
            return self._partial_fit(X, y, sample_weight, first)
        if classes is None:
            raise ValueError("classes must be given to the first call of partial_fit; got None. Pass all classes.")
        with unharmed(self, goes_on=False):
            self.classes_ = np.unique(classes)
            return self._partial_fit(X, y, sample_weight, first)

    def _linear_start(self, x: Floats, y: NDArray[Any], weight: Floats | None) -> tuple[Floats, Floats]:
        return self._logistic(LogisticRegression(max_iter=100, tol=1e-3), x, y, weight)


class CoFrNetRegressor(RegressorMixin, TabularCoFrNet):
    """Regressor made of continued fractions.

    Parameters
    ----------
    loss : {"squared_error", "absolute_error", "huber"} or callable
        A callable takes scores (n, members, q) and scaled targets (n, q) and returns the cost of each row and member.
    solver : {"auto", "adamw", "least_squares"}
        "least_squares" is Levenberg-Marquardt from 20 starts for each member, for one target and squared or absolute
        error; it has no epochs, rates, decay or dropout, and does not go with bootstrap, callbacks or a checkpoint.
        "auto" takes it where the model has at most 100 parameters and the table three times as many rows, and at most
        5000, unless one of these is asked for, or a warm start.
    variant, depth, n_ladders, ladders_per_feature, interactions, n_members, bootstrap, strategy, pole, epsilon, \
max_epochs, batch_size, learning_rate, weight_decay, dropout, early_stopping, validation_fraction, n_iter_no_change, \
categorical_features, max_categories, monotonic_cst, scaling, warm_start, checkpoint, checkpoint_every, callbacks, \
device, random_state, verbose
        See `CoFrNetClassifier`.

    Attributes
    ----------
    model_ : CoFrNet
        The fitted torch module; its scores times `target_scale_` plus `target_mean_` are predictions.
    target_mean_, target_scale_ : ndarray
    encoder_, history_, n_iter_, best_epoch_, n_features_in_, feature_names_in_
        See `CoFrNetClassifier`.
    """

    def __init__(
        self,
        loss: str | Callable[..., Any] = "squared_error",
        solver: Literal["auto", "adamw", "least_squares"] = "auto",
        variant: Variant = "S",
        depth: int = 3,
        n_ladders: int = N_LADDERS,
        ladders_per_feature: int = LADDERS_PER_FEATURE,
        interactions: int | Sequence[Sequence[Any]] = 0,
        n_members: int | Literal["auto"] = "auto",
        bootstrap: bool = False,
        strategy: Literal["joint", "boosted", "rungwise"] = "joint",
        pole: str = "smooth",
        epsilon: float | None = None,
        max_epochs: int | Literal["auto"] = "auto",
        batch_size: int = 512,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float | Literal["auto"] = "auto",
        dropout: float = 0.0,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        categorical_features: Any = "auto",
        max_categories: int = 64,
        monotonic_cst: Any = None,
        scaling: Scaling = "quantile",
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        callbacks: Iterable[Callback] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.solver = solver
        self.variant = variant
        self.depth = depth
        self.n_ladders = n_ladders
        self.ladders_per_feature = ladders_per_feature
        self.interactions = interactions
        self.n_members = n_members
        self.bootstrap = bootstrap
        self.strategy = strategy
        self.pole = pole
        self.epsilon = epsilon
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.categorical_features = categorical_features
        self.max_categories = max_categories
        self.monotonic_cst = monotonic_cst
        self.scaling = scaling
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to rows X (array, pandas or polars frame) and targets y (n,) or (n, q).

        `X_val`, `y_val` are rows to stop by; without them a share of X is held out.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on from the model there is with one pass over some rows, for data that come in parts.

        The first call learns the columns (scales, categories, effects of codes) and the scale of y from its rows, which
        are best not given again: effects of codes know their y. Explanations have the statistics of the largest part.
        """
        return self._partial_fit(X, y, sample_weight, first=not hasattr(self, "model_"))

    def _checked_targets(self, y: Any, reset: bool, weight: Floats | None = None) -> NDArray[Any]:
        given, y = getattr(y, "columns", None), as_plain(y)  # columns of a frame
        if getattr(y, "dtype", np.dtype(float)).kind in "mM":
            raise ValueError(
                f"y must hold numbers; got dates or durations ({y.dtype}). Make them numbers, for example of days."
            )
        y = finite(y, "y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if reset:
            self._flat_target = y.ndim == 1
            known = y if weight is None or len(weight) != len(y) else y[weight > 0]
            with np.errstate(over="ignore", invalid="ignore"):
                self.target_mean_ = np.atleast_1d(known.mean(0))
                spread = np.atleast_1d(known.std(0))
            if not (np.isfinite(self.target_mean_).all() and np.isfinite(spread).all()):
                raise ValueError(
                    f"y must have a finite mean and spread; got values up to {np.abs(known).max():g}. Scale it down."
                )
            if ((spread == 0) & (known.min(0) < known.max(0))).any():
                raise ValueError(
                    f"y must have a spread that is not lost to rounding; got {known.min():g} to {known.max():g}. "
                    "Scale it up, or take away its mean."
                )
            self.target_scale_ = np.where(spread > 0, spread, 1.0)
            self._target_names = [str(name) for name in given] if given is not None and len(spread) > 1 else []
        y = y.reshape(len(y), -1)
        if y.shape[1] != len(self.target_mean_):
            raise ValueError(f"y must have {len(self.target_mean_)} output(s), as before; got {y.shape[1]}.")
        return ((y - self.target_mean_) / self.target_scale_).astype(np.float32)

    def _solves_least_squares(self, data: Rows) -> bool:
        solvers = ("auto", "adamw", "least_squares")
        require(self.solver in solvers, "solver", self.solver, "auto, adamw or least_squares")
        unconstrained = self.monotonic_cst is None and not self._wants_pairs
        unconstrained = unconstrained and self.strategy == "joint"
        by_epochs = {"bootstrap": self.bootstrap, "checkpoint": self.checkpoint, "callbacks": self.callbacks}
        asked = [name for name, value in by_epochs.items() if value]
        second_order = self.loss in ("squared_error", "absolute_error") if isinstance(self.loss, str) else False
        possible = second_order and self._count_outputs() == 1 and unconstrained
        if self.solver == "least_squares":
            needed = (
                "'adamw' or 'auto' unless the loss is squared or absolute error, y has one column, and there are no "
            )
            needed += "pairs or constraints"
            require(possible, "solver", self.solver, needed)
            require(not asked, "solver", self.solver, f"'adamw' or 'auto' with {' and '.join(asked)}")
            again = self.warm_start and hasattr(self, "model_")
            require(not again, "solver", self.solver, "'adamw' to go on from the model there is")
            self._require_room(len(data))
            return True
        if self._spec().total_ladders == 0:  # linear: nothing to solve for
            return False
        small = self._parameters_of_member() <= SMALL_PARAMETERS and len(data) <= SMALL_ROWS
        small = small and 3 * self._parameters_of_member() <= len(data)
        free = all(getattr(self, name) == "auto" for name in ("max_epochs", "learning_rate", "weight_decay"))
        free = free and self.dropout == 0 and self.n_iter_no_change is None and not self.warm_start
        return self.solver == "auto" and possible and small and free and not asked

    def _parameters_of_member(self) -> int:
        return self._spec(members=1).n_parameters

    def _require_room(self, n: int) -> None:
        """Refuse least squares that would take many minutes, or whose slopes (starts, n, parameters) gigabytes."""
        each = self._parameters_of_member()
        numbers = STARTS * self._spec().n_members * each * n
        if each > MOST_PARAMETERS or numbers > MOST_NUMBERS or numbers * each > MOST_PRODUCTS:
            raise ValueError(
                "solver='least_squares' must have few parameters, as its equations grow with their square; got "
                f"{each} of them and {n} rows. Take fewer ladders (n_ladders, ladders_per_feature, depth) or rows, or "
                "solver='adamw'."
            )

    def _fit_least_squares(self, data: Rows, validation: Rows | None, generator: torch.Generator) -> None:
        spec = self._spec()
        starts = replace(spec, n_members=STARTS * spec.n_members, dropout=0.0)
        model = CoFrNet(starts, generator=generator, dtype=torch.float64)
        held = None if validation is None else validation.double()
        trained = least_squares(model, data.double(), validation=held)
        assert trained.member_losses is not None
        if self.loss == "absolute_error" and not trained.interrupted:
            trained.member_losses = least_absolute(model, data.double(), validation=held).member_losses
            assert trained.member_losses is not None
        chosen = trained.member_losses.argsort()[: spec.n_members].tolist()
        self.model_ = CoFrNet(spec, dtype=torch.float64)
        states = [model.member(i).state_dict() for i in chosen]
        several = spec.n_members > 1
        self.model_.load_state_dict(
            {name: torch.stack([s[name] for s in states]) if several else states[0][name] for name in states[0]}
        )
        self.model_.eval()
        self._record(trained)

    def _score_scale(self) -> tuple[Floats, Floats, tuple[str, ...], str]:
        q = self._count_outputs()
        names = tuple(self._target_names) or (("prediction",) if q == 1 else tuple(f"prediction {c}" for c in range(q)))
        return self.target_scale_, self.target_mean_, names, self._unit(q)

    def _unit(self, outputs: int) -> str:
        return "unit of each target" if outputs > 1 else f"unit of {getattr(self, 'target_name_', None) or 'y'}"

    def _target_fields(self) -> dict[str, Any]:
        return {
            "mean": self.target_mean_.tolist(),
            "scale": self.target_scale_.tolist(),
            "flat": self._flat_target,
            "names": self._target_names,
        }

    def _restore_target(self, fields: Fields) -> int:
        self.target_mean_, self.target_scale_, self._flat_target = read_scale(fields)
        self._target_names = list(fields.texts("names"))
        if len(self._target_names) not in (0, len(self.target_mean_)):
            raise ModelFileError("targets of the file must have a name each, or none; they have not.")
        return len(self.target_mean_)

    def _count_outputs(self) -> int:
        return len(self.target_mean_)

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        named: dict[str, Loss] = {
            "squared_error": SquaredError(),
            "absolute_error": AbsoluteError(),
            "huber": Huber(),
        }
        if not callable(self.loss) and self.loss not in named:
            raise ValueError(f"loss must be one of {sorted(named)} or a callable; got loss={self.loss!r}.")
        return self.loss if callable(self.loss) else named[self.loss], {}

    def _linear_start(self, x: Floats, y: NDArray[Any], weight: Floats | None) -> tuple[Floats, Floats]:
        fitted = Ridge(alpha=1.0).fit(x.astype(np.float64), y, sample_weight=weight)
        return np.atleast_2d(fitted.coef_), np.atleast_1d(fitted.intercept_)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predictions in the units of y, (n,) or (n, q)."""
        y = self._scores(X) * self.target_scale_ + self.target_mean_
        return y[:, 0] if self._flat_target else y

    def quality(self, X: Any, y: Any) -> Quality:
        """How good the predictions are: metrics with 95 % intervals, predicted and actual values."""
        predicted = self._scores(X) * self.target_scale_ + self.target_mean_
        actual = finite(y, "y")
        actual = actual.reshape(len(actual), -1)
        require_same_length(len(predicted), len(actual))
        if actual.shape != predicted.shape:
            raise ValueError(f"y must have {predicted.shape[1]} output(s), as in training; got {actual.shape[1]}.")
        return quality_of_numbers(predicted, actual, self._score_scale()[2])

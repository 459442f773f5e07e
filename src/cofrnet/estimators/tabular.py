"""scikit-learn estimators for tables: `CoFrNetClassifier` and `CoFrNetRegressor`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from cofrnet.core import clamped
from cofrnet.estimators.encoding import NumericColumn, Scaling, TableEncoder, as_columns
from cofrnet.estimators.interactions import strongest_pairs
from cofrnet.nn import CoFrNet, CoFrNetSpec, Variant
from cofrnet.training import (
    AbsoluteError,
    Callback,
    Checkpoint,
    Huber,
    LogLoss,
    LoopOptions,
    Loss,
    MultinomialLogLoss,
    ProgressBar,
    Rows,
    SquaredError,
    Trained,
    least_squares,
    monotone_projection,
    train,
)

__all__ = ["CoFrNetClassifier", "CoFrNetRegressor"]

Floats = NDArray[np.floating[Any]]

FEWEST_VALIDATION_ROWS = 20  # below this a validation loss says nothing: all rows are trained on
LINEAR_START_ROWS = 20_000  # rows that the linear start is fitted to, at most
PREDICT_CHUNK = 16_384
LADDERS_PER_PAIR = 8
STARTS, SMALL_PARAMETERS, SMALL_ROWS = 20, 100, 5000  # of second-order least squares


class _TabularCoFrNet(BaseEstimator):
    """What the classifier and the regressor share: everything but the meaning of y."""

    variant: Variant
    depth: int
    n_ladders: int
    ladders_per_feature: int
    interactions: int | Sequence[Sequence[Any]]
    n_members: int
    bootstrap: bool
    pole: str
    epsilon: float | None
    max_epochs: int
    batch_size: int
    learning_rate: float | Literal["auto"]
    weight_decay: float | Literal["auto"]
    dropout: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int | None
    categorical_features: Any
    max_categories: int
    monotonic_cst: Any
    scaling: Scaling
    warm_start: bool
    checkpoint: str | Path | None
    checkpoint_every: int
    callbacks: Iterable[Callback] | None
    device: str
    random_state: Any
    verbose: int

    encoder_: TableEncoder
    model_: CoFrNet

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    # ------------------------------------------------------------------------------ what y means, to be filled in

    def _checked_targets(self, y: Any, reset: bool) -> NDArray[Any]:
        """y as numbers for the loss; with `reset`, learn what they stand for (classes, scale)."""
        raise NotImplementedError

    def _fit_least_squares(self, data: Rows, validation: Rows | None, generator: torch.Generator) -> None:
        raise NotImplementedError

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        """The loss, and metrics for the history."""
        raise NotImplementedError

    def _count_outputs(self) -> int:
        raise NotImplementedError

    def _linear_start(self, x: Floats, y: NDArray[Any], weight: Floats | None) -> tuple[Floats, Floats]:
        """Weights (q, p) and intercepts (q,) of the linear model that training starts from."""
        raise NotImplementedError

    def _null_loss(self) -> float:
        """Loss of the best constant score, to measure noise against."""
        raise NotImplementedError

    def _balance(self, y: NDArray[Any], weight: Floats | None) -> Floats | None:
        return weight

    # ------------------------------------------------------------------------------ reading

    def _read(self, X: Any, reset: bool) -> tuple[list[Any], list[bool]]:
        """Columns of X, and which of them are categorical by their type; checked as scikit-learn does."""
        found = as_columns(X)
        if found is None:
            X = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False)
            return list(X.T), [False] * X.shape[1]
        validate_data(self, X, reset=reset, skip_check_array=True)
        columns, natural = found
        rows = len(columns[0]) if columns else 0
        if rows == 0:
            raise ValueError(
                f"X must have at least one row and one column; got 0 sample(s) (shape=({rows}, {len(columns)})) while "
                "a minimum of 1 is required. Pass some rows."
            )
        return columns, natural

    def _names(self) -> list[str]:
        named = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if named is None else [str(name) for name in named]

    def _categorical(self, natural: list[bool]) -> list[bool]:
        chosen, names = self.categorical_features, self._names()
        if isinstance(chosen, str) and chosen == "auto":
            return natural
        chosen = [] if chosen is None else list(chosen)
        if len(chosen) == len(names) and all(isinstance(c, bool | np.bool_) for c in chosen):
            chosen = [j for j, c in enumerate(chosen) if c]
        positions = {_position(c, names, "categorical_features") for c in chosen}
        for j, is_text in enumerate(natural):
            if is_text and j not in positions:
                raise ValueError(
                    f"a column of strings or bools must be categorical; got column {names[j]!r}, which "
                    "categorical_features leaves out. Add it, or use categorical_features='auto'."
                )
        return [j in positions for j in range(len(names))]

    def _encode(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return torch.from_numpy(self.encoder_.encode(self._read(X, reset=False)[0]))

    # ------------------------------------------------------------------------------ fitting

    def _check_parameters(self) -> None:
        at_least = {
            "max_epochs": 1,
            "batch_size": 1,
            "n_members": 1,
            "n_ladders": 1,
            "ladders_per_feature": 1,
            "checkpoint_every": 1,
        }
        for name, least in at_least.items():
            _require(getattr(self, name) >= least, name, getattr(self, name), f"{least} or more")
        rate = self.learning_rate
        _require(rate == "auto" or float(rate) > 0, "learning_rate", rate, "'auto' or positive")
        decay = self.weight_decay
        _require(decay == "auto" or float(decay) >= 0, "weight_decay", decay, "'auto', or 0 or more")
        _require(0 < self.validation_fraction < 1, "validation_fraction", self.validation_fraction, "between 0 and 1")
        _require(
            self.scaling in ("quantile", "standard", "minmax"),
            "scaling",
            self.scaling,
            "'quantile', 'standard' or 'minmax'",
        )

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Self:
        self._check_parameters()
        again = self.warm_start and hasattr(self, "model_")
        columns, natural = self._read(X, reset=not again)
        n = len(columns[0])
        targets = self._checked_targets(y, reset=not again)
        _require_same_length(n, len(targets))
        if n < 2:
            raise ValueError(f"X must have at least two rows to fit; got n_samples={n}. Pass more rows.")
        weight = self._balance(targets, _checked_weight(sample_weight, n))
        rng = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
        rows, held = self._split(targets, rng, given=X_val is not None)
        if not again:
            learned_from = [_rows_of(column, rows) for column in columns]
            self.encoder_ = TableEncoder.learn(
                learned_from, self._names(), self._categorical(natural), self.scaling, self.max_categories
            )
        x = self.encoder_.encode(columns)
        data = _as_rows(x, targets, weight, rows)
        validation = None if held is None else _as_rows(x, targets, weight, held)
        if X_val is not None:
            x_val = self.encoder_.encode(self._read(X_val, reset=False)[0])
            t_val = self._checked_targets(y_val, reset=False)
            _require_same_length(len(x_val), len(t_val))
            validation = _as_rows(x_val, t_val, None, np.arange(len(x_val)))
        if self._solves_least_squares(data):
            self._fit_least_squares(data, validation, generator)
            return self
        if not again:
            self.pairs_ = self._pairs(data, validation, generator, rng)
            self.model_ = CoFrNet(self._spec(self.pairs_), generator=generator)
            self._start_from_linear(data)
        self._train(data, validation, generator, rng)
        return self

    def _pairs(
        self, data: Rows, validation: Rows | None, generator: torch.Generator, rng: Any
    ) -> list[tuple[int, int]]:
        """Positions of the pairs of columns that get ladders of their own."""
        wanted, names = self.interactions, self._names()
        if not isinstance(wanted, int | np.integer):
            pairs = [tuple(_position(c, names, "interactions") for c in pair) for pair in wanted]
            _require(all(len(set(p)) == 2 for p in pairs), "interactions", wanted, "pairs of different columns")
            return pairs  # type: ignore[return-value]
        _require(wanted >= 0, "interactions", wanted, "0 or more, or a list of pairs")
        if wanted == 0 or len(names) < 2:
            return []
        additive = clone(self).set_params(
            variant="D", interactions=0, n_members=1, checkpoint=None, verbose=0, callbacks=None, max_epochs=15
        )
        for name, value in vars(self).items():  # what is known of columns and targets already
            if name not in additive.get_params():
                setattr(additive, name, value)
        additive.model_ = CoFrNet(additive._spec(), generator=generator)
        additive._start_from_linear(data)
        additive._train(data, validation, generator, rng)
        x = data.x.requires_grad_(False)
        scores = additive.model_.member_scores(x).detach().requires_grad_()  # (n, 1, q)
        (slope,) = torch.autograd.grad(self._losses()[0](scores, data.y).sum(), scores)
        free = [j for j in range(len(names)) if j not in self._monotone()]
        columns = [_one_number(x[:, self.encoder_.column_inputs[j]].numpy()) for j in free]
        found = strongest_pairs(columns, -slope.squeeze(1).numpy(), int(wanted))
        return [(free[i], free[j]) for i, j in found]

    def _monotone(self) -> dict[int, int]:
        """Positions of columns that the score must rise (+1) or fall (-1) with."""
        given, names = self.monotonic_cst, self._names()
        if given is None:
            return {}
        if not isinstance(given, dict):
            _require(len(given) == len(names), "monotonic_cst", given, "a dict, or one of -1, 0, 1 for each column")
            given = dict(enumerate(given))
        signs = {_position(c, names, "monotonic_cst"): int(sign) for c, sign in given.items()}
        _require(set(signs.values()) <= {-1, 0, 1}, "monotonic_cst", self.monotonic_cst, "made of -1, 0 and 1")
        for j, sign in signs.items():
            if sign and not isinstance(self.encoder_.columns[j], NumericColumn):
                raise ValueError(f"monotonic_cst must name numeric columns; got {names[j]!r}, which is categorical.")
        if any(signs.values()) and self._count_outputs() > 1:
            raise ValueError("monotonic_cst must be used with one score; got several classes or targets.")
        return {j: sign for j, sign in signs.items() if sign}

    def _projection(self, data: Rows) -> Callable[[], None] | None:
        signs = self._monotone()
        if not signs:
            return None
        _require(self.variant in ("D", "S", "DL"), "variant", self.variant, "one with curves for monotonic_cst")
        paired = {j for pair in getattr(self, "pairs_", []) for j in pair}
        _require(not paired & set(signs), "interactions", self.interactions, "pairs of columns that are not monotone")
        first = {self.encoder_.column_inputs[j][0]: sign for j, sign in signs.items()}
        return monotone_projection(self.model_, first, data.x.amin(0), data.x.amax(0))

    def _spec(self, pairs: Sequence[tuple[int, int]] = ()) -> CoFrNetSpec:
        inputs = self.encoder_.column_inputs
        subsets = [(*inputs[i], *inputs[j]) for i, j in pairs for _ in range(LADDERS_PER_PAIR)]
        return CoFrNetSpec(
            subsets=tuple(subsets),
            n_features=self.encoder_.n_inputs,
            n_outputs=self._count_outputs(),
            variant=self.variant,
            depth=self.depth,
            n_ladders=self.n_ladders,
            ladders_per_feature=self.ladders_per_feature,
            curved=self.encoder_.curved_inputs,
            pole=self.pole,
            epsilon=self.epsilon,
            dropout=self.dropout,
            n_members=self.n_members,
        )

    def _split(self, y: NDArray[Any], rng: np.random.RandomState, given: bool) -> tuple[Any, Any]:
        """Positions of the rows to train on, and of those held out; None where none are."""
        everything = np.arange(len(y))
        if given or not self.early_stopping or len(y) * self.validation_fraction < FEWEST_VALIDATION_ROWS:
            return everything, None
        stratify = None
        if isinstance(self, ClassifierMixin):
            counts = np.bincount(y.astype(np.int64))
            stratify = y if counts.min() * self.validation_fraction >= 1 else None
        kept, held = train_test_split(
            everything, test_size=self.validation_fraction, random_state=rng, stratify=stratify
        )
        return kept, held

    def _start_from_linear(self, data: Rows) -> None:
        """Start at the linear model: the head at 0, the linear path where least squares or log-loss puts it."""
        few = slice(0, LINEAR_START_ROWS)
        weight = None if data.weight is None else data.weight[few].numpy()
        start = self._linear_start(data.x[few].numpy(), data.y[few].numpy(), weight)
        model = self.model_
        assert model.linear is not None
        assert model.intercept is not None
        with torch.no_grad():
            model.head.zero_()
            for parameter, values in zip((model.linear, model.intercept), start, strict=True):
                parameter.copy_(torch.as_tensor(np.asarray(values), dtype=parameter.dtype).expand_as(parameter))

    def _options(self, n: int) -> LoopOptions:
        additive = self.variant == "D"
        decay = AutomaticDecay(self.encoder_.n_inputs / n, self._null_loss(), 0.2 if additive else 1.0)
        automatic_rate = 0.05 if additive else 0.02
        return LoopOptions(
            max_epochs=self.max_epochs,
            batch_size=min(self.batch_size, max(16, n // 8)),  # a few steps an epoch even where rows are few
            learning_rate=automatic_rate if self.learning_rate == "auto" else self.learning_rate,
            weight_decay=decay if self.weight_decay == "auto" else float(self.weight_decay),
            patience=self.n_iter_no_change if self.early_stopping else None,
        )

    def _solves_least_squares(self, data: Rows) -> bool:
        return False

    def _train(self, data: Rows, validation: Rows | None, generator: torch.Generator, rng: Any) -> None:
        model, device = self.model_, _device(self.device)
        if self.bootstrap:
            data = _bootstrapped(data, self.n_members, rng)
        loss, metrics = self._losses()
        options = self._options(len(data))
        checkpoint = None
        if self.checkpoint is not None:
            parts = [model.spec.to_dict(), repr(options), repr(loss)]
            print_ = _fingerprint(parts, data, *([] if validation is None else [validation]))
            checkpoint = Checkpoint(Path(self.checkpoint), self.checkpoint_every, print_)
        project = self._projection(data)
        if project is not None:
            project()
            device = torch.device("cpu")
        model.to(device)
        model.dropout.generator = generator
        share = _clamped_share(model, data.x[:256].to(device)) if self.pole == "clamp" else None
        with ExitStack() as stack:
            callbacks = list(self.callbacks or ())
            if self.verbose:
                callbacks.append(stack.enter_context(ProgressBar(type(self).__name__)))
            trained = train(
                model,
                loss,
                data.to(device),
                validation=None if validation is None else validation.to(device),
                options=options,
                generator=generator,
                metrics=metrics,
                clamped_share=share,
                project=project,
                callbacks=callbacks,
                checkpoint=checkpoint,
            )
        model.dropout.generator = None
        model.to("cpu")
        self._record(trained)

    def _record(self, trained: Trained) -> None:
        self.history_ = trained.history
        self.n_iter_ = len(trained.history.get("loss", []))
        self.best_epoch_ = trained.best_epoch

    # ------------------------------------------------------------------------------ predicting

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, q), in chunks of bounded memory."""
        x = self._encode(X).to(self.model_.head.dtype)
        with torch.no_grad():
            parts = [self.model_(part) for part in x.split(PREDICT_CHUNK)]
        return torch.cat(parts).double().numpy()


@dataclass(frozen=True)
class AutomaticDecay:
    """Weight decay as a function of the validation loss: noisy tables, and wide ones of few rows, get more.

        72 (noise/signal)^0.65 (p/n)^0.4, from 1 to 16,     noise = loss / loss of the best constant = 1 - signal

    times `share`, which is small for additive models: they have little to overfit with. The form and its numbers were
    chosen on held-out training rows of nine tables.
    """

    width: float  # p/n
    null_loss: float
    share: float = 1.0

    def __call__(self, loss: float) -> float:
        """The decay of the whole training."""
        noise = min(0.95, loss / self.null_loss) if math.isfinite(loss) and self.null_loss > 0 else 0.95
        return self.share * float(np.clip(72 * (noise / (1 - noise)) ** 0.65 * self.width**0.4, 1.0, 16.0))


# The constructors are written out, twice: scikit-learn reads their signature.


class CoFrNetClassifier(ClassifierMixin, _TabularCoFrNet):
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
    n_members : int
        Models trained side by side and averaged; the result is one CoFrNet.
    bootstrap : bool
        Whether each member sees a bootstrap sample of the rows.
    pole, epsilon
        Pole handling: "smooth" or "clamp" (the paper's), and its epsilon.
    max_epochs : int
    batch_size : int
        Rows of one step; fewer where there are not enough for eight steps an epoch.
    learning_rate : float or "auto"
        Highest of the one cycle it goes through; "auto" is 0.05 for "D" and 0.02 for the others.
    weight_decay : float or "auto"
        How much a weight that the data do not hold shrinks over the whole training: by exp(-weight_decay).
    dropout : float
        Share of ladder values dropped in training.
    early_stopping : bool
        Whether to hold out rows and keep the weights that are best on them.
    validation_fraction : float
        Share of rows held out; none are where this makes fewer than 20.
    n_iter_no_change : int, optional
        Epochs without improvement after which training ends; None goes through all.
    class_weight : dict, "balanced" or None
    categorical_features : "auto" or list
        Names or positions; "auto" takes columns of strings, categories and bools.
    max_categories : int
        Most levels of a categorical column that get an effect of their own; the others share one.
    monotonic_cst : dict or list, optional
        {column: +1 or -1}, by name or position, or one of +1, -1, 0 for each column: the score must rise or fall with
        it. Holds exactly. Such a column acts alone: full ladders and pairs do not read it.
    scaling : {"quantile", "standard", "minmax"}
        How numeric columns are scaled; "quantile" withstands heavy tails and outliers.
    warm_start : bool
        Whether `fit` goes on from the model there is.
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
        n_ladders: int = 64,
        ladders_per_feature: int = 8,
        interactions: int | Sequence[Sequence[Any]] = 0,
        n_members: int = 1,
        bootstrap: bool = False,
        pole: str = "smooth",
        epsilon: float | None = None,
        max_epochs: int = 40,
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

    def _checked_targets(self, y: Any, reset: bool) -> NDArray[Any]:
        y = column_or_1d(_plain(y), warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y must have two classes or more; got one class, {self.classes_[0]}. Pass rows of both."
                )
            shares = np.unique(y, return_counts=True)[1] / len(y)
            self._entropy = float(-(shares * np.log(shares)).sum())
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[codes] != y)
        if len(unknown):
            raise ValueError(
                f"y must hold known classes; got {y[unknown[0]]}. The classes are {self.classes_.tolist()}."
            )
        return codes.astype(np.float32) if len(self.classes_) == 2 else codes

    def _balance(self, y: NDArray[Any], weight: Floats | None) -> Floats | None:
        if self.class_weight is None:
            return weight
        balanced = compute_sample_weight(self.class_weight, self.classes_[y.astype(np.int64)])
        return balanced if weight is None else balanced * weight

    def _null_loss(self) -> float:
        return self._entropy

    def _count_outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        if len(self.classes_) == 2:
            return LogLoss(), {"accuracy": lambda s, y: ((s[..., 0] > 0) == (y.unsqueeze(1) > 0.5)).to(s.dtype)}
        return MultinomialLogLoss(), {"accuracy": lambda s, y: (s.argmax(-1) == y.unsqueeze(1)).to(s.dtype)}

    def _linear_start(self, x: Floats, y: NDArray[Any], weight: Floats | None) -> tuple[Floats, Floats]:
        present = np.unique(y)
        q, p = self._count_outputs(), x.shape[1]
        coefficients, intercepts = np.zeros((q, p)), np.zeros(q)
        if len(present) > 1:
            fitted = LogisticRegression(max_iter=100, tol=1e-3).fit(x, y, sample_weight=weight)
            where = slice(None) if q == 1 else present.astype(np.int64)
            if q == 1 or len(present) > 2:
                coefficients[where], intercepts[where] = fitted.coef_, fitted.intercept_
        return coefficients, intercepts

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores: log-odds of the second class (n,), or one score a class (n, q)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, (n, n_classes)."""
        scores = torch.from_numpy(self._scores(X))
        if scores.shape[1] == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        return scores.softmax(1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        scores = self._scores(X)
        codes = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(1)
        return self.classes_[codes]


class CoFrNetRegressor(RegressorMixin, _TabularCoFrNet):
    """Regressor made of continued fractions.

    Parameters
    ----------
    loss : {"squared_error", "absolute_error", "huber"} or callable
        A callable takes scores (n, members, q) and scaled targets (n, q) and returns the cost of each row and member.
    solver : {"auto", "adamw", "least_squares"}
        "least_squares" is Levenberg-Marquardt from 20 starts for each member, for one target and squared error; "auto"
        takes it where the model has at most 100 parameters and the table three times as many rows, and at most 5000.
    variant, depth, n_ladders, ladders_per_feature, interactions, n_members, bootstrap, pole, epsilon, max_epochs, \
batch_size, learning_rate, weight_decay, dropout, early_stopping, validation_fraction, n_iter_no_change, \
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
        n_ladders: int = 64,
        ladders_per_feature: int = 8,
        interactions: int | Sequence[Sequence[Any]] = 0,
        n_members: int = 1,
        bootstrap: bool = False,
        pole: str = "smooth",
        epsilon: float | None = None,
        max_epochs: int = 40,
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

    def _checked_targets(self, y: Any, reset: bool) -> NDArray[Any]:
        y = check_array(_plain(y), ensure_2d=False, dtype=np.float64, input_name="y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if reset:
            self._flat_target = y.ndim == 1
            self.target_mean_ = np.atleast_1d(y.mean(0))
            spread = np.atleast_1d(y.std(0))
            self.target_scale_ = np.where(spread > 0, spread, 1.0)
        y = y.reshape(len(y), -1)
        if y.shape[1] != len(self.target_mean_):
            raise ValueError(f"y must have {len(self.target_mean_)} output(s), as before; got {y.shape[1]}.")
        return ((y - self.target_mean_) / self.target_scale_).astype(np.float32)

    def _solves_least_squares(self, data: Rows) -> bool:
        solvers = ("auto", "adamw", "least_squares")
        _require(self.solver in solvers, "solver", self.solver, "auto, adamw or least_squares")
        unconstrained = self.monotonic_cst is None and np.ndim(self.interactions) == 0 and self.interactions == 0
        possible = self.loss == "squared_error" and self._count_outputs() == 1 and unconstrained
        if self.solver == "least_squares":
            needed = "'adamw' or 'auto' unless loss='squared_error', y has one column, and no pairs or constraints"
            _require(possible, "solver", self.solver, needed)
            return True
        each = self._spec().n_parameters // self.n_members
        small = each <= SMALL_PARAMETERS and 3 * each <= len(data) <= SMALL_ROWS
        return self.solver == "auto" and possible and small

    def _fit_least_squares(self, data: Rows, validation: Rows | None, generator: torch.Generator) -> None:
        spec = self._spec()
        starts = replace(spec, n_members=STARTS * spec.n_members, dropout=0.0)
        model = CoFrNet(starts, generator=generator, dtype=torch.float64)
        trained = least_squares(model, data.double(), validation=None if validation is None else validation.double())
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

    def _null_loss(self) -> float:
        return 1.0  # targets are scaled to variance 1

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


# ---------------------------------------------------------------------------------------------- small helpers


def _require(holds: bool, name: str, value: Any, what: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {what}; got {name}={value!r}.")


def _require_same_length(rows: int, targets: int) -> None:
    if rows != targets:
        raise ValueError(f"X and y must have as many rows; got inconsistent numbers of samples: {rows} and {targets}.")


def _position(feature: Any, names: list[str], parameter: str) -> int:
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"{parameter} must name columns of X; got {feature!r}. The columns are {names[:20]}.")
        return names.index(feature)
    if not 0 <= int(feature) < len(names):
        raise ValueError(f"{parameter} must name columns from 0 to {len(names) - 1}; got {feature!r}.")
    return int(feature)


def _plain(y: Any) -> Any:
    """y of a polars or pandas series or frame as an array; anything else as it is."""
    if y is None:
        raise ValueError(
            "y must be given to fit; got None (this estimator requires y to be passed, but the target y is None)."
        )
    native = nw.from_native(y, eager_only=True, allow_series=True, pass_through=True)
    return native.to_numpy() if isinstance(native, nw.Series | nw.DataFrame) else y


def _checked_weight(weight: Any, n: int) -> NDArray[np.float64] | None:
    if weight is None:
        return None
    if np.isscalar(weight):
        return np.full(n, float(weight))  # type: ignore[arg-type]
    weight = check_array(_plain(weight), ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have one number a row, shape ({n},); got shape {weight.shape}.")
    negative = np.flatnonzero(weight < 0)
    if len(negative):
        raise ValueError(f"sample_weight must be 0 or more; got {weight[negative[0]]:g} in row {negative[0]}.")
    if weight.sum() == 0:
        raise ValueError("sample_weight must not be zero for every row; got no positive weight. Pass some.")
    return weight


def _one_number(inputs: NDArray[Any]) -> NDArray[Any]:
    """The inputs of a column as one number a row: itself, or the code of its level."""
    return inputs[:, 0] if inputs.shape[1] == 1 else inputs @ np.arange(1, inputs.shape[1] + 1)


def _rows_of(column: Any, rows: NDArray[np.int64]) -> Any:
    return column[rows.tolist()] if isinstance(column, nw.Series) else column[rows]


def _as_rows(x: Floats, y: NDArray[Any], weight: Floats | None, rows: NDArray[np.int64]) -> Rows:
    scaled = None if weight is None else torch.from_numpy((weight[rows] / weight[rows].mean()).astype(np.float32))
    return Rows(torch.from_numpy(x[rows]), torch.from_numpy(np.asarray(y)[rows]), scaled)


def _bootstrapped(data: Rows, members: int, rng: np.random.RandomState) -> Rows:
    """The rows with a weight for each member: how often a sample with replacement draws them."""
    n = len(data)
    counts = np.stack([np.bincount(rng.randint(0, n, n), minlength=n) for _ in range(members)], axis=1)
    weight = torch.from_numpy(counts.astype(np.float32))  # (n, members)
    return Rows(data.x, data.y, weight if data.weight is None else weight * data.weight.unsqueeze(1))


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _clamped_share(model: CoFrNet, x: Tensor) -> Callable[[], float]:
    """A function that says which share of rungs is clamped on the rows x."""

    def share() -> float:
        with torch.no_grad():
            banks = model.read_by_banks(x)
            rungs = ((bank, bank.partial_denominators(reads)) for _, bank, reads, _ in banks)
            inside = [clamped(a, bank.pole, bank.epsilon)[1:].float().mean() for bank, a in rungs]
        return float(torch.stack(inside).mean()) if inside else 0.0

    return share


def _fingerprint(parts: Sequence[Any], *data: Rows) -> str:
    digest = hashlib.sha256(json.dumps(parts, default=repr).encode())
    for rows in data:
        for tensor in (rows.x, rows.y, rows.weight):
            if tensor is not None:
                digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()

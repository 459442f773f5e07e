"""What the estimators for tables share: reading, encoding, fitting and scoring; everything but the meaning of y."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import validate_data
from torch import Tensor

from cofrnet.estimators.checks import (
    checked_weight,
    is_auto,
    is_number,
    is_whole,
    name_of,
    pairs_of,
    position_of,
    require,
    require_same_length,
    signs_of,
)
from cofrnet.estimators.column_inputs import NumericColumn
from cofrnet.estimators.columns import as_columns, is_categorical, unmasked
from cofrnet.estimators.defaults import Goal, automatic_members, has_fewer_ladders, loop_options
from cofrnet.estimators.encoding import Scaling, TableEncoder
from cofrnet.estimators.explaining import Explaining
from cofrnet.estimators.fitting import Fitting, chosen_rows, device_named, require_both, unharmed
from cofrnet.estimators.interactions import strongest_pairs
from cofrnet.estimators.learning import LearningColumns, LinearModel
from cofrnet.estimators.reporting import Reporting
from cofrnet.estimators.saving_tables import SavingTables
from cofrnet.nn import CoFrNet, CoFrNetSpec, Variant
from cofrnet.training import (
    Callback,
    LoopOptions,
    Rows,
    Trained,
    after_training,
    boosted,
    evaluate,
    monotone_projection,
    rungwise,
    train,
)

__all__ = ["TabularCoFrNet"]

Floats = NDArray[np.floating[Any]]

PREDICT_CHUNK = 16_384  # rows, for bounded memory
LADDERS_PER_PAIR = 8
MOST_DEPTH = 1000
BOOSTED_GROUPS = 4


class TabularCoFrNet(Explaining, Reporting, SavingTables, LearningColumns, Fitting, BaseEstimator):
    """What the classifier and the regressor share: everything but the meaning of y."""

    variant: Variant
    depth: int
    n_ladders: int
    ladders_per_feature: int
    interactions: int | Sequence[Sequence[Any]]
    n_members: int | Literal["auto"]
    bootstrap: bool
    strategy: Literal["joint", "boosted", "rungwise"]
    pole: str
    epsilon: float | None
    max_epochs: int | Literal["auto"]
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
    target_name_: str | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    # ------------------------------------------------------------------------------ what y means, to be filled in

    def _checked_targets(self, y: Any, reset: bool, weight: Floats | None = None) -> NDArray[Any]:
        """y as numbers for the loss; with `reset`, learn what they stand for (classes, scale)."""
        raise NotImplementedError

    def _fit_least_squares(self, data: Rows, validation: Rows | None, generator: torch.Generator) -> None:
        raise NotImplementedError

    def _balance(self, y: NDArray[Any], weight: Floats | None, like: NDArray[Any] | None = None) -> Floats | None:
        return weight

    # ------------------------------------------------------------------------------ reading

    def _read(self, X: Any, reset: bool) -> list[Any]:
        """Columns of X, checked as scikit-learn does."""
        X = unmasked(X)
        columns = as_columns(X)
        if columns is None:
            X = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False)
            return list(X.T)
        validate_data(self, X, reset=reset, skip_check_array=True)
        rows = len(columns[0]) if columns else 0
        if rows == 0:
            raise ValueError(
                f"X must have at least one row and one column; got 0 sample(s) (shape=({rows}, {len(columns)})) while "
                "a minimum of 1 is required. Pass some rows."
            )
        return columns

    def _names(self) -> list[str]:
        named = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if named is None else [str(name) for name in named]

    def _categorical(self, columns: Sequence[Any]) -> list[bool]:
        chosen, names = self.categorical_features, self._names()
        natural = [is_categorical(column) for column in columns]
        if isinstance(chosen, str) and chosen == "auto":
            return natural
        fits = chosen is None or (np.iterable(chosen) and not isinstance(chosen, str))
        require(fits, "categorical_features", chosen, "'auto', or a list of names or positions")
        chosen = [] if chosen is None else list(chosen)
        if len(chosen) == len(names) and all(isinstance(c, bool | np.bool_) for c in chosen):
            chosen = [j for j, c in enumerate(chosen) if c]
        positions = {position_of(c, names, "categorical_features") for c in chosen}
        for j, is_text in enumerate(natural):
            if is_text and j not in positions:
                raise ValueError(
                    f"a column of strings or bools must be categorical; got column {names[j]!r}, which "
                    "categorical_features leaves out. Add it, or use categorical_features='auto'."
                )
        return [j in positions for j in range(len(names))]

    # ------------------------------------------------------------------------------ fitting

    def _check_parameters(self) -> None:
        counts = ("batch_size", "n_ladders", "ladders_per_feature", "checkpoint_every", "max_categories")
        for name, least in {**dict.fromkeys(counts, 1), "depth": 0}.items():
            value = getattr(self, name)
            require(is_whole(value, least), name, value, f"an integer, {least} or more")
        require(self.depth <= MOST_DEPTH, "depth", self.depth, f"{MOST_DEPTH} or less")
        patience, rate, decay = self.n_iter_no_change, self.learning_rate, self.weight_decay
        require(patience is None or is_whole(patience, 1), "n_iter_no_change", patience, "None, or 1 or more")
        for name in ("max_epochs", "n_members"):
            value = getattr(self, name)
            require(is_auto(value) or is_whole(value, 1), name, value, "'auto', or 1 or more")
        require(is_auto(rate) or is_number(rate, 0), "learning_rate", rate, "'auto' or positive and finite")
        fits = is_auto(decay) or is_number(decay, -1e-300)
        require(fits, "weight_decay", decay, "'auto', or 0 or more and finite")
        share, dropout, epsilon = self.validation_fraction, self.dropout, self.epsilon
        require(is_number(share, 0, 1), "validation_fraction", share, "between 0 and 1")
        require(dropout == 0 or is_number(dropout, 0, 1), "dropout", dropout, "0 or more and less than 1")
        require(epsilon is None or is_number(epsilon, 0), "epsilon", epsilon, "None or positive and finite")
        require(self.callbacks is None or np.iterable(self.callbacks), "callbacks", self.callbacks, "None, or a list")
        path = self.checkpoint
        require(path is None or not Path(path).is_dir(), "checkpoint", path, "the path of a file, not of a folder")
        device_named(self.device)
        strategies = ("joint", "boosted", "rungwise")
        require(self.strategy in strategies, "strategy", self.strategy, "'joint', 'boosted' or 'rungwise'")
        scalings = ("quantile", "standard", "minmax")
        require(self.scaling in scalings, "scaling", self.scaling, "'quantile', 'standard' or 'minmax'")

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Self:
        with unharmed(self, self.warm_start):
            return self._fit_rows(X, y, sample_weight, X_val, y_val)

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Self:
        self._check_parameters()
        require_both(X_val, y_val)
        again = self.warm_start and hasattr(self, "model_")
        if again:
            self._require_same_structure()
        self.target_name_ = name_of(y)
        columns = self._read(X, reset=not again)
        n = len(columns[0])
        given = checked_weight(sample_weight, n)
        targets = self._checked_targets(y, reset=not again, weight=given)
        require_same_length(n, len(targets))
        if n < 2:
            raise ValueError(f"X must have at least two rows to fit; got n_samples={n}. Pass more rows.")
        weight = self._balance(targets, given)
        rng = self._draws()
        generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
        rows, held = _that_count(np.arange(n), weight), None
        members, in_turn = self._count_members(len(rows), len(columns), again), None
        if X_val is None:
            in_turn = self._held_in_turn(targets[rows], members, rng, None if weight is None else weight[rows])
        if in_turn is None:
            rows, held = self._split(targets, rng, X_val is not None, weight)
            rows = _that_count(rows, weight)
        if len(rows) < 2:
            raise ValueError(f"X must have at least two rows whose weight is not 0; got {len(rows)}. Pass more rows.")
        if not again:
            self.encoder_ = self._learn_columns(columns, targets, weight, rows, rng)
        x = torch.from_numpy(self.encoder_.encode(columns))
        data = self._without_own_effects(chosen_rows(x, targets, weight, rows), columns, rows, rng)
        validation = None if held is None else chosen_rows(x, targets, weight, held)
        if X_val is not None:
            x_val = torch.from_numpy(self.encoder_.encode(self._read(X_val, reset=False)))
            t_val = self._checked_targets(y_val, reset=False)
            require_same_length(len(x_val), len(t_val))
            own = self._balance(t_val, None, like=targets)
            validation = chosen_rows(x_val, t_val, own, np.arange(len(t_val)))
        of_one = (data, validation) if in_turn is None else data.in_turn(in_turn[:, :1])
        if self._solves_least_squares(data):
            self.pairs_ = []
            self._fit_least_squares(*of_one, generator)
        else:
            if in_turn is not None:
                data, validation = data.in_turn(in_turn)
            linear, interrupted = self._linear_model(data), False
            if again:
                self._go_on_in_single_precision()
            else:
                self.pairs_, interrupted = self._pairs(*of_one, generator)
                self.model_ = CoFrNet(self._spec(self.pairs_, members), generator=generator)
                linear.start(self.model_)
            if interrupted:
                self._record(Trained())
            else:
                self._train(data, validation, linear, generator, again)
        with after_training():
            self.profile_ = self._profile(columns, x.numpy())
        return self

    def _require_same_structure(self) -> None:
        """Refuse to go on from a model that is not the one now asked for.

        Nor from a boosted one: its groups correct each other, and are not trained side by side.
        """
        there, asked = self.model_.spec, self._spec()
        if there.n_members > 1 and self.strategy == "boosted":
            raise ValueError(
                "a model to go on from must not be boosted, as its groups of ladders correct each other; got "
                "strategy='boosted'. Fit it anew, without warm_start."
            )
        names = ["variant", "depth", "n_ladders", "ladders_per_feature", "pole", "epsilon", "dropout"]
        if not is_auto(self.n_members) or has_fewer_ladders(self.variant, self.n_ladders, self.ladders_per_feature):
            names.append("n_members")
        for name in names:
            own = getattr(there, name)
            require(own == getattr(asked, name), name, getattr(self, name), f"{own!r}, as in the fit to go on from")
        wanted, pairs = self.interactions, self.pairs_
        if isinstance(wanted, int | np.integer):
            possible = len(self._names()) - len(self._signs()) > 1
            same = len(pairs) <= wanted and (len(pairs) > 0) == (wanted > 0 and possible)
        else:
            same = pairs == pairs_of(wanted, self._names())
        require(same, "interactions", wanted, f"the {len(pairs)} pairs of the fit to go on from")

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, first: bool) -> Self:
        """One pass over the rows, from the model there is; the `first` call learns the columns and starts the model."""
        with unharmed(self, goes_on=True):
            return self._pass(X, y, sample_weight, first)

    def _pass(self, X: Any, y: Any, sample_weight: Any, first: bool) -> Self:
        self._check_parameters()
        if not first:
            self._require_same_structure()
        self.target_name_ = name_of(y)
        columns = self._read(X, reset=first)
        given = checked_weight(sample_weight, len(columns[0]))
        targets = self._checked_targets(y, reset=first and not hasattr(self, "classes_"), weight=given)
        require_same_length(len(columns[0]), len(targets))
        weight = self._balance(targets, given)
        rng = self._draws()
        generator = torch.Generator().manual_seed(int(rng.randint(2**31 - 1)))
        rows = _that_count(np.arange(len(targets)), weight)
        if first:
            self.encoder_ = self._learn_columns(columns, targets, weight, rows, rng)
        x = torch.from_numpy(self.encoder_.encode(columns))
        data = chosen_rows(x, targets, weight, rows)
        if first:
            data = self._without_own_effects(data, columns, rows, rng)
            linear = self._linear_model(data)
            self.pairs_, _ = self._pairs(data, None, generator)
            self.model_ = CoFrNet(self._spec(self.pairs_), generator=generator)
            linear.start(self.model_)
        else:
            self._go_on_in_single_precision()
        options = replace(self._options(len(data)), max_epochs=1, weight_decay=0.0, cycle=False)
        options = replace(options, learning_rate=0.2 * options.learning_rate)
        train(
            self.model_,
            self._losses()[0],
            data,
            options=options,
            generator=generator,
            project=self._projection(data),
        )
        self.profile_ = self._profile(columns, x.numpy(), None if first else self.profile_)
        return self

    def _go_on_in_single_precision(self) -> None:
        """Put a copy in the place of a model in float64, which least squares leaves: training is in float32."""
        if self.model_.head.dtype != torch.float32:
            self.model_ = copy.deepcopy(self.model_).float()

    def _pairs(
        self, data: Rows, validation: Rows | None, generator: torch.Generator
    ) -> tuple[list[tuple[int, int]], bool]:
        """Positions of the pairs of columns that get ladders of their own, and whether finding them was interrupted."""
        wanted, names = self.interactions, self._names()
        if not isinstance(wanted, int | np.integer):
            return pairs_of(wanted, names), False
        require(wanted >= 0, "interactions", wanted, "0 or more, or a list of pairs")
        if wanted == 0 or len(names) < 2:
            return [], False
        quiet = {"checkpoint": None, "callbacks": None, "verbose": 0, "max_epochs": 15}
        additive = clone(self).set_params(variant="D", strategy="joint", interactions=0, n_members=1, **quiet)
        for name, value in vars(self).items():  # what is known of columns and targets already
            if name not in additive.get_params():
                setattr(additive, name, value)
        additive.pairs_ = []
        additive.model_ = CoFrNet(additive._spec(), generator=generator)
        linear = self._linear_model(data)
        linear.start(additive.model_)
        if additive._train(data, validation, linear, generator).interrupted:
            return [], True
        free = [j for j in range(len(names)) if j not in self._monotone()]
        columns = [self._one_number(j, data.x) for j in free]
        found = strongest_pairs(columns, self._residual(additive.model_, data), int(wanted))
        return [(free[i], free[j]) for i, j in found], False

    def _one_number(self, j: int, x: Tensor) -> Floats:
        """The inputs x (n, p) of column j as one number a row: its first effect, itself, or the code of its level."""
        own, column = x[:, self.encoder_.column_inputs[j]].numpy(), self.encoder_.columns[j]
        if column.effects:
            return own[:, column.first_effect]
        if isinstance(column, NumericColumn):
            return own[:, 0]
        return own @ np.arange(1, own.shape[1] + 1)

    def _signs(self) -> dict[int, int]:
        """Positions of columns that the score must rise (+1) or fall (-1) with, as they are asked for."""
        return signs_of(self.monotonic_cst, self._names())

    def _monotone(self) -> dict[int, int]:
        """The signs that are asked for, if columns and targets are such that they can be kept."""
        signs, names = self._signs(), self._names()
        for j in signs:
            if not isinstance(self.encoder_.columns[j], NumericColumn):
                raise ValueError(f"monotonic_cst must name numeric columns; got {names[j]!r}, which is categorical.")
        if signs and self._count_outputs() > 1:
            raise ValueError("monotonic_cst must be used with one score; got several classes or targets.")
        return signs

    def _projection(self, data: Rows) -> Callable[[], None] | None:
        signs = self._monotone()
        if not signs:
            return None
        require(self.variant in ("D", "S", "DL"), "variant", self.variant, "one with curves for monotonic_cst")
        paired = {j for pair in getattr(self, "pairs_", []) for j in pair}
        require(not paired & set(signs), "interactions", self.interactions, "pairs of columns that are not monotone")
        first: dict[int, int] = {}
        still: list[int] = []  # hats and effects of a fit that this one goes on from
        low, high = data.x.amin(0), data.x.amax(0)
        for j, sign in signs.items():
            column, own = self.encoder_.columns[j], self.encoder_.column_inputs[j]
            assert isinstance(column, NumericColumn)
            first[own[0]] = sign
            still += own[column.first_hat :]
            if column.bounded:  # all there can be, and not only what these rows have
                low[own[0]], high[own[0]] = column.values[0], column.values[-1]
        return monotone_projection(self.model_, first, low, high, still)

    def _count_members(self, n: int, columns: int, again: bool) -> int:
        """How many models a fit to n rows of so many columns trains side by side."""
        if not is_auto(self.n_members):
            return int(self.n_members)
        if again:
            return self.model_.spec.n_members
        if self.strategy == "boosted" or has_fewer_ladders(self.variant, self.n_ladders, self.ladders_per_feature):
            return 1
        return automatic_members(n, columns, self._wants_pairs)

    @property
    def _wants_pairs(self) -> bool:
        return bool(np.ndim(self.interactions) > 0 or self.interactions != 0)

    def _spec(self, pairs: Sequence[tuple[int, int]] = (), members: int | None = None) -> CoFrNetSpec:
        """What the model is made of; of `members`, as many as asked for, or one, where they are not counted yet."""
        asked = 1 if is_auto(self.n_members) else int(self.n_members)
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
            n_members=asked if members is None else members,
        )

    def _goal(self) -> Goal:
        if not isinstance(self, ClassifierMixin):
            return "numbers"
        return "classes" if self._count_outputs() > 1 else "two classes"

    def _options(self, n: int, linear_loss: float | None = None, stages: int = 1) -> LoopOptions:
        """How to train each of so many stages."""
        return loop_options(
            n,
            len(self.encoder_.columns),
            reads=self.model_.spec.full_width,
            goal=self._goal(),
            additive=self.variant == "D",
            linear_loss=linear_loss,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self.n_iter_no_change if self.early_stopping else None,
            members=self.model_.spec.n_members,
            stages=stages,
            share=1 / stages if self.strategy == "rungwise" else 1.0,  # there a weight lives through several
        )

    def _solves_least_squares(self, data: Rows) -> bool:
        return False

    def _train(
        self,
        data: Rows,
        validation: Rows | None,
        linear: LinearModel,
        generator: torch.Generator,
        again: bool = False,
    ) -> Trained:
        """Train `model_` by the strategy asked for, or put another in its place; go on from it if `again`."""
        to_beat = None if validation is None else float(evaluate(linear, validation, [self._losses()[0]])[0].mean())
        spec = self.model_.spec
        if self.bootstrap:
            data = data.bootstrapped(spec.n_members, generator)
        if self.strategy == "joint" or again:  # what is there has all its rungs
            options = self._options(len(data), to_beat)
            trained = self._run(self.model_, data, validation, generator, options, self._projection(data))
        else:
            for name in ("checkpoint", "monotonic_cst"):
                require(getattr(self, name) is None, name, getattr(self, name), "None unless strategy='joint'")
            stages = BOOSTED_GROUPS if self.strategy == "boosted" else max(spec.depth, *spec.full_depths, 1)
            options = self._options(len(data), to_beat, stages)

            def fit(model: Any) -> Trained:
                return self._run(model, data, validation, generator, options)

            if self.strategy == "boosted":
                require(spec.n_members == 1, "n_members", self.n_members, "1 for strategy='boosted'")
                self.model_, trained = boosted(spec, stages, linear.start, fit, generator)
            else:
                self.model_, trained = rungwise(spec, linear.start, fit, generator)
        self._record(trained)
        return trained

    # ------------------------------------------------------------------------------ predicting

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, q), in chunks of bounded memory."""
        with torch.no_grad():
            scores = torch.cat([self.model_(part) for part in self._inputs(X)[0].split(PREDICT_CHUNK)])
        return scores.double().numpy()


def _that_count(rows: NDArray[np.int64], weight: Floats | None) -> NDArray[np.int64]:
    """Of some rows, those whose weight is not 0."""
    return rows if weight is None else rows[weight[rows] > 0]

"""The explanations of a fitted estimator, as its methods."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

import cofrnet
from cofrnet.estimators.checks import position_of
from cofrnet.estimators.column_inputs import CategoricalColumn, NumericColumn
from cofrnet.estimators.columns import as_given, numbers
from cofrnet.estimators.encoding import TableEncoder
from cofrnet.explain import local, overall, series
from cofrnet.explain.data import Curve, GlobalExplanation, LocalExplanation, Surface
from cofrnet.explain.quality import Quality
from cofrnet.explain.series import SeriesExplanation
from cofrnet.explain.subject import ColumnProfile, Subject, TableProfile, evenly
from cofrnet.export import code, formulas
from cofrnet.export.formulas import Form
from cofrnet.export.plan import Plan, plan_of
from cofrnet.nn import CoFrNet
from cofrnet.training.threads import look_after_forks

__all__ = ["Explaining"]

PROFILE_ROWS = 100_000
MOST_BASELINES = 100


class Explaining:
    """Explanations by the closed forms of `cofrnet.explain`, in the units of the table and of the score."""

    model_: CoFrNet
    encoder_: TableEncoder
    profile_: TableProfile

    def _score_scale(self) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...], str]:
        """Scale and offset of the scores, (q,), the names of the outputs, and the unit."""
        raise NotImplementedError

    def _subject(self, profiles: Sequence[ColumnProfile] | None = None) -> Subject:
        scale, offset, names, unit = self._score_scale()
        known = self.profile_.columns if profiles is None else profiles
        return Subject(self.model_, self.encoder_.columns, known, names, scale, offset, unit)

    def _profile(self, columns: Sequence[Any], x: NDArray[Any], before: TableProfile | None = None) -> TableProfile:
        """Statistics of the training rows, given as columns and as inputs (n, p).

        Of rows that come in parts, those of the largest part: `before` is the profile of an earlier one.
        """
        n = len(x)
        some = evenly(n, PROFILE_ROWS)
        seen = x[some]
        profiles = []
        for column, values, own in zip(self.encoder_.columns, columns, self.encoder_.column_inputs, strict=True):
            if isinstance(column, NumericColumn):
                profiles.append(ColumnProfile.of_numbers(numbers(values, column.name)[some]))
            else:
                profiles.append(ColumnProfile.of_levels(_rows_of_levels(column, values, seen[:, list(own)], some)))
        spreads: Any = seen.std(0)
        if before is not None and before.rows > len(some):
            profiles, spreads = list(before.columns), before.input_spreads
        subject = self._subject(profiles)
        rows = torch.as_tensor(x[evenly(n, overall.ROWS)]).to(subject.dtype)
        importance = overall.importances(subject, rows)
        few = rows[evenly(len(rows), overall.HESSIAN_ROWS)]
        return TableProfile(
            tuple(profiles), spreads, importance, overall.interactions(subject, few, importance, spreads)
        )

    def _inputs(self, X: Any) -> tuple[Tensor, list[Any]]:
        """Inputs (n, p) in the precision of the model, and the columns."""
        check_is_fitted(self)
        look_after_forks()
        columns = self._read(X, reset=False)  # type: ignore[attr-defined]
        wide = self.model_.head.dtype == torch.float64
        return torch.from_numpy(self.encoder_.encode(columns, np.float64 if wide else np.float32)), columns

    def explain_local(
        self, X: Any, method: Literal["integrated", "gradient"] = "integrated", baseline: Any = None
    ) -> LocalExplanation:
        """What every feature does to the score of every row.

        "integrated": what it adds on the way from the `baseline` to the row, so that base value and contributions sum
        to the score. "gradient": the slope of the score in the unit of the feature; where a feature has one of the few
        values it takes, that towards the next.

        The score is the log-odds of the second class, or one score for each class (before the softmax), or the
        prediction of a regressor. `baseline` is "mean" (the default; the median where a few huge values alone make the
        mean of a column) or "median" of the training rows, or rows like those of X: contributions are then averaged
        over them, at most a hundred.
        """
        if method not in ("integrated", "gradient"):
            raise ValueError(f"method must be 'integrated' or 'gradient'; got method={method!r}.")
        x, columns = self._inputs(X)
        subject, data = self._subject(), as_given(columns)
        if method == "gradient":
            return local.gradients(subject, x, data, self.encoder_.slopes(columns))
        if baseline is None or isinstance(baseline, str):
            kind = baseline or "mean"
            return local.contributions(
                subject, x, data, subject.baseline(kind)[None], f"the {kind} of the training rows"
            )
        rows = self._inputs(baseline)[0]
        some = evenly(len(rows), MOST_BASELINES)
        description = "a given row" if len(some) == 1 else f"each of {len(some)} given rows (their mean)"
        return local.contributions(subject, x, data, rows[some], description)

    def explain_global(
        self, X: Any = None, features: Sequence[Any] | None = None, points: int = 64
    ) -> GlobalExplanation:
        """What the features do overall: importances, curves, interactions.

        Without X, of the training rows, by the statistics that the fit kept of them. `features` names the columns to
        have curves of (the fifty most important by default), `points` is the size of their grids.
        """
        check_is_fitted(self)
        x = None if X is None else self._inputs(X)[0]
        chosen = None if features is None else self._positions(features)
        return overall.explain(self._subject(), self.profile_, x, getattr(self, "pairs_", []), chosen, points)

    def curve(self, feature: Any, X: Any = None, points: int = 64) -> Curve:
        """What one feature, by name or position, does to the score: at the mean row, or averaged over rows X.

        Of X at most 64 rows are taken, evenly spread over it.
        """
        check_is_fitted(self)
        return overall.curve(self._subject(), self._position(feature), self._backgrounds(X), points)

    def surface(self, first: Any, second: Any, X: Any = None, points: int = 24) -> Surface:
        """What two features do together, at the mean row or averaged over rows X (at most 64, evenly spread)."""
        check_is_fitted(self)
        return overall.surface(
            self._subject(), self._position(first), self._position(second), self._backgrounds(X), points
        )

    def power_series(
        self,
        order: int = 2,
        center: Any = None,
        features: Sequence[Any] | None = None,
        kind: Literal["total", "each"] = "total",
        ladder: int | None = None,
        rational: bool = False,
    ) -> SeriesExplanation:
        """The polynomial that agrees with the score near a centre: coefficients for features and their interactions.

        `center` is "mean" (the default) or "median" of the training rows, or one row like those of X. `features` names
        the columns to expand in; the others stay at the centre. A column of levels has a variable for each of them, and
        one of few values has those beside its own, each 1 at its value and 0 at its neighbours. Effects of very many
        values or levels are variables. `kind="total"` keeps
        terms of total degree up to `order`, "each" those with every exponent up to it. `ladder` expands one ladder, by
        its place in the head.
        `rational` computes in exact fractions, for small models.
        """
        check_is_fitted(self)
        if not isinstance(order, Integral) or order < 0:
            raise ValueError(f"order must be an integer of 0 or more; got order={order!r}.")
        ladders = self.model_.spec.n_members * self.model_.spec.total_ladders
        if kind not in ("total", "each"):
            raise ValueError(f"kind must be 'total' or 'each'; got kind={kind!r}.")
        if isinstance(center, str) and center not in ("mean", "median"):
            raise ValueError(f"center must be 'mean', 'median' or one row like those of X; got center={center!r}.")
        if ladder is not None and not (isinstance(ladder, Integral) and 0 <= ladder < ladders):
            raise ValueError(f"ladder must be from 0 to {ladders - 1}; got ladder={ladder}.")
        subject = self._subject()
        if center is None or isinstance(center, str):
            inputs = subject.baseline(center or "mean")
            values = np.array([subject.middle(j, center or "mean") for j in range(len(subject.columns))])
        else:
            rows, columns = self._inputs(center)
            if len(rows) != 1:
                raise ValueError(f"center must be 'mean', 'median' or one row; got {len(rows)} rows. Pass one of them.")
            inputs = rows[0]
            values = np.array(
                [
                    numbers(own, column.name)[0] if isinstance(column, NumericColumn) else np.nan
                    for column, own in zip(self.encoder_.columns, columns, strict=True)
                ]
            )
        numeric = [isinstance(column, NumericColumn) for column in self.encoder_.columns]
        slopes = np.array(
            [
                column.slopes(np.array([value]))[0, 0] if isinstance(column, NumericColumn) else 1.0
                for column, value in zip(self.encoder_.columns, values, strict=True)
            ]
        )
        chosen = range(len(numeric)) if features is None else self._positions(features)
        chosen = [j for j in dict.fromkeys(chosen) if not (numeric[j] and np.isnan(values[j]))]  # missing does not vary
        return series.power_series(
            subject, inputs, values, slopes, self.profile_.input_spreads, chosen, int(order), kind, ladder, rational,
            self._variables_of(chosen),
        )  # fmt: skip

    def _variables_of(self, chosen: Sequence[int]) -> Any:
        def source(X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
            x, columns = self._inputs(X)
            parts = []
            for j in chosen:
                column, own = self.encoder_.columns[j], list(self.encoder_.column_inputs[j])
                inputs = x[:, own].double().numpy()
                if isinstance(column, NumericColumn):
                    parts.append(numbers(columns[j], column.name)[:, None])
                    inputs[:, column.first_hat : column.first_effect] /= column.height
                    inputs = inputs[:, column.first_hat :]
                parts.append(inputs)
            values = np.concatenate(parts, axis=1) if parts else np.zeros((len(x), 0))
            return values, self._subject().scores(x)

        return source

    def quality(self, X: Any, y: Any) -> Quality:
        """How good the predictions of rows X with targets y are: metrics with 95 % intervals, and more."""
        raise NotImplementedError

    def _backgrounds(self, X: Any) -> Tensor:
        if X is None:
            return self._subject().baseline("mean")[None]
        rows = self._inputs(X)[0]
        return rows[evenly(len(rows), overall.BACKGROUNDS)]

    def _positions(self, features: Sequence[Any]) -> list[int]:
        if isinstance(features, str):
            raise ValueError(f"features must be a list of columns; got features={features!r}. Write [{features!r}].")
        return [self._position(feature) for feature in features]

    def _position(self, feature: Any) -> int:
        return position_of(feature, self._names(), "features")  # type: ignore[attr-defined]

    def to_sympy(self, form: Form = "nested", exact: bool = False) -> Any:
        """The score as a SymPy expression (a list for several): "nested", or for small models one fraction P/Q,
        "rational", "expanded" or "factored". See `cofrnet.export.formulas.to_sympy`.
        """
        return formulas.to_sympy(self.plan(), form, exact)

    def to_latex(self, form: Form = "nested", digits: int = 3) -> str:
        """The score as LaTeX, ladder by ladder as nested fractions, or as one fraction."""
        return formulas.to_latex(self.plan(), form, digits)

    def to_code(self, language: Literal["python", "c", "javascript", "sql"], name: str = "score") -> str:
        """A program without dependencies that scores rows as `decision_function` (or `predict`) does.

        See `cofrnet.export.code.to_code` for how each is called.
        """
        return code.to_code(self.plan(), language, name)

    def to_onnx(self, path: str | os.PathLike[str], contributions: bool = False, opset: int = 25) -> Path:
        """Write an ONNX file of the whole estimator: preprocessing, ladders, probabilities; returns its path.

        Models fitted to a plain array take "X", (n, P) of doubles; others one input for each column by its name,
        (n, 1): doubles, NaN where missing, or strings, "" where missing (bools are "True" and "False", dates days
        since 1970-01-01). Outputs are "label" and "probabilities", or "prediction", and with `contributions` what
        each column adds to the score on the way from the mean of the training rows, (n, q, P). An older runtime may
        need a smaller `opset`, 18 or more.
        """
        from cofrnet.export import program

        classes = getattr(self, "classes_", None)
        made = program.Program(self._exported_subject(), classes, contributions)
        plain = not hasattr(self, "feature_names_in_") and not made.has_levels
        return program.to_onnx(made, self.encoder_.columns, classes, self._described(), path, plain, opset)

    def to_torch(self, path: str | os.PathLike[str], contributions: bool = False) -> Path:
        """Write a ``torch.export`` program of the whole estimator, which needs torch alone; returns its path.

        It takes a table (n, P) of doubles, NaN where missing, with the position of its level for a column of levels (-1
        for any other), and gives the probabilities or predictions and, if asked for, the contributions.
        """
        from cofrnet.export import program

        made = program.Program(self._exported_subject(), getattr(self, "classes_", None), contributions)
        return program.to_torch(made, self.encoder_.columns, self._described(), path)

    def _exported_subject(self) -> Subject:
        check_is_fitted(self)
        subject = self._subject()
        return replace(subject, model=copy.deepcopy(subject.model).eval().requires_grad_(False))

    def _described(self) -> dict[str, Any]:
        """What an exported file says of itself."""
        _, _, outputs, unit = self._score_scale()
        classes = [str(name) for name in getattr(self, "classes_", [])]
        return {"cofrnet": cofrnet.__version__, "outputs": list(outputs), "unit": unit, "classes": classes}

    def plan(self) -> Plan:
        """The whole estimator as plain numbers: columns, ladders with their rungs, head."""
        check_is_fitted(self)
        return plan_of(self._subject())

    def summary(self) -> str:
        """A page of text: what the model is, how it was trained, and what matters to it."""
        check_is_fitted(self)
        spec, history = self.model_.spec, getattr(self, "history_", {})
        ladders = [f"{spec.n_curves} curves"] if spec.n_curves else []
        ladders += [f"{len(spec.subsets)} on pairs"] if spec.subsets else []
        ladders += [f"{len(spec.full_depths)} full"] if spec.full_depths else []
        ladders += [f"{spec.n_members} members"] if spec.n_members > 1 else []
        lines = [
            f"{type(self).__name__}, variant {spec.variant}, ladders of depth {spec.depth}: {', '.join(ladders)}",
            f"{spec.n_parameters} parameters; {len(self.encoder_.columns)} columns as {spec.n_features} inputs",
        ]
        if "validation_loss" in history:
            best, losses = getattr(self, "best_epoch_", -1), history["validation_loss"]
            kept = f"weights of epoch {best + 1}: validation loss {losses[best]:.4g}"
            start = "the linear start was best on the validation rows, and is kept"
            lines.append(f"trained {len(losses)} epochs, {start if best < 0 else kept}")
        return "\n".join([*lines, "", str(self.explain_global(features=[]))])


def _rows_of_levels(
    column: CategoricalColumn, values: Any, inputs: NDArray[Any], some: NDArray[np.int64]
) -> NDArray[Any]:
    """How many of some rows of a column have each of its levels; `inputs` are theirs."""
    if not column.effects:  # they are the levels
        return inputs.sum(0)
    places = column.places(values)[some]
    return np.bincount(places[places >= 0], minlength=len(column.levels))

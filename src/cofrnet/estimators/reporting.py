"""The interactive page of a fitted estimator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cofrnet.estimators.checks import as_plain
from cofrnet.estimators.column_inputs import NumericColumn
from cofrnet.estimators.columns import labels, numbers
from cofrnet.explain.subject import to_browse
from cofrnet.files import write_atomically

__all__ = ["Reporting"]

ROWS, WRONG = 300, 100  # rows to browse, and how many of them are those the model is most wrong about
SERIES_COLUMNS, SERIES_INPUTS = 8, 40


class Reporting:
    """What makes a fitted estimator a page."""

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, title: str | None = None) -> Path:
        """Write a self-contained, interactive page about the model, and return its path.

        With rows X it explains the model on them and lets them be browsed; with their targets y it also says how good
        the model is, so these should be rows that it was not fitted to. Without X it explains the model by what it
        remembers of the training rows.
        """
        from cofrnet.report import html

        return write_atomically(path, html(self._page(X, y, title)).encode())

    def _page(self, X: Any, y: Any, title: str | None) -> Any:
        from cofrnet.report import Page

        check_is_fitted(self)
        if X is None and y is not None:
            raise ValueError("y must come with its rows X; got X=None. Pass both.")
        me: Any = self
        overall = me.explain_global(X)
        classes = [str(name) for name in getattr(self, "classes_", [])]
        quality = None if y is None else me.quality(X, y)
        series, columns, series_error = self._readable_series(overall.order, X)
        named = f" of {me.target_name_}" if me.target_name_ else ""
        baseline = me._subject().baseline("mean")
        return Page(
            title=title or f"{'Classification' if classes else 'Regression'}{named}",
            facts=self._facts(),
            overall=overall,
            features=self._features(overall.order),
            plan=me.plan(),
            baseline=baseline.double().tolist(),
            classes=classes,
            target=me.target_name_,
            quality=quality,
            history=getattr(self, "history_", None),
            rows=None if X is None else self._rows(X, y, overall.order),
            series=series,
            series_columns=columns,
            series_error=series_error,
            members=me.model_.spec.n_members,
        )

    def _facts(self) -> list[tuple[str, str]]:
        me: Any = self
        spec = me.model_.spec
        kind = {"D": "diagonal", "F": "full", "DL": "diagonal and full", "S": "stacked"}[spec.variant]
        members = f"{spec.n_members} members of " if spec.n_members > 1 else ""
        fractions = f"{members}{spec.total_ladders} continued fractions"
        facts = [
            ("Model", f"CoFrNet: {fractions} ({kind} ladders) of depth {spec.depth}"),
            ("Parameters", f"{spec.n_parameters:,}"),
            ("Columns", f"{len(me.encoder_.columns)}, as {spec.n_features} inputs"),
        ]
        if spec.n_members > 1:
            facts.append(("Members", f"{spec.n_members}, averaged"))
        losses = getattr(self, "history_", {}).get("validation_loss", [])
        if losses:
            facts.append(("Epochs", f"{len(losses)}; kept: {me.best_epoch_ + 1}"))
        facts.append(("Pole", f"{spec.pole}, epsilon {spec.epsilon:g}" if spec.epsilon else spec.pole))
        return facts

    def _features(self, order: Sequence[int]) -> list[Any]:
        """The columns as the panel needs them, the most important first."""
        from cofrnet.report import Feature

        me: Any = self
        found = []
        for j in order:
            column, profile = me.encoder_.columns[j], me.profile_.columns[j]
            if isinstance(column, NumericColumn):
                ends = profile.edges[0], profile.edges[-1]
                whole = all(float(knot).is_integer() for knot in column.knots)
                kind = "date" if column.is_date else "number"
                found.append(Feature(column.name, kind, profile.median, *ends, missing=column.has_missing, whole=whole))
                continue
            levels = tuple(None if level == column.gap else level for level in column.levels)
            start = levels[int(np.argmax(profile.counts))] if levels else None
            found.append(Feature(column.name, "category", start, levels=levels))
        return found

    def _rows(self, X: Any, y: Any, order: Sequence[int]) -> Any:
        """Rows to browse: those that are most wrong, and some of all."""
        from cofrnet.report import Rows

        me: Any = self
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        total = len(X)
        wrong = None if y is None else self._wrongness(X, y)
        some = to_browse(total, ROWS, None if wrong is None else wrong.max(1), WRONG)
        part = nw.to_native(frame[some.tolist()]) if isinstance(frame, nw.DataFrame) else np.asarray(X)[some]
        columns = me._read(part, reset=False)
        values = [
            numbers(own, column.name).tolist() if isinstance(column, NumericColumn) else labels(own, column.name)
            for column, own in zip(me.encoder_.columns, columns, strict=True)
        ]
        explanation = me.explain_local(part)
        ordered = _with_features(explanation, order)
        predicted = np.asarray(me.predict(part)).reshape(len(some), -1)
        actual = None if y is None else self._actual(y).reshape(total, -1)[some]
        if hasattr(self, "classes_"):
            predicted, actual = predicted.astype(str), None if actual is None else actual.astype(str)
        return Rows(
            ordered,
            some.tolist(),
            [[values[j][i] for j in order] for i in range(len(some))],
            predicted.tolist(),
            None if actual is None else actual.tolist(),
            None if wrong is None else wrong[some].tolist(),
            total,
        )

    def _wrongness(self, X: Any, y: Any) -> NDArray[np.float64]:
        """How wrong the model is about each row: the log-loss, or the absolute error of each target, (n, targets)."""
        me: Any = self
        if not hasattr(self, "classes_"):
            return np.abs(np.asarray(me.predict(X)).reshape(len(X), -1) - self._actual(y).reshape(len(X), -1))
        return me._losses_of(X, y)[:, None]

    def _actual(self, y: Any) -> NDArray[Any]:
        """Targets as they were given: labels, or numbers of whatever type."""
        return np.asarray(as_plain(y), dtype=None if hasattr(self, "classes_") else np.float64)

    def _readable_series(self, order: Sequence[int], X: Any) -> tuple[Any, int, dict[str, float] | None]:
        """The power series in the most important features, of how many, and its error on the rows; None for none.

        Its order is 2, or 1 where that is closer to the model on the rows.
        """
        from cofrnet.errors import PoleError

        me: Any = self
        chosen, width = [], 0
        for j in order[:SERIES_COLUMNS]:
            own = len(me.encoder_.columns[j].inputs)
            if width + own <= SERIES_INPUTS:
                chosen.append(j)
                width += own
        try:
            found = [me.power_series(order=n, features=chosen) for n in (2, 1)] if chosen else []
        except PoleError:
            found = []
        if X is None or not found:
            return (found[0] if found else None), len(chosen), None
        errors = [_error(series, X) for series in found]
        best = min(range(len(found)), key=lambda i: np.inf if (own := errors[i]) is None else own["mean"])
        return found[best], len(chosen), errors[best]


def _error(series: Any, X: Any) -> dict[str, float] | None:
    try:
        return series.error(X)
    except ValueError:  # every row misses a value
        return None


def _with_features(explanation: Any, order: Sequence[int]) -> Any:
    names = tuple(explanation.feature_names[j] for j in order)
    return replace(explanation, values=explanation.values[:, :, list(order)], feature_names=names)

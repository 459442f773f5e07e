"""What is learned of the columns of a table before a model is fitted: inputs, hats and effects, by a linear model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.compiled.blas import one_thread_of_blas
from cofrnet.estimators.column_inputs import Column, NumericColumn
from cofrnet.estimators.effects import FOLDS, effects_explain, out_of_fold, shrunken_means
from cofrnet.estimators.encoding import MOST_EFFECTS, Scaling, TableEncoder
from cofrnet.estimators.fitting import chosen_rows
from cofrnet.estimators.interactions import stands_out
from cofrnet.explain.subject import evenly
from cofrnet.nn import CoFrNet
from cofrnet.training import Loss, Rows

__all__ = ["LearningColumns", "LinearModel"]

Floats = NDArray[np.floating[Any]]

LINEAR_START_ROWS = 20_000  # rows that the linear start is fitted to, at most


class LearningColumns:
    """Learning how the columns of a table become inputs of a model."""

    scaling: Scaling
    max_categories: int

    encoder_: TableEncoder

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _categorical(self, columns: Sequence[Any]) -> list[bool]:
        raise NotImplementedError

    def _signs(self) -> dict[int, int]:
        raise NotImplementedError

    def _count_outputs(self) -> int:
        raise NotImplementedError

    def _losses(self) -> tuple[Loss, dict[str, Loss]]:
        raise NotImplementedError

    def _linear_start(self, x: Floats, y: NDArray[Any], weight: Floats | None) -> tuple[Floats, Floats]:
        """Weights (q, p) and intercepts (q,) of the linear model that training starts from."""
        raise NotImplementedError

    def _learn_columns(
        self,
        columns: Sequence[Any],
        targets: NDArray[Any],
        weight: Floats | None,
        rows: NDArray[np.int64],
        rng: np.random.RandomState,
    ) -> TableEncoder:
        """How columns become inputs, learned from some rows.

        Columns of few values have hats, and those of very many have effects, where their values stand out of what a
        linear model leaves over; those that must be monotone have neither, and end where their values do.
        """
        known, signs = [_rows_of(column, rows) for column in columns], self._signs()
        plain = TableEncoder.learn(known, self._names(), self._categorical(columns), self.scaling, self.max_categories)
        plain = plain.with_bounds(signs, known)
        hats = {j: own for j, own in plain.possible_hats(known).items() if j not in signs}
        coded = {j: c for j, c in plain.possible_effects(known, self.max_categories).items() if j not in signs}
        if not hats and not coded:
            return plain
        few = evenly(len(rows), LINEAR_START_ROWS)
        x = plain.encode([_rows_of(column, few) for column in known])
        of_few = None if weight is None else weight[rows[few]]
        data = chosen_rows(torch.from_numpy(x), targets[rows[few]], of_few, np.arange(len(few)))
        linear = self._linear_model(data)
        left = self._residual(linear, data)
        first = {j: x[:, plain.column_inputs[j][0]] for j in hats}
        encoder = plain.with_hats({j: own for j, own in hats.items() if stands_out(first[j], left)})
        places = {j: _places(column, known[j]) for j, column in coded.items()}
        unweighted, folds = self._residual(linear, replace(data, weight=None)), _folds(len(few), rng)

        def is_telling(j: int, column: Column) -> bool:
            own, ordered = places[j][few], isinstance(column, NumericColumn)
            own = own if ordered else _without_input(column, own)
            return effects_explain(own, unweighted, _array(data.weight), _count(column), folds, ordered)

        telling = [j for j, column in coded.items() if is_telling(j, column)][: MOST_EFFECTS // left.shape[1]]
        whole = chosen_rows(torch.empty(len(targets), 0), targets, weight, rows)
        return encoder.with_columns(self._with_effects({j: coded[j] for j in telling}, places, whole, rng))

    def _with_effects(
        self, columns: Mapping[int, Column], places: Mapping[int, NDArray[np.int64]], data: Rows, rng: Any
    ) -> dict[int, Column]:
        """Columns with effects of their values, in units of their spread; `places` say which value each row has."""
        if not columns:
            return {}
        y, weight, folds = self._left_by_a_constant(data), _array(data.weight), _folds(len(data), rng)
        found: dict[int, Column] = {}
        for j, column in columns.items():
            others = out_of_fold(places[j], y, weight, _count(column), folds)
            unit = math.sqrt(float((others**2).mean()))
            if unit > 0:
                own = shrunken_means(places[j], y, weight, _count(column)) / unit
                found[j] = replace(column, effects=tuple(map(tuple, own.tolist())), unit=unit)
        return found

    def _without_own_effects(self, data: Rows, columns: Sequence[Any], rows: NDArray[np.int64], rng: Any) -> Rows:
        """Rows to train on, which are some `rows` of the columns, with effects that other rows than each gives."""
        coded = [(j, column) for j, column in enumerate(self.encoder_.columns) if column.effects]
        if not coded:
            return data
        y, weight, x = self._left_by_a_constant(data), _array(data.weight), data.x.clone()
        folds = _folds(len(data), rng)
        for j, column in coded:
            places = _places(column, _rows_of(columns[j], rows))
            known, own = np.flatnonzero(places >= 0), self.encoder_.column_inputs[j][column.first_effect :]
            others = out_of_fold(places, y, weight, _count(column), folds) / column.unit
            x[known[:, None], list(own)] = torch.from_numpy(others[known]).to(x.dtype)
        return replace(data, x=x)

    def _left_by_a_constant(self, data: Rows) -> Floats:
        """What the same score for all leaves over of each row, (n, q): of numbers and classes, y up to a constant."""
        q = self._count_outputs()
        nothing = LinearModel(torch.zeros(1, q, 0), torch.zeros(1, q))
        return self._residual(nothing, Rows(torch.empty(len(data), 0), data.y))

    def _residual(self, model: Any, data: Rows) -> Floats:
        """What a model leaves over: how the loss of each row, by its weight, falls with its scores, (n, q)."""
        scores = model.member_scores(data.x).detach().requires_grad_()  # (n, 1, q)
        losses = self._losses()[0](scores, data.y)
        (slope,) = torch.autograd.grad(losses.sum(), scores)
        if data.weight is not None:
            slope *= data.weight.view(-1, 1, 1)
        return -slope.squeeze(1).numpy()

    def _linear_model(self, data: Rows) -> LinearModel:
        """The linear model that training starts from, where least squares or log-loss puts it.

        Members that have weights of their own start from one each, which does not know the rows they hold out.
        """
        found = []
        for own in data.of_members():
            few = own
            if len(own) > LINEAR_START_ROWS:
                few = own.select(torch.from_numpy(evenly(len(own), LINEAR_START_ROWS)))
            with one_thread_of_blas():  # the same start for any number of threads
                found.append(self._linear_start(few.x.numpy(), few.y.numpy(), _array(few.weight)))
        return LinearModel(*(torch.from_numpy(np.stack(own)).to(data.x.dtype) for own in zip(*found, strict=True)))


@dataclass(frozen=True)
class LinearModel:
    """Scores weight x + intercept, of one member for all or of each. Shapes: weight (m, q, p), intercept (m, q)."""

    weight: Tensor
    intercept: Tensor

    def member_scores(self, x: Tensor) -> Tensor:
        """Its scores. Shapes: x (n, p); returns (n, m, q)."""
        scores = torch.addmm(self.intercept.flatten(), x, self.weight.flatten(0, 1).T)
        return scores.view(len(x), *self.intercept.shape)

    def start(self, model: CoFrNet) -> None:
        """Make a CoFrNet this linear model: its linear path so, its head 0."""
        assert model.linear is not None
        assert model.intercept is not None
        with torch.no_grad():
            model.head.zero_()
            for own, parameter in ((self.weight, model.linear), (self.intercept, model.intercept)):
                parameter.copy_(own.expand(model.spec.n_members, *own.shape[1:]).reshape_as(parameter))


def _folds(n: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    return rng.permutation(n) % FOLDS


def _places(column: Column, values: Any) -> NDArray[np.int64]:
    """Which code or level each value is, -1 for none; the level that those never seen count as has no effect."""
    places = column.places(values)
    return places if isinstance(column, NumericColumn) else np.where(places == column.place_of_other, -1, places)


def _without_input(column: Column, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The levels that a linear model has no input for, -1 for those it has: of these nothing is left over."""
    return np.where(places < column.first_effect, -1, places)


def _count(column: Column) -> int:
    return len(column.codes if isinstance(column, NumericColumn) else column.levels)


def _array(t: Tensor | None) -> Floats | None:
    return None if t is None else t.numpy()


def _rows_of(column: Any, rows: NDArray[np.int64]) -> Any:
    return column[rows.tolist()] if isinstance(column, nw.Series) else column[rows]

"""What a fitted estimator for tables puts into its file: columns, pairs, and statistics of the training rows."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.estimators.column_inputs import NumericColumn
from cofrnet.estimators.contents import fits, or_none, read_table
from cofrnet.estimators.encoding import TableEncoder
from cofrnet.estimators.saving import Saving, dtype_of, filled
from cofrnet.explain.subject import ColumnProfile, TableProfile
from cofrnet.files import Fields
from cofrnet.nn import CoFrNet, CoFrNetSpec

__all__ = ["SavingTables"]


class SavingTables(Saving):
    """Files of estimators for tables."""

    encoder_: TableEncoder
    profile_: TableProfile
    pairs_: list[tuple[int, int]]

    def _about(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return super()._about() | {
            "columns": [asdict(column) for column in self.encoder_.columns],
            "feature_names": None if names is None else [str(name) for name in names],
            "profile": _profile_fields(self.profile_),
            "pairs": [list(pair) for pair in self.pairs_],
        }

    def _restore_model(self, tensors: dict[str, Tensor], about: Fields, outputs: int) -> None:
        numbers = sum(t.numel() for t in tensors.values())
        self.encoder_, names, spec = read_table(about, numbers, outputs)
        self.n_features_in_ = len(self.encoder_.columns)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        model = CoFrNet(spec, dtype=dtype_of(tensors), generator=torch.Generator().manual_seed(0))
        self.model_ = filled(model, tensors)
        self.profile_ = _read_profile(about.object("profile"), self.encoder_, spec)
        pairs = about.any("pairs")
        positions = range(self.n_features_in_)
        whole = isinstance(pairs, list) and all(
            isinstance(p, list) and len(p) == 2 and all(type(j) is int and j in positions for j in p) for p in pairs
        )
        fits(whole, "pairs", "pairs of positions of columns")
        self.pairs_ = [tuple(pair) for pair in pairs]


def _profile_fields(profile: TableProfile) -> dict[str, Any]:
    return {
        "columns": [
            {**asdict(column), "mean": or_none(column.mean), "median": or_none(column.median)}
            for column in profile.columns
        ],
        "input_spreads": profile.input_spreads.tolist(),
        "importances": profile.importances.tolist(),
        "pairs": [[i, j, list(strength)] for i, j, strength in profile.pairs],
    }


def _read_profile(fields: Fields, encoder: TableEncoder, spec: CoFrNetSpec) -> TableProfile:
    columns = []
    for column, own in zip(encoder.columns, fields.objects("columns"), strict=True):
        edges, counts = own.numbers("edges"), own.numbers("counts")
        numeric = isinstance(column, NumericColumn)
        expected = len(edges) - 1 if isinstance(column, NumericColumn) else len(column.levels)
        whole = len(counts) == expected and bool(edges) == numeric
        fits(whole, f"profile of column {column.name!r:.60}", "that of its kind")
        mean, median = (own.number(name) if numeric else math.nan for name in ("mean", "median"))
        columns.append(ColumnProfile(mean, median, edges, counts, own.number("missing"), own.number("deviation")))
    spreads = np.array(fields.numbers("input_spreads"))
    fits(len(spreads) == spec.n_features, "profile", "of all inputs")
    importances = _matrix(fields.any("importances"), (spec.n_outputs, len(columns)))
    found = []
    for pair in fields.any("pairs") or []:
        i, j, strength = pair
        fits(
            type(i) is int and type(j) is int and 0 <= i < len(columns) and 0 <= j < len(columns), "pairs", "positions"
        )
        found.append((i, j, tuple(_matrix([strength], (1, spec.n_outputs))[0].tolist())))
    return TableProfile(tuple(columns), spreads, importances, tuple(found))


def _matrix(values: Any, shape: tuple[int, int]) -> NDArray[np.float64]:
    rows = [Fields({"row": row}, "matrix").numbers("row") for row in values] if isinstance(values, list) else []
    fits(len(rows) == shape[0] and all(len(row) == shape[1] for row in rows), "a matrix", f"of shape {shape}")
    return np.array(rows, dtype=np.float64).reshape(shape)

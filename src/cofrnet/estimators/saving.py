"""Fitted estimators in files: `save` and `load`, without pickle."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

import cofrnet
from cofrnet.errors import ModelFileError
from cofrnet.estimators.encoding import CategoricalColumn, Column, NumericColumn, TableEncoder
from cofrnet.explain.subject import ColumnProfile, TableProfile
from cofrnet.files import Fields, read_tensors, tensors_to_bytes, write_atomically
from cofrnet.nn import CoFrNet, CoFrNetSpec

__all__ = ["Saving", "load"]


class Saving:
    """What makes a fitted estimator a file."""

    model_: CoFrNet
    encoder_: TableEncoder
    profile_: TableProfile
    pairs_: list[tuple[int, int]]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted estimator to one file, whole or not at all, and return its path; `cofrnet.load` reads it.

        The file is safetensors with JSON: numbers and text, no code. It holds statistics of the training rows, and none
        of the rows. Callbacks and losses of one's own, which are code, are not in it.
        """
        check_is_fitted(self)
        tensors = {f"model/{name}": value for name, value in self.model_.state_dict().items()}
        return write_atomically(path, tensors_to_bytes(tensors, self._about()))

    def _about(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        given: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        history: dict[str, list[float]] = getattr(self, "history_", {})  # none after partial_fit
        return {
            "cofrnet": cofrnet.__version__,
            "estimator": type(self).__name__,
            "parameters": {k: kept for k, v in given.items() if (kept := _plain(v)) is not _CODE},
            "spec": self.model_.spec.to_dict(),
            "columns": [asdict(column) for column in self.encoder_.columns],
            "feature_names": None if names is None else [str(name) for name in names],
            "profile": _profile_fields(self.profile_),
            "pairs": [list(pair) for pair in self.pairs_],
            "history": {name: [_or_none(v) for v in values] for name, values in history.items()},
            "best_epoch": int(getattr(self, "best_epoch_", -1)),
            "target": self._target_fields() | {"name": self.target_name_},
        }

    def _target_fields(self) -> dict[str, Any]:
        """What the scores stand for, as plain values; `_restore_target` takes them back."""
        raise NotImplementedError

    def _restore_target(self, fields: Fields) -> int:
        """Take back what the scores stand for; returns how many outputs the model must have."""
        raise NotImplementedError

    def _restore(self, tensors: dict[str, Tensor], about: Fields) -> Self:
        self.encoder_ = TableEncoder(tuple(_read_column(fields) for fields in about.objects("columns")))
        self.n_features_in_ = len(self.encoder_.columns)
        if about.any("feature_names") is not None:
            names = about.texts("feature_names")
            _require(len(names) == self.n_features_in_, "feature_names", "one for each column")
            self.feature_names_in_ = np.array(names, dtype=object)
        spec = _read_spec(about.object("spec"), sum(t.numel() for t in tensors.values()))
        _require(spec.n_features == self.encoder_.n_inputs, "spec", "for as many inputs as the columns have")
        _require(spec.n_outputs == self._restore_target(about.object("target")), "spec", "for as many outputs as y has")
        named = about.object("target").any("name")
        _require(named is None or isinstance(named, str), "name of the target", "text")
        self.target_name_ = named
        self.model_ = _read_model(spec, tensors)
        self.profile_ = _read_profile(about.object("profile"), self.encoder_, spec)
        pairs = about.any("pairs")
        positions = range(self.n_features_in_)
        whole = isinstance(pairs, list) and all(
            isinstance(p, list) and len(p) == 2 and all(type(j) is int and j in positions for j in p) for p in pairs
        )
        _require(whole, "pairs", "pairs of positions of columns")
        self.pairs_ = [tuple(pair) for pair in pairs]
        history = about.object("history").values
        self.history_ = {
            str(k): [math.nan if v is None else float(v) for v in vs]
            for k, vs in history.items()
            if isinstance(vs, list)
        }
        self.best_epoch_ = about.integer("best_epoch", -1)
        self.n_iter_ = len(self.history_.get("loss", []))
        return self


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted estimator that `save` wrote to the file.

    Everything in it is checked before it is used; whatever is wrong is a `ModelFileError` that says what.
    """
    from cofrnet.estimators import tabular

    tensors, values = read_tensors(path)
    about = Fields(values, str(path))
    kinds: dict[str, Any] = {
        "CoFrNetClassifier": tabular.CoFrNetClassifier,
        "CoFrNetRegressor": tabular.CoFrNetRegressor,
    }
    kind = kinds.get(about.text("estimator"))
    if kind is None:
        raise ModelFileError(f"{path} must hold one of {sorted(kinds)}; got {about.text('estimator')!r:.60}.")
    given = about.object("parameters").values
    unknown = set(given) - set(kind().get_params(deep=False))
    if unknown:
        raise ModelFileError(f"{path} must have known parameters; got {sorted(map(str, unknown))[:3]}.")
    try:
        estimator = kind(**{name: _unplain(value) for name, value in given.items()})
        return estimator._restore(tensors, about)
    except ModelFileError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} must describe a model; its parts do not fit together ({error}). Save the model again."
        ) from error


def _require(holds: bool, what: str, wanted: str) -> None:
    if not holds:
        raise ModelFileError(f"{what} of the file must be {wanted}; it is not.")


# ---------------------------------------------------------------------------------------------- columns


def _read_column(fields: Fields) -> Column:
    if "levels" in fields.values:
        levels = fields.texts("levels")
        _require(len(set(levels)) == len(levels), "levels", "all different")
        return CategoricalColumn(fields.text("name"), levels)
    knots, values = fields.numbers("knots"), fields.numbers("values")
    rising = all(a < b for a, b in pairwise(knots)) and all(a <= b for a, b in pairwise(values))
    _require(len(knots) == len(values) >= 2 and rising, "knots", "two or more, rising, with a value each")
    bounded = fields.flag("bounded")
    _require(bounded or len(knots) == 2, "knots", "two where a column is scaled by a straight line")
    is_date = "is_date" in fields.values and fields.flag("is_date")
    return NumericColumn(fields.text("name"), knots, values, bounded, fields.flag("has_missing"), is_date)


# ---------------------------------------------------------------------------------------------- the model


def _read_spec(fields: Fields, numbers: int) -> CoFrNetSpec:
    """The spec, if a model of it has just as many numbers as the file: nothing is allocated before that is known."""
    for name in ("n_features", "n_outputs", "n_members", "depth"):
        fields.integer(name, 0, max(64, numbers))
    variant = fields.text("variant")
    if variant != "D":
        fields.integer("n_ladders", 1, max(1, numbers))
    if variant != "F":
        fields.integer("ladders_per_feature", 1, max(64, numbers))
    for name in ("depths", "curved", "subsets"):
        value = fields.any(name)
        _require(value is None or (isinstance(value, list) and len(value) <= numbers), name, "a list that fits")
    flat = [*(fields.any("depths") or []), *(fields.any("curved") or [])]
    for subset in fields.any("subsets") or []:
        _require(isinstance(subset, list) and len(subset) <= numbers, "subsets", "lists of positions")
        flat += subset
    _require(all(type(v) is int and 0 <= v <= numbers for v in flat), "spec", "made of small integers")
    if fields.any("epsilon") is not None:
        fields.number("epsilon")
    try:
        spec = CoFrNetSpec.from_dict(fields.values)
        expected = spec.n_parameters
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelFileError(f"the spec of the file must be one that a model can have; it is not ({error}).") from error
    _require(expected == numbers, "spec", f"for the {numbers} numbers that the file has, not {expected}")
    return spec


def _read_model(spec: CoFrNetSpec, tensors: dict[str, Tensor]) -> CoFrNet:
    kinds = {t.dtype for t in tensors.values()}
    _require(len(kinds) == 1, "tensors", "of one dtype")
    model = CoFrNet(spec, dtype=kinds.pop(), generator=torch.Generator().manual_seed(0))
    wanted = model.state_dict()
    _require({f"model/{name}" for name in wanted} == set(tensors), "tensors", "those of the model")
    for name, value in wanted.items():
        found = tensors[f"model/{name}"]
        _require(found.shape == value.shape, f"tensor {name!r}", f"of shape {tuple(value.shape)}")
    model.load_state_dict({name: tensors[f"model/{name}"] for name in wanted})
    return model.eval()


# ---------------------------------------------------------------------------------------------- the profile


def _profile_fields(profile: TableProfile) -> dict[str, Any]:
    return {
        "columns": [
            {**asdict(column), "mean": _or_none(column.mean), "median": _or_none(column.median)}
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
        fits = len(counts) == (len(edges) - 1 if numeric else len(column.inputs)) and bool(edges) == numeric
        _require(fits, f"profile of column {column.name!r:.60}", "that of its kind")
        mean, median = (own.number(name) if numeric else math.nan for name in ("mean", "median"))
        columns.append(ColumnProfile(mean, median, edges, counts, own.number("missing"), own.number("deviation")))
    spreads = np.array(fields.numbers("input_spreads"))
    _require(len(spreads) == spec.n_features, "profile", "of all inputs")
    importances = _matrix(fields.any("importances"), (spec.n_outputs, len(columns)))
    found = []
    for pair in fields.any("pairs") or []:
        i, j, strength = pair
        _require(
            type(i) is int and type(j) is int and 0 <= i < len(columns) and 0 <= j < len(columns), "pairs", "positions"
        )
        found.append((i, j, tuple(_matrix([strength], (1, spec.n_outputs))[0].tolist())))
    return TableProfile(tuple(columns), spreads, importances, tuple(found))


def _matrix(values: Any, shape: tuple[int, int]) -> NDArray[np.float64]:
    rows = [Fields({"row": row}, "matrix").numbers("row") for row in values] if isinstance(values, list) else []
    _require(len(rows) == shape[0] and all(len(row) == shape[1] for row in rows), "a matrix", f"of shape {shape}")
    return np.array(rows, dtype=np.float64).reshape(shape)


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------------------------- parameters


_CODE = object()  # stands for what a file cannot hold


def _plain(value: Any) -> Any:
    """A parameter of the constructor as JSON: lists, tuples and dicts are marked, so that all keep their types."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _CODE
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        pairs = [[_plain(k), _plain(v)] for k, v in value.items()]
        return _CODE if any(_CODE in pair for pair in pairs) else {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [_plain(v) for v in value]
        return _CODE if _CODE in items else {"list" if isinstance(value, list) else "tuple": items}
    return _CODE


def _unplain(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("dict"), list):
        return {_unplain(k): _unplain(v) for k, v in value["dict"]}
    for name, kind in (("list", list), ("tuple", tuple)):
        if isinstance(value, dict) and isinstance(value.get(name), list):
            return kind(_unplain(v) for v in value[name])
    _require(value is None or isinstance(value, bool | int | float | str), "parameters", "plain values")
    return value

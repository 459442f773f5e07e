"""What model files hold, read with suspicion: specs, columns, classes, scales. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cofrnet.errors import ModelFileError
from cofrnet.estimators.column_inputs import HEIGHT, CategoricalColumn, Column, Effects, NumericColumn
from cofrnet.estimators.encoding import TableEncoder
from cofrnet.files import Fields
from cofrnet.nn.specs import CoFrNetSpec, Spec

__all__ = ["fits", "or_none", "read_classes", "read_column", "read_scale", "read_spec", "read_table", "spec_of"]

_Spec = TypeVar("_Spec", bound=Spec)


def fits(holds: bool, what: str, wanted: str) -> None:
    """Raise unless a part of the file is as it must be."""
    if not holds:
        raise ModelFileError(f"{what} of the file must be {wanted}; it is not.")


def read_spec(fields: Fields, numbers: int) -> CoFrNetSpec:
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
        fits(value is None or (isinstance(value, list) and len(value) <= numbers), name, "a list that fits")
    flat = [*(fields.any("depths") or []), *(fields.any("curved") or [])]
    for subset in fields.any("subsets") or []:
        fits(isinstance(subset, list) and len(subset) <= numbers, "subsets", "lists of positions")
        flat += subset
    fits(all(type(v) is int and 0 <= v <= numbers for v in flat), "spec", "made of small integers")
    if fields.any("epsilon") is not None:
        fields.number("epsilon")
    return spec_of(CoFrNetSpec, fields, numbers, lambda spec: spec.n_parameters)


def spec_of(kind: type[_Spec], fields: Fields, numbers: int, count: Callable[[_Spec], int]) -> _Spec:
    """The spec of a kind, whose sizes were looked at before, if a model of it has as many numbers as the file."""
    try:
        spec = kind.from_dict(fields.values)
        expected = count(spec)
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelFileError(f"the spec of the file must be one that a model can have; it is not ({error}).") from error
    fits(expected == numbers, "spec", f"for the {numbers} numbers that the file has, not {expected}")
    return spec


def or_none(value: float) -> float | None:
    """The number, or None for what JSON has no number for."""
    return value if math.isfinite(value) else None


def read_classes(fields: Fields) -> NDArray[Any]:
    """Labels of the classes, in their order."""
    kind = fields.text("kind")
    read = {"text": fields.texts, "int": fields.any, "float": fields.numbers, "bool": fields.any}.get(kind)
    if read is None:
        raise ModelFileError(f"classes of the file must be text, int, float or bool; got {kind!r:.60}.")
    values = (
        [type_of(v) for v in read("classes")] if (type_of := {"int": int, "bool": bool}.get(kind)) else read("classes")
    )
    classes = np.array(values, dtype=object if kind == "text" and any("\0" in v for v in values) else None)
    if len(classes) < 2 or len(set(values)) < len(values):
        raise ModelFileError("classes of the file must be two or more, all different; they are not.")
    return classes


def read_scale(fields: Fields) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]:
    """Means and scales of the targets of a regression, and whether there is one that was given as a vector."""
    mean, scale = (np.array(fields.numbers(name)) for name in ("mean", "scale"))
    if len(mean) != len(scale) or not (scale > 0).all():
        raise ModelFileError("targets of the file must have a mean and a positive scale each; they have not.")
    return mean, scale, fields.flag("flat")


def read_table(about: Fields, numbers: int, outputs: int) -> tuple[TableEncoder, list[str] | None, CoFrNetSpec]:
    """How a table is encoded, its names of columns where it had any, and the spec of a model of so many numbers."""
    encoder = TableEncoder(tuple(read_column(fields) for fields in about.objects("columns")))
    names = None
    if about.any("feature_names") is not None:
        names = list(about.texts("feature_names"))
        fits(len(names) == len(encoder.columns), "feature_names", "one for each column")
    spec = read_spec(about.object("spec"), numbers)
    fits(spec.n_features == encoder.n_inputs, "spec", "for as many inputs as the columns have")
    fits(spec.n_outputs == outputs, "spec", "for as many outputs as y has")
    return encoder, names, spec


def read_column(fields: Fields) -> Column:
    """How a column of a table becomes inputs."""
    if "levels" in fields.values:
        levels = fields.texts("levels")
        fits(len(set(levels)) == len(levels), "levels", "all different")
        effects, unit = _read_effects(fields, len(levels))
        frequent = fields.integer("frequent", 0, len(levels)) if effects else None
        own = {key: fields.text(key) for key in ("gap", "other") if key in fields.values}
        column = CategoricalColumn(fields.text("name"), levels, frequent, effects, unit, **own)
        fits(column.gap != column.other, "gap", "another level than the other one")
        fits(frequent is None or column.other in levels[:frequent], "levels", "with one for those that have no input")
        return column
    knots, values = fields.numbers("knots"), fields.numbers("values")
    rising = all(a < b for a, b in pairwise(knots)) and all(a <= b for a, b in pairwise(values))
    fits(len(knots) == len(values) >= 2 and rising, "knots", "two or more, rising, with a value each")
    bounded = fields.flag("bounded")
    fits(bounded or len(knots) == 2, "knots", "two where a column is scaled by a straight line")
    is_date = "is_date" in fields.values and fields.flag("is_date")
    hats = fields.any("hats") if "hats" in fields.values else []
    whole = isinstance(hats, list) and all(type(i) is int and 0 <= i < len(knots) for i in hats)
    whole = whole and all(a < b for a, b in pairwise(hats))
    fits(whole and (bounded or not hats), "hats", "positions of knots, rising, of a bounded column")
    height = fields.number("height") if hats else HEIGHT
    fits(0.001 <= height <= 1, "height", "that of hats, 0.001 to 1")
    codes = fields.numbers("codes") if "codes" in fields.values else ()
    fits(all(a < b for a, b in pairwise(codes)) and len(codes) != 1, "codes", "none, or two or more, rising")
    effects, unit = _read_effects(fields, len(codes))
    fits(bool(effects) == bool(codes), "effects", "there for codes")
    return NumericColumn(
        fields.text("name"), knots, values, bounded, fields.flag("has_missing"), is_date, tuple(hats), height,
        codes, effects, unit,
    )  # fmt: skip


def _read_effects(fields: Fields, count: int) -> tuple[Effects, float]:
    """Effects of so many values, and their unit; none in files of older versions."""
    given = fields.any("effects") if "effects" in fields.values else []
    fits(isinstance(given, list) and len(given) in (0, count), "effects", "one for each value")
    effects = tuple(Fields({"row": row}, "effects").numbers("row") for row in given)
    fits(len({len(row) for row in effects}) <= 1 and all(effects), "effects", "as many for each value")
    unit = fields.number("unit") if effects else 1.0
    fits(unit > 0, "unit", "positive")
    return effects, unit

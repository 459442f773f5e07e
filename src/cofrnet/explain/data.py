"""Explanations as data: frozen objects of arrays that can be compared, printed, and turned into JSON or a frame."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["OF_CLASSES", "Curve", "Explanation", "GlobalExplanation", "Interaction", "LocalExplanation", "Surface"]

OF_CLASSES = "score of each class, before the softmax"  # the unit of several scores of which the highest is right

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The base of all explanations: equality, and plain values for JSON."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = value.copy()
                value.setflags(write=False)
                object.__setattr__(self, field.name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings; what is not a number becomes None."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def to_json(self, **options: Any) -> str:
        """JSON text of `to_dict`; options go to ``json.dumps``."""
        return json.dumps(self.to_dict(), allow_nan=False, **options)

    def columns(self) -> dict[str, Any]:
        """Columns of the table that `to_frame` makes."""
        raise NotImplementedError

    def to_frame(self, backend: str = "pandas") -> Any:
        """A data frame of "pandas" or "polars"."""
        if backend not in ("pandas", "polars"):
            raise ValueError(f"backend must be 'pandas' or 'polars'; got backend={backend!r}.")
        if backend == "polars":
            import polars as pl

            return pl.DataFrame({name: list(values) for name, values in self.columns().items()}, strict=False)
        import pandas as pd

        return pd.DataFrame(self.columns())


@dataclass(frozen=True, eq=False)
class LocalExplanation(Explanation):
    """What every feature does to the scores of every row.

    values : (n, q, P). For "integrated", what the feature adds to the score on the way from the baseline: together with
    the base value they make the score, but for `gap`. For "gradient", the slope of the score in the feature's own unit;
    NaN where there is none: categories and missing values.
    scores : (n, q); base_values : (q,), the score of the baseline, NaN for "gradient"; clamped : (n,), share of clamped
    rungs; data : (n, P), the rows as they were given; rows : (n,), their places in a table, from 0 where it is None.
    """

    method: str
    values: Floats
    base_values: Floats
    scores: Floats
    gap: Floats
    clamped: Floats
    data: NDArray[Any]
    feature_names: tuple[str, ...]
    output_names: tuple[str, ...]
    unit: str
    definition: str
    rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of the rows in their table."""
        return np.arange(len(self)) if self.rows is None else self.rows

    def output_of(self, row: int) -> int:
        """The score to look at first: that of the most probable class of a row, where there is one for each class."""
        return int(np.argmax(self.scores[row])) if self.unit == OF_CLASSES else 0

    def __getitem__(self, rows: Any) -> LocalExplanation:
        """The explanation of some of the rows."""
        where: Any = [rows] if isinstance(rows, int | np.integer) else rows
        parts = {name: getattr(self, name)[where] for name in ("values", "scores", "gap", "clamped", "data")}
        parts["rows"] = None if self.rows is None else self.rows[where]
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in parts}
        return LocalExplanation(**parts, **others)

    def columns(self) -> dict[str, Any]:
        """One line for each row and output: the base, what each feature does, the score."""
        n, q, _ = self.values.shape
        table: dict[str, Any] = {"row": np.repeat(self.places, q), "output": list(self.output_names) * n}
        table["base"] = np.tile(self.base_values, n)
        last = {"score": self.scores.reshape(-1), "clamped": np.repeat(self.clamped, q)}
        for name, own in zip(self.feature_names, np.moveaxis(self.values, 2, 0), strict=True):
            table[_free(name, {*table, *last})] = own.reshape(-1)
        return table | last

    def to_shap(self) -> Any:
        """A ``shap.Explanation``: (n, P) for one output, (n, P, q) for several."""
        import shap

        values = self.values[:, 0] if len(self.output_names) == 1 else self.values.transpose(0, 2, 1)
        base = self.base_values[0] if len(self.output_names) == 1 else self.base_values
        return shap.Explanation(
            values=np.array(values, dtype=float),
            base_values=np.broadcast_to(base, (len(values), *np.shape(base))).copy(),
            data=self.data.copy(),
            feature_names=list(self.feature_names),
            output_names=None if len(self.output_names) == 1 else list(self.output_names),
        )

    def __str__(self) -> str:
        """The first rows, features by the size of what they do."""
        shown, most = min(len(self), 3), 10
        what = "adds" if self.method == "integrated" else "slope"
        lines = [f"{self.definition}", f"scale: {self.unit}"]
        for i in range(shown):
            for c, output in enumerate(self.output_names):
                own = self.values[i, c]
                order = np.argsort(-np.abs(np.nan_to_num(own)), kind="stable")[:most]
                lines += ["", f"row {self.places[i]}, {output}: score {beside(float(self.scores[i, c]), own)}"]
                rows = [(self.feature_names[j], short(self.data[i, j]), signed(own[j])) for j in order]
                rest = np.delete(own, order)
                if len(rest) and self.method == "integrated":
                    rows.append((f"{len(rest)} others", "", signed(rest.sum())))
                if self.method == "integrated":
                    rows.append(("baseline", "", beside(float(self.base_values[c]), own)))
                lines += text_table(("feature", "value", what), rows)
        if len(self) > shown:
            lines += ["", f"... and {len(self) - shown} more rows"]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Curve(Explanation):
    """What one feature does to the scores when the others stay where they are.

    grid : (G,), numbers in the feature's unit or names of levels; values : (q, G), the score minus that of the mean
    row, or of given rows as they are (so the curves of an additive model are its contributions); own : (q, G), the part
    of its linear path and its own ladders alone; ladders : (q, ladders, G), each of those ladders times its head; low,
    high : (q, G), two standard deviations of the members to either side; missing : (q,), the same for a missing value,
    NaN where training had none; edges, counts : density of the training rows, counts per level for categories; margin :
    (G,), least |t_k| / epsilon below rung 0 of the feature's ladders: a clamped rung has less than 1; NaN where it has
    no ladders; is_date : whether the numbers are days since 1970; levels : how many the feature has, of which the grid
    may have the most frequent only.
    """

    feature: str
    categorical: bool
    grid: NDArray[Any]
    values: Floats
    own: Floats
    ladders: Floats
    low: Floats
    high: Floats
    missing: Floats
    edges: Floats
    counts: Floats
    margin: Floats
    output_names: tuple[str, ...]
    unit: str
    is_date: bool = False
    levels: int = 0

    def columns(self) -> dict[str, Any]:
        """One line for each output and point of the grid."""
        q, points = self.values.shape
        parts = ("values", "own", "low", "high")
        return {
            "output": np.repeat(np.asarray(self.output_names, dtype=object), points).tolist(),
            _free(self.feature, {"output", *parts}): np.tile(self.grid, q),
            **{name: getattr(self, name).reshape(-1) for name in parts},
        }

    def __str__(self) -> str:
        """Some points of the curve."""
        some = np.unique(np.linspace(0, len(self.grid) - 1, min(len(self.grid), 11)).round().astype(int))
        rows = [(short(self.grid[i]), *(signed(v) for v in self.values[:, i])) for i in some]
        if not np.isnan(self.missing).any():
            rows.append(("missing", *(signed(v) for v in self.missing)))
        return "\n".join(
            [f"curve of {self.feature}, {self.unit}", *text_table((self.feature, *self.output_names), rows)]
        )


@dataclass(frozen=True, eq=False)
class Surface(Explanation):
    """What two features do together: joint, the score minus that of the baseline; values, what is left of it beyond
    their two curves.

    first, second : (G1,) and (G2,), as in `Curve`, the last NaN for a missing value where training had any; values,
    joint : (q, G1, G2); low, high : two standard deviations of the members to either side of values; edges, counts :
    density of the training rows by each feature; margin : (G1, G2), as in `Curve`, of the ladders of the pair; NaN
    where it has none; are_dates : which of the features are days since 1970.
    """

    features: tuple[str, str]
    first: NDArray[Any]
    second: NDArray[Any]
    values: Floats
    low: Floats
    high: Floats
    joint: Floats
    edges: tuple[tuple[float, ...], ...]
    counts: tuple[tuple[float, ...], ...]
    margin: Floats
    output_names: tuple[str, ...]
    unit: str
    are_dates: tuple[bool, bool] = (False, False)

    def columns(self) -> dict[str, Any]:
        """One line for each output and pair of points."""
        q, rows, cols = self.values.shape
        parts = ("values", "low", "high", "joint")
        taken = {"output", *parts}
        return {
            "output": np.repeat(np.asarray(self.output_names, dtype=object), rows * cols).tolist(),
            _free(self.features[0], taken): np.tile(np.repeat(self.first, cols), q),
            _free(self.features[1], taken): np.tile(self.second, q * rows),
            **{name: getattr(self, name).reshape(-1) for name in parts},
        }

    def __str__(self) -> str:
        """How far it reaches."""
        names = " and ".join(self.features)
        ends = [
            f"{o}: {signed(v.min())} to {signed(v.max())}" for o, v in zip(self.output_names, self.values, strict=True)
        ]
        return f"{names} together, beyond their curves, {self.unit}: " + ", ".join(ends)


@dataclass(frozen=True, eq=False)
class Interaction(Explanation):
    """How strongly two features act together on each score; strength : (q,)."""

    features: tuple[str, str]
    strength: Floats


@dataclass(frozen=True, eq=False)
class GlobalExplanation(Explanation):
    """What the features do overall. importances : (q, P), by the definition that goes with them."""

    importances: Floats
    curves: tuple[Curve, ...]
    surfaces: tuple[Surface, ...]
    interactions: tuple[Interaction, ...]
    feature_names: tuple[str, ...]
    output_names: tuple[str, ...]
    unit: str
    definition: str
    interactions_definition: str

    def curve(self, feature: str) -> Curve:
        """The curve of a feature, by name."""
        for curve in self.curves:
            if curve.feature == feature:
                return curve
        raise KeyError(f"{feature!r} has no curve here; there are {[curve.feature for curve in self.curves]}.")

    def columns(self) -> dict[str, Any]:
        """One line for each feature, the most important first."""
        order = self.order
        table: dict[str, Any] = {"feature": [self.feature_names[j] for j in order]}
        table["importance"] = self.importances.mean(0)[order]
        if len(self.output_names) > 1:
            table |= {
                f"importance, {o}": own[order] for o, own in zip(self.output_names, self.importances, strict=True)
            }
        return table

    @property
    def order(self) -> list[int]:
        """Features from the most to the least important, by position."""
        return [int(j) for j in np.argsort(-self.importances.mean(0), kind="stable")]

    def __str__(self) -> str:
        """Importances with bars, and the strongest interactions."""
        order = self.order[:20]
        mean = self.importances.mean(0)
        top = max(float(mean.max()), 1e-300)
        rows = [(self.feature_names[j], short(mean[j]), "█" * max(0, round(30 * float(mean[j]) / top))) for j in order]
        lines = [
            f"importance: {self.definition}",
            f"scale: {self.unit}",
            "",
            *text_table(("feature", "importance", ""), rows),
        ]
        if len(self.order) > len(order):
            lines.append(f"... and {len(self.order) - len(order)} more features")
        if self.interactions:
            pairs = [(" × ".join(i.features), short(i.strength.mean())) for i in self.interactions[:5]]
            lines += [
                "",
                f"interactions: {self.interactions_definition}",
                "",
                *text_table(("features", "strength"), pairs),
            ]
        return "\n".join(lines)


# ---------------------------------------------------------------------------------------------- helpers


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape:
            return False
        both = a.dtype.kind == b.dtype.kind == "f"
        return bool(np.array_equal(a, b, equal_nan=both)) if both else _plain(a) == _plain(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_equal(*pair) for pair in zip(a, b, strict=True))
    return bool(a == b)


def _plain(value: Any) -> Any:
    if isinstance(value, Explanation):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _free(name: str, taken: set[str]) -> str:
    """A name for the column of a feature that no other column has."""
    while name in taken:
        name = f"{name} (feature)"
    return name


def short(value: Any) -> str:
    """A value of a table in few characters."""
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return "missing"
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def beside(value: float, changes: Any) -> str:
    """A number in as many digits as tell it from what it is without one of the changes."""
    size = float(np.abs(np.nan_to_num(changes)).max(initial=0.0))
    ratio = abs(value) / size if size > 0 else 0.0
    extra = math.ceil(math.log10(ratio)) if 0 < ratio < math.inf else 0
    return f"{value:.{min(max(4, 3 + extra), 15)}g}"


def signed(value: Any) -> str:
    """A number with its sign; "-" where there is none."""
    return "-" if np.isnan(value) else f"{value + 0.0:+.4g}"


def text_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right but for bars."""
    titles, *rows = [[" ".join(str(cell).split()) for cell in row] for row in [titles, *rows]]
    widths = [max(len(str(row[i])) for row in [titles, *rows]) for i in range(len(titles))]

    def line(row: Sequence[str]) -> str:
        cells = [
            str(v).ljust(w) if i == 0 or str(v).startswith("█") else str(v).rjust(w)
            for i, (v, w) in enumerate(zip(row, widths, strict=True))
        ]
        return ("  " + "  ".join(cells)).rstrip()

    return [line(titles), *map(line, rows)]

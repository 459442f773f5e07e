"""The interactive page: one HTML file that holds explanations, the model itself, and the script that draws them.

Everything that comes from a table (names, levels, labels) goes into the page as escaped text or as JSON, and a
Content-Security-Policy lets only the scripts run that are in the page as it was written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import cofrnet
from cofrnet.explain.data import Curve, GlobalExplanation, LocalExplanation
from cofrnet.explain.quality import Quality
from cofrnet.explain.series import SeriesExplanation
from cofrnet.export.code import to_code
from cofrnet.export.plan import Plan

__all__ = ["Feature", "Page", "Rows", "html", "metric_words", "quality_note", "render", "script", "short"]

HERE = Path(__file__).parent
MOST_PROGRAM = 4_000_000  # characters of the model in the page; a larger one is left out, and the page says so
NODES = 64  # of the integrals behind the live contributions


@dataclass(frozen=True)
class Feature:
    """A column in the "What if" panel: its range or its levels (None is missing), and its value in the median row."""

    name: str
    kind: str  # "number", "date" or "category"
    start: float | str | None
    low: float = 0.0
    high: float = 1.0
    missing: bool = False
    levels: tuple[str | None, ...] = ()
    whole: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the script."""
        span = self.high - self.low
        step = 1 if self.whole and span >= 1 else span / 200 if math.isfinite(span) and span > 0 else "any"
        described = {"name": self.name, "kind": self.kind, "start": self.start, "missing": self.missing}
        if self.kind == "category":
            return described | {"levels": list(self.levels)}
        return described | {"low": self.low, "high": self.high, "step": step}


@dataclass(frozen=True)
class Rows:
    """Rows to browse: their places in the table, values by feature, what was predicted and what is true.

    `predicted`, `actual` and `loss`, how wrong it is, are of every target, (n, targets); the last two are None where y
    is not known. `total` counts the rows of the table.
    """

    explanation: LocalExplanation
    index: Sequence[int]
    data: Sequence[Sequence[Any]]
    predicted: Sequence[Sequence[Any]]
    actual: Sequence[Sequence[Any]] | None
    loss: Sequence[Sequence[float]] | None
    total: int


@dataclass(frozen=True)
class Page:
    """All that a page shows."""

    title: str
    facts: Sequence[tuple[str, str]]
    overall: GlobalExplanation
    features: Sequence[Feature]
    plan: Plan
    baseline: Sequence[float]
    classes: Sequence[str] = ()
    target: str | None = None
    quality: Quality | None = None
    history: Mapping[str, Sequence[float]] | None = None
    rows: Rows | None = None
    series: SeriesExplanation | None = None
    series_columns: int = 0
    series_error: Mapping[str, float] | None = None
    members: int = 1


def html(page: Page) -> str:
    """The text of the page."""
    program = to_code(page.plan, "javascript", "score")
    live = len(program) <= MOST_PROGRAM
    scripts = [script("common.js"), _plotly(), *([program] if live else []), script("page.js")]
    return render(
        "page.html.j2",
        scripts,
        _data(page),
        **_words(page),
        live=live,
        live_note="The model is too large to be put into this page, so its features cannot be moved here. With fewer "
        'columns, fewer ladders or variant="D" it would fit.',
    )


def script(name: str) -> str:
    """A script of ours."""
    return (HERE / name).read_text(encoding="utf-8")


def render(template: str, scripts: Sequence[str], data: Any, **said: Any) -> str:
    """The text of a page: a template, the scripts that may run in it, and the data that they read."""
    try:
        from jinja2 import Environment, FileSystemLoader
        from markupsafe import Markup
    except ImportError:
        raise ImportError("a report needs jinja2. Install it with: pip install 'cofrnet[report]'") from None
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(
        **said,
        scripts=[Markup(text) for text in scripts],
        css=Markup(script("page.css")),
        data=Markup(_json(data)),
        policy=_policy(scripts),
        version=cofrnet.__version__,
    )


def _plotly() -> str:
    """Plotly's script, from the installed package; found without importing it."""
    found = find_spec("plotly")
    places = [] if found is None else list(found.submodule_search_locations or [])
    for place in places:
        path = Path(place) / "package_data" / "plotly.min.js"
        if path.exists():
            return path.read_text(encoding="utf-8")
    raise ImportError("a report needs plotly, which is not installed. Install it with: pip install 'cofrnet[report]'")


def _policy(scripts: Any) -> str:
    """What the page may do: run these scripts, and draw. It may load and send nothing."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _json(values: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


# ---------------------------------------------------------------------------------------------- words


def _words(page: Page) -> dict[str, Any]:
    """What the template says."""
    quality, rows, series = page.quality, page.rows, page.series
    sections = [("quality", "Quality" if quality else "Model"), ("importances", "Importances"), ("curves", "Curves")]
    sections += [("pairs", "Pairs")] if page.overall.surfaces else []
    sections += [("whatif", "What if")]
    sections += [("rows", "Rows")] if rows else []
    sections += [("formula", "Formula")] if series else []
    shown, count = len(page.overall.curves), len(page.overall.feature_names)
    return {
        "title": page.title,
        "subtitle": page.facts[0][1],
        "facts": page.facts,
        "sections": sections,
        "outputs": page.overall.output_names,
        "output_word": "Class" if page.classes else "Target",
        "unit": page.overall.unit,
        "importance_definition": page.overall.definition,
        "pairs_definition": f"Strength: {page.overall.interactions_definition}.",
        "has_pairs": bool(page.overall.surfaces),
        "curves_note": f" Shown are the {shown} most important of {count} features." if shown < count else "",
        "band": page.members > 1,
        "metrics": [] if quality is None else [metric_words(m.to_dict()) for m in quality.metrics],
        "quality_note": "" if quality is None else quality_note(quality),
        "has_rows": rows is not None,
        "rows_note": "" if rows is None else _rows_note(rows),
        "has_series": series is not None,
        "series_center": "mean",
        "series_note": "" if series is None else _series_note(page),
        "footer": "" if rows is None else f"It was made from {rows.total:,} rows.",
    }


def metric_words(metric: dict[str, Any]) -> dict[str, str]:
    """A metric as the page says it."""
    return {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in metric.items()}


def quality_note(quality: Quality) -> str:
    """What the figures are of."""
    return (
        f"On {quality.n_rows:,} rows; {quality.definition}. Rows that the model was fitted to would flatter "
        "it: give it others."
    )


def _rows_note(rows: Rows) -> str:
    if len(rows.index) == rows.total:
        return f"All {rows.total:,} rows. Choose one to see why the model says what it says of it."
    wrong = "those the model is most wrong about, and " if rows.actual is not None else ""
    return (
        f"A sample of {len(rows.index):,} of {rows.total:,} rows: {wrong}rows evenly spread over the table. "
        "Choose one to see why the model says what it says of it."
    )


def _series_note(page: Page) -> str:
    assert page.series is not None
    text = f"The power series of the score ({page.series.unit}) to order {page.series.order}; the largest terms first."
    if len(page.overall.feature_names) > page.series_columns:
        text += " It has the most important features; the others stay where the mean row has them."
    if page.series_error is not None:
        error = page.series_error
        text += f" On the rows its mean distance from the model is {error['mean']:.3g} (R² {error['r2']:.3g})."
        if not error["r2"] > 0.5:
            text += " That is poor: away from the mean row, believe the curves and not this formula."
    return text


# ---------------------------------------------------------------------------------------------- data


def _data(page: Page) -> dict[str, Any]:
    """What the script draws: values of the table in nine digits, as a float32 has, what the model adds in six.

    Scores and predictions may be small changes of a large number, and have all digits.
    """
    overall = page.overall
    points, shares = np.polynomial.legendre.leggauss(NODES)
    dates = {feature.name for feature in page.features if feature.kind == "date"}
    quality = page.quality
    found: dict[str, Any] = {
        "outputs": overall.output_names,
        "classes": page.classes,
        "task": "classification" if page.classes else "regression",
        "target": page.target,
        "unit": overall.unit,
        "spread": list(page.plan.scale),
        "band": page.members > 1,
        "importances": {"names": overall.feature_names, "values": overall.importances},
        "curves": [_curve(own, own.feature in dates) for own in _by_importance(overall)],
        "surfaces": [
            {
                "names": s.features,
                "first": _axis(s.first, s.features[0] in dates),
                "second": _axis(s.second, s.features[1] in dates),
                "values": s.values,
            }
            for s in overall.surfaces
        ],
        "quality": None
        if quality is None
        else {"confusion": quality.confusion, "calibration": quality.calibration, "points": quality.points},
        "history": {} if page.history is None else dict(page.history),
        "rows": None if page.rows is None else _rows(page.rows),
        "series": None if page.series is None else _series(page.series),
    }
    place = {feature.name: i for i, feature in enumerate(page.features)}
    exact = {
        "features": [feature.to_dict() for feature in page.features],
        "nodes": ((points + 1) / 2).tolist(),
        "shares": (shares / 2).tolist(),
        "baseline": list(page.baseline),
        "owners": [place[column.name] for column in page.plan.columns for _ in range(column.width)],
    }
    return short(found) | exact


def _axis(grid: Any, date: bool) -> Any:
    """Values along an axis; days as dates."""
    if not date:
        return grid
    return [None if np.isnan(v) else str(np.datetime64(round(v), "D")) for v in grid.tolist()]


DIFFERENCES = {"importances", "low", "high", "contributions", "calibration", "counts"}
LEVELS = {"points", "predicted", "actual", "scores", "base"}


def short(value: Any, digits: int = 9) -> Any:
    """Plain values in so many digits; what is no number is None."""
    if isinstance(value, np.ndarray):
        return short(value.tolist(), digits)
    if isinstance(value, dict):
        return {k: short(v, 6 if k in DIFFERENCES else 15 if k in LEVELS else digits) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [short(v, digits) for v in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _by_importance(overall: GlobalExplanation) -> list[Curve]:
    place = {overall.feature_names[j]: i for i, j in enumerate(overall.order)}
    return sorted(overall.curves, key=lambda own: place[own.feature])


def _curve(own: Curve, date: bool) -> dict[str, Any]:
    parts = ("grid", "values", "low", "high", "missing", "edges", "counts")
    return {"name": own.feature, "categorical": own.categorical, "date": date} | {k: getattr(own, k) for k in parts}


def _rows(rows: Rows) -> dict[str, Any]:
    own = rows.explanation
    return {
        "index": list(rows.index),
        "data": rows.data,
        "predicted": rows.predicted,
        "actual": rows.actual,
        "loss": rows.loss,
        "scores": own.scores,
        "base": own.base_values,
        "contributions": own.values,
    }


def _series(series: SeriesExplanation) -> dict[str, Any]:
    coefficients = series.coefficients.astype(np.float64)
    sizes = np.abs(coefficients).max(0) * (series.spread**series.exponents).prod(1)
    order = [0, *(int(i) for i in np.argsort(-sizes, kind="stable") if i != 0 and sizes[i] > 0)]
    return {
        "center": dict(zip(series.variables, series.center.tolist(), strict=True)),
        "terms": [
            {
                "factors": [
                    [name, power]
                    for name, power in zip(series.variables, series.exponents[i].tolist(), strict=True)
                    if power
                ],
                "coefficients": coefficients[:, i],
            }
            for i in order
        ],
    }

"""The power series of a fitted model (IPS): one polynomial that is the model near a centre, in the user's units."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.core.series import Terms, exact, ladder_series
from cofrnet.errors import PoleWarning
from cofrnet.explain.data import Explanation, signed, text_table
from cofrnet.explain.subject import Subject
from cofrnet.nn import CoFrNet

__all__ = ["SeriesExplanation", "model_series", "power_series"]

Floats = NDArray[np.floating[Any]]

MOST_NUMBERS = 50_000_000


@dataclass(frozen=True, eq=False)
class SeriesExplanation(Explanation):
    """A polynomial in the differences of features from a centre, that agrees with the score up to its order.

        score(x) ~ sum over terms of coefficient * product over variables of (x_j - center_j)^exponent

    exponents : (T, v); coefficients : (q, T), floats, or fractions where they were asked for; center : (v,); spread :
    (v,), standard deviation of each variable in training, by which `radius` is measured; straight : how far from the
    centre the scaling of all columns is straight to a tenth, in these deviations.
    """

    exponents: NDArray[np.int64]
    coefficients: NDArray[Any]
    center: Floats
    spread: Floats
    straight: float
    order: int
    kind: str
    variables: tuple[str, ...]
    output_names: tuple[str, ...]
    unit: str
    source: Callable[[Any], tuple[Floats, Floats]] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; exact fractions are written as text."""
        plain = super().to_dict()
        del plain["source"]
        return plain

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [f.name for f in fields(self) if f.name != "source"]
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in names)

    __hash__ = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None}  # a pickle has the polynomial, not the model

    @property
    def _terms(self) -> Terms:
        return Terms(len(self.variables), self.order, self.kind)  # type: ignore[arg-type]

    @property
    def terms(self) -> dict[tuple[int, ...], Any]:
        """{exponents: coefficients}, the coefficient of each output (one number where there is one output)."""
        one = len(self.output_names) == 1
        pairs = zip(self.exponents.tolist(), self.coefficients.T, strict=True)
        return {tuple(e): c[0] if one else c for e, c in pairs}

    def monomial(self, term: int) -> str:
        """A term as text, such as "age^2 city=Rome"."""
        parts = [
            name if power == 1 else f"{name}^{power}"
            for name, power in zip(self.variables, self.exponents[term].tolist(), strict=True)
            if power
        ]
        return " ".join(parts) or "1"

    def evaluate(self, values: Any) -> Floats:
        """The polynomial at values of the variables, (n, v); returns (n, q)."""
        x = np.asarray(values, dtype=np.float64) - self.center
        return self._terms.evaluate(self.coefficients.astype(np.float64), x).T

    def predict(self, X: Any) -> Floats:
        """The polynomial on rows of the user's table, (n, q); features that are no variables do not count."""
        return self.evaluate(self._source(X)[0])

    def error(self, X: Any) -> dict[str, float]:
        """How far it is from the model on rows: the largest and the mean absolute difference, and R² of the scores.

        Features that are not among the variables stay at the centre in the series, but not in the model. Rows that miss
        a value of a variable do not count.
        """
        values, scores = self._source(X)
        whole = ~np.isnan(values).any(1)
        if not whole.any():
            raise ValueError("X must have a row that misses no value of the variables; it has none. Pass other rows.")
        values, scores = values[whole], scores[whole]
        difference = self.evaluate(values) - scores
        spread = ((scores - scores.mean(0)) ** 2).sum()
        return {
            "largest": float(np.abs(difference).max()),
            "mean": float(np.abs(difference).mean()),
            "r2": float(1 - (difference**2).sum() / spread) if spread > 0 else math.nan,
        }

    def _source(self, X: Any) -> tuple[Floats, Floats]:
        if self.source is None:
            raise ValueError("a series needs its model for this; make it by power_series of the model.")
        return self.source(X)

    @property
    def radius(self) -> float:
        """About how far from the centre it holds, in standard deviations of the variables: where terms stop falling.

        The ratio of the terms of the last two degrees, each measured at one standard deviation (infinite where the last
        degree has none), but no farther than the scaling of the columns is straight.
        """
        sizes = np.abs(self.coefficients.astype(np.float64)).max(0) * (self.spread**self.exponents).prod(1)
        degrees = self.exponents.sum(1)
        by_degree = [float(sizes[degrees == m].sum()) for m in range(int(degrees.max()) + 1)]
        if len(by_degree) < 2 or by_degree[-1] == 0:
            return self.straight
        return min(by_degree[-2] / by_degree[-1], self.straight)

    def to_sympy(self, expand: bool = False) -> Any:
        """SymPy expressions of the scores, one or a list; in x - center, or expanded into powers of x."""
        import sympy

        symbols = [sympy.Symbol(name, real=True) for name in self.variables]
        number = (lambda c: sympy.Rational(Fraction(c))) if self.coefficients.dtype == object else sympy.Float
        centers = [number(c) for c in self.center]
        found = []
        for own in self.coefficients:
            total = sympy.Integer(0)
            for powers, value in zip(self.exponents.tolist(), own, strict=True):
                term = number(value)
                for symbol, center, power in zip(symbols, centers, powers, strict=True):
                    term *= (symbol - center) ** power
                total += term
            found.append(sympy.expand(total) if expand else total)
        return found[0] if len(found) == 1 else found

    def columns(self) -> dict[str, Any]:
        """One line for each term."""
        table: dict[str, Any] = {"term": [self.monomial(i) for i in range(len(self.exponents))]}
        table["degree"] = self.exponents.sum(1)
        for name, own in zip(self.output_names, self.coefficients, strict=True):
            table[f"coefficient, {name}"] = own.astype(np.float64)
        return table

    def __str__(self) -> str:
        """The largest terms, at one standard deviation of each variable."""
        sizes = np.abs(self.coefficients.astype(np.float64)).max(0) * (self.spread**self.exponents).prod(1)
        order = [0, *[int(i) for i in np.argsort(-sizes, kind="stable") if i != 0]][:15]
        rows = [(self.monomial(i), *(signed(float(c)) for c in self.coefficients[:, i])) for i in order]
        shown = [f"{name}={c:.4g}" for name, c in zip(self.variables, self.center, strict=True)]
        center = ", ".join(shown[:8] + ["..."] * (len(shown) > 8))
        lines = [
            f"power series of order {self.order} in differences from {center}",
            f"scale: {self.unit}; holds to about {self.radius:.2g} standard deviations",
            "",
            *text_table(("term", *self.output_names), rows),
        ]
        if len(self.exponents) > len(order):
            lines.append(f"... and {len(self.exponents) - len(order)} more terms")
        return "\n".join(lines)


def model_series(
    model: CoFrNet, terms: Terms, constant: NDArray[Any], slopes: NDArray[Any], ladder: int | None = None
) -> NDArray[Any]:
    """Series of the scores of a CoFrNet, (q, T), whose inputs are linear in the variables: constant + slopes δ.

    `ladder` takes the value of one ladder, by its place in the head (those of the second member follow those of the
    first), instead of the scores: (1, T). Exact where
    constant and slopes are fractions (dtype object). Shapes: constant (p,), slopes (p, v).
    """
    as_numbers = exact if constant.dtype == object else (lambda t: np.asarray(t, dtype=np.float64))
    spec = model.spec
    members, q = spec.n_members, spec.n_outputs
    x = terms.linear(constant, slopes)  # (p, T)

    def numbers(parameter: Tensor, *shape: int) -> NDArray[Any]:
        return as_numbers(parameter.detach().double().numpy().reshape(members, *shape))

    head = numbers(model.head, q, -1)
    total: NDArray[Any] = as_numbers(np.zeros((q, 1))) * np.zeros(len(terms), dtype=int)
    if model.linear is not None and model.intercept is not None:
        linear, intercept = numbers(model.linear, q, -1), numbers(model.intercept, q)
        total = sum(linear[i] @ x + terms.constant(intercept[i]) for i in range(members))
    for i in range(members):
        values = []
        reads = x
        for name in ("curves", "subsets", "full"):
            bank = getattr(model, name)
            if bank is None:
                continue
            weight, bias = (as_numbers(part[i].detach().double().numpy()) for part in bank.full_rungs())
            epsilon = as_numbers(float(bank.epsilon))[()]
            rungs = []
            for k in range(len(weight)):
                if name == "curves":
                    own = np.repeat(x[list(spec.curved_features)], spec.ladders_per_feature, axis=0)
                    a = weight[k][:, None] * own
                elif name == "subsets":
                    a = np.stack([weight[k, s, : len(js)] @ x[list(js)] for s, js in enumerate(bank.subsets)])
                else:
                    a = weight[k] @ reads
                finite = np.array([isinstance(b, Fraction) or math.isfinite(b) for b in bias[k]])
                a[:, 0] = a[:, 0] + np.where(finite, bias[k], 0 * a[:, 0])
                a[~finite, 0] = math.inf
                rungs.append(a)
            if not bank.first:
                rungs.insert(0, 0 * x[:1] + 0 * rungs[0])
            _warn_of_clamped(rungs, bank.pole, epsilon, name)
            values.append(ladder_series(terms, rungs, bank.pole, epsilon))
            if name == "curves" and spec.variant == "S":
                reads = np.concatenate([x, values[0]])
        everything = np.concatenate(values) if values else x[:0]
        if ladder is not None:
            if ladder < (i + 1) * spec.total_ladders:
                return everything[ladder - i * spec.total_ladders][None]
            continue
        total = total + head[i] @ everything
    return total / members if constant.dtype != object else total * Fraction(1, members)


def _warn_of_clamped(rungs: Sequence[NDArray[Any]], pole: str, epsilon: Any, name: str) -> None:
    """A series about a centre where a rung is clamped is that of a constant there."""
    if pole != "clamp":
        return
    t = rungs[-1][:, 0]
    for k in range(len(rungs) - 1, 0, -1):
        inside = np.array([abs(value) < epsilon for value in t])
        if inside.any():
            warnings.warn(
                f"rung {k} of ladder {int(np.flatnonzero(inside)[0])} of the {name} ladders is clamped at the centre: "
                "the series takes it as constant. Choose another centre.",
                PoleWarning,
                stacklevel=4,
            )
        safe = np.where(inside, np.where(t < 0, -epsilon, epsilon), t)
        t = rungs[k - 1][:, 0] + 1 / safe


@dataclass(frozen=True)
class _Variable:
    """A variable of a series: the input it moves and how fast, centre and spread, how far its scaling is straight."""

    name: str
    input: int
    slope: float
    center: float
    spread: float
    straight: float = math.inf


def _variables(
    subject: Subject,
    center: Tensor,
    center_values: Floats,
    unit_slopes: Floats,
    spreads: Floats,
    features: Sequence[int],
) -> list[_Variable]:
    """One for each numeric column, one for each of its hats, one for each level of a categorical one; effects."""
    found = []
    for j in features:
        place, column, unit = subject.places[j], subject.columns[j], subject.profiles[j].deviation
        own = range(place.start, place.stop)
        heights = [1.0] * len(own)
        if not subject.is_categorical(j):
            at = float(center_values[j])
            straight = column.straight_within(at, unit) if unit > 0 else math.inf
            found.append(_Variable(column.name, place.start, float(unit_slopes[j]), at, unit, straight))
            hats = column.first_effect - column.first_hat
            heights = [column.height] * hats + [1.0] * (len(own) - column.first_effect)
            own = own[column.first_hat :]
        found += [  # hats are 1 at their value, as levels are
            _Variable(subject.input_names[i], i, height, float(center[i]) / height, float(spreads[i]) / height)
            for i, height in zip(own, heights, strict=True)
        ]
    return found


def power_series(
    subject: Subject,
    center: Tensor,
    center_values: Floats,
    unit_slopes: Floats,
    spreads: Floats,
    features: Sequence[int],
    order: int,
    kind: Literal["total", "each"],
    ladder: int | None,
    rational: bool,
    source: Callable[[Any], tuple[Floats, Floats]] | None,
) -> SeriesExplanation:
    """The power series of a model about a row, in the units of its columns.

    The scaling of a numeric column is taken by its slope at the centre; its hats, and levels, are variables themselves.

    Shapes: center (p,), the inputs; center_values, unit_slopes (P,), of numeric columns; spreads (p,).
    """
    variables = _variables(subject, center, center_values, unit_slopes, spreads, features)
    terms = Terms(len(variables), order, kind)
    spec = subject.model.spec
    held = terms.count * (spec.full_width + spec.total_ladders)
    if held > MOST_NUMBERS:
        raise ValueError(
            f"a series may take at most {MOST_NUMBERS} numbers at once; got {held} for {terms.count} terms of "
            f"{len(variables)} variables. Name fewer features, or lower the order."
        )
    slopes = np.zeros((len(center), len(variables)))
    for v, variable in enumerate(variables):
        slopes[variable.input, v] = variable.slope
    constant = center.double().numpy()
    found = model_series(
        subject.model,
        terms,
        exact(constant) if rational else constant,
        exact(slopes) if rational else slopes,
        ladder,
    )
    if ladder is None:
        scale, offset = (exact(v) if rational else v for v in (subject.scale, subject.offset))
        found = found * scale[:, None]
        found[:, 0] = found[:, 0] + offset
    return SeriesExplanation(
        exponents=terms.exponents,
        coefficients=found,
        center=np.array([variable.center for variable in variables]),
        spread=np.array([variable.spread for variable in variables]),
        straight=min((variable.straight for variable in variables), default=math.inf),
        order=order,
        kind=kind,
        variables=tuple(variable.name for variable in variables),
        output_names=subject.output_names if ladder is None else (f"ladder {ladder}",),
        unit=subject.unit if ladder is None else "value of the ladder",
        source=source if ladder is None else None,
    )

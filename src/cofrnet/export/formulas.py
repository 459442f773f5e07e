"""The scores of a fitted model as SymPy expressions and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from cofrnet.export.plan import ColumnPlan, LadderPlan, Plan

__all__ = ["Form", "to_latex", "to_sympy"]

MOST_RECIPROCALS = 40  # of a model that is one fraction; even that one may take minutes

Form = Literal["nested", "rational", "expanded", "factored"]


def to_sympy(plan: Plan, form: Form = "nested", exact: bool = False) -> Any:
    """Expressions of the scores, one or a list of them.

    Symbols are the columns where their scaling is a straight line (scaling "standard" or "minmax"), which is folded in;
    else ``z(column)``, the scaled column, and of a column of few values ``z(column=value)``, its hat at that value; and
    ``column=level``, 1 or 0; of a column of very many values or levels ``effect of column``, a number for each of them.
    A clamped ladder is written without its clamp: the two are equal wherever no rung is clamped. A missing value is
    ``z(...) = 0`` and ``column=missing`` 1; of a column whose scaling is folded in, the value whose scaled one is 0.

    "nested" is the model as it is; "rational" one fraction P/Q; "expanded" the same with both multiplied out;
    "factored" with both in factors. Those three are for small models: their degree is the number of ladders times their
    depth. With `exact`, numbers are the exact fractions that the floats are.
    """
    import sympy

    if form not in ("nested", "rational", "expanded", "factored"):
        raise ValueError(f"form must be 'nested', 'rational', 'expanded' or 'factored'; got form={form!r}.")
    reciprocals = sum(len(ladder.rungs) - 1 for member in plan.members for ladder in member.ladders)
    if form != "nested" and reciprocals > MOST_RECIPROCALS:
        raise ValueError(
            f"form={form!r} needs a model of at most {MOST_RECIPROCALS} reciprocals, as its degree is their number or "
            f"more; this one has {reciprocals}. Fit it with variant='F', n_ladders=4, n_members=1, or say 'nested'."
        )

    def number(value: float) -> Any:
        return sympy.Rational(value) if exact else sympy.Float(value)

    def as_it_is(kind: Any, *parts: Any) -> Any:
        """A product or power of ladders: SymPy would multiply out and look for signs, for minutes."""
        return kind(*parts, evaluate=False)

    def reciprocal(t: Any) -> Any:
        if plan.pole == "clamp":
            return as_it_is(sympy.Pow, t, -1)
        below = as_it_is(sympy.Pow, t, 2) + number(plan.epsilon) ** 2
        return as_it_is(sympy.Mul, t, as_it_is(sympy.Pow, below, -1))

    def combined(constant: float, weights: Sequence[float], places: Sequence[int], v: Sequence[Any]) -> Any:
        """The constant and weighted values, those at some places of inputs and ladders v."""
        parts = [
            number(w) * v[i] if i < len(inputs) else as_it_is(sympy.Mul, number(w), v[i])
            for w, i in zip(weights, places, strict=True)
            if w != 0
        ]
        return sympy.Add(number(constant), *parts)

    inputs = [
        expression
        for column, start in zip(plan.columns, plan.starts, strict=True)
        for expression in _symbols(column, plan.input_names[start : start + column.width], number)
    ]
    totals: list[list[Any]] = [[] for _ in plan.scale]
    for member in plan.members:
        v = list(inputs)
        for ladder in member.ladders:
            t = None
            for bias, weights in reversed(ladder.rungs):
                a = combined(bias, weights, ladder.reads, v)
                t = a if t is None else a + reciprocal(t)
            v.append(t)
        for c, total in enumerate(totals):
            total.append(combined(member.intercept[c], [*member.linear[c], *member.head[c]], range(len(v)), v))
    scores = [
        number(offset) + as_it_is(sympy.Mul, number(scale) / len(total), sympy.Add(*total))
        for offset, scale, total in zip(plan.offset, plan.scale, totals, strict=True)
    ]
    if form != "nested":
        scores = [_one_fraction(score, form) for score in scores]
    return scores[0] if len(scores) == 1 else scores


def _one_fraction(score: Any, form: str) -> Any:
    import sympy

    above, below = sympy.fraction(sympy.together(score))
    if form == "rational":
        return above / below
    change = sympy.expand if form == "expanded" else sympy.factor
    return change(above) / change(below)


def _symbols(column: ColumnPlan, names: Sequence[str], number: Any) -> list[Any]:
    """The inputs of a column, which have these names, as expressions."""
    import sympy

    if not column.numeric:
        return [sympy.Symbol(name, real=True) for name in names]
    if column.bounded:
        found = [sympy.Symbol(f"z({column.name})", real=True)]
    else:
        (x0, x1), (z0, z1) = column.knots, column.values
        slope = (number(z1) - number(z0)) / (number(x1) - number(x0))
        found = [number(z0) + slope * (sympy.Symbol(column.name, real=True) - number(x0))]
    found += [sympy.Symbol(name, real=True) for name in names[1 : column.first_hat]]
    found += [sympy.Symbol(f"z({name})", real=True) for name in names[column.first_hat : column.first_effect]]
    return found + [sympy.Symbol(name, real=True) for name in names[column.first_effect :]]


def to_latex(plan: Plan, form: Form = "nested", digits: int = 3) -> str:
    r"""LaTeX of the scores, ladder by ladder as nested fractions, or as one fraction of `to_sympy`'s forms.

    Nested: an ``aligned`` block with one line for each score, and one for each ladder,

        a_0 + \cfrac{1}{a_1 + \cfrac{1}{a_2 + ...}}

    where ``1`` over a smooth ladder's tail stands for its reciprocal, t / (t^2 + eps^2); a last line says so.
    """
    if form != "nested":
        import sympy

        scores = to_sympy(plan, form)
        scores = scores if isinstance(scores, list) else [scores]
        return "\n".join(sympy.latex(sympy.N(score, digits)) for score in scores)
    names = [_latex_name(name) for name in plan.input_names]
    for column, place in zip(plan.columns, plan.starts, strict=True):
        if column.numeric:
            for i in (place, *range(place + column.first_hat, place + column.first_effect)):
                names[i] = f"z_{{{names[i]}}}"
    lines = []
    for m, member in enumerate(plan.members):
        mark = f"^{{({m + 1})}}" if len(plan.members) > 1 else ""
        v = [*names, *(f"f{mark}_{{{i + 1}}}" for i in range(len(member.ladders)))]
        for c, output in enumerate(plan.output_names):
            left = rf"s{mark}_{{{_latex_name(output)}}}"
            right = _latex_sum(member.intercept[c], [*member.linear[c], *member.head[c]], v, digits)
            lines.append(f"{left} &= {right}")
        for i, ladder in enumerate(member.ladders):
            lines.append(f"{v[len(names) + i]} &= {_latex_ladder(ladder, v, digits)}")
    mean = rf"\frac{{1}}{{{len(plan.members)}}}\sum_m s^{{(m)}}" if len(plan.members) > 1 else "s"
    for c, output in enumerate(plan.output_names):
        if plan.scale[c] != 1 or plan.offset[c] != 0 or len(plan.members) > 1:
            name = _latex_name(output)
            offset = f"{_latex_number(plan.offset[c], digits)} + " if plan.offset[c] != 0 else ""
            scale = f"{_latex_number(plan.scale[c], digits)}\\," if plan.scale[c] != 1 else ""
            lines.append(rf"\mathrm{{score}}_{{{name}}} &= {offset}{scale}{mean}_{{{name}}}")
    if plan.pole == "smooth":
        square = f"{plan.epsilon**2:.{digits}g}"
        lines.append(rf"&\text{{with }} \tfrac{{1}}{{t}} \text{{ standing for }} \tfrac{{t}}{{t^2 + {square}}}")
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _latex_name(name: str) -> str:
    special = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "^": r"\^{}", "&": r"\&", "%": r"\%",
               "$": r"\$", "#": r"\#", "~": r"\~{}"}  # fmt: skip
    return r"\mathrm{" + "".join(special.get(c, c) for c in name).replace(" ", r"\ ") + "}"


def _latex_sum(bias: float, weights: Sequence[float], names: Sequence[str], digits: int) -> str:
    parts = [_latex_number(bias, digits)] if bias != 0 else []
    for weight, name in zip(weights, names, strict=True):
        if float(f"{weight:.{digits}g}") != 0:
            sign = "-" if weight < 0 else ("+" if parts else "")
            parts.append(f"{sign} {_latex_number(abs(weight), digits)}\\,{name}".strip())
    return " ".join(parts) or "0"


def _latex_number(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, power = text.split("e")
        return rf"{mantissa} \cdot 10^{{{int(power)}}}"
    return text


def _latex_ladder(ladder: LadderPlan, names: Sequence[str], digits: int) -> str:
    read = [names[i] for i in ladder.reads]
    text = ""
    for k in range(len(ladder.rungs) - 1, -1, -1):
        bias, weights = ladder.rungs[k]
        rung = _latex_sum(bias, weights, read, digits)
        empty = rung == "0" and text
        text = rf"\cfrac{{1}}{{{text}}}" if empty else (rf"{rung} + \cfrac{{1}}{{{text}}}" if text else rung)
    return text

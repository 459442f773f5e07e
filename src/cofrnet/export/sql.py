"""The scores of a fitted model as a query.

SQL has no loops: every rung of every ladder is an expression, and each depth a table expression of its own that is
materialised, so that no tail is written out, or computed, twice:

    s0        the columns, and the inputs that they become
    s1 ...    for each member and kind of ladder, from the deepest rung up: t = a_k + r(t)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cofrnet.export.plan import ColumnPlan, LadderPlan, MemberPlan, Plan, number

__all__ = ["to_sql"]


def to_sql(plan: Plan, table: str) -> str:
    """A query for the columns of `table` that the model reads and ``score_<output>``."""
    lower = [column.name.lower() for column in plan.columns]
    if len(set(lower)) < len(lower):
        raise ValueError(
            "names of columns must differ in more than case for SQL; some do not. Rename them, and fit again."
        )
    return _Query(plan, table).text()


class _Query:
    """The steps of a query, and the names of what they have so far."""

    def __init__(self, plan: Plan, table: str) -> None:
        self.plan = plan
        self.mark = "c"  # of the names of our own columns: one that no column of the table starts with
        while any(column.name.lower().startswith(self.mark) for column in plan.columns):
            self.mark += "_"
        inputs = [expression for column in plan.columns for expression in _inputs(column)]
        self.inputs = [f"{self.mark}x{i}" for i in range(len(inputs))]
        self.carried = [_quoted(column.name) for column in plan.columns]
        self.known = list(self.inputs)  # inputs, and ladders that are whole
        named = [f"{expression} AS {x}" for expression, x in zip(inputs, self.inputs, strict=True)]
        self.steps = [f"s0 AS MATERIALIZED (SELECT {', '.join([*self.carried, *named])} FROM {table})"]

    def text(self) -> str:
        """The whole query."""
        plan = self.plan
        outputs: list[list[str]] = [[] for _ in plan.scale]
        for m, member in enumerate(plan.members):
            self._add_ladders(m, member)
            names = [*self.inputs, *(self._name(m, i) for i in range(len(member.ladders)))]
            for c, parts in enumerate(outputs):
                parts.append(_affine(member.intercept[c], [*member.linear[c], *member.head[c]], names))
        scores = [
            f"{offset!r} + {scale / len(plan.members)!r} * {_sum(parts)} AS {_quoted('score_' + output)}"
            for offset, scale, parts, output in zip(plan.offset, plan.scale, outputs, plan.output_names, strict=True)
        ]
        steps = ",\n".join(self.steps)
        chosen = ", ".join([*self.carried, *scores])
        return f"{plan.heading('--')}\nWITH {steps}\nSELECT {chosen} FROM s{len(self.steps) - 1};\n"

    def _name(self, member: int, ladder: int) -> str:
        return f"{self.mark}m{member}l{ladder}"

    def _add_ladders(self, m: int, member: MemberPlan) -> None:
        """Steps for the ladders that read inputs alone, then for those that read other ladders."""
        p = len(self.inputs)
        for reads_ladders in (False, True):
            own = {
                self._name(m, i): ladder
                for i, ladder in enumerate(member.ladders)
                if any(j >= p for j in ladder.reads) == reads_ladders
            }
            deepest = max((len(ladder.rungs) for ladder in own.values()), default=0)
            for k in range(deepest - 1, -1, -1):
                self._add_rung(k, m, own)
            self.known += own

    def _add_rung(self, k: int, m: int, ladders: dict[str, LadderPlan]) -> None:
        """A step for rung k of those ladders that have it; the shorter ones have not begun."""
        p = len(self.inputs)
        begun = [name for name, ladder in ladders.items() if len(ladder.rungs) > k + 1]
        rungs = []
        for name, ladder in ladders.items():
            if len(ladder.rungs) <= k:
                continue
            read = [self.inputs[i] if i < p else self._name(m, i - p) for i in ladder.reads]
            a = _affine(*ladder.rungs[k], read)
            rungs.append(f"{a} + {_reciprocal(name, self.plan)} AS {name}" if name in begun else f"{a} AS {name}")
        last = len(self.steps) - 1
        chosen = ", ".join([*self.carried, *self.known, *rungs])
        self.steps.append(f"s{last + 1} AS MATERIALIZED (SELECT {chosen} FROM s{last})")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sum(parts: Sequence[str]) -> str:
    """A balanced sum: databases bound how deep an expression may be."""
    if len(parts) <= 8:
        return "(" + " + ".join(parts) + ")" if len(parts) > 1 else (parts[0] if parts else "0.0")
    middle = len(parts) // 2
    return f"({_sum(parts[:middle])} + {_sum(parts[middle:])})"


def _affine(bias: float, weights: Sequence[float], names: Sequence[str]) -> str:
    terms = [f"{number(w)} * {x}" for w, x in zip(weights, names, strict=True) if w != 0]
    return _sum([number(bias), *terms])


def _reciprocal(t: str, plan: Plan) -> str:
    e = plan.epsilon
    if plan.pole == "smooth":
        return f"{t} / ({t} * {t} + {e * e!r})"
    return f"CASE WHEN ABS({t}) < {e!r} THEN CASE WHEN {t} < 0 THEN {-1 / e!r} ELSE {1 / e!r} END ELSE 1.0 / {t} END"


def _inputs(column: ColumnPlan) -> list[str]:
    """An expression for each input that a column becomes."""
    by_output = list(zip(*column.effects, strict=True))
    if not column.numeric:
        levels = [_level(column, place) for place in range(column.frequent)]
        return [*levels, *(_effect(column, own) for own in by_output)]
    missing = [f"CASE WHEN {_quoted(column.name)} IS NULL THEN 1.0 ELSE 0.0 END"] if column.has_missing else []
    coded = replace(column, knots=column.codes, bounded=True)
    effects = [_scaled(replace(coded, values=own)) for own in by_output]
    return [_scaled(column), *missing, *(_hat(column, place) for place in column.hats), *effects]


def _scaled(column: ColumnPlan) -> str:
    """Linear between the knots, by halving: databases try the cases of one CASE in turn."""
    x, knots, values = f"CAST({_quoted(column.name)} AS DOUBLE PRECISION)", column.knots, column.values
    lines = [f"WHEN {_quoted(column.name)} IS NULL THEN 0.0"]
    if column.bounded:
        lines += [f"WHEN {x} <= {knots[0]!r} THEN {values[0]!r}", f"WHEN {x} >= {knots[-1]!r} THEN {values[-1]!r}"]

    def between(low: int, high: int) -> str:
        """The line where x lies from one knot to another."""
        if high - low > 1:
            middle = (low + high) // 2
            return f"CASE WHEN {x} < {knots[middle]!r} THEN {between(low, middle)} ELSE {between(middle, high)} END"
        if values[low] == values[high]:
            return repr(values[low])
        slope = (values[high] - values[low]) / (knots[high] - knots[low])
        return f"{values[low]!r} + ({x} - {knots[low]!r}) * {slope!r}"

    return f"CASE {' '.join(lines)} ELSE {between(0, len(knots) - 1)} END"


def _hat(column: ColumnPlan, place: int) -> str:
    """The height of hats where the column has the value of this knot, falling to 0.0 at its neighbours."""
    x, knots = f"CAST({_quoted(column.name)} AS DOUBLE PRECISION)", column.knots
    at, first, last = knots[place], place == 0, place == len(knots) - 1
    cases = [f"WHEN {_quoted(column.name)} IS NULL THEN 0.0"]
    if first:
        cases.append(f"WHEN {x} <= {at!r} THEN 1.0")
    else:
        before = knots[place - 1]
        cases += [f"WHEN {x} <= {before!r} THEN 0.0", f"WHEN {x} < {at!r} THEN ({x} - {before!r}) / {at - before!r}"]
    if not last:
        after = knots[place + 1]
        cases += [f"WHEN {x} < {after!r} THEN ({after!r} - {x}) / {after - at!r}"]
    return f"{column.height!r} * CASE {' '.join(cases)} ELSE {1.0 if last else 0.0} END"


def _level(column: ColumnPlan, place: int) -> str:
    """1.0 where the column has this level."""
    text = f"CAST({_quoted(column.name)} AS VARCHAR)"
    own = ", ".join(map(_literal, _texts(column, place)))
    tests = [f"{text} IN ({own})"]
    if place == (column.missing if column.missing < column.frequent else column.other):
        tests.append(f"{_quoted(column.name)} IS NULL")
    if place == column.other:
        every = ", ".join(_literal(text) for i in range(column.frequent) for text in _texts(column, i))
        tests.append(f"{text} NOT IN ({every})")
    return f"CASE WHEN {' OR '.join(tests)} THEN 1.0 ELSE 0.0 END"


def _effect(column: ColumnPlan, own: Sequence[float]) -> str:
    """The effect of the level that the column has; 0.0 for no level."""
    text = f"CAST({_quoted(column.name)} AS VARCHAR)"
    missing, other = (own[place] if place >= 0 else 0.0 for place in (column.missing, column.other))
    cases = [f"WHEN {_quoted(column.name)} IS NULL THEN {missing!r}"]
    for place, effect in enumerate(own):
        cases.append(f"WHEN {text} IN ({', '.join(map(_literal, _texts(column, place)))}) THEN {effect!r}")
    return f"CAST(CASE {' '.join(cases)} ELSE {other!r} END AS DOUBLE PRECISION)"


def _texts(column: ColumnPlan, place: int) -> list[str]:
    """How databases write a level: whole numbers differ among them. What is another level is not this one."""
    level = column.levels[place]
    other = [word for word, own in column.aliases if own == place]
    if re.fullmatch(r"-?[0-9]+", level) and f"{level}.0" not in column.levels:
        other.append(f"{level}.0")
    return [level, *other]

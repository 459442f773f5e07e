"""Standalone programs that score rows as the estimator does: Python, C, JavaScript and SQL, without dependencies.

Three of the languages share one small interpreter of the plan, written out in each; the numbers are data beside it.
SQL has no loops: there every rung of every ladder is an expression, one materialised table expression for each depth.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from cofrnet.export.plan import ColumnPlan, LadderPlan, Plan

__all__ = ["LANGUAGES", "to_code"]

# Names that mean something in one of the programs already.
TAKEN = re.compile(
    "MODEL|json|math|main|modelInputs|modelScores|reciprocal|denominators|ladderValues|module|scaled|knot|hat|hat_height|"
    "level|reads|rung|linear|intercept|head|scale|offset|auto|char|const|default|do|double|enum|extern|float|goto|int|long|register|short|"
    "signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|case|catch|debugger|delete|export|function|"
    "instanceof|let|new|super|this|throw|typeof|var"
)


def to_code(plan: Plan, language: str, name: str = "score") -> str:
    """A program text. `name` is that of its function, or for SQL of the table to read.

    python : ``score(row)`` takes a dict by column and returns a list of scores.
    javascript : ``score(row)`` takes an object by column; exported for Node where there is ``module``.
    c : ``void score(const double *numbers, const char *const *texts, double *scores)``, both indexed by column: the
    number of a numeric column (NAN where missing), the text of a categorical one (NULL where missing).
    sql : a query for the columns that the model reads and ``score_<output>``; missing values are NULL.

    A date is given as the number of days since 1970-01-01.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {sorted(LANGUAGES)}; got language={language!r}.")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be an identifier; got name={name!r}. Use letters, digits and underscores.")
    if keyword.iskeyword(name) or TAKEN.fullmatch(name):
        raise ValueError(f"name must not mean something else in the program; got name={name!r}. Choose another.")
    return LANGUAGES[language](plan, name)


def _head(plan: Plan, comment: str) -> str:
    """Lines of comment; what is not a plain character in them, names of classes among it, cannot end the comment."""
    lines = [
        "Written by cofrnet: the scores of a fitted model.",
        f"Outputs: {', '.join(plan.output_names)}.",
        f"Scale: {plan.unit}.",
        "Columns, from 0:",
        *(f"  {column.name} ({'number' if column.numeric else 'text'})" for column in plan.columns),
    ]
    plain = ["".join(c if c.isprintable() and c not in "*/\\" else "?" for c in line) for line in lines]
    return "\n".join(f"{comment} {line}" for line in plain)


def _digits(value: float) -> str:
    """A number in as many digits as it takes: nine for those of float32."""
    short = f"{value:.9g}"
    return short if float(np.float32(value)) == value else repr(value)


def _number(value: float) -> str:
    text = _digits(value)
    return text if any(c in text for c in ".en") else text + ".0"


def _json(plan: Plan) -> str:
    """The plan as one JSON object."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: short(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [short(v) for v in value]
        return float(_digits(value)) if isinstance(value, float) else value

    whole = asdict(plan)
    del whole["input_names"]
    whole["members"] = short(whole["members"])
    whole["columns"] = [{k: v for k, v in column.items() if v != ()} for column in whole["columns"]]
    return json.dumps(whole, separators=(",", ":"), allow_nan=False)


# ---------------------------------------------------------------------------------------------- Python


_PYTHON = '''{head}
import json
import math

MODEL = json.loads({model!r})


def _label(value):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _inputs(row):
    found = []
    for column in MODEL["columns"]:
        value = row.get(column["name"])
        if "knots" not in column:
            label, levels = _label(value), column["levels"]
            if label is None:
                place = column["missing"]
            else:
                place = levels.index(label) if label in levels else column["other"]
            found += [1.0 if i == place else 0.0 for i in range(len(levels))]
            continue
        values = column["values"]
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        low, share = (0, 0.0) if missing else _between(float(value), column)
        found.append(0.0 if missing else values[low] + share * (values[low + 1] - values[low]))
        if column["has_missing"]:
            found.append(1.0 if missing else 0.0)
        heights = {{}} if missing else {{low: 1.0 - share, low + 1: share}}
        found += [column["height"] * heights.get(i, 0.0) for i in column.get("hats", [])]
    return found


def _between(x, column):
    knots = column["knots"]
    if column["bounded"]:
        x = min(max(x, knots[0]), knots[-1])
    low, high = 0, len(knots) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if knots[middle] <= x else (low, middle)
    return low, (x - knots[low]) / (knots[high] - knots[low])


def _reciprocal(t):
    epsilon = MODEL["epsilon"]
    if MODEL["pole"] == "smooth":
        return t / (t * t + epsilon * epsilon)
    if abs(t) < epsilon:
        return -1.0 / epsilon if t < 0 else 1.0 / epsilon
    return 1.0 / t


def {name}(row):
    """Scores of a row, given as a dict of its columns."""
    inputs = _inputs(row)
    totals = [0.0] * len(MODEL["scale"])
    for member in MODEL["members"]:
        v = list(inputs)
        for ladder in member["ladders"]:
            x = [v[i] for i in ladder["reads"]]
            t = None
            for bias, weights in reversed(ladder["rungs"]):
                a = bias + sum(w * xi for w, xi in zip(weights, x))
                t = a if t is None else a + _reciprocal(t)
            v.append(t)
        values = v[len(inputs):]
        for c in range(len(totals)):
            totals[c] += member["intercept"][c]
            totals[c] += sum(w * xi for w, xi in zip(member["linear"][c], inputs))
            totals[c] += sum(h * f for h, f in zip(member["head"][c], values))
    count = len(MODEL["members"])
    return [o + s * t / count for o, s, t in zip(MODEL["offset"], MODEL["scale"], totals)]
'''


def _python(plan: Plan, name: str) -> str:
    return _PYTHON.format(head=_head(plan, "#"), model=_json(plan), name=name)


# ---------------------------------------------------------------------------------------------- JavaScript


_JAVASCRIPT = """%(head)s
const MODEL = %(model)s;

function modelInputs(row) {
  const absent = (value) => value === null || value === undefined || Number.isNaN(value);
  const label = (value) => (value === true ? "True" : value === false ? "False" : String(value));
  const inputs = [];
  for (const column of MODEL.columns) {
    const value = row[column.name];
    if (column.knots === undefined) {
      let place = column.missing;
      if (!absent(value)) {
        place = column.levels.indexOf(label(value));
        if (place < 0) place = column.other;
      }
      column.levels.forEach((_, i) => inputs.push(i === place ? 1 : 0));
      continue;
    }
    const { knots, values, hats } = column;
    let z = 0;
    let height = () => 0;
    if (!absent(value)) {
      const last = knots.length - 1;
      let x = Number(value);
      if (column.bounded) x = Math.min(Math.max(x, knots[0]), knots[last]);
      let low = 0;
      let high = last;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (knots[middle] <= x) low = middle;
        else high = middle;
      }
      const share = (x - knots[low]) / (knots[high] - knots[low]);
      z = values[low] + share * (values[high] - values[low]);
      height = (i) => (i === low ? 1 - share : i === high ? share : 0);
    }
    inputs.push(z);
    if (column.has_missing) inputs.push(absent(value) ? 1 : 0);
    (hats || []).forEach((i) => inputs.push(column.height * height(i)));
  }
  return inputs;
}

function reciprocal(t) {
  const e = MODEL.epsilon;
  if (MODEL.pole === "smooth") return t / (t * t + e * e);
  if (Math.abs(t) < e) return t < 0 ? -1 / e : 1 / e;
  return 1 / t;
}

function denominators(ladder, v) {
  return ladder.rungs.map(([bias, weights]) => weights.reduce((sum, w, i) => sum + w * v[ladder.reads[i]], bias));
}

function ladderValues(member, inputs) {
  const v = inputs.slice();
  for (const ladder of member.ladders) {
    v.push(denominators(ladder, v).reduceRight((t, a) => a + reciprocal(t)));
  }
  return v;
}

function modelScores(inputs) {
  const totals = MODEL.scale.map(() => 0);
  for (const member of MODEL.members) {
    const v = ladderValues(member, inputs);
    totals.forEach((_, c) => {
      totals[c] += member.intercept[c];
      member.linear[c].forEach((w, i) => { totals[c] += w * inputs[i]; });
      member.head[c].forEach((h, l) => { totals[c] += h * v[inputs.length + l]; });
    });
  }
  return totals.map((t, c) => MODEL.offset[c] + (MODEL.scale[c] * t) / MODEL.members.length);
}

function %(name)s(row) {
  return modelScores(modelInputs(row));
}

if (typeof module !== "undefined") module.exports = { %(name)s };
"""


def _javascript(plan: Plan, name: str) -> str:
    model = _json(plan).replace("<", "\\u003c")  # no name can end the script of a page
    return _JAVASCRIPT % {"head": _head(plan, "//").replace("<", "?"), "model": model, "name": name}


# ---------------------------------------------------------------------------------------------- C


_C = """/*
{head}
*/
#include <math.h>
#include <string.h>

#define COLUMNS {columns}
#define INPUTS {inputs}
#define LADDERS {ladders}
#define MEMBERS {members}
#define OUTPUTS {outputs}

/* of each column: first knot, knots (0 for levels), bounded, has_missing, first level, levels, missing, other,
   first hat, hats: knots that have an input of their own */
static const int column_of[][10] = {{{column_table}}};
static const double knot[] = {{{knots}}};
static const double knot_value[] = {{{knot_values}}};
static const int hat[] = {{{hats}}};
static const double hat_height[] = {{{heights}}};
static const char *const level[] = {{{levels}}};
/* of each ladder: first of what it reads, how many, rungs, first number of its rungs (bias, then weights) */
static const int ladder_of[][4] = {{{ladder_table}}};
static const int reads[] = {{{reads}}};
static const double rung[] = {{{rungs}}};
static const double linear[] = {{{linear}}};
static const double intercept[] = {{{intercept}}};
static const double head[] = {{{heads}}};
static const double scale[] = {{{scale}}};
static const double offset[] = {{{offset}}};

static double reciprocal(double t)
{{
    const double e = {epsilon};
    {reciprocal}
}}

static double scaled(double x, const int *c, double *heights)
{{
    const double *k = knot + c[0], *v = knot_value + c[0];
    int low = 0, high = c[1] - 1;
    if (c[2]) x = x < k[0] ? k[0] : x > k[high] ? k[high] : x;
    while (high - low > 1) {{
        const int middle = (low + high) / 2;
        if (k[middle] <= x) low = middle; else high = middle;
    }}
    const double share = (x - k[low]) / (k[high] - k[low]);
    for (int i = 0; i < c[9]; i++) {{
        const int at = hat[c[8] + i];
        heights[i] = hat_height[c[8] + i] * (at == low ? 1 - share : at == high ? share : 0.0);
    }}
    return v[low] + share * (v[high] - v[low]);
}}

void {name}(const double *numbers, const char *const *texts, double *scores)
{{
    double v[INPUTS + LADDERS];
    int n = 0;
    for (int j = 0; j < COLUMNS; j++) {{
        const int *c = column_of[j];
        if (c[1] > 0) {{
            const int missing = isnan(numbers[j]);
            double *heights = v + n + 1 + c[3];
            for (int i = 0; i < c[9]; i++) heights[i] = 0.0;
            v[n] = missing ? 0.0 : scaled(numbers[j], c, heights);
            if (c[3]) v[n + 1] = missing;
            n += 1 + c[3] + c[9];
            continue;
        }}
        int place = c[6];
        if (texts[j] != NULL) {{
            place = c[7];
            for (int i = 0; i < c[5]; i++) if (strcmp(texts[j], level[c[4] + i]) == 0) place = i;
        }}
        for (int i = 0; i < c[5]; i++) v[n++] = i == place;
    }}
    for (int q = 0; q < OUTPUTS; q++) scores[q] = 0.0;
    for (int m = 0; m < MEMBERS; m++) {{
        for (int l = 0; l < LADDERS; l++) {{
            const int *a = ladder_of[m * LADDERS + l];
            double t = 0.0;
            for (int k = a[2] - 1; k >= 0; k--) {{
                const double *w = rung + a[3] + k * (a[1] + 1);
                double sum = w[0];
                for (int i = 0; i < a[1]; i++) sum += w[1 + i] * v[reads[a[0] + i]];
                t = k == a[2] - 1 ? sum : sum + reciprocal(t);
            }}
            v[INPUTS + l] = t;
        }}
        for (int q = 0; q < OUTPUTS; q++) {{
            double sum = intercept[m * OUTPUTS + q];
            for (int i = 0; i < INPUTS; i++) sum += linear[(m * OUTPUTS + q) * INPUTS + i] * v[i];
            for (int l = 0; l < LADDERS; l++) sum += head[(m * OUTPUTS + q) * LADDERS + l] * v[INPUTS + l];
            scores[q] += sum / MEMBERS;
        }}
    }}
    for (int q = 0; q < OUTPUTS; q++) scores[q] = offset[q] + scale[q] * scores[q];
}}
"""


def _c_list(values: Sequence[Any], text: Callable[[Any], str]) -> str:
    """Values of an initialiser; one harmless value where there is none."""
    return ",".join(map(text, values)) or text(0)


def _c_text(value: Any) -> str:
    escaped = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in str(value).encode())
    return f'"{escaped}"'


def _c(plan: Plan, name: str) -> str:
    column_table = []
    knots: list[float] = []
    values: list[float] = []
    levels: list[str] = []
    hats: list[int] = []
    heights: list[float] = []
    for column in plan.columns:
        own = (len(knots), len(column.knots), int(column.bounded), int(column.has_missing), len(levels))
        column_table.append((*own, len(column.levels), column.missing, column.other, len(hats), len(column.hats)))
        knots += column.knots
        values += column.values
        levels += column.levels
        hats += column.hats
        heights += [column.height] * len(column.hats)
    ladder_table = []
    reads: list[int] = []
    rungs: list[float] = []
    for member in plan.members:
        for ladder in member.ladders:
            ladder_table.append((len(reads), len(ladder.reads), len(ladder.rungs), len(rungs)))
            reads += ladder.reads
            for bias, weights in ladder.rungs:
                rungs += [bias, *weights]
    flat = {
        key: [v for member in plan.members for row in getattr(member, key) for v in row] for key in ("linear", "head")
    }
    smooth = "return t / (t * t + e * e);"
    clamp = "return fabs(t) < e ? (t < 0 ? -1 / e : 1 / e) : 1 / t;"

    def table(row: Any) -> str:
        return "{" + ",".join(map(str, row if row else [0])) + "}"

    return _C.format(
        head=_head(plan, " *"),
        columns=len(plan.columns),
        inputs=len(plan.input_names),
        ladders=len(plan.members[0].ladders),
        members=len(plan.members),
        outputs=len(plan.scale),
        column_table=_c_list(column_table, table),
        knots=_c_list(knots, repr),
        knot_values=_c_list(values, repr),
        hats=_c_list(hats, str),
        heights=_c_list(heights, repr),
        levels=_c_list(levels, _c_text),
        ladder_table=_c_list(ladder_table, table),
        reads=_c_list(reads, str),
        rungs=_c_list(rungs, _number),
        linear=_c_list(flat["linear"], _number),
        intercept=_c_list([v for member in plan.members for v in member.intercept], _number),
        heads=_c_list(flat["head"], _number),
        scale=_c_list(plan.scale, repr),
        offset=_c_list(plan.offset, repr),
        epsilon=repr(plan.epsilon),
        reciprocal=smooth if plan.pole == "smooth" else clamp,
        name=name,
    )


# ---------------------------------------------------------------------------------------------- SQL


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
    terms = [f"{_number(w)} * {x}" for w, x in zip(weights, names, strict=True) if w != 0]
    return _sum([_number(bias), *terms])


def _sql_number(column: ColumnPlan) -> str:
    x, knots, values = f"CAST({_quoted(column.name)} AS DOUBLE PRECISION)", column.knots, column.values
    cases = [f"WHEN {_quoted(column.name)} IS NULL THEN 0.0"]
    if column.bounded:
        cases += [f"WHEN {x} <= {knots[0]!r} THEN {values[0]!r}", f"WHEN {x} >= {knots[-1]!r} THEN {values[-1]!r}"]
    for i in range(len(knots) - 1):
        slope = (values[i + 1] - values[i]) / (knots[i + 1] - knots[i])
        line = f"{values[i]!r} + ({x} - {knots[i]!r}) * {slope!r}"
        cases.append(f"WHEN {x} < {knots[i + 1]!r} THEN {line}" if i + 2 < len(knots) else f"ELSE {line}")
    return "CASE " + " ".join(cases) + " END"


def _sql_hat(column: ColumnPlan, place: int) -> str:
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


def _sql_level(column: ColumnPlan, place: int) -> str:
    """1.0 where the column has this level."""
    text = f"CAST({_quoted(column.name)} AS VARCHAR)"
    own = ", ".join(map(_literal, _sql_texts(column.levels[place], column.levels)))
    tests = [f"{text} IN ({own})"]
    if place == column.missing:
        tests.append(f"{_quoted(column.name)} IS NULL")
    if place == column.other:
        every = ", ".join(_literal(v) for level in column.levels for v in _sql_texts(level, column.levels))
        tests.append(f"{text} NOT IN ({every})")
    return f"CASE WHEN {' OR '.join(tests)} THEN 1.0 ELSE 0.0 END"


def _sql_texts(level: str, levels: Sequence[str]) -> list[str]:
    """How databases write a level: bools and whole numbers differ among them. What is another level is not this one."""
    other = {"True": ["true", "1"], "False": ["false", "0"]}.get(level, [])
    if re.fullmatch(r"-?[0-9]+", level):
        other = [f"{level}.0"]
    return [level, *(text for text in other if text not in levels)]


def _sql(plan: Plan, name: str) -> str:
    lower = [column.name.lower() for column in plan.columns]
    if len(set(lower)) < len(lower):
        raise ValueError(
            "names of columns must differ in more than case for SQL; some do not. Rename them, and fit again."
        )
    inputs: list[str] = []
    for column in plan.columns:
        if column.numeric:
            inputs.append(_sql_number(column))
            if column.has_missing:
                inputs.append(f"CASE WHEN {_quoted(column.name)} IS NULL THEN 1.0 ELSE 0.0 END")
            inputs += [_sql_hat(column, place) for place in column.hats]
        else:
            inputs += [_sql_level(column, place) for place in range(len(column.levels))]
    mark = "c"  # of the names of our own columns: one that no column of the table starts with
    while any(column.name.lower().startswith(mark) for column in plan.columns):
        mark += "_"
    xs = [f"{mark}x{i}" for i in range(len(inputs))]
    named = ", ".join(f"{expression} AS {x}" for expression, x in zip(inputs, xs, strict=True))
    carried = [_quoted(column.name) for column in plan.columns]
    steps = [f"s0 AS MATERIALIZED (SELECT {', '.join(carried)}, {named} FROM {name})"]
    outputs: list[list[str]] = [[] for _ in plan.scale]
    everything = list(xs)  # columns that later steps may need
    for m, member in enumerate(plan.members):
        finished: list[str] = []
        for group in _groups(member.ladders, len(xs)):
            names = [f"{mark}m{m}l{i}" for i, _ in group]
            deepest = max(len(ladder.rungs) for _, ladder in group)
            started: set[str] = set()
            for k in range(deepest - 1, -1, -1):
                current, new = [], []
                for (_, ladder), t in zip(group, names, strict=True):
                    if k >= len(ladder.rungs):
                        continue
                    read = [xs[i] if i < len(xs) else f"{mark}m{m}l{i - len(xs)}" for i in ladder.reads]
                    a = _affine(ladder.rungs[k][0], ladder.rungs[k][1], read)
                    current.append(f"{a} + {_sql_reciprocal(t, plan)} AS {t}" if t in started else f"{a} AS {t}")
                    new.append(t)
                kept = [x for x in (*everything, *finished, *(t for t in names if t in started)) if x not in new]
                steps.append(
                    f"s{len(steps)} AS MATERIALIZED (SELECT {', '.join([*carried, *kept, *current])} "
                    f"FROM s{len(steps) - 1})"
                )
                started |= set(new)
            finished += names
        everything += finished
        for c, parts in enumerate(outputs):
            own = [f"{mark}m{m}l{i}" for i in range(len(member.ladders))]
            parts.append(_affine(member.intercept[c], [*member.linear[c], *member.head[c]], [*xs, *own]))
    scores = [
        f"{offset!r} + {scale / len(plan.members)!r} * {_sum(parts)} AS {_quoted('score_' + output)}"
        for offset, scale, parts, output in zip(plan.offset, plan.scale, outputs, plan.output_names, strict=True)
    ]
    body = ",\n".join(steps)
    return f"{_head(plan, '--')}\nWITH {body}\nSELECT {', '.join([*carried, *scores])} FROM s{len(steps) - 1};\n"


def _groups(ladders: Sequence[LadderPlan], inputs: int) -> list[list[tuple[int, LadderPlan]]]:
    """Ladders that read inputs alone, then those that read other ladders."""
    groups: list[list[tuple[int, LadderPlan]]] = [[], []]
    for i, ladder in enumerate(ladders):
        groups[any(j >= inputs for j in ladder.reads)].append((i, ladder))
    return [group for group in groups if group]


def _sql_reciprocal(t: str, plan: Plan) -> str:
    e = plan.epsilon
    if plan.pole == "smooth":
        return f"{t} / ({t} * {t} + {e * e!r})"
    return f"CASE WHEN ABS({t}) < {e!r} THEN CASE WHEN {t} < 0 THEN {-1 / e!r} ELSE {1 / e!r} END ELSE 1.0 / {t} END"


LANGUAGES: dict[str, Callable[[Plan, str], str]] = {
    "python": _python,
    "c": _c,
    "javascript": _javascript,
    "sql": _sql,
}

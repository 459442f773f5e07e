"""Standalone programs that score rows as the estimator does: Python, C, JavaScript and SQL, without dependencies.

Three of the languages share one small interpreter of the plan, written out in each; the numbers are data beside it.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from cofrnet.export.plan import Plan, digits_of, number
from cofrnet.export.sql import to_sql

__all__ = ["LANGUAGES", "to_code"]


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
    if _is_taken(name, language):
        raise ValueError(f"name must not mean something else in the program; got name={name!r}. Choose another.")
    return LANGUAGES[language](plan, name)


# Words of each language, and names that what it includes may declare.
RESERVED = {
    "python": "|".join([*keyword.kwlist, *keyword.softkwlist]),
    "javascript": "arguments|await|break|case|catch|class|debugger|default|delete|do|enum|eval|export|extends|finally|"
    "implements|import|in|instanceof|interface|new|null|package|private|protected|public|static|super|switch|this|"
    "throw|try|undefined|var|void|with|yield|exports|require|globalThis",
    "c": "auto|break|case|default|do|enum|extern|float|goto|inline|long|main|register|restrict|short|signed|sizeof|"
    "struct|switch|typedef|union|unsigned|volatile|_.*|str[a-z].*|mem[a-z].*|"
    + "|".join(f"{function}[fl]?" for function in dir(math)),
    "sql": "all|analyze|and|any|array|as|asc|between|both|by|case|cast|check|column|constraint|create|cross|current|"
    "default|delete|desc|distinct|do|drop|else|end|except|exists|false|for|foreign|from|full|grant|group|having|in|"
    "index|inner|insert|intersect|into|is|join|left|like|limit|natural|not|null|on|or|order|outer|primary|references|"
    r"right|select|set|table|then|to|true|union|unique|update|user|using|values|when|where|window|with|s\d+",
}


def _is_taken(name: str, language: str) -> bool:
    """Whether a name is a word of the language, or of the program around it."""
    comments, texts, slots = r"/\*.*?\*/", r'"[^"\n]*"', r"\{\w+(!r)?\}|%\(\w+\)s"
    text = re.sub(f"{comments}|{texts}|{slots}", "", TEMPLATES.get(language, ""), flags=re.DOTALL)
    flags = re.IGNORECASE if language == "sql" else 0
    return bool(re.fullmatch(RESERVED[language], name, flags)) or name in re.findall(r"\w+", text)


def _json(plan: Plan) -> str:
    """The plan as one JSON object."""

    def plain(value: Any, short: bool = False) -> Any:
        if is_dataclass(value):
            return {own.name: plain(getattr(value, own.name), short) for own in fields(value)}
        if isinstance(value, tuple):
            return [plain(v, short) for v in value]
        return float(digits_of(value)) if short and isinstance(value, float) else value

    whole = {own.name: plain(getattr(plan, own.name), own.name == "members") for own in fields(plan)}
    del whole["input_names"]
    whole["columns"] = [{k: v for k, v in column.items() if v != []} for column in whole["columns"]]
    return json.dumps(whole, separators=(",", ":"), allow_nan=False)


# ---------------------------------------------------------------------------------------------- Python


_PYTHON = '''{head}
import json
import math

MODEL = json.loads({model!r})
for _column in MODEL["columns"]:
    _column["places"] = {{level: i for i, level in enumerate(_column.get("levels", []))}}


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
            label = _label(value)
            if label is None:
                place = column["missing"]
            else:
                other = dict(column.get("aliases", [])).get(label, column["other"])
                place = column["places"].get(label, other)
            own = place if place < column["frequent"] else column["other"]
            found += [1.0 if i == own else 0.0 for i in range(column["frequent"])]
            if "effects" in column:
                found += column["effects"][place] if place >= 0 else [0.0] * len(column["effects"][0])
            continue
        values = column["values"]
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        low, share = (0, 0.0) if missing else _between(float(value), column["knots"], column["bounded"])
        found.append(0.0 if missing else values[low] + share * (values[low + 1] - values[low]))
        if column["has_missing"]:
            found.append(1.0 if missing else 0.0)
        heights = {{}} if missing else {{low: 1.0 - share, low + 1: share}}
        found += [column["height"] * heights.get(i, 0.0) for i in column.get("hats", [])]
        if "codes" in column:
            effects = column["effects"]
            low, share = (0, 0.0) if missing else _between(float(value), column["codes"], True)
            found += [0.0 if missing else a + share * (b - a) for a, b in zip(effects[low], effects[low + 1])]
    return found


def _between(x, knots, bounded):
    if bounded:
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
    return _PYTHON.format(head=plan.heading("#"), model=_json(plan), name=name)


# ---------------------------------------------------------------------------------------------- JavaScript


_JAVASCRIPT = """%(head)s
const MODEL = %(model)s;
const PLACES = MODEL.columns.map((column) => new Map((column.levels || []).map((level, i) => [level, i])));

function between(x, knots, bounded) {
  const last = knots.length - 1;
  const at = bounded ? Math.min(Math.max(x, knots[0]), knots[last]) : x;
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle] <= at) low = middle;
    else high = middle;
  }
  return { low, share: (at - knots[low]) / (knots[high] - knots[low]) };
}

function modelInputs(row) {
  const absent = (value) => value === null || value === undefined || Number.isNaN(value);
  const label = (value) => (value === true ? "True" : value === false ? "False" : String(value));
  const inputs = [];
  MODEL.columns.forEach((column, j) => {
    const value = row[column.name];
    const { knots, values, hats, codes, effects } = column;
    if (knots === undefined) {
      let place = column.missing;
      if (!absent(value)) {
        place = PLACES[j].get(label(value)) ?? new Map(column.aliases || []).get(label(value)) ?? column.other;
      }
      const own = place < column.frequent ? place : column.other;
      for (let i = 0; i < column.frequent; i += 1) inputs.push(i === own ? 1 : 0);
      if (effects) effects[0].forEach((_, i) => inputs.push(place < 0 ? 0 : effects[place][i]));
      return;
    }
    let z = 0;
    let height = () => 0;
    let effect = () => 0;
    if (!absent(value)) {
      const { low, share } = between(Number(value), knots, column.bounded);
      z = values[low] + share * (values[low + 1] - values[low]);
      height = (i) => (i === low ? 1 - share : i === low + 1 ? share : 0);
      if (codes) {
        const at = between(Number(value), codes, true);
        effect = (i) => effects[at.low][i] + at.share * (effects[at.low + 1][i] - effects[at.low][i]);
      }
    }
    inputs.push(z);
    if (column.has_missing) inputs.push(absent(value) ? 1 : 0);
    (hats || []).forEach((i) => inputs.push(column.height * height(i)));
    if (codes) effects[0].forEach((_, i) => inputs.push(effect(i)));
  });
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
    return _JAVASCRIPT % {"head": plan.heading("//").replace("<", "?"), "model": model, "name": name}


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
   first hat, hats: knots that have an input of their own, first alias, aliases: other words for levels,
   first code, codes (0 for none; of levels: how many have an input), first effect, effects of each */
static const int column_of[][16] = {{{column_table}}};
static const double knot[] = {{{knots}}};
static const double knot_value[] = {{{knot_values}}};
static const int hat[] = {{{hats}}};
static const double hat_height[] = {{{heights}}};
static const char *const level[] = {{{levels}}};
static const char *const alias[] = {{{aliases}}};
static const int alias_place[] = {{{alias_places}}};
static const double code[] = {{{codes}}};
static const double effect[] = {{{effects}}};
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

static int between(double x, const double *k, int count, int bounded, double *share)
{{
    int low = 0, high = count - 1;
    if (bounded) x = x < k[0] ? k[0] : x > k[high] ? k[high] : x;
    while (high - low > 1) {{
        const int middle = (low + high) / 2;
        if (k[middle] <= x) low = middle; else high = middle;
    }}
    *share = (x - k[low]) / (k[high] - k[low]);
    return low;
}}

/* the scaled number; its hats and effects are written to more */
static double scaled(double x, const int *c, double *more)
{{
    const double *v = knot_value + c[0];
    double share;
    int low = between(x, knot + c[0], c[1], c[2], &share);
    const double z = v[low] + share * (v[low + 1] - v[low]);
    for (int i = 0; i < c[9]; i++) {{
        const int at = hat[c[8] + i];
        *more++ = hat_height[c[8] + i] * (at == low ? 1 - share : at == low + 1 ? share : 0.0);
    }}
    if (c[13] > 0) {{
        low = between(x, code + c[12], c[13], 1, &share);
        const double *e = effect + c[14] + low * c[15];
        for (int i = 0; i < c[15]; i++) *more++ = e[i] + share * (e[c[15] + i] - e[i]);
    }}
    return z;
}}

void {name}(const double *numbers, const char *const *texts, double *scores)
{{
    double v[INPUTS + LADDERS];
    int n = 0;
    for (int j = 0; j < COLUMNS; j++) {{
        const int *c = column_of[j];
        if (c[1] > 0) {{
            const int missing = isnan(numbers[j]);
            double *more = v + n + 1 + c[3];
            for (int i = 0; i < c[9] + c[15]; i++) more[i] = 0.0;
            v[n] = missing ? 0.0 : scaled(numbers[j], c, more);
            if (c[3]) v[n + 1] = missing;
            n += 1 + c[3] + c[9] + c[15];
            continue;
        }}
        int place = c[6];
        if (texts[j] != NULL) {{
            place = c[7];
            for (int i = c[10]; i < c[10] + c[11]; i++) if (strcmp(texts[j], alias[i]) == 0) place = alias_place[i];
            for (int i = 0; i < c[5]; i++) if (strcmp(texts[j], level[c[4] + i]) == 0) place = i;
        }}
        for (int i = 0; i < c[13]; i++) v[n++] = i == (place < c[13] ? place : c[7]);
        for (int i = 0; i < c[15]; i++) v[n++] = place < 0 ? 0.0 : effect[c[14] + place * c[15] + i];
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
    aliases: list[tuple[str, int]] = []
    codes: list[float] = []
    effects: list[float] = []
    for column in plan.columns:
        of_number = (len(knots), len(column.knots), int(column.bounded), int(column.has_missing))
        of_levels = (len(levels), len(column.levels), column.missing, column.other)
        more = (len(hats), len(column.hats), len(aliases), len(column.aliases))
        of_effects = (len(codes), len(column.codes) or column.frequent, len(effects), column.n_effects)
        column_table.append((*of_number, *of_levels, *more, *of_effects))
        codes += column.codes
        effects += [own for row in column.effects for own in row]
        aliases += column.aliases
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
        head=plan.heading(" *"),
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
        aliases=_c_list([word for word, _ in aliases], _c_text),
        alias_places=_c_list([place for _, place in aliases], str),
        codes=_c_list(codes, repr),
        effects=_c_list(effects, repr),
        ladder_table=_c_list(ladder_table, table),
        reads=_c_list(reads, str),
        rungs=_c_list(rungs, number),
        linear=_c_list(flat["linear"], number),
        intercept=_c_list([v for member in plan.members for v in member.intercept], number),
        heads=_c_list(flat["head"], number),
        scale=_c_list(plan.scale, repr),
        offset=_c_list(plan.offset, repr),
        epsilon=repr(plan.epsilon),
        reciprocal=smooth if plan.pole == "smooth" else clamp,
        name=name,
    )


TEMPLATES = {"python": _PYTHON, "javascript": _JAVASCRIPT, "c": _C}
LANGUAGES: dict[str, Callable[[Plan, str], str]] = {
    "python": _python,
    "c": _c,
    "javascript": _javascript,
    "sql": to_sql,
}

"""The tables of docs/results.md, from the files in experiments/results: `python -m experiments.summarize`."""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

FOLDER = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
SHOWN = {  # key of a result: title and digits
    "accuracy": ("accuracy", 4),
    "log_loss": ("log-loss", 4),
    "auc": ("AUC", 4),
    "r2": ("R²", 4),
    "fit_seconds": ("fit, s", 1),
    "predict_seconds": ("predict, s", 3),
}

HEAD = """# Results on tables

Means over the splits of `experiments/tabular.py`, whose docstring states the protocol: 30 % of the rows are the test
set, settings are the same for all tables, and ours are the defaults but for what the name says, each split fitted with
eight random states, the default itself with sixteen. EBM is the Explainable Boosting Machine of `interpret`; dates are
given to the peers as numbers of days. Seconds were taken on machines of two cores, ours and the peers' on different
days, often beside other work, and are noisy; EBM takes one core by its own default. `python -m benchmarks tabular`
measures fitting and predicting side by side.
Written by `python -m experiments.summarize` from `experiments/results/`.
"""
STRATEGIES = """
# Strategies

The three ways of training that the paper names, with the settings and splits above, everything else at its default.
"""

STATES = """
# The luck of a random state

Of each random state of ours the mean over splits, and of these means the mean, which the tables above have, the
standard deviation, the lowest and the highest. Weights are the same to the bit for the same state on one machine;
another kind of processor rounds otherwise, which is as good as another state.
"""

OTHERS = """
# Tables that no default was chosen on

Real tables of `experiments/others.py`, whose docstring states the protocol; every method with its own defaults. Means
over two splits of the log-loss of classes, which should be low, and of the R² of numbers, which should be high; the
best of a row is bold. One thing is not free of them: the limit on the number of members was raised by a sixth after a
first run showed that many of them had one member; the count against EBM did not gain by it. (It was nearly doubled
since, without regard to them, when steps were compiled.)
"""

CLASSIC = """
# Classic tables

The same for the classification tables of KEEL (`python -m experiments.others --classic`). Tables with a star helped to
choose how many steps an epoch has, most of them because ours had been worse there than boosting; the others did not.
"""

CODES = """
# Tables with a column of very many codes

The same for tables, none of them fitted before the list was written, where rows share the number of a person, a school
or a shop, or the name of a country (`python -m experiments.others --codes`). That column is given to all methods as it
comes; the linear model has inputs for 64 names.
"""


def read(name: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Results by table and method; of results for the same split and random state the last counts."""
    found: dict[str, dict[str, dict[tuple[int, int], Any]]] = defaultdict(lambda: defaultdict(dict))
    path = FOLDER / name
    for row in map(json.loads, path.read_text().splitlines() if path.exists() else []):
        found[row["table"]][row["method"]][row["seed"], row.get("state", 0)] = row
    return {table: {m: list(rows.values()) for m, rows in methods.items()} for table, methods in found.items()}


def _mean(values: list[float], digits: int) -> str:
    return f"{mean(values):.{digits}f}" if values else ""


def tables(results: dict[str, dict[str, list[dict[str, Any]]]], order: list[str]) -> list[str]:
    parts = []
    for table, methods in results.items():
        columns = [key for key in SHOWN if any(key in row for rows in methods.values() for row in rows)]
        parts.append(f"\n## {table}\n")
        parts.append("| method | fits | " + " | ".join(SHOWN[c][0] for c in columns) + " |")
        parts.append("|---" * (len(columns) + 2) + "|")
        for method in sorted(methods, key=order.index):
            rows = methods[method]
            shown = [_mean([r[c] for r in rows if c in r], SHOWN[c][1]) for c in columns]
            parts.append(f"| {method} | {len(rows)} | " + " | ".join(shown) + " |")
    return parts


def states(results: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    """A row for each table, method and measure."""
    rows = ["| table | method | | states | mean | sd | lowest | highest |", "|---" * 8 + "|"]
    for table, methods in results.items():
        for method, own in methods.items():
            count = 1 + max(row["state"] for row in own)
            for key in [key for key in ("accuracy", "log_loss", "auc", "r2") if key in own[0] and count > 1]:
                found = [mean(row[key] for row in own if row["state"] == state) for state in range(count)]
                shown = " | ".join(f"{x:.4f}" for x in (mean(found), stdev(found), min(found), max(found)))
                rows.append(f"| {table} | {method} | {SHOWN[key][0]} | {count} | {shown} |")
    return rows


def others(
    results: dict[str, dict[str, list[dict[str, Any]]]], order: Sequence[str], starred: Collection[str] = ()
) -> list[str]:
    """A row for each table, blank where a method has not been run, and on how many ours is better than the others.

    That is told of those that are not `starred` besides.
    """
    rows: list[str] = []
    wins: dict[str, dict[str, bool]] = {method: {} for method in order[1:]}
    for table, methods in results.items():
        first = methods[order[0]][0]
        key, sign = ("r2", 1) if "r2" in first else ("log_loss", -1)
        means = {method: mean(row[key] for row in methods[method]) for method in order if method in methods}
        best = max(sign * value for value in means.values())
        for method in means.keys() - {order[0]}:
            wins[method][table] = sign * (means[order[0]] - means[method]) > 0
        marks = {method: "**" if sign * value == best else "" for method, value in means.items()}
        shown = [f"{marks[m]}{means[m]:.4f}{marks[m]}" if m in means else "" for m in order]
        star = "*" if table.split("/")[1] in starred else ""
        rows.append(
            f"| {table}{star} | {first['rows']} | {first['columns']} | {SHOWN[key][0]} | " + " | ".join(shown) + " |"
        )

    def told(which: Collection[str]) -> str:
        of_each = {method: [won for table, won in own.items() if table in which] for method, own in wins.items()}
        return ", ".join(f"than {method} on {sum(own)} of {len(own)}" for method, own in of_each.items() if own)

    head = "| table | rows | columns | | " + " | ".join(order) + " |\n" + "|---" * (4 + len(order)) + "|"
    plain = [table for table in results if table.split("/")[1] not in starred]
    besides = f" Of those without a star it is better {told(plain)}." if starred else ""
    return [f"{order[0]} is better {told(results)}.{besides}\n", head, *rows]


def main() -> None:
    from experiments import tabular
    from experiments.others import CHOSEN_BY, METHODS

    parts = [HEAD, *tables(read("tabular.jsonl"), [*tabular.OURS, *tabular.PEERS])]
    parts += [STATES, *states(read("tabular.jsonl"))]
    parts += [OTHERS, *others(read("others.jsonl"), METHODS)]
    parts += [CLASSIC, *others(read("classic.jsonl"), METHODS, CHOSEN_BY)]
    parts += [CODES, *others(read("codes.jsonl"), METHODS)]
    parts += [STRATEGIES, *tables(read("strategies.jsonl"), list(tabular.STRATEGIES))]
    PAGE.write_text("\n".join(parts) + "\n")
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()

"""The table of docs/results.md, from experiments/results/tabular.jsonl: `python -m experiments.summarize`."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

RESULTS = Path(__file__).parent / "results" / "tabular.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
SHOWN = {"accuracy": "accuracy", "log_loss": "log-loss", "auc": "AUC", "r2": "R²", "fit_seconds": "fit, s"}

HEAD = """# Results on tables

Means over the splits of `experiments/tabular.py` (its docstring states the protocol): 30 % of the rows are the test
set, settings are the same for all tables, and ours are the defaults but for what the name says. Seconds are those of
the run on two cores and are noisy. Written by `python -m experiments.summarize` from the result file
`experiments/results/tabular.jsonl`.
"""


def main() -> None:
    results: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for line in RESULTS.read_text().splitlines():
        row = json.loads(line)
        results[row["table"]][row["method"]].append(row)
    parts = [HEAD]
    for table, methods in results.items():
        columns = [key for key in SHOWN if any(key in row for rows in methods.values() for row in rows)]
        parts.append(f"\n## {table}\n")
        parts.append("| method | splits | " + " | ".join(SHOWN[c] for c in columns) + " |")
        parts.append("|---" * (len(columns) + 2) + "|")
        for method, rows in methods.items():
            shown = [
                f"{mean(r[c] for r in rows):.{1 if c == 'fit_seconds' else 4}f}" if c in rows[0] else ""
                for c in columns
            ]
            parts.append(f"| {method} | {len(rows)} | " + " | ".join(shown) + " |")
    PAGE.write_text("\n".join(parts) + "\n")
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()

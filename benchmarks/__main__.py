"""Run the benchmarks, print one table, and write benchmarks/results.json beside it."""

import argparse
import json
import platform
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import cofrnet
from benchmarks import command, explanations, images, ladder_operation, tabular, text

SUITES = {
    "ladder": ladder_operation.measure,
    "tabular": tabular.measure,
    "explanations": explanations.measure,
    "command": command.measure,
    "text": text.measure,
    "images": images.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="which to run; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, for a look")
    arguments = parser.parse_args()
    console = Console(width=150)
    rows = []
    for name in arguments.suites or SUITES:
        rows += [{"suite": name, **row} for row in SUITES[name](quick=arguments.quick)]
    table = Table("suite", "what", "where", "ours", "other", "measured", "target", title="cofrnet benchmarks")
    for row in rows:
        table.add_row(
            *(str(row.get(key, "")) for key in ("suite", "what", "where", "ours", "other", "measured", "target"))
        )
    console.print(table)
    about = {
        "cofrnet": cofrnet.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    path = Path(__file__).parent / "results.json"
    path.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")
    console.print(f"written to {path}", soft_wrap=True)


if __name__ == "__main__":
    main()

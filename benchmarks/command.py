"""The command line and the page: starting up, predicting a million rows of CSV, and writing the page, each beside what
it is measured against in the same run.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import best_seconds
from cofrnet import CoFrNetClassifier
from cofrnet.datasets import load_table
from cofrnet.tables import writer

ROWS = 1_000_000


def seconds_of(*commands: list[str], times: int) -> list[float]:
    """The best of so many runs of each command, in turns."""
    found = [float("inf")] * len(commands)
    for _ in range(times):
        for i, command in enumerate(commands):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            found[i] = min(found[i], time.perf_counter() - started)
    return found


def row(what: str, where: str, ours: float, other: float, ratio: float, target: str) -> dict[str, Any]:
    return {
        "what": what,
        "where": where,
        "ours": f"{ours:.3g} s",
        "other": f"{other:.3g} s",
        "measured": f"{ratio:.2f}×",
        "target": target,
    }


def measure(quick: bool = False) -> list[dict[str, Any]]:
    times = 2 if quick else 5
    python, cofrnet = [sys.executable], [sys.executable, "-m", "cofrnet"]
    rows = []
    ours, other = seconds_of([*cofrnet, "--help"], [*python, "-c", "import torch"], times=times)
    rows.append(row("cofrnet --help / import torch", "start of a process", ours, other, other / ours, "< 1 s"))
    X, y = load_table("magic")
    model = CoFrNetClassifier(random_state=0).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path, data = model.save(Path(folder) / "m.cofrnet"), Path(folder) / "rows.csv"
        rng = np.random.default_rng(0)
        count = ROWS // 10 if quick else ROWS
        chosen = X.iloc[rng.integers(0, len(X), count)]
        with writer(data) as write:
            write(pa.Table.from_pandas(chosen, preserve_index=False))
        few = Path(folder) / "few.csv"
        with writer(few) as write:
            write(pa.Table.from_pandas(X.head(10), preserve_index=False))
        out = ["-o", str(Path(folder) / "out.csv")]
        predict, start = ([*cofrnet, "predict", str(path), str(own), *out] for own in (data, few))
        read = [*python, "-c", f"import pandas; pandas.read_csv({str(data)!r})"]
        ours, other, startup = seconds_of(predict, read, start, times=max(2, times // 2))
        where = f"{count} rows of CSV, whole commands"
        rows.append(row("predict / pandas.read_csv", where, ours, other, other / ours, "≥ 0.5×"))
        rows.append(row("  of that, starting up", "10 rows of CSV", startup, other, other / startup, ""))

        def explained() -> None:
            model.explain_global(X)
            model.predict(X)

        contenders = {"page": lambda: model.report(Path(folder) / "r.html", X, y), "alone": explained}
        best = best_seconds(contenders, 4.0 if quick else 8.0)
    page, alone = best["page"], best["alone"]
    rows.append(row("page / explain_global + predict", "MAGIC, 19 020 rows", page, alone, page / alone, "< 2×"))
    return rows

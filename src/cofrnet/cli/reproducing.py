"""The command `reproduce`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cofrnet.cli.output import say, tell
from cofrnet.cli.root import app

__all__ = ["reproduce"]


class What(StrEnum):
    """Tables and figures of the paper."""

    all = "all"
    synperf = "synperf"
    figure3 = "figure3"
    realexp = "realexp"
    texts = "texts"
    figure4 = "figure4"
    clouds = "clouds"
    claims = "claims"
    page = "page"


NEED_DATA = (What.realexp, What.texts, What.figure4, What.clouds, What.claims)


@app.command()
def reproduce(
    what: Annotated[
        What, typer.Argument(help="A table or figure; page writes what there is.", metavar="WHAT")
    ] = What.all,
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("experiments/results"),
    docs: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("docs"),
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to use, of one thread each.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, max=10, help="Seeds of the functions.")] = 10,
    splits: Annotated[int, typer.Option(min=1, max=5, help="Splits of the tables.")] = 5,
) -> None:
    """Run the paper's experiments, ours beside its printed values, and write them up.

    `synperf` ten functions, `figure3` Matyas and Rosenbrock, `realexp` three tables of data beside other methods (those
    that are installed), `texts` reviews and questions, `figure4` curves, `clouds` words,
    `claims` ablations. Results are kept as they
    come: stop it with Ctrl-C, and the same command goes on. The data are looked for in the folder that COFRNET_DATA
    names.
    """
    from cofrnet.core import prepare

    parts = [w for w in What if w not in (What.all, What.page)] if what is What.all else [what]
    if what is not What.page:
        prepare()
    for part in parts:
        if part is What.page:
            continue
        if part in NEED_DATA and what is What.all and "COFRNET_DATA" not in os.environ:
            say(f"{part.value} is left out: COFRNET_DATA does not name the folder of its data.")
            continue
        options: dict[str, Any] = {"seeds": seeds} if part is What.synperf else {}
        if part in (What.realexp, What.texts, What.claims):
            options["splits"] = min(splits, 3) if part is What.claims else splits
        _run(part.value, results, jobs, options)
    from cofrnet.reproduce.page import write_pages

    for path in write_pages(results, docs):
        tell(f"written to {path}")


def _run(name: str, results: Path, jobs: int, options: dict[str, Any]) -> None:
    """Run a part under a progress bar."""
    import warnings

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from cofrnet.reproduce import PARTS, run

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not sys.stderr.isatty())
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = bar.add_task(PARTS[name].title, total=None)
        run(name, results, jobs, lambda done, total, _: bar.update(task, completed=done, total=total), **options)
    tell(f"{name}: results in {results / f'{name}.jsonl'}")

"""The paper, reproduced: each of its tables and figures by one function, ours beside the printed value.

Results are kept as they come, one JSON object a line (`Records`), so that a run that was stopped goes on where it was;
`page` writes what there is as Markdown and HTML.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cofrnet.reproduce.records import Records

__all__ = ["PARTS", "Part", "Records", "run"]


@dataclass(frozen=True)
class Part:
    """A table or figure: what is to be run for it, and how; both by name, so that they can be sent to processes."""

    title: str
    module: str
    tasks: str
    run: str

    def tasks_of(self, **options: Any) -> Iterator[dict[str, Any]]:
        """What is to be run."""
        return self._named(self.tasks)(**options)

    def result(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one task."""
        return self._named(self.run)(**what)

    def _named(self, name: str) -> Callable[..., Any]:
        from importlib import import_module

        return getattr(import_module(f"cofrnet.reproduce.{self.module}"), name)


PARTS = {
    "synperf": Part("Ten functions (supplement)", "functions", "synperf_tasks", "fit_function"),
    "figure3": Part("Matyas and Rosenbrock (Figure 3)", "functions", "figure3_tasks", "coefficients"),
    "realexp": Part("Three tables of data (Table 1)", "data_tables", "realexp_tasks", "fit_table"),
    "texts": Part("Two sets of texts (Table 1)", "texts", "texts_tasks", "fit_texts"),
    "figure4": Part("Curves (Figure 4 and supplement)", "data_tables", "figure4_tasks", "curves_of"),
    "clouds": Part("Words (Figure 4)", "texts", "cloud_tasks", "cloud_of"),
    "claims": Part("Claims checked", "claims", "claims_tasks", "check_claim"),
}


def run(
    name: str,
    folder: str | os.PathLike[str],
    jobs: int = 1,
    done: Callable[[int, int, Mapping[str, Any]], None] | None = None,
    **options: Any,
) -> Records:
    """Run what is not in `folder` yet of one of `PARTS`; `done` is told after each task: how many, of how many, which.

    With several jobs, in as many processes of one thread each.
    """
    part = PARTS[name]
    records = Records(Path(folder) / f"{name}.jsonl")
    everything = list(part.tasks_of(**options))
    left = [what for what in everything if what not in records]
    finished = len(everything) - len(left)
    for what, result in _results(name, left, jobs):
        records.add(what, result)
        finished += 1
        if done is not None:
            done(finished, len(everything), what)
    return records


def _results(name: str, left: list[dict[str, Any]], jobs: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if jobs == 1 or len(left) < 2:
        for what in left:
            yield what, PARTS[name].result(what)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_alone) as pool:
        waiting = {pool.submit(_result, name, what): what for what in left}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _alone() -> None:
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _result(name: str, what: dict[str, Any]) -> dict[str, Any]:
    return PARTS[name].result(what)

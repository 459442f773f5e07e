"""A progress bar for the epoch loop."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cofrnet.training.loop import Epoch

__all__ = ["ProgressBar"]


class ProgressBar:
    """A callback that shows a bar on standard error, with the losses of the last epoch. Use it as a context."""

    def __init__(self, title: str = "fitting") -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.completed} of {task.total}"),
            TextColumn("{task.fields[losses]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._title = title
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, epoch: Epoch) -> None:
        """Move the bar."""
        shown = {name: epoch.history[name] for name in ("loss", "validation_loss") if name in epoch.history}
        losses = "  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in shown.items())
        if self._task is None:
            self._task = self._progress.add_task(self._title, total=epoch.max_epochs, losses=losses)
        self._progress.update(self._task, completed=epoch.number + 1, losses=losses)

"""What the commands print: tables for people, JSON for machines; progress only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import category

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from cofrnet.explain.quality import Quality

__all__ = [
    "busy", "counted", "fail", "print_json", "print_table", "print_texts", "quality_table", "say",
    "say_without_target", "tell", "warn",
]  # fmt: skip

WIDE = 100  # columns of a table that goes to a file or a pipe


def _console(stderr: bool = False, always: bool = False) -> Console:
    """Standard output, wide enough for tables where it is not a terminal, or standard error."""
    from rich.console import Console  # here and below on first use: a short command does without

    width = None if stderr or sys.stdout.isatty() else WIDE
    return Console(stderr=stderr, highlight=False, emoji=False, width=width, quiet=_follows() and not always)


def _follows() -> bool:
    """Whether this is one of several processes that torchrun started, and not the first: that one speaks for all."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1") and os.environ.get("RANK", "0") != "0"


def tell(text: str) -> None:
    """Print a result."""
    if not _follows():
        typer.echo(_printable(text))


def say(text: str) -> None:
    """Print a remark to standard error."""
    if not _follows():
        typer.echo(_printable(text), err=True)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    _coloured("warning:", "yellow", text)


def say_without_target(count: int) -> None:
    """Remark that so many rows are left out, and what counts as no target."""
    if count:
        signs = "?, NA, N/A, NaN, null, None"
        say(f"{count} rows have no target (it is blank, or one of the signs {signs}) and are left out.")


def fail(text: str) -> None:
    """Print what went wrong to standard error, whichever process it went wrong in."""
    _coloured("error:", "bold red", text, always=True)


def _coloured(word: str, style: str, text: str, always: bool = False) -> None:
    from rich.text import Text

    _console(stderr=True, always=always).print(Text.assemble((word, style), " ", _printable(text)), soft_wrap=True)


def print_json(values: Any) -> None:
    """Print JSON."""
    sys.stdout.write(json.dumps(values, indent=2, allow_nan=False, default=str) + "\n")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None, left: int = 1) -> None:
    """Print a table; the first `left` columns are text."""
    from rich.table import Table
    from rich.text import Text

    def shown(cell: Any) -> Text:
        return Text(_printable(str(cell)))

    table = Table(title=None if title is None else shown(title), title_justify="left")
    for i, name in enumerate(titles):
        table.add_column(shown(name), justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    _console().print(table)


def quality_table(quality: Quality, title: str) -> None:
    """Print metrics with their intervals."""
    rows = [(m.name, f"{m.value:.4g}", f"{m.low:.4g} to {m.high:.4g}", f"{m.constant:.4g}") for m in quality.metrics]
    print_table(("metric", "value", "95 % interval", "constant prediction"), rows, title)


def print_texts(explanation: Any, most: int = 10) -> None:
    """Print texts with their words coloured by what they add, and the strongest of them below."""
    from rich.text import Text

    console = _console()
    console.print(f"{explanation.definition}; {explanation.unit}", soft_wrap=True, markup=False)
    console.print(Text.assemble("words that ", ("raise", "red"), " and that ", ("lower", "blue"), " the score"))
    for i in range(min(len(explanation), most)):
        for c, output in enumerate(explanation.output_names):
            console.print()
            title = f"row {explanation.places[i]}, {output}: score {explanation.scores[i, c]:+.4g}"
            console.print(Text(title, style="bold"), soft_wrap=True)
            strongest = max(explanation.strength(i, c), 1e-9)
            shown = Text()
            for piece, value in explanation.pieces(i, c):
                share = 0.0 if value is None else abs(value) / strongest
                strength = "" if share < 0.15 else "bold " if share > 0.5 else ""
                style = "" if share < 0.15 else f"{strength}{'red' if value > 0 else 'blue'}"
                shown.append(_printable(piece), style)
            console.print(shown, soft_wrap=True)
            words = explanation.strongest(i, c)
            console.print(", ".join(f"{_printable(word)} {value:+.3f}" for word, value in words), markup=False)
    if len(explanation) > most:
        console.print(
            f"\nand {len(explanation) - most} more: choose with --rows, or write all with --out", markup=False
        )


def _printable(text: str) -> str:
    """Text without what would move a terminal's cursor or change its colours."""
    kept = "\n\t\u200c\u200d"  # and joiners, which letters and emoji are written with
    return "".join(c if c.isprintable() or c in kept or category(c) == "Zs" else "�" for c in text)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """A spinner on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.markup import escape

    with _console(stderr=True).status(escape(_printable(text))):
        yield


@contextmanager
def counted(text: str) -> Iterator[Any]:
    """A count of rows on a terminal; a function that adds to it."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f} rows"))
    with Progress(*columns, TimeElapsedColumn(), console=_console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(_printable(text)), total=None)
        yield lambda rows: progress.update(task, advance=rows)

"""The application: options that every command knows, and what becomes of errors.

Exit codes: 0 done, 1 failed, 2 used wrongly, 130 interrupted. Errors go to standard error, without a traceback unless
``--debug`` is given.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cofrnet import __version__

__all__ = [
    "AsJson", "Data", "DataFormat", "Device", "ModelPath", "Out", "Seed", "TableFormat", "Threads", "app", "main",
]  # fmt: skip


USAGE: type[Exception] = typer.BadParameter.__mro__[2]  # ClickException, of whichever click typer comes with


class Commands(TyperGroup):
    """The commands; whatever they raise becomes a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, USAGE):
            raise
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # whoever read the output has seen enough
            if ctx.find_root().params.get("debug"):
                traceback.print_exc()
            else:
                from cofrnet.cli.output import fail

                fail(_said(error))
            raise typer.Exit(1) from None


def _said(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "not enough memory; pass fewer rows or columns."
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    known = isinstance(error, ValueError | OSError | ImportError) and text
    return text if known else f"{text or type(error).__name__} (run with --debug to see where)"


app = typer.Typer(
    name="cofrnet",
    cls=Commands,
    help="Interpretable neural models made of continued fractions: fit a table, explain the model, put it anywhere.",
    epilog="Start with: cofrnet demo. Then: cofrnet fit data.csv --target y, and cofrnet report model.cofrnet data.csv",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command line."""
    arguments = sys.argv[1:]
    if "--debug" in arguments:  # anywhere: people add it at the end
        arguments = ["--debug", *(a for a in arguments if a != "--debug")]
    app(arguments)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cofrnet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    pass


# ---------------------------------------------------------------------------------------------- options


def _set_threads(count: int | None) -> int | None:
    """Before anything heavy is imported: the libraries read these when they start."""
    if count is not None:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
            if "numba" not in sys.modules:  # which has read them by then, and asks torch
                os.environ[name] = str(count)
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(count)
    return count


class TableFormat(StrEnum):
    """Formats of tables."""

    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"
    jsonl = "jsonl"


ModelPath = Annotated[Path, typer.Argument(help="A model file that cofrnet fit wrote.", metavar="MODEL")]
Data = Annotated[
    str,
    typer.Argument(help="CSV (also .gz, .zst), Parquet, Arrow/Feather or JSON lines; - for stdin.", metavar="DATA"),
]
DataFormat = Annotated[TableFormat | None, typer.Option("--format", help="Format of DATA, if its name does not tell.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="The same seed gives the same model.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda (or cuda:1), mps, or auto.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, max=1024, callback=_set_threads, help="Threads to use; all by default."),
]

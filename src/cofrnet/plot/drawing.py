"""What all pictures share: colours, new figures, saving."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PALETTE",
    "RED",
    "SIGNED",
    "chosen_outputs",
    "dates_on",
    "literal",
    "new_axes",
    "plain",
    "pyplot",
    "saved",
    "shortened",
    "tick_texts",
    "wrapped",
]

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7F7F7F"
PALETTE = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#F0E442", "#000000")
SIGNED = "RdBu_r"
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # that matplotlib can show, counted from 1970


def pyplot() -> Any:
    """matplotlib's pyplot, where it is installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("cofrnet.plot needs matplotlib. Install it with: pip install 'cofrnet[plot]'") from error
    return plt


def new_axes(ax: Axes | None, width: float, height: float, **options: Any) -> Axes:
    """The Axes given, or those of a new figure of so many inches."""
    if ax is not None:
        return ax
    plt = pyplot()
    made: Axes = plt.figure(figsize=(width, height), layout="constrained").add_subplot(**options)
    return made


def saved(ax: Axes, path: str | Path | None) -> None:
    """Save the figure of the Axes, where there is a path."""
    if path is not None:
        figure = ax.get_figure()
        assert figure is not None
        figure.savefig(path, dpi=150)  # type: ignore[union-attr]


def plain(ax: Axes) -> None:
    """Take away the frame above and on the right."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def few_ticks(ax: Axes) -> None:
    """Few ticks on the axis of x, fewer for large numbers, which must not run together; given ticks stay."""
    from matplotlib.ticker import AutoLocator

    if isinstance(ax.xaxis.get_major_locator(), AutoLocator):
        large = max(map(abs, ax.get_xlim())) >= 1e5
        ax.locator_params("x", nbins=4 if large else 6, steps=[1, 2, 5, 10])


def dates_on(axis: Any) -> bool:
    """Show numbers of days since 1970 on an axis as dates, and say whether they are.

    Those beyond the years 1 to 9999, as the ends of an axis may be, are no dates to matplotlib, and stay numbers.
    """
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    low, high = sorted(axis.get_view_interval())
    room = 0.1 * (high - low)  # for what may be drawn beside it
    if low - room < FIRST_DAY or high + room > LAST_DAY:
        return False

    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axis.axis_date()
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    return True


def tick_texts(axis: Any, ticks: Sequence[float], dates: bool) -> list[str]:
    """What some ticks of an axis say, which may show `dates`."""
    return list(axis.get_major_formatter().format_ticks(ticks)) if dates else [f"{t:g}" for t in ticks]


def shortened(text: str, width: int) -> str:
    """Text of at most so many letters, without what stands in the middle."""
    keep = (width - 1) // 2
    return text if len(text) <= width else f"{text[: width - 1 - keep]}…{text[-keep:]}"


def wrapped(text: str, width: int = 46) -> str:
    """Text in lines."""
    return "\n".join(textwrap.wrap(text, width))


def chosen_outputs(outputs: Sequence[str], output: str | int | None) -> list[int]:
    """Positions of the outputs to draw: all, or the one that is named."""
    if output is None:
        return list(range(len(outputs)))
    if isinstance(output, int):
        if not -len(outputs) <= output < len(outputs):
            raise ValueError(f"output must be from 0 to {len(outputs) - 1}, or a name; got output={output}.")
        return [output]
    if output not in outputs:
        raise ValueError(f"output must be one of {list(outputs)}; got output={output!r}.")
    return [list(outputs).index(output)]


def literal(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")

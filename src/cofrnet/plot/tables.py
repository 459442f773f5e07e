"""Pictures of tables: curves, importances, rows, pairs, series, ladders."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.explain.data import Curve, GlobalExplanation, LocalExplanation, Surface, beside, short
from cofrnet.plot.drawing import (
    BLUE,
    GREY,
    ORANGE,
    PALETTE,
    RED,
    SIGNED,
    chosen_outputs,
    dates_on,
    few_ticks,
    new_axes,
    plain,
    pyplot,
    saved,
    shortened,
    tick_texts,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curve", "curves", "importances", "ladder", "series", "surface", "waterfall"]

STRIP = 0.1  # height of the strip of densities
MOST_BARS = 24  # levels


def curve(
    explanation: Curve, output: str | int | None = None, ax: Axes | None = None, path: str | Path | None = None
) -> Axes:
    """A curve with its band, the density of the training rows below it, and the effect of a missing value.

    Of more than 24 levels, the twelve lowest and the twelve highest; of more than eight outputs, if none is named, the
    eight that it changes most.
    """
    ax = new_axes(ax, 5, 4.8 if explanation.categorical and len(explanation.grid) > 12 else 3.6)
    return _drawn(explanation, _told(chosen_outputs(explanation.output_names, output), [explanation]), ax, path)


def _told(chosen: list[int], explanations: Sequence[Curve]) -> list[int]:
    """Of some outputs those to draw: no more than there are colours, those that the curves change most."""
    if len(chosen) <= len(PALETTE):
        return chosen
    reach = sum(np.ptp(e.values[chosen], axis=1) for e in explanations)
    return sorted(chosen[i] for i in np.argsort(-np.asarray(reach), kind="stable")[: len(PALETTE)])


def _drawn(explanation: Curve, chosen: list[int], ax: Axes, path: str | Path | None = None) -> Axes:
    """A curve of some outputs."""
    title = explanation.feature
    if explanation.categorical:
        shown = _levels_to_draw(explanation, chosen)
        _level_bars(explanation, shown, chosen, ax)
        if len(shown) < len(explanation.grid):
            count = len(explanation.grid)
            of = f"{count} levels" if explanation.levels in (0, count) else f"the {count} most frequent levels"
            title += f" (of {of} the lowest and the highest)"
    else:
        _number_line(explanation, chosen, ax)
        _with_room(ax, *_reach([explanation], chosen))
    ax.axhline(0, color=GREY, linewidth=0.8, zorder=0)
    ax.set_xlabel(title)
    ax.set_ylabel(wrapped(f"change of the score, {explanation.unit}", 34))
    if len(chosen) > 1:
        left_out = len(explanation.output_names) - len(chosen)
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if len(chosen) > 3 else {}
        ax.legend(frameon=False, fontsize="small", title=f"{left_out} more left out" if left_out else None, **place)
    plain(ax)
    saved(ax, path)
    return ax


def _reach(explanations: Sequence[Curve], chosen: Sequence[int]) -> tuple[float, float]:
    """The lowest and the highest value drawn, 0 among them."""
    values = [part[chosen].ravel() for e in explanations for part in (e.low, e.high, e.missing)]
    everything = np.concatenate([[0.0], *values])
    return float(np.nanmin(everything)), float(np.nanmax(everything))


def _number_line(explanation: Curve, chosen: Sequence[int], ax: Axes) -> None:
    for place, c in enumerate(chosen):
        color = PALETTE[place % len(PALETTE)]
        ax.plot(explanation.grid, explanation.values[c], color=color, label=explanation.output_names[c])
        if (explanation.high[c] > explanation.low[c]).any():
            ax.fill_between(explanation.grid, explanation.low[c], explanation.high[c], color=color, alpha=0.2, lw=0)
    dates = explanation.is_date and dates_on(ax.xaxis)
    if not dates:
        few_ticks(ax)
    left, right = float(explanation.grid[0]), float(explanation.grid[-1])
    if not np.isnan(explanation.missing).any():
        beyond = right + 0.08 * (right - left)
        for place, c in enumerate(chosen):
            ax.plot(beyond, explanation.missing[c], "D", color=PALETTE[place % len(PALETTE)], clip_on=False)
        ticks = [t for t in ax.get_xticks() if left <= t <= right - 0.1 * (right - left)]
        ax.set_xticks([*ticks, beyond], [*tick_texts(ax.xaxis, ticks, dates), "missing"])
    _density_strip(ax, np.asarray(explanation.edges), np.asarray(explanation.counts))


def _density_strip(ax: Axes, edges: NDArray[Any], counts: NDArray[Any]) -> None:
    """Where the training rows lie, as bars along the lower edge."""
    if len(edges) < 2 or counts.max() <= 0:
        return
    heights = STRIP * counts / counts.max()
    strip = ax.get_xaxis_transform()  # heights in shares of the picture
    ax.bar(edges[:-1], heights, np.diff(edges), align="edge", color=GREY, alpha=0.6, linewidth=0, transform=strip)


def _with_room(ax: Axes, low: float, high: float) -> None:
    """Set the limits so that the strip of densities lies below the values."""
    room = max(high - low, 1e-12)
    ax.set_ylim(low - (STRIP + 0.06) * room, high + 0.05 * room)


def _levels_to_draw(explanation: Curve, chosen: Sequence[int]) -> NDArray[np.int64]:
    """Positions of the levels to draw: all, in their order; of many the lowest and the highest, in that order."""
    count = len(explanation.grid)
    if count <= MOST_BARS:
        return np.arange(count)
    order = np.argsort(explanation.values[chosen[0]], kind="stable")
    return np.concatenate([order[: MOST_BARS // 2], order[-MOST_BARS // 2 :]])


def _level_bars(explanation: Curve, shown: NDArray[np.int64], chosen: Sequence[int], ax: Axes) -> None:
    names = [str(explanation.grid[i]) for i in shown]
    places = np.arange(len(names))
    width = 0.8 / len(chosen)
    for place, c in enumerate(chosen):
        offset = places + (place - (len(chosen) - 1) / 2) * width
        values, low, high = (part[c, shown] for part in (explanation.values, explanation.low, explanation.high))
        error = np.abs(np.stack([values - low, high - values]))
        ax.bar(
            offset,
            values,
            width,
            yerr=error if error.any() else None,
            color=PALETTE[place % len(PALETTE)],
            ecolor="#404040",
            label=explanation.output_names[c],
        )
    total = max(1.0, float(np.sum(explanation.counts)))
    shares = [
        f"{wrapped(n, 14)}\n{100 * k / total:.0f}%" for n, k in zip(names, explanation.counts[shown], strict=True)
    ]
    crowded = len(names) > 5
    if crowded:
        texts = [shortened(name, 24) for name in names]
        ax.set_xticks(
            places, texts, rotation=60 if len(names) <= 12 else 90, ha="right" if len(names) <= 12 else "center"
        )
    else:
        ax.set_xticks(places, shares)
    ax.tick_params(axis="x", labelsize="small")


def curves(
    explanation: GlobalExplanation, most: int = 9, output: str | int | None = None, path: str | Path | None = None
) -> NDArray[Any]:
    """The curves of the most important features, in one figure on a common scale; returns an array of Axes."""
    plt = pyplot()
    rank = {explanation.feature_names[j]: i for i, j in enumerate(explanation.order)}
    shown = sorted(explanation.curves, key=lambda c: rank[c.feature])[:most]
    if not shown:
        raise ValueError("the explanation has no curves; make it without features=[].")
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    figure, axes = plt.subplots(down, across, figsize=(4 * across, 3.1 * down), layout="constrained", squeeze=False)
    chosen = _told(chosen_outputs(explanation.output_names, output), shown)
    reach = _reach(shown, chosen)
    for ax, one in zip(axes.flat, shown, strict=False):
        _drawn(one, chosen, ax)
        _with_room(ax, *reach)
        ax.set_ylabel("")
        if ax.get_legend() is not None and ax is not axes.flat[across - 1]:  # the last of the first row has it beside
            ax.get_legend().remove()
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    label = wrapped(f"change of the score, {shown[0].unit}", 48 * down)
    figure.supylabel(label, fontsize="medium", multialignment="center")
    saved(axes.flat[0], path)
    return np.asarray(axes)


def importances(
    explanation: GlobalExplanation, most: int = 15, ax: Axes | None = None, path: str | Path | None = None
) -> Axes:
    """Bars of the importances, the largest on top; stacked by class where there are several, but not very many."""
    order = explanation.order[:most][::-1]
    ax = new_axes(ax, 6, 0.9 + 0.28 * len(order))
    left = np.zeros(len(order))
    bars = list(zip(explanation.output_names, explanation.importances[:, order], strict=True))
    share = 1 / len(bars)
    if len(bars) > len(PALETTE):
        bars = [("all classes", explanation.importances[:, order].sum(0))]
    for place, (name, own) in enumerate(bars):
        ax.barh(range(len(order)), own * share, left=left, color=PALETTE[place], label=name)
        left += own * share
    ax.set_yticks(range(len(order)), [shortened(explanation.feature_names[j], 40) for j in order])
    ax.set_xlabel(wrapped(f"{explanation.definition}; {explanation.unit}", 70), fontsize="small")
    if len(bars) > 1:
        ax.legend(frameon=False, fontsize="small", title="class", loc="lower right")
    plain(ax)
    saved(ax, path)
    return ax


def waterfall(
    explanation: LocalExplanation,
    row: int = 0,
    output: str | int | None = None,
    most: int = 10,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """From the base value to the score of one row: what each feature adds, the largest on top.

    Of several classes the score of the most probable one, if no `output` is named.
    """
    if explanation.method != "integrated":
        raise ValueError("a waterfall needs contributions; got slopes. Explain with method='integrated'.")
    if not -len(explanation) <= row < len(explanation):
        raise ValueError(f"row must be from 0 to {len(explanation) - 1}; got row={row}.")
    output = explanation.output_of(row) if output is None else output
    c = chosen_outputs(explanation.output_names, output)[0]
    own = explanation.values[row, c]
    order = np.argsort(-np.abs(own), kind="stable")
    shown, rest = order[:most], order[most:]
    named = [f"{shortened(explanation.feature_names[j], 30)} = {short(explanation.data[row, j])}" for j in shown]
    steps = [(shortened(name, 60), float(own[j])) for name, j in zip(named, shown, strict=True)]
    if len(rest):
        steps.append((f"{len(rest)} other feature{'s' * (len(rest) > 1)}", float(own[rest].sum())))
    ax = new_axes(ax, 6.4, 1.2 + 0.34 * len(steps))
    base = float(explanation.base_values[c])
    at = base
    for place, (_, change) in enumerate(reversed(steps)):
        color = RED if change > 0 else BLUE
        ax.barh(place, change, left=at, color=color, height=0.7)
        ax.plot([at + change] * 2, [place - 0.35, place + 1.35], color=GREY, linewidth=0.8)
        at += change
    low, high = ax.get_xlim()
    ax.set_xlim(low - 0.06 * (high - low), high + 0.14 * (high - low))
    at = base
    for place, (_, change) in enumerate(reversed(steps)):
        ax.text(max(at, at + change), place, f" {change:+.3g}", va="center", fontsize="small")
        at += change
    ax.axvline(base, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(steps)), [name for name, _ in reversed(steps)])
    score = float(explanation.scores[row, c])
    what = f"{explanation.output_names[c]}: " if len(explanation.output_names) > 1 else ""
    ends = f"{beside(base, own)} at the baseline, {beside(score, own)} for the row"
    ax.set_xlabel("\n".join([wrapped(f"{what}{explanation.unit}", 60), ends]), fontsize="small")
    few_ticks(ax)
    plain(ax)
    saved(ax, path)
    return ax


def surface(
    explanation: Surface,
    output: str | int = 0,
    joint: bool = False,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """A heat map of what two features do together: beyond their curves or, `joint`, all in all."""
    ax = new_axes(ax, 5.4, 4)
    c = chosen_outputs(explanation.output_names, output)[0]
    values = (explanation.joint if joint else explanation.values)[c]
    reach = max(float(np.abs(values).max()), 1e-12)
    places, labels = [], []
    for grid in (explanation.first, explanation.second):
        named = grid.dtype.kind not in "fiu"
        place = np.arange(len(grid), dtype=float) if named else grid.astype(float)
        gap = not named and bool(np.isnan(place[-1]))
        if gap:  # beyond the others, where a missing value has its place
            place[-1] = place[-2] + 0.12 * (place[-2] - place[0])
        places.append(place)
        names = [shortened(str(level), 24) for level in grid] if named else ["missing"]
        labels.append((names, place if named else place[-1:]) if named or gap else None)
    mesh = ax.pcolormesh(*places, values.T, cmap=SIGNED, vmin=-reach, vmax=reach, shading="nearest", rasterized=True)
    for place, label, axis, dates in zip(places, labels, (ax.xaxis, ax.yaxis), explanation.are_dates, strict=True):
        dated = dates and dates_on(axis)
        if label is not None:
            names, at = label
            room = 0.15 * (place[-1] - place[0])
            others = [t for t in axis.get_ticklocs() if len(at) < len(place) and place[0] <= t < at[0] - room]
            axis.set_ticks([*others, *at], [*tick_texts(axis, others, dated), *names])
    if labels[0] is not None and sum(map(len, labels[0][0])) > 36:  # they would run together
        ax.tick_params(axis="x", labelrotation=90 if len(labels[0][0]) > 8 else 45, labelsize="small")
    ax.set_xlabel(explanation.features[0])
    ax.set_ylabel(explanation.features[1])
    figure = ax.get_figure()
    assert figure is not None
    what = "together" if joint else "together, beyond their curves"
    bar = figure.colorbar(mesh, ax=ax)
    bar.set_label(wrapped(f"{what}; {explanation.unit}", 40), fontsize="small")
    saved(ax, path)
    return ax


def series(
    x: Any,
    y: Any,
    panels: Mapping[str, Any],
    names: tuple[str, str] = ("x1", "x2"),
    path: str | Path | None = None,
) -> NDArray[Any]:
    """Surfaces over one grid side by side: a function, the model, its power series. Returns an array of 3-D Axes.

    x, y : (G,) each; panels : {title: values (G, G) at [x, y]}.
    """
    plt = pyplot()
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.9 * len(panels), 3.8), subplot_kw={"projection": "3d"}, squeeze=False
    )
    figure.subplots_adjust(left=0.02, right=0.95, bottom=0.04, top=0.9, wspace=0.12)
    across, along = np.meshgrid(x, y, indexing="ij")
    values = [np.asarray(v, dtype=float) for v in panels.values()]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    for ax, title, z in zip(axes.flat, panels, values, strict=True):
        ax.plot_surface(across, along, z, cmap="viridis", vmin=low, vmax=high, linewidth=0, antialiased=True)
        ax.set_title(wrapped(title, 40), fontsize="medium")
        ax.set_xlabel(names[0])
        ax.set_ylabel(names[1])
        ax.set_zlim(low, high)
    saved(axes.flat[0], path)
    return np.asarray(axes)


def ladder(
    plan: Any,
    ladder: int = 0,
    member: int = 0,
    most: int = 6,
    digits: int = 2,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """A ladder as the paper draws it, from the last rung up: what each rung reads, with the learnt weights.

    `plan` is an estimator or its plan, `ladder` a place in its head; the `most` largest weights of each rung are shown.

    Paper: Figure 1.
    """
    plan = plan.plan() if hasattr(plan, "plan") else plan
    ladders = plan.members[member].ladders
    if not 0 <= ladder < len(ladders):
        raise ValueError(f"ladder must be from 0 to {len(ladders) - 1}; got ladder={ladder}.")
    rungs, names = ladders[ladder].rungs, [plan.read_names[i] for i in ladders[ladder].reads]
    ax = new_axes(ax, 6.4, 0.9 + 0.95 * len(rungs))
    for k, (bias, weights) in enumerate(rungs):
        level = len(rungs) - 1 - k
        text = _rung(bias, weights, names, most, digits)
        ax.text(0.62, level, text, ha="left", va="center", fontsize="small")
        tail = f"$t_{{{k}}} = a_{{{k}}}" + (f" + r(t_{{{k + 1}}})$" if k + 1 < len(rungs) else "$")
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": BLUE}
        ax.text(0.3, level, tail, ha="center", va="center", bbox=box)
        ax.annotate("", (0.46, level), (0.6, level), arrowprops={"arrowstyle": "->", "color": GREY})
        if k + 1 < len(rungs):
            ax.annotate("", (0.3, level - 0.22), (0.3, level - 0.78), arrowprops={"arrowstyle": "->", "color": ORANGE})
            ax.text(0.27, level - 0.5, "1/t", ha="right", va="center", color=ORANGE, fontsize="small")
    ax.annotate("", (0.3, len(rungs) - 0.45), (0.3, len(rungs) - 0.78), arrowprops={"arrowstyle": "->", "color": BLUE})
    ax.text(0.3, len(rungs) - 0.4, "$f = t_0$", ha="center", va="bottom", color=BLUE)
    ax.set_xlim(0.1, 1.6)
    ax.set_ylim(-0.5, len(rungs) - 0.05)
    ax.axis("off")
    saved(ax, path)
    return ax


def _rung(bias: float, weights: Sequence[float], names: Sequence[str], most: int, digits: int) -> str:
    order = sorted((i for i, w in enumerate(weights) if w != 0), key=lambda i: -abs(weights[i]))
    parts = [f"{bias:.{digits}g}"] if bias != 0 else []
    for i in sorted(order[:most]):
        sign = "-" if weights[i] < 0 else "+" if parts else ""
        parts.append(f"{sign} {abs(weights[i]):.{digits}g} {names[i]}".strip())
    if len(order) > most:
        parts.append(f"+ {len(order) - most} more")
    return textwrap.fill(" ".join(parts) or "0", 60)

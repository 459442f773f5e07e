"""Pictures of explanations: each function takes an explanation and returns matplotlib Axes. Nothing is computed here.

Every function takes `ax` to draw into (a new figure by default) and `path` to save to, the format by its suffix.
Colours are those of Okabe and Ito, which most colour-blind people tell apart, and blue to red for signed values.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.explain.data import Curve, GlobalExplanation, LocalExplanation, Surface
from cofrnet.explain.pictures import ImageExplanation
from cofrnet.explain.words import TextExplanation, WordExplanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "curve",
    "curves",
    "gallery",
    "image",
    "importances",
    "ladder",
    "series",
    "surface",
    "text",
    "waterfall",
    "word_bars",
    "words",
]

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#7F7F7F"
PALETTE = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#F0E442", "#000000")
SIGNED = "RdBu_r"
STRIP = 0.1  # height of the strip of densities


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("cofrnet.plot needs matplotlib. Install it with: pip install 'cofrnet[plot]'") from error
    return plt


def _new(ax: Axes | None, width: float, height: float, **options: Any) -> Axes:
    if ax is not None:
        return ax
    plt = _pyplot()
    made: Axes = plt.figure(figsize=(width, height), layout="constrained").add_subplot(**options)
    return made


def _saved(ax: Axes, path: str | Path | None) -> None:
    if path is not None:
        figure = ax.get_figure()
        assert figure is not None
        figure.savefig(path, dpi=150)  # type: ignore[union-attr]


def _plain(ax: Axes) -> None:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _wrapped(text: str, width: int = 46) -> str:
    return "\n".join(textwrap.wrap(text, width))


def _chosen(outputs: Sequence[str], output: str | int | None) -> list[int]:
    if output is None:
        return list(range(len(outputs)))
    if isinstance(output, int):
        return [output]
    if output not in outputs:
        raise ValueError(f"output must be one of {list(outputs)}; got output={output!r}.")
    return [list(outputs).index(output)]


def curve(
    explanation: Curve, output: str | int | None = None, ax: Axes | None = None, path: str | Path | None = None
) -> Axes:
    """A curve with its band, the density of the training rows below it, and the effect of a missing value."""
    ax = _new(ax, 5, 3.6)
    chosen = _chosen(explanation.output_names, output)
    if explanation.categorical:
        _level_bars(explanation, chosen, ax)
    else:
        _number_line(explanation, chosen, ax)
        _with_room(ax, *_reach([explanation], chosen))
    ax.axhline(0, color=GREY, linewidth=0.8, zorder=0)
    ax.set_xlabel(explanation.feature)
    ax.set_ylabel(_wrapped(f"change of the score, {explanation.unit}", 34))
    if len(chosen) > 1:
        ax.legend(frameon=False, fontsize="small")
    _plain(ax)
    _saved(ax, path)
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
    left, right = float(explanation.grid[0]), float(explanation.grid[-1])
    if not np.isnan(explanation.missing).any():
        beyond = right + 0.08 * (right - left)
        for place, c in enumerate(chosen):
            ax.plot(beyond, explanation.missing[c], "D", color=PALETTE[place % len(PALETTE)], clip_on=False)
        ticks = [t for t in ax.get_xticks() if left <= t <= right - 0.1 * (right - left)]
        ax.set_xticks([*ticks, beyond], [*(f"{t:g}" for t in ticks), "missing"])
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


def _level_bars(explanation: Curve, chosen: Sequence[int], ax: Axes) -> None:
    names = [str(level) for level in explanation.grid]
    places = np.arange(len(names))
    width = 0.8 / len(chosen)
    for place, c in enumerate(chosen):
        offset = places + (place - (len(chosen) - 1) / 2) * width
        error = np.abs(
            np.stack([explanation.values[c] - explanation.low[c], explanation.high[c] - explanation.values[c]])
        )
        ax.bar(
            offset,
            explanation.values[c],
            width,
            yerr=error if error.any() else None,
            color=PALETTE[place % len(PALETTE)],
            ecolor="#404040",
            label=explanation.output_names[c],
        )
    total = max(1.0, float(np.sum(explanation.counts)))
    shares = [f"{_wrapped(n, 14)}\n{100 * k / total:.0f}%" for n, k in zip(names, explanation.counts, strict=True)]
    crowded = len(names) > 5
    ax.set_xticks(
        places, shares if not crowded else names, rotation=60 if crowded else 0, ha="right" if crowded else "center"
    )
    ax.tick_params(axis="x", labelsize="small")


def curves(
    explanation: GlobalExplanation, most: int = 9, output: str | int | None = None, path: str | Path | None = None
) -> NDArray[Any]:
    """The curves of the most important features, in one figure on a common scale; returns an array of Axes."""
    plt = _pyplot()
    rank = {explanation.feature_names[j]: i for i, j in enumerate(explanation.order)}
    shown = sorted(explanation.curves, key=lambda c: rank[c.feature])[:most]
    if not shown:
        raise ValueError("the explanation has no curves; make it without features=[].")
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    figure, axes = plt.subplots(down, across, figsize=(4 * across, 3.1 * down), layout="constrained", squeeze=False)
    reach = _reach(shown, _chosen(explanation.output_names, output))
    for ax, one in zip(axes.flat, shown, strict=False):
        curve(one, output, ax)
        _with_room(ax, *reach)
        ax.set_ylabel("")
        if ax.get_legend() is not None and ax is not axes.flat[0]:
            ax.get_legend().remove()
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    figure.supylabel(f"change of the score, {shown[0].unit}", fontsize="medium")
    _saved(axes.flat[0], path)
    return np.asarray(axes)


def importances(
    explanation: GlobalExplanation, most: int = 15, ax: Axes | None = None, path: str | Path | None = None
) -> Axes:
    """Bars of the importances, the largest on top; stacked by class where there are several."""
    order = explanation.order[:most][::-1]
    ax = _new(ax, 6, 0.9 + 0.28 * len(order))
    left = np.zeros(len(order))
    share = 1 / len(explanation.output_names)
    for place, (name, own) in enumerate(zip(explanation.output_names, explanation.importances, strict=True)):
        ax.barh(range(len(order)), own[order] * share, left=left, color=PALETTE[place % len(PALETTE)], label=name)
        left += own[order] * share
    ax.set_yticks(range(len(order)), [explanation.feature_names[j] for j in order])
    ax.set_xlabel(_wrapped(f"{explanation.definition}; {explanation.unit}", 70), fontsize="small")
    if len(explanation.output_names) > 1:
        ax.legend(frameon=False, fontsize="small", title="class", loc="lower right")
    _plain(ax)
    _saved(ax, path)
    return ax


def waterfall(
    explanation: LocalExplanation,
    row: int = 0,
    output: str | int = 0,
    most: int = 10,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """From the base value to the score of one row: what each feature adds, the largest on top."""
    if explanation.method != "integrated":
        raise ValueError("a waterfall needs contributions; got slopes. Explain with method='integrated'.")
    c = _chosen(explanation.output_names, output)[0]
    own = explanation.values[row, c]
    order = np.argsort(-np.abs(own), kind="stable")
    shown, rest = order[:most], order[most:]
    steps = [(f"{explanation.feature_names[j]} = {_value(explanation.data[row, j])}", float(own[j])) for j in shown]
    if len(rest):
        steps.append((f"{len(rest)} other feature{'s' * (len(rest) > 1)}", float(own[rest].sum())))
    ax = _new(ax, 6.4, 1.2 + 0.34 * len(steps))
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
    ax.set_xlabel(f"{explanation.unit}\n{base:.3g} at the baseline, {score:.3g} for the row")
    _plain(ax)
    _saved(ax, path)
    return ax


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def surface(
    explanation: Surface,
    output: str | int = 0,
    joint: bool = False,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """A heat map of what two features do together: beyond their curves or, `joint`, all in all."""
    ax = _new(ax, 5.4, 4)
    c = _chosen(explanation.output_names, output)[0]
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
        labels.append(([str(level) for level in grid], place) if named else (["missing"], place[-1:]) if gap else None)
    mesh = ax.pcolormesh(*places, values.T, cmap=SIGNED, vmin=-reach, vmax=reach, shading="nearest", rasterized=True)
    for place, label, axis in zip(places, labels, (ax.xaxis, ax.yaxis), strict=True):
        if label is not None:
            names, at = label
            room = 0.15 * (place[-1] - place[0])
            others = [t for t in axis.get_ticklocs() if len(at) < len(place) and place[0] <= t < at[0] - room]
            axis.set_ticks([*others, *at], [*(f"{t:g}" for t in others), *names])
    ax.set_xlabel(explanation.features[0])
    ax.set_ylabel(explanation.features[1])
    figure = ax.get_figure()
    assert figure is not None
    what = "together" if joint else "together, beyond their curves"
    figure.colorbar(mesh, ax=ax, label=_wrapped(f"{what}; {explanation.unit}", 40))
    _saved(ax, path)
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
    plt = _pyplot()
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.9 * len(panels), 3.8), subplot_kw={"projection": "3d"}, squeeze=False
    )
    figure.subplots_adjust(left=0.02, right=0.95, bottom=0.04, top=0.9, wspace=0.12)
    across, along = np.meshgrid(x, y, indexing="ij")
    values = [np.asarray(v, dtype=float) for v in panels.values()]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    for ax, title, z in zip(axes.flat, panels, values, strict=True):
        ax.plot_surface(across, along, z, cmap="viridis", vmin=low, vmax=high, linewidth=0, antialiased=True)
        ax.set_title(_wrapped(title, 40), fontsize="medium")
        ax.set_xlabel(names[0])
        ax.set_ylabel(names[1])
        ax.set_zlim(low, high)
    _saved(axes.flat[0], path)
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
    ax = _new(ax, 6.4, 0.9 + 0.95 * len(rungs))
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
    _saved(ax, path)
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


def image(
    picture: Any,
    attribution: Any,
    ax: Axes | None = None,
    path: str | Path | None = None,
    alpha: float = 0.7,
    reach: float | None = None,
    legend: bool = True,
) -> Axes:
    """An image, in grey, with its attributions laid over it: red where they raise the score, blue where they lower it.

    picture : (h, w), (h, w, 1) or (h, w, 3), in [0, 1] or 0..255; attribution : (h, w), signed; reach : the size that
    has the full colour, by default one that a hundredth of the pixels exceed.

    Paper: Figure 4d.
    """
    ax = _new(ax, 4.6 if legend else 4, 4)
    grey = _grey(picture)
    values = np.asarray(attribution, dtype=float)
    if values.shape != grey.shape:
        raise ValueError(f"attribution must have the image's shape {grey.shape}; got {values.shape}.")
    reach = _reach_of(values) if reach is None else reach
    ax.imshow(grey, cmap="gray", vmin=0, vmax=1)
    strength = alpha * np.clip(np.abs(values) / reach, 0, 1)
    drawn = ax.imshow(values, cmap=SIGNED, vmin=-reach, vmax=reach, alpha=strength)
    if legend:
        _colour_bar(ax, drawn.norm, "adds to the score")
    ax.axis("off")
    _saved(ax, path)
    return ax


def _grey(picture: Any) -> NDArray[Any]:
    """Brightness from 0 to 1, (h, w)."""
    pixels = np.asarray(picture, dtype=float)
    pixels = pixels / 255 if pixels.max(initial=0) > 1 else pixels
    pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return pixels if pixels.ndim == 2 else pixels[..., :3] @ np.array([0.299, 0.587, 0.114])


def _reach_of(values: NDArray[Any]) -> float:
    return max(float(np.quantile(np.abs(values), 0.99)), 1e-12)


def _colour_bar(ax: Any, norm: Any, label: str) -> None:
    from matplotlib.cm import ScalarMappable

    axes = np.ravel(ax)
    bar = axes[0].figure.colorbar(ScalarMappable(norm, SIGNED), ax=axes.tolist(), shrink=0.7, pad=0.02)
    bar.set_label(f"{label} (red raises)")


def _explained(explanation: ImageExplanation, row: int, output: int | None) -> int:
    """Where among the scores of an image that are explained the output is; by default the highest of them."""
    own = explanation.which[row]
    if output is None:
        return int(explanation.scores[row, own].argmax())
    if output not in own:
        name = explanation.output_names[output]
        raise ValueError(f"{name!r} must be explained for image {row}; it is not. Use explain_local(..., top=None).")
    return int(np.flatnonzero(own == output)[0])


def gallery(
    explanation: ImageExplanation,
    rows: Sequence[int] | None = None,
    output: str | int | None = None,
    labels: Sequence[Any] | None = None,
    smooth: int | None = None,
    columns: int = 6,
    path: str | Path | None = None,
) -> NDArray[Any]:
    """Images beside what their pixels do to the score, each on its own scale: an array of Axes.

    `rows` are those to show, by default the first 24; `output` is the score that is explained, by default for each
    image the highest that is; `labels` are what the images are, to stand beside what the model says;
    `smooth` shows means over neighbours up to so many pixels away, by default a 16th of the image, 0 for none.

    Paper: the galleries of the supplement.
    """
    chosen = list(range(min(24, len(explanation)))) if rows is None else list(rows)
    if not chosen:
        raise ValueError("rows must name one image or more; got none.")
    smooth = min(explanation.images.shape[1:3]) // 16 if smooth is None else smooth
    explanation = explanation.smoothed(smooth)
    names, scores = explanation.output_names, explanation.scores
    fixed = None if output is None else _chosen(names, output)[0]
    places = [_explained(explanation, i, fixed) for i in chosen]
    which = [int(explanation.which[i, place]) for i, place in zip(chosen, places, strict=True)]
    values = [explanation.values[i, place] for i, place in zip(chosen, places, strict=True)]
    columns = min(columns, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = _pyplot().figure(figsize=(3.0 * columns + 0.8, 1.85 * lines + 0.4), layout="constrained")
    axes = np.asarray(figure.subplots(lines, 2 * columns, squeeze=False))
    for ax in axes.flat:
        ax.axis("off")
    for place, (i, c, own) in enumerate(zip(chosen, which, values, strict=True)):
        left, right = axes[place // columns, 2 * (place % columns) :][:2]
        left.imshow(np.squeeze(explanation.images[i]).astype(np.uint8), cmap="gray", vmin=0, vmax=255)
        image(explanation.images[i], own, right, reach=max(float(np.abs(own).max()), 1e-12), legend=False)
        left.set_title(_literal(str(labels[i])[:18]) if labels is not None else f"image {i}", fontsize=9)
        right.set_title(_literal(f"{names[c][:14]} {scores[i, c]:+.2g}"), fontsize=9)
    from matplotlib.colors import Normalize

    around = f", mean of {2 * smooth + 1} by {2 * smooth + 1}" if smooth else ""
    _colour_bar(axes, Normalize(-1, 1), f"adds to the score{around}, as a share of the strongest")
    _saved(axes[0, 0], path)
    return axes


def words(
    weights: Mapping[str, float] | WordExplanation,
    ax: Axes | None = None,
    path: str | Path | None = None,
    random_state: int = 0,
) -> Axes:
    """A cloud of words, their size by what they do: red adds to the score, blue takes from it.

    Of an explanation, the hundred most important words that are no stop words.
    """
    if isinstance(weights, WordExplanation):
        weights = weights.sizes(100, pairs=False, stop_words=True)
    try:
        from wordcloud import WordCloud
    except ImportError as error:
        raise ImportError("plot.words needs wordcloud. Install it with: pip install 'cofrnet[plot]'") from error
    if not weights:
        raise ValueError("weights must name at least one word; got none.")

    def color(word: str, **_: Any) -> str:
        return RED if weights[word] > 0 else BLUE

    cloud = WordCloud(width=900, height=450, background_color="white", color_func=color, random_state=random_state)
    cloud.generate_from_frequencies({word: abs(weight) for word, weight in weights.items()})
    ax = _new(ax, 6, 3)
    ax.imshow(cloud.to_array(), interpolation="bilinear")
    ax.axis("off")
    _saved(ax, path)
    return ax


def word_bars(
    explanation: WordExplanation,
    most: int = 15,
    output: str | int = 0,
    pairs: bool | None = None,
    stop_words: bool = False,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """Bars of the most important words and pairs, the largest on top: red adds to the score, blue takes from it."""
    c = _chosen(explanation.output_names, output)[0]
    found = explanation.top(most, c, pairs, stop_words)[::-1]
    ax = _new(ax, 6, 0.9 + 0.28 * len(found))
    colors = [RED if effect > 0 else BLUE for _, _, effect in found]
    ax.barh(range(len(found)), [np.sign(effect) * size for _, size, effect in found], color=colors)
    ax.set_yticks(range(len(found)), [_literal(name) for name, _, _ in found])
    ax.axvline(0, color=GREY, lw=0.8)
    ax.set_xlabel(_wrapped(f"{explanation.definition}, with its sign; {explanation.unit}", 70), fontsize="small")
    _plain(ax)
    _saved(ax, path)
    return ax


def text(
    explanation: TextExplanation,
    row: int = 0,
    output: str | int = 0,
    most: int = 1200,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """A text with its words shaded by what they add: red adds to the score, blue takes from it.

    Of a long text the first `most` characters.
    """
    c = _chosen(explanation.output_names, output)[0]
    placed, lines = _lines_of(explanation.pieces(row, c), most)
    ax = _new(ax, 7.6, 0.5 + 0.26 * lines)
    strongest = max(explanation.strength(row, c), 1e-9)
    for x, y, word, value in placed:
        shade = None
        if value is not None:
            color = RED if value > 0 else BLUE
            shade = {"facecolor": color, "alpha": 0.65 * min(1.0, abs(value) / strongest), "lw": 0, "pad": 1.5}
        ax.text(x, y, _literal(word), family="monospace", fontsize=10, va="center", bbox=shade)
    ax.set_xlim(0, LINE + 2)
    ax.set_ylim(lines - 0.4, -0.6)
    score = f"score {explanation.scores[row, c]:+.3g} ({explanation.unit})"
    ax.set_title(_literal(score), fontsize="medium", loc="left")
    ax.axis("off")
    _saved(ax, path)
    return ax


LINE = 84  # characters


def _lines_of(
    pieces: Sequence[tuple[str, float | None]], most: int
) -> tuple[list[tuple[int, int, str, float | None]], int]:
    """Column, line, text and value of the pieces of a text, broken into lines; and how many lines there are."""
    placed: list[tuple[int, int, str, float | None]] = []
    x = y = used = 0
    for piece, value in pieces:
        for i, part in enumerate(re.split(r"(\s)", piece) if value is None else [piece]):
            if part == "\n" and i % 2 == 1:
                x, y = 0, y + 1
                continue
            word = part if part.strip() or value is not None else " " * (len(part) if x else 0)
            if x and x + len(word) > LINE and word.strip():
                x, y = 0, y + 1
            if word.strip():
                placed.append((x, y, word, value))
            x += len(word)
            used += len(word)
        if used > most:
            return [*placed, (x, y, " …", None)], y + 1
    return placed, y + 1


def _literal(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")

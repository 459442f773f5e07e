"""Pictures of images: what their pixels add, laid over them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.explain.pictures import ImageExplanation
from cofrnet.plot.drawing import (
    SIGNED,
    chosen_outputs,
    literal,
    new_axes,
    pyplot,
    saved,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["gallery", "image"]


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
    ax = new_axes(ax, 4.6 if legend else 4, 4)
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
    saved(ax, path)
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
    fixed = None if output is None else chosen_outputs(names, output)[0]
    places = [_explained(explanation, i, fixed) for i in chosen]
    which = [int(explanation.which[i, place]) for i, place in zip(chosen, places, strict=True)]
    values = [explanation.values[i, place] for i, place in zip(chosen, places, strict=True)]
    columns = min(columns, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = pyplot().figure(figsize=(3.0 * columns + 0.8, 1.85 * lines + 0.4), layout="constrained")
    axes = np.asarray(figure.subplots(lines, 2 * columns, squeeze=False))
    for ax in axes.flat:
        ax.axis("off")
    for place, (i, c, own) in enumerate(zip(chosen, which, values, strict=True)):
        left, right = axes[place // columns, 2 * (place % columns) :][:2]
        left.imshow(np.squeeze(explanation.images[i]).astype(np.uint8), cmap="gray", vmin=0, vmax=255)
        image(explanation.images[i], own, right, reach=max(float(np.abs(own).max()), 1e-12), legend=False)
        left.set_title(literal(str(labels[i])[:18]) if labels is not None else f"image {i}", fontsize=9)
        right.set_title(literal(f"{names[c][:14]} {scores[i, c]:+.2g}"), fontsize=9)
    from matplotlib.colors import Normalize

    around = f", mean of {2 * smooth + 1} by {2 * smooth + 1}" if smooth else ""
    _colour_bar(axes, Normalize(-1, 1), f"adds to the score{around}, as a share of the strongest")
    saved(axes[0, 0], path)
    return axes

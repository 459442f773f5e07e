"""The page of a model of images: images to browse, each with what its pixels do to the score laid over it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.explain.pictures import ImageExplanation
from cofrnet.explain.quality import Quality
from cofrnet.report import metric_words, quality_note, render, script, short

__all__ = ["ImagePage", "html_of_images"]

MOST_SIDE = 96  # pixels of an image in the page; larger ones are shrunk, by means of blocks


@dataclass(frozen=True)
class ImagePage:
    """All that a page of images shows.

    names, index : of the images, and their places in what was given; predicted, actual and loss : of each, the last two
    None where y is not known; total : images that were given.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    classes: Sequence[str]
    outputs: Sequence[str]
    unit: str
    quality: Quality | None = None
    history: Mapping[str, Sequence[float]] | None = None
    explanation: ImageExplanation | None = None
    names: Sequence[str] = ()
    index: Sequence[int] = ()
    predicted: Sequence[str] = ()
    actual: Sequence[str] | None = None
    loss: Sequence[float] | None = None
    total: int = 0


def html_of_images(page: ImagePage) -> str:
    """The text of the page."""
    quality = page.quality
    return render(
        "images.html.j2",
        [script("common.js"), script("charts.js"), script("images.js")],
        _data(page),
        title=page.title,
        subtitle=page.facts[0][1],
        facts=page.facts,
        sections=[("quality", "Quality" if quality else "Model"), ("images", "Images")],
        outputs=page.outputs,
        output_word="Class",
        metrics=[] if quality is None else [metric_words(m.to_dict()) for m in quality.metrics],
        quality_note="" if quality is None else quality_note(quality),
        has_images=page.explanation is not None,
        known=page.actual is not None,
        images_note=_note(page),
        smooth=0 if page.explanation is None else min(4, min(page.explanation.images.shape[1:3]) // 16),
        footer="" if not page.total else f"It was made from {page.total:,} images.",
    )


def _note(page: ImagePage) -> str:
    if page.explanation is None:
        return ""
    wrong = "those the model is most wrong about, and " if page.actual is not None else ""
    some = f"A sample of {len(page.index):,} of {page.total:,} images: {wrong}images evenly spread over all."
    every = f"All {page.total:,} images."
    what = f"Colours: {page.explanation.definition} ({page.unit})."
    return f"{every if len(page.index) == page.total else some} {what} Choose an image, and a class of it."


def _data(page: ImagePage) -> dict[str, Any]:
    quality = page.quality
    found: dict[str, Any] = {
        "outputs": list(page.outputs),
        "classes": list(page.classes),
        "counted": "images",
        "unit": page.unit,
        "quality": None if quality is None else {"confusion": quality.confusion, "calibration": quality.calibration},
        "history": {} if page.history is None else dict(page.history),
    }
    return short(found, 6) | {"images": None if page.explanation is None else _images(page, page.explanation)}


def _images(page: ImagePage, explanation: ImageExplanation) -> dict[str, Any]:
    """Pixels and what they do, as bytes."""
    sides = explanation.images.shape[1:3]
    step = min(-(-max(sides) // MOST_SIDE), min(sides))
    pictures = _shrunk(explanation.images.astype(np.float64), step)
    channels = pictures.shape[3]
    pictures = np.repeat(pictures, 3, axis=3) if channels < 3 else pictures[..., :3]
    values, reach = [], []
    for found in explanation.values:
        own = step**2 * _shrunk(found[..., None], step)[..., 0]  # what a block adds in all
        most = [max(float(np.quantile(np.abs(part), 0.99)), 1e-12) for part in own]
        values.append([_packed(np.clip(100 * part / size, -127, 127)) for part, size in zip(own, most, strict=True)])
        reach.append(short(most, 6))
    return {
        "height": pictures.shape[1],
        "width": pictures.shape[2],
        "index": list(page.index),
        "names": list(page.names),
        "pixels": [base64.b64encode(own.clip(0, 255).round().astype(np.uint8).tobytes()).decode() for own in pictures],
        "shown": explanation.which.tolist(),
        "values": values,
        "reach": reach,
        "scores": short(explanation.scores, 6),
        "predicted": list(page.predicted),
        "actual": None if page.actual is None else list(page.actual),
        "loss": None if page.loss is None else short(list(page.loss), 6),
    }


def _shrunk(images: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Means of blocks of step by step pixels, (n, h, w, channels); what is left at the edges is cut off."""
    if step == 1:
        return images
    n, h, w, channels = images.shape
    h, w = h // step, w // step
    return images[:, : h * step, : w * step].reshape(n, h, step, w, step, channels).mean((2, 4))


def _packed(values: NDArray[np.float64]) -> str:
    return base64.b64encode(values.round().astype(np.int8).tobytes()).decode()

"""Explanations of images: what every pixel does to the scores, through the whole network.

The slope of a score by a pixel is the product of the closed forms of all blocks, from the head down: the sensitivities
of its ladders, and of the ladder of every channel the slope r' of its rungs, each times the transposed convolution.
Contributions are the mean of the slopes on the straight line from a baseline image, times the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.explain.data import Explanation

__all__ = ["ImageExplanation", "contributions", "scores_of", "slopes"]

Floats = NDArray[np.floating[Any]]

AT_ONCE = 64  # images, for bounded memory
NODES = (32, 64, 128)


@dataclass(frozen=True, eq=False)
class ImageExplanation(Explanation):
    """What every pixel does to the scores of every image.

    values : (n, k, h, w), channels together: for "integrated" what the pixel adds on the way from the baseline, for
    "gradient" the slope of the score by its brightness; which : (n, k), the positions of the scores that are explained;
    images : (n, h, w, channels); scores : (n, q); base_values : (q,), NaN for "gradient"; gap : (n, k), what the values
    fall short of score minus base by.
    """

    method: str
    values: Floats
    which: NDArray[np.int64]
    images: NDArray[Any]
    base_values: Floats
    scores: Floats
    gap: Floats
    output_names: tuple[str, ...]
    unit: str
    definition: str
    rows: NDArray[np.int64] | None = None

    @property
    def places(self) -> NDArray[np.int64]:
        """Positions of the images in what they were taken from."""
        return np.arange(len(self)) if self.rows is None else self.rows

    def __len__(self) -> int:
        return len(self.values)

    def smoothed(self, reach: int) -> ImageExplanation:
        """The same with the mean over neighbours up to `reach` pixels away in place of each value, for looking at.

        Neighbouring pixels of a deep network often add much with opposite signs; what an area adds is easier to see.
        """
        if reach < 1:
            return self
        found = self.values
        for axis in (2, 3):
            wide = np.pad(found, [(reach, reach) if a == axis else (0, 0) for a in range(4)], mode="edge")
            found = np.lib.stride_tricks.sliding_window_view(wide, 2 * reach + 1, axis=axis).mean(-1)
        return replace(self, values=found)

    def columns(self) -> dict[str, Any]:
        """One line for each image, output and pixel."""
        places = np.indices(self.values.shape).reshape(4, -1)
        names = np.array(self.output_names, dtype=object)
        return {
            "row": self.places[places[0]],
            "output": names[self.which[places[0], places[1]]],
            "y": places[2],
            "x": places[3],
            "value": self.values.reshape(-1),
        }

    def __str__(self) -> str:
        """How much of what is added comes from which part of the image, for the first of them."""
        lines = [self.definition, f"scale: {self.unit}"]
        for i in range(min(3, len(self))):
            for values, c in zip(np.abs(self.values[i]), self.which[i], strict=True):
                y, x = np.unravel_index(int(values.argmax()), values.shape)
                said = f"row {self.places[i]}, {self.output_names[c]}: score {self.scores[i, c]:.4g}"
                lines.append(f"{said}; strongest pixel: line {y}, column {x}")
        return "\n".join(lines)


@contextmanager
def _exactly(model: Any) -> Iterator[None]:
    """Evaluation in single precision: half of it is too little for slopes."""
    before = getattr(model, "precision", None)
    model.eval()
    if before is not None:
        model.precision = "float32"
    try:
        yield
    finally:
        if before is not None:
            model.precision = before


def slopes(model: Any, images: Tensor, which: Tensor) -> Tensor:
    """Slopes of some scores of each image by its pixels, (n, k, channels, h, w); which : (n, k), of scores."""
    found = []
    with _exactly(model):
        for part, own in zip(images.split(AT_ONCE), which.split(AT_ONCE), strict=True):
            x = part.float().requires_grad_()
            chosen = model(x).gather(1, own)
            rows = [torch.autograd.grad(score.sum(), x, retain_graph=True)[0] for score in chosen.T]
            found.append(torch.stack(rows, 1))
    return torch.cat(found)


@torch.no_grad()
def scores_of(model: Any, images: Tensor) -> Tensor:
    """Scores in single precision, (n, q)."""
    with _exactly(model):
        return torch.cat([model(part) for part in images.split(AT_ONCE)])


def contributions(model: Any, images: Tensor, baseline: Tensor, scores: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
    """What each pixel adds to some scores on the way from the baseline, (n, k, h, w), and what the sums fall short by.

    The integral has more nodes for images whose sums are off by more than a thousandth of the range of their scores.

    Shapes: images (n, channels, h, w), baseline (channels, h, w), scores (n, q), which (n, k).
    """
    base = scores_of(model, baseline.unsqueeze(0))
    difference = (scores - base).gather(1, which)
    both = torch.cat([scores, base.expand_as(scores)], 1)
    tolerance = (1e-3 * (both.amax(1) - both.amin(1)) + 1e-5).unsqueeze(1)  # (n, 1)
    values = torch.zeros(*which.shape, *images.shape[2:])
    gap = difference.clone()
    left = torch.arange(len(images))
    for nodes in NODES:
        values[left] = _integrals(model, images[left].float() - baseline, baseline, which[left], nodes)
        gap[left] = difference[left] - values[left].sum((2, 3))
        left = left[(gap[left].abs() > tolerance[left]).any(1)]
        if len(left) == 0:
            break
    return values, gap


def _integrals(model: Any, steps: Tensor, baseline: Tensor, which: Tensor, nodes: int) -> Tensor:
    """Means of the slopes along the lines from the baseline, times the steps: (n, channels, h, w) to (n, k, h, w)."""
    points, shares = np.polynomial.legendre.leggauss(nodes)
    found = torch.zeros(*which.shape, *steps.shape[2:])
    for part, own, total in zip(steps.split(AT_ONCE), which.split(AT_ONCE), found.split(AT_ONCE), strict=True):
        for point, share in zip((points + 1) / 2, shares / 2, strict=True):
            slope = slopes(model, baseline + float(point) * part, own)
            total += float(share) * (slope * part.unsqueeze(1)).sum(2)
    return found

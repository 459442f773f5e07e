"""The interactive page of a fitted classifier of images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cofrnet.estimators.checks import require_same_length
from cofrnet.estimators.scoring import probabilities
from cofrnet.explain.subject import to_browse
from cofrnet.files import write_atomically
from cofrnet.images import image_name
from cofrnet.nn.images import ImageCoFrNet

__all__ = ["ReportingImages"]

IMAGES, WRONG = 48, 24  # to browse, and how many of them are those the model is most wrong about
CLASSES = 3  # of each image, whose pixels are shown


class ReportingImages:
    """What makes a fitted classifier of images a page."""

    def report(self, path: str | os.PathLike[str], X: Any = None, y: Any = None, title: str | None = None) -> Path:
        """Write a self-contained, interactive page about the model, and return its path.

        With images X it shows what their pixels do, and lets them be browsed; with their labels y, or a folder of
        folders, it also says how good the model is, so these should be images that it was not fitted to.
        """
        from cofrnet.report.images import html_of_images

        return write_atomically(path, html_of_images(self._page(X, y, title)).encode("utf-8", "replace"))

    def summary(self) -> str:
        """A few lines: what the model is, and how it was trained."""
        check_is_fitted(self)
        losses = getattr(self, "history_", {}).get("loss", [])
        trained = [f"trained {len(losses)} epochs, last training loss {losses[-1]:.4g}"] if losses else []
        return "\n".join([*(f"{name}: {value}" for name, value in self._facts()), *trained])

    def _page(self, X: Any, y: Any, title: str | None) -> Any:
        from cofrnet.report.images import ImagePage

        check_is_fitted(self)
        if X is None and y is not None:
            raise ValueError("y must come with its images X; got X=None. Pass both.")
        me: Any = self
        _, _, outputs, unit = me._score_scale()
        named = f" of {me.target_name_}" if me.target_name_ else " of images"
        images: Any = None
        if X is not None:
            images, y = me._sources(X, y)
        if y is not None:
            require_same_length(len(images), len(y))
        return ImagePage(
            title=title or f"Classification{named}",
            facts=self._facts(),
            classes=[str(name) for name in me.classes_],
            outputs=outputs,
            unit=unit,
            quality=None if y is None else me.quality(images, y),
            history=getattr(self, "history_", None),
            **({} if images is None else self._browsed(images, y)),
        )

    def _facts(self) -> list[tuple[str, str]]:
        me: Any = self
        spec, (channels, height, width) = me.model_.spec, me.shape_
        if isinstance(me.model_, ImageCoFrNet):
            what = (
                f"{len(spec.widths)} stages of convolutional ladders of depth {spec.depth}, the mean of each channel, "
            )
            what += f"and {spec.n_ladders} continued fractions of depth {spec.head_depth}"
        else:
            what = f"{spec.total_ladders} continued fractions over the pixels"
        return [
            ("Model", f"CoFrNet: {what}"),
            ("Parameters", f"{spec.n_parameters:,}"),
            ("Images", f"{height} by {width} pixels, {channels} channel" + ("s" if channels > 1 else "")),
        ]

    def _browsed(self, images: Any, y: Any) -> dict[str, Any]:
        """Images to browse: those that are most wrong, and some of all."""
        me: Any = self
        total = len(images)
        loss = None if y is None else me._losses_of(images, y)
        some = to_browse(total, IMAGES, loss, WRONG)
        read = isinstance(images, list)
        part = [images[i] for i in some] if read else images[some]
        explanation = me.explain_local(part, top=CLASSES)
        codes = probabilities(explanation.scores.astype(np.float64)).argmax(1)
        return {
            "explanation": explanation,
            "names": [image_name(own) for own in part] if read else [f"image {i}" for i in some],
            "index": some.tolist(),
            "predicted": [str(label) for label in me.classes_[codes]],
            "actual": None if y is None else [str(label) for label in np.asarray(y)[some]],
            "loss": None if loss is None else loss[some].tolist(),
            "total": total,
        }

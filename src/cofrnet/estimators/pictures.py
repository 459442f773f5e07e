"""What a fitted classifier of images says of pixels, and how it goes to other runtimes."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import cofrnet
from cofrnet.estimators.checks import require
from cofrnet.explain import pictures
from cofrnet.explain.pictures import ImageExplanation

__all__ = ["Pictures"]


class Pictures:
    """Explanations of images, and files for other runtimes."""

    model_: Any
    classes_: NDArray[Any]
    shape_: tuple[int, int, int]

    # ------------------------------------------------------------------------------ explaining

    def explain_local(
        self, X: Any, method: Literal["integrated", "gradient"] = "integrated", baseline: Any = None
    ) -> ImageExplanation:
        """What every pixel does to the scores of some images.

        "integrated": what it adds on the way from the `baseline`, an image like those of X (by default the mean colour
        of the training images), so that base value and pixels sum to the score but for `gap`. "gradient": the slope of
        the score by its brightness. The score is the log-odds of the second class, or one score for each class.
        """
        require(method in ("integrated", "gradient"), "method", method, "'integrated' or 'gradient'")
        check_is_fitted(self)
        me: Any = self
        images = me._pixels(X)
        _, _, names, unit = me._score_scale()
        common: dict[str, Any] = {
            "method": method,
            "images": images.permute(0, 2, 3, 1).numpy(),
            "output_names": names,
        }
        if method == "gradient":
            found, scores = pictures.slopes(self.model_, images)
            return ImageExplanation(
                values=found.sum(2).numpy(), scores=scores.numpy(), base_values=np.full(len(names), np.nan),
                gap=np.zeros(tuple(scores.shape)), unit=f"{unit}, per step of 256",
                definition="slope of the score by the brightness of each pixel", **common,
            )  # fmt: skip
        start = self.model_.mean[:, None, None].expand(self.shape_)
        if baseline is not None:
            start = me._pixels(np.asarray(baseline)[None])[0].float()
        values, scores, gap = pictures.contributions(self.model_, images, start)
        base = scores - gap - values.sum((2, 3))
        return ImageExplanation(
            values=values.numpy(), scores=scores.numpy(), base_values=base.mean(0).numpy(), gap=gap.numpy(), unit=unit,
            definition="what each pixel adds to the score on the way from "
            + ("the mean colour of the training images" if baseline is None else "a given image"),
            **common,
        )  # fmt: skip

    # ------------------------------------------------------------------------------ other runtimes

    def to_onnx(self, path: str | os.PathLike[str], contributions: bool = False, opset: int = 25) -> Path:
        """Write an ONNX file that takes "images", (n, channels, h, w) of float32 from 0 to 255; returns its path.

        Outputs are "label" and "probabilities".
        """
        from cofrnet.export.classifiers import onnx_of

        return onnx_of(self._program(contributions), "images", self.classes_, self._described(), path, opset)

    def to_torch(self, path: str | os.PathLike[str], contributions: bool = False) -> Path:
        """Write a ``torch.export`` program, which needs torch alone, of such images; returns its path."""
        from cofrnet.export.classifiers import torch_of

        return torch_of(self._program(contributions), self._described(), path)

    def _program(self, contributions: bool) -> Any:
        from cofrnet.export.images import ImageProgram

        check_is_fitted(self)
        if contributions:
            raise ValueError("contributions of pixels must be asked of explain_local; exported models give none.")
        return ImageProgram(copy.deepcopy(self.model_).eval().requires_grad_(False), self.shape_)

    def _described(self) -> dict[str, Any]:
        """What an exported file says of itself."""
        me: Any = self
        _, _, outputs, unit = me._score_scale()
        return {
            "cofrnet": cofrnet.__version__,
            "classes": [str(name) for name in self.classes_],
            "outputs": list(outputs),
            "unit": unit,
            "shape": list(self.shape_),
        }

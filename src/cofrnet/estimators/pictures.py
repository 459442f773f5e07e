"""What a fitted classifier of images says of pixels, and how it goes to other runtimes."""

from __future__ import annotations

import copy
import os
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
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
        self,
        X: Any,
        method: Literal["integrated", "gradient"] = "integrated",
        baseline: Any = None,
        top: int | None = 1,
    ) -> ImageExplanation:
        """What every pixel does to the scores of some images: to the `top` highest of each, None for all.

        "integrated": what it adds on the way from the `baseline`, an image like those of X (by default the mean colour
        of the training images), so that base value and pixels sum to the score but for `gap`. "gradient": the slope of
        the score by its brightness. The score is the log-odds of the second class, or one score for each class.
        """
        require(method in ("integrated", "gradient"), "method", method, "'integrated' or 'gradient'")
        require(top is None or (isinstance(top, Integral) and top >= 1), "top", top, "None, or 1 or more")
        check_is_fitted(self)
        me: Any = self
        images = me._pixels(X)
        _, _, names, unit = me._score_scale()
        scores = pictures.scores_of(self.model_, images)
        which = torch.arange(len(names)).expand(len(images), -1)
        if top is not None and top < len(names):
            which = scores.argsort(dim=1, descending=True, stable=True)[:, : int(top)]
        common: dict[str, Any] = {
            "method": method,
            "which": which.numpy().copy(),
            "images": images.permute(0, 2, 3, 1).numpy(),
            "scores": scores.numpy(),
            "output_names": names,
        }
        if method == "gradient":
            found = pictures.slopes(self.model_, images, which).sum(2)
            return ImageExplanation(
                values=found.numpy(), base_values=np.full(len(names), np.nan), gap=np.zeros(which.shape),
                unit=f"{unit}, per step of 256", definition="slope of the score by the brightness of each pixel",
                **common,
            )  # fmt: skip
        start = self.model_.mean[:, None, None].expand(self.shape_)
        if baseline is not None:
            start = me._pixels(np.asarray(baseline)[None])[0].float()
        values, gap = pictures.contributions(self.model_, images, start, scores, which)
        return ImageExplanation(
            values=values.numpy(), gap=gap.numpy(), unit=unit,
            base_values=pictures.scores_of(self.model_, start.unsqueeze(0))[0].numpy(),
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

"""What a fitted estimator for images puts into its file: the network, and the size of its images."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cofrnet.estimators.contents import fits, read_spec, spec_of
from cofrnet.estimators.saving import Saving, filled
from cofrnet.files import Fields
from cofrnet.nn import ImageCoFrNet, ImageSpec, PixelCoFrNet

__all__ = ["SavingImages"]

MOST_STAGES = 64


class SavingImages(Saving):
    """Files of estimators for images."""

    variant: Any
    shape_: tuple[int, int, int]

    def _precision(self) -> Any:
        raise NotImplementedError

    def _about(self) -> dict[str, Any]:
        return super()._about() | {"shape": list(self.shape_)}

    def _restore_model(self, tensors: dict[str, Tensor], about: Fields, outputs: int) -> None:
        sizes = about.any("shape")
        whole = isinstance(sizes, list) and len(sizes) == 3 and all(type(v) is int and 0 < v < 2**16 for v in sizes)
        fits(whole, "shape", "channels, height and width")
        self.shape_ = (sizes[0], sizes[1], sizes[2])
        fits(self.variant in ("conv", "D", "DL"), "variant", "'conv', 'D' or 'DL'")
        numbers = sum(t.numel() for t in tensors.values())
        model: Any
        if self.variant == "conv":
            spec = _read_image_spec(about.object("spec"), numbers)
            fits(spec.in_channels == self.shape_[0] and spec.n_outputs == outputs, "spec", "for the images and classes")
            model = ImageCoFrNet(spec, precision=self._precision())
        else:
            pixels = read_spec(about.object("spec"), numbers - 2 * self.shape_[0])
            fits(pixels.n_features == sizes[0] * sizes[1] * sizes[2], "spec", "for the pixels of the images")
            fits(pixels.n_outputs == outputs, "spec", "for as many outputs as y has")
            model = PixelCoFrNet(pixels, self.shape_)
        self.model_ = filled(model, tensors)


def _read_image_spec(fields: Fields, numbers: int) -> ImageSpec:
    """The spec, if a network of it has just as many numbers as the file: nothing is allocated before that is known."""
    for name in ("n_outputs", "in_channels", "stem_stride", "depth", "n_ladders", "head_depth"):
        fields.integer(name, 0, max(64, numbers))
    for name in ("widths", "residual"):
        values = fields.any(name)
        fit = isinstance(values, list) and len(values) <= MOST_STAGES
        fits(fit and all(isinstance(v, int) and 0 <= v <= numbers for v in values), name, "a short list of numbers")
    fits(all(0 < width <= numbers for width in fields.any("widths")), "widths", "numbers that fit")
    fits(fields.text("pool") in ("mean", "max") and fields.text("form") == "stacked", "spec", "of known words")
    return spec_of(ImageSpec, fields, numbers, lambda spec: spec.n_numbers)

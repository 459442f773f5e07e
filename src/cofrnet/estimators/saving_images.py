"""What a fitted estimator for images puts into its file: the network, and the size of its images."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cofrnet.estimators.contents import fits, read_spec, spec_of
from cofrnet.estimators.saving import Saving, filled
from cofrnet.files import Fields
from cofrnet.nn import ImageCoFrNet, ImageSpec, PixelCoFrNet

__all__ = ["SavingImages", "sized"]

MOST_STAGES = 64
NUMBERS_AT_ONCE = 2**25  # of the first stage


class SavingImages(Saving):
    """Files of estimators for images."""

    variant: Any
    shape_: tuple[int, int, int]
    to_one_: bool | None
    image_name_: str | None

    def _precision(self) -> Any:
        raise NotImplementedError

    def _about(self) -> dict[str, Any]:
        about = {"shape": list(self.shape_), "to_one": self.to_one_, "image_name": self.image_name_}
        return super()._about() | about | {"precision": getattr(self.model_, "precision", "float32")}

    def _restore_model(self, tensors: dict[str, Tensor], about: Fields, outputs: int) -> None:
        sizes = about.any("shape")
        whole = isinstance(sizes, list) and len(sizes) == 3 and all(type(v) is int and 0 < v < 2**16 for v in sizes)
        fits(whole, "shape", "channels, height and width")
        self.shape_ = (sizes[0], sizes[1], sizes[2])
        fits(self.variant in ("conv", "D", "DL"), "variant", "'conv', 'D' or 'DL'")
        numbers = sum(t.numel() for t in tensors.values())
        model: Any
        if "widths" in about.object("spec").values:  # `variant` may have been set since for another fit
            spec = _read_image_spec(about.object("spec"), numbers)
            fits(spec.in_channels == self.shape_[0] and spec.n_outputs == outputs, "spec", "for the images and classes")
            precision = about.any("precision") or self._precision()  # as in training: another gives other numbers
            fits(precision in ("float32", "bfloat16"), "precision", "float32 or bfloat16")
            model = ImageCoFrNet(spec, precision=precision)
        else:
            pixels = read_spec(about.object("spec"), numbers - 2 * self.shape_[0])
            fits(pixels.n_features == sizes[0] * sizes[1] * sizes[2], "spec", "for the pixels of the images")
            fits(pixels.n_outputs == outputs, "spec", "for as many outputs as y has")
            model = PixelCoFrNet(pixels, self.shape_)
        self.to_one_, self.image_name_ = about.any("to_one"), about.any("image_name")
        fits(self.image_name_ is None or isinstance(self.image_name_, str), "image_name", "text or nothing")
        fits(self.to_one_ in (None, True, False), "to_one", "true, false or nothing")
        self.model_ = sized(filled(model, tensors), self.shape_)


def sized(model: Any, shape: tuple[int, int, int]) -> Any:
    """The model, told how large its images are: how many it takes at once, and how much work one is."""
    if isinstance(model, ImageCoFrNet):
        spec, positions = model.spec, shape[1] * shape[2] / model.spec.stem_stride**2
        model.rows_at_once = int(min(512, max(1, NUMBERS_AT_ONCE // (spec.widths[0] * positions))))
        model.work_of_row = int(spec.n_parameters * positions / 16)  # most parameters act where images are small
    return model


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

"""What images come as: arrays, tensors, PIL images; or folders, tables and lists of files, to be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.images import decoded, image_folder, images_in
from cofrnet.images.parquet import image_table

__all__ = ["as_files", "as_images", "goes_to_one", "parts_of"]


def _pixels_of(images: Sequence[Any]) -> list[NDArray[Any]]:
    """A list of arrays; PIL images are read as files are: in colour, unless all are grey."""
    if not any(hasattr(image, "convert") for image in images):
        return [np.asarray(image) for image in images]
    grey = all(image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16") for image in images)
    return [decoded(image, channels=1 if grey else 3) for image in images]


def goes_to_one(X: Any) -> bool | None:
    """Whether images are floats from 0 to 1; None where they are no floats."""
    if isinstance(X, Tensor):
        return float(X.max()) <= 1.0 if X.is_floating_point() else None
    parts = _pixels_of(X) if isinstance(X, list | tuple) else [np.asarray(X)]
    return max(float(part.max()) for part in parts) <= 1.0 if parts[0].dtype.kind == "f" else None


def parts_of(count: int, size: int) -> list[range]:
    """Places from 0 to count, so many at a time."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def as_files(X: Any, y: Any) -> tuple[list[Any] | None, Any]:
    """Images that are to be read, and their labels, where X is a folder, a table or a list of files; else None, and y.

    What is to be read is a path, or has `read_bytes`.
    """
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "OU":
        X = X.tolist()
    if isinstance(X, str | Path):
        path = Path(X)
        if path.suffix.lower() == ".parquet":
            return list(image_table(path)[0]), y
        if path.is_file():
            return [path], y
        if path.is_dir() and not any(own.is_dir() and own.name[0] != "." for own in path.iterdir()):
            return list(images_in(path)), y  # images without labels
        files, codes, names = image_folder(path)
        return files, np.array(names)[codes] if y is None else y
    if isinstance(X, list | tuple) and len(X) and all(isinstance(i, str) or hasattr(i, "read_bytes") for i in X):
        return [Path(item) if isinstance(item, str) else item for item in X], y
    return None, y


def as_images(X: Any, to_one: bool | None = None) -> Tensor:
    """Images as a tensor (n, channels, h, w) of uint8 or float32, pixels from 0 to 255.

    An array is (n, h, w) or (n, h, w, channels), a tensor (n, channels, h, w); or a list of such images, or of PIL
    images. Pixels of uint16 go to 65535. Floats go to 1 or to 255, as `to_one` says; None looks at the largest.
    """
    if isinstance(X, Tensor):
        images = X.detach()
    else:
        if isinstance(X, list | tuple):
            X = _pixels_of(X)
            shapes = {image.shape for image in X}
            if len(shapes) > 1:
                raise ValueError(f"images must have one size; got {sorted(shapes)[:3]}. Resize them.")
        array = np.asarray(X)
        if array.dtype.kind not in "uif" or array.ndim not in (3, 4):
            raise ValueError(
                "X must be images: numbers of shape (n, h, w) or (n, h, w, channels); "
                f"got {array.dtype} of shape {array.shape}."
            )
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        images = torch.from_numpy(np.ascontiguousarray(array if array.ndim == 4 else array[..., None]))
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or 0 in images.shape[1:] or images.shape[1] not in (1, 3, 4):
        raise ValueError(
            "X must be images of 1, 3 or 4 channels and at least one pixel; "
            f"got shape (n, channels, h, w) = {tuple(images.shape)}."
        )
    if images.dtype == torch.uint8:
        return images
    values = images.to(torch.float32)
    if images.dtype == torch.uint16:
        return values / 257
    if not bool(torch.isfinite(values).all()):
        raise ValueError("images must be finite; got NaN or infinity. Mend or drop them.")
    low, high = (float(end) for end in values.aminmax()) if values.numel() else (0.0, 0.0)
    if images.is_floating_point() and (high <= 1.0 if to_one is None else to_one):
        values, low, high = 255 * values, 255 * low, 255 * high
    if low < -0.01 or high > 255.01:
        raise ValueError(
            f"pixels must be from 0 to 255, floats from 0 to 255 or to 1, uint16 to 65535; got {low:g} to {high:g}"
            f"{' (floats were to 1 in training)' if to_one else ''}. Scale them."
        )
    return values

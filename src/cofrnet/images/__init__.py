"""Images in files: folders of them, and how one is read, with suspicion."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ImageError", "decoded", "image_folder", "image_name", "images_in"]

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MOST_PIXELS = 100_000_000  # of one file: a small file can claim to be a picture that fills the memory


class ImageError(ValueError):
    """A file that is no image, or one that cannot be read."""


def image_folder(folder: str | os.PathLike[str]) -> tuple[list[Path], NDArray[np.int64], list[str]]:
    """Files of images, their classes by number, and names of classes, of a folder laid out as ImageNet is.

        folder/class/anything/image.jpeg

    Classes are the folders in alphabetical order; hidden files and files of other kinds are left out. No image is
    opened: those that cannot be read are met when they are read.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} must be a folder with one folder of images for each class; there is none.")
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files: list[Path] = []
    labels: list[int] = []
    strange = next((name for name in names if not _is_text(name)), None)
    if strange is not None:
        raise ValueError(f"names of folders must be UTF-8, being labels; got {strange!r} in {root}. Rename it.")
    for label, name in enumerate(names):
        found = images_in(root / name)
        if not found:
            raise ValueError(
                f"each folder in {root} must hold images of a class; {name!r} has none that end with "
                f"{', '.join(IMAGE_ENDINGS)}. Remove it, or put images there."
            )
        files += found
        labels += [label] * len(found)
    if not files:
        raise ValueError(f"{root} must hold one folder of images for each class; it has no folders.")
    return files, np.array(labels, dtype=np.int64), names


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def images_in(folder: str | os.PathLike[str]) -> list[Path]:
    """All files of images in a folder and the folders in it, hidden ones left out."""
    root = Path(folder)
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix.lower() in IMAGE_ENDINGS
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
    )


def image_name(source: Any) -> str:
    """A short name of what an image is read from."""
    return str(getattr(source, "name", source))


def decoded(source: Any, size: tuple[int, int] | None = None, channels: int = 3) -> NDArray[np.uint8]:
    """An image as (h, w, channels) of uint8: a path, whatever has `read_bytes`, a file, bytes or a PIL image.

    Its shorter side is scaled to that of `size`, (h, w), and the middle cut out. 16-bit grey is scaled down, what is
    transparent is put on white, and a file may turn the picture by its orientation. Whatever is wrong is an
    `ImageError` that names the file and says what.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ImportError("reading images needs Pillow. Install it with: pip install 'cofrnet[images]'") from None

    source = Path(source) if isinstance(source, str) else source
    name = str(source) if hasattr(source, "read_bytes") else "an image"
    try:
        if hasattr(source, "read_bytes"):
            source = source.read_bytes()
        if isinstance(source, bytes):
            source = io.BytesIO(source)
        image = source if isinstance(source, Image.Image) else Image.open(source)
        if image.width * image.height > MOST_PIXELS:
            raise ImageError(f"{name} must have at most {MOST_PIXELS} pixels; it has {image.width} by {image.height}.")
        if 0 in image.size:
            raise ImageError(f"{name} must have pixels; it is {image.width} by {image.height}.")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image.load()
        image = ImageOps.exif_transpose(image)
    except ImageError:
        raise
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError,
            Image.DecompressionBombWarning, IndexError, TypeError, AttributeError, MemoryError) as error:  # fmt: skip
        why = "it is of no kind that is known" if isinstance(error, UnidentifiedImageError) else str(error)[:200]
        raise ImageError(f"{name} must be an image that can be read; it cannot ({why}).") from error
    return _fitted(_plain(image, channels), size)


def _plain(image: Any, channels: int) -> Any:
    """The image in grey or colour of eight bits."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        high = float(values.max(initial=0))
        most = 1.0 if image.mode == "F" and high <= 1 else 255.0
        most = 65535.0 if image.mode.startswith("I;16") or high > 255 else most
        image = Image.fromarray((np.clip(values, 0, most) * (255 / most)).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("L" if channels == 1 else "RGB")


def _fitted(image: Any, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    from PIL import ImageOps

    if size is not None and (image.height, image.width) != size:
        image = ImageOps.fit(image, (size[1], size[0]))
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels

"""Images for the commands: folders, files and tables of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["image_batches", "image_sources", "reads_images"]

AT_ONCE = 512  # images


def reads_images(model: Any) -> bool:
    """Whether a model reads images."""
    return hasattr(model, "shape_")


def image_sources(data: str, target: str | None = None, image: str | None = None) -> tuple[list[Any], Any]:
    """Images that DATA names, to be read, and their labels: folders in it, or a column of Parquet; None for none.

    DATA is a folder of folders, a folder of images, one image, or a Parquet file with a column of bytes.
    """
    import numpy as np

    from cofrnet.images import IMAGE_ENDINGS, image_folder
    from cofrnet.images.parquet import image_table

    path = Path(data)
    if path.is_file():
        return image_table(path, target, image) if path.suffix == ".parquet" else ([path], None)
    if target is not None and path.is_dir():
        raise typer.BadParameter("a folder has no columns: its folders are the labels. Leave --target out.")
    if path.is_dir() and not any(own.is_dir() and not own.name.startswith(".") for own in path.iterdir()):
        found = sorted(own for own in path.iterdir() if own.suffix.lower() in IMAGE_ENDINGS and own.name[0] != ".")
        if not found:
            raise ValueError(f"{path} must hold images, or a folder of them for each class; it has none.")
        return list(found), None
    files, codes, names = image_folder(path)
    return list(files), np.array(names)[codes]


def image_batches(data: str) -> Iterator[tuple[list[Any], pa.Table]]:
    """Images that DATA names, a few hundred at a time, and a table of their names."""
    import pyarrow as pa

    sources, _ = image_sources(data)
    for start in range(0, len(sources), AT_ONCE):
        part = sources[start : start + AT_ONCE]
        yield part, pa.table({"image": [str(own) for own in part]})

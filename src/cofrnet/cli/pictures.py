"""Images for the commands: folders, files and tables of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cofrnet.cli.output import warn

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["image_batches", "image_sources", "readable", "reads_images"]

AT_ONCE = 512  # images


def reads_images(model: Any) -> bool:
    """Whether a model reads images."""
    return hasattr(model, "shape_")


def image_sources(
    data: str, target: str | None = None, image: str | None = None, labelled: bool = True
) -> tuple[list[Any], Any]:
    """Images that DATA names, to be read, and their labels: folders in it, or a column of Parquet; None for none.

    DATA is a folder of folders, a folder of images, one image, or a Parquet file with a column of bytes. Where they
    need not be `labelled`, all images in a folder and the folders in it are taken.
    """
    import numpy as np

    from cofrnet.images import image_folder, images_in
    from cofrnet.images.parquet import image_table

    path = Path(data)
    if path.is_file():
        return image_table(path, target, image) if path.suffix.lower() == ".parquet" else ([path], None)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} must be a folder of images, an image or a Parquet file; there is none.")
    if target is not None and path.is_dir():
        raise typer.BadParameter("a folder has no columns: its folders are the labels. Leave --target out.")
    found = images_in(path)
    if not found:
        raise ValueError(f"{path} must hold images, or a folder of them for each class; it has none.")
    if not labelled or not any(own.is_dir() and own.name[0] != "." for own in path.iterdir()):
        return list(found), None
    files, codes, names = image_folder(path)
    if len(files) < len(found):
        warn(f"{len(found) - len(files)} images of {path} are in no folder of a class, and are left out.")
    return list(files), np.array(names)[codes]


def readable(sources: list[Any], rows: Any) -> Any:
    """Those of the rows whose images can be read."""
    import numpy as np

    from cofrnet.images import ImageError, decoded

    def reads(source: Any) -> bool:
        try:
            decoded(source)
        except ImageError:
            return False
        return True

    return np.array([i for i in rows if reads(sources[i])], dtype=np.int64)


def image_batches(data: str, image: str | None = None) -> Iterator[tuple[list[Any], pa.Table]]:
    """Images that DATA names, a few hundred at a time, and a table of their names."""
    import pyarrow as pa

    sources, _ = image_sources(data, image=image, labelled=False)
    for start in range(0, len(sources), AT_ONCE):
        part = sources[start : start + AT_ONCE]
        names = [str(own).encode("utf-8", "backslashreplace").decode() for own in part]
        yield part, pa.table({"image": names})

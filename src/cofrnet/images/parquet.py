"""Images in Parquet: a column of bytes, as data sets of images are often shared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cofrnet.images import ImageError

__all__ = ["StoredImage", "image_table"]

ROWS = 256  # read at once: images may be large

_unpacked: dict[tuple[str, str, float], tempfile.TemporaryDirectory[str]] = {}  # removed when the process ends


@dataclass(frozen=True)
class StoredImage:
    """The bytes of an image in a row of a table; they are read when they are asked for."""

    table: str
    row: int
    memory: str
    column: str

    def read_bytes(self) -> bytes:
        """The image as its file would be; empty where the row has none."""
        found: bytes | None = _column(self.memory)[self.row].as_py()
        return found or b""

    def __str__(self) -> str:
        return f"row {self.row} of {self.table}"

    @property
    def name(self) -> str:
        """A short name."""
        return f"row {self.row}"


@lru_cache(maxsize=8)
def _column(memory: str) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(memory)).read_all()["image"]


def image_table(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | None = None,
    image: str | None = None,
) -> tuple[list[StoredImage], Any]:
    """Images of one or several Parquet files, and their labels where the column `target` is named, else None.

    `image` is the column of bytes, or of structs with bytes; by default the only one there is. The bytes are copied to
    a temporary file that is mapped into memory, so that images can be read in any order and never fill the memory.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet as pq

    many = [path] if isinstance(path, str | os.PathLike) else list(path)
    images: list[StoredImage] = []
    labels: list[Any] = []
    for own in map(Path, many):
        try:
            file = pq.ParquetFile(own)
        except pa.ArrowInvalid as error:
            raise ImageError(f"{own} must be a Parquet file; it cannot be read as one ({error}).") from None
        schema = file.schema_arrow
        name = _image_column(schema, image, own)
        if target is not None and target not in schema.names:
            raise ImageError(f"{own} must have a column {target!r}; its columns are {', '.join(schema.names)}.")
        memory = _in_memory(file, name, own)
        images += [StoredImage(str(own), row, memory, name) for row in range(file.metadata.num_rows)]
        if target is not None:
            labels += file.read([target])[target].to_pylist()
    if not images:
        raise ImageError(f"{', '.join(map(str, many))} must have rows; there are none.")
    if None in labels:
        raise ImageError(f"column {target!r} must have a label for each image; row {labels.index(None)} has none.")
    return images, None if target is None else np.array(labels)


def _image_column(schema: Any, image: str | None, path: Path) -> str:
    """The column of images: as named, or the only one of bytes."""
    found = [field.name for field in schema if _holds_bytes(field.type)]
    if image is not None and image not in found:
        raise ImageError(f"column {image!r} of {path} must hold bytes; the columns that do are {found}.")
    if image is None and len(found) != 1:
        raise ImageError(
            f"{path} must have one column of bytes, for the images; it has {len(found)}: {found}. Name it."
        )
    return image or str(found[0])


def _holds_bytes(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _in_memory(file: Any, name: str, path: Path) -> str:
    """The file that the bytes of a column are mapped from, written when first asked for."""
    import pyarrow as pa

    key = (str(path.resolve()), name, path.stat().st_mtime)
    if key not in _unpacked:
        folder = tempfile.TemporaryDirectory(prefix="cofrnet-images-")
        schema = pa.schema([("image", pa.large_binary())])
        with pa.ipc.new_file(str(Path(folder.name) / "images.arrow"), schema) as sink:
            for batch in file.iter_batches(ROWS, columns=[name]):
                column = batch.column(0)
                column = column.field("bytes") if pa.types.is_struct(column.type) else column
                sink.write_batch(pa.record_batch([column.cast(pa.large_binary())], schema=schema))
        _unpacked[key] = folder
    return str(Path(_unpacked[key].name) / "images.arrow")

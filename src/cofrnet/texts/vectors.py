"""Vectors of words, as GloVe and word2vec write them."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["read_vectors", "reduced"]


def read_vectors(
    path: str | os.PathLike[str], most: int | None = None, only: set[str] | None = None
) -> tuple[list[str], NDArray[np.float32]]:
    """Words and their vectors, (words, width), of a text file: plain, gz or zst.

    A line is a word, which may have spaces in it, and numbers. `most` reads the first lines only, which are those of
    the most frequent words; `only` keeps these words, so that a large file need not fit into memory.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    width = 0
    with pa.input_stream(str(path), compression="detect") as stream:
        text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", errors="replace", newline="\n")
        for number, line in enumerate(text):
            fields = line.rstrip("\r\n ").split(" ")
            if number == 0 and len(fields) == 2:
                continue  # word2vec says first how many words and numbers there are
            width = width or len(fields) - 1
            if most is not None and len(words) >= most:
                break
            word = " ".join(fields[: max(1, len(fields) - width)])
            if only is not None and word not in only:
                continue
            rows.append(_numbers(fields[len(fields) - width :] if len(fields) > width else [], width, word, path))
            words.append(word)
    if not width:
        raise ValueError(f"{path} must have words and numbers; it has none.")
    return words, np.stack(rows) if rows else np.empty((0, width), dtype=np.float32)


def _numbers(fields: list[str], width: int, word: str, path: Any) -> NDArray[np.float32]:
    try:
        found = np.array(fields, dtype=np.float32)
    except ValueError:
        found = np.full(width, np.nan, dtype=np.float32)
    if len(found) != width or width == 0 or not np.isfinite(found).all():
        raise ValueError(
            f"{path} must have a word and {max(width, 1)} finite numbers on each line, as on the first; the line of "
            f"{word!r:.60} does not."
        )
    return found


def reduced(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The vectors in fewer dimensions, those of their principal components; as they are where they have no more."""
    if vectors.shape[1] <= width:
        return vectors
    centred = vectors.astype(np.float64) - vectors.mean(0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :width]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(width)])  # an axis has two directions: one is chosen
    found: NDArray[np.float32] = (centred @ (axes * signs)).astype(np.float32)
    return found

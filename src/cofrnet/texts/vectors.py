"""Vectors of words, as GloVe and word2vec write them."""

from __future__ import annotations

import io
import os

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["read_vectors", "reduced"]


def read_vectors(path: str | os.PathLike[str], most: int | None = None) -> tuple[list[str], NDArray[np.float32]]:
    """Words and their vectors, (words, width), of a text file: plain, gz or zst.

    `most` reads the first words only, which are the most frequent.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    with pa.input_stream(str(path), compression="detect") as stream:
        for line in io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", errors="replace"):
            word, *numbers = line.rstrip("\r\n ").split(" ")
            if len(numbers) == 1 and not rows:
                continue  # word2vec says first how many there are
            try:
                rows.append(np.array(numbers, dtype=np.float32))
            except ValueError:
                rows.append(np.empty(0, dtype=np.float32))
            if len(rows[-1]) != len(rows[0]) or not len(rows[0]) or not np.isfinite(rows[-1]).all():
                raise ValueError(
                    f"{path} must have a word and as many numbers on each line; line of {word!r:.60} has "
                    f"{len(rows[-1])}, the first {len(rows[0])}."
                )
            words.append(word)
            if len(words) == most:
                break
    if not rows:
        raise ValueError(f"{path} must have words and numbers; it has none.")
    return words, np.stack(rows)


def reduced(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The vectors in fewer dimensions, those of their principal components; as they are where they have no more."""
    if vectors.shape[1] <= width:
        return vectors
    centred = vectors.astype(np.float64) - vectors.mean(0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :width]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(width)])  # an axis has two directions: one is chosen
    found: NDArray[np.float32] = (centred @ (axes * signs)).astype(np.float32)
    return found

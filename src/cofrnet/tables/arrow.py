"""Arrow without what it takes a while to import: its parts are imported when they are first used, pandas never."""

from collections.abc import Iterable
from importlib import import_module
from itertools import accumulate
from struct import pack
from typing import Any

import pyarrow as pa

__all__ = ["arrow_json", "in_memory", "nothing", "pc", "pq", "strings"]


class _Later:
    """A module that is not there before one of its names is asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)


arrow_json: Any = _Later("pyarrow.json")
pc: Any = _Later("pyarrow.compute")
pq: Any = _Later("pyarrow.parquet")


def strings(values: Iterable[str]) -> pa.StringArray:
    """A column of texts. `pa.array` would make one, but imports pandas first, to ask whether they are of it."""
    texts = [value.encode() for value in values]
    ends = pack(f"={len(texts) + 1}i", *accumulate(map(len, texts), initial=0))
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def in_memory(content: bytes) -> pa.BufferReader:
    """Bytes to read, in memory of Arrow: its threads let go of it when they like, even when Python is ending.

    To let go of Python's own they would need its lock, which is not given to them then, and the process would abort.
    """
    own = pa.BufferOutputStream()
    own.write(content)
    return pa.BufferReader(own.getvalue())


def nothing(kind: pa.DataType) -> pa.Scalar:
    """A missing value of a kind; `pa.scalar`, too, would import pandas, and so do functions of Arrow that get None."""
    return pa.nulls(1, kind)[0]

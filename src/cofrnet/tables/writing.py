"""Tables written to files, part by part; a file appears under its name when it is whole."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import csv

from cofrnet.files import written_whole
from cofrnet.tables.arrow import pq
from cofrnet.tables.formats import COMPRESSIONS, SUFFIXES, Format
from cofrnet.tables.kinds import TableError, as_text, with_column

__all__ = ["writer"]


@contextmanager
def writer(path: str | os.PathLike[str], format: Format | None = None) -> Iterator[Any]:  # noqa: A002
    """A function that writes tables, one after the other; the file appears under its name when all are written."""
    if str(path) == "-":
        with _sink(sys.stdout.buffer, format or "csv") as write:
            yield write
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    suffixes = [s.lower() for s in path.suffixes]
    kind: Any = format or next((SUFFIXES[s] for s in reversed(suffixes) if s in SUFFIXES), None)
    if kind is None:
        raise TableError(f"{path} must end in one of {', '.join(SUFFIXES)}, maybe with .gz or .zst; it does not.")
    packed = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    between = "\t" if ".tsv" in suffixes else ","
    with (
        written_whole(path) as temporary,
        pa.output_stream(str(temporary), compression=packed) as stream,
        _sink(stream, kind, between) as write,
    ):
        yield write


def _as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists and the like as texts, for formats that have no others."""
    texts = (None if value is None else json.dumps(value, default=str) for value in column.to_pylist())
    return pa.chunked_array([list(texts)], type=pa.string())


@contextmanager
def _sink(stream: BinaryIO, kind: Format, between: str = ",") -> Iterator[Any]:
    opened: list[Any] = []

    def write(table: pa.Table) -> None:
        for name in table.column_names:
            own = table[name].type
            views = kind == "csv" and pa.types.is_string_view(own)
            if views or pa.types.is_dictionary(own):  # files of several parts hold no changing dictionaries
                table = with_column(table, name, as_text(table[name]))
            elif kind == "csv" and pa.types.is_nested(own):
                table = with_column(table, name, _as_json(table[name]))
        if kind == "jsonl":
            rows = ({k: None if v != v else v for k, v in row.items()} for row in table.to_pylist())
            stream.write("".join(json.dumps(row, default=str, allow_nan=False) + "\n" for row in rows).encode())
            return
        if not opened:
            if kind == "csv":
                style = csv.WriteOptions(quoting_style="needed", delimiter=between)
                opened.append(csv.CSVWriter(stream, table.schema, write_options=style))
            elif kind == "parquet":
                opened.append(pq.ParquetWriter(stream, table.schema))
            else:
                opened.append(pa.ipc.new_file(stream, table.schema))
        opened[0].write_table(table)

    try:
        yield write
    finally:
        for own in opened:
            own.close()

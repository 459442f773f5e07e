"""Tables in files: CSV, Parquet, Arrow and JSON lines, read whole or batch by batch, and written the same ways.

Columns come out as Arrow numbers, dates, bools and dictionaries of strings. CSV and JSON may be compressed (gz, zst,
bz2), and "-" is standard input or output. A file is written under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, BinaryIO, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, feather
from pyarrow import json as arrow_json
from pyarrow import parquet as pq

__all__ = [
    "MISSING",
    "Format",
    "Kind",
    "TableError",
    "ahead",
    "batches",
    "column_names",
    "kind_of",
    "read_table",
    "writer",
]

Format: TypeAlias = Literal["csv", "parquet", "arrow", "jsonl"]
Kind: TypeAlias = Literal["number", "category", "date", "bool"]

SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".data": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
STARTS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow", b"{": "jsonl"}
COMPRESSED_STARTS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}

MISSING = ("", " ", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>")
BLOCK = 4 * 2**20  # bytes of CSV at once
ROWS = 131_072  # of Parquet at once


class TableError(ValueError):
    """A file is no table that can be read; the message says what is wrong and what to do."""


# ---------------------------------------------------------------------------------------------- reading


def read_table(path: str | os.PathLike[str], format: Format | None = None, text: Sequence[str] = ()) -> pa.Table:  # noqa: A002
    """The whole table. `text` names columns that stay text however much they look like numbers."""
    with _opened(path, format) as (source, kind, options), _explained(path):
        if kind == "csv":
            convert = _convert({name: pa.string() for name in text})
            table = csv.read_csv(source, csv.ReadOptions(block_size=BLOCK), options, convert)
        elif kind == "jsonl":
            table = arrow_json.read_json(source, arrow_json.ReadOptions(block_size=BLOCK))
        elif kind == "parquet":
            table = pq.read_table(source)
        else:
            table = _arrow_file(source)
        _require_columns(table.schema.names, path)
        for name in text:
            if name in table.column_names:
                table = _with(table, name, _as_text(table[name]))
        return _plain(table)


def column_names(path: str | os.PathLike[str], format: Format | None = None) -> list[str]:  # noqa: A002
    """Names of the columns of a file; of JSON lines, those of its first rows."""
    with _opened(path, format) as (source, kind, options), _explained(path):
        if kind == "csv":
            return _header(source, options, path)[1]
        if kind == "parquet":
            return list(pq.read_schema(source).names)
        if kind == "jsonl":
            with arrow_json.open_json(source) as reader:
                return list(reader.schema.names)
        return list(_arrow_file(source).schema.names)


def batches(
    path: str | os.PathLike[str],
    kinds: Mapping[str, Kind],
    format: Format | None = None,  # noqa: A002
    others: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """Parts of a table, one after the other, in bounded memory; each with its columns of the given kinds.

    `others` are columns to have as they come; the rest is not read.
    """
    wanted = [*kinds, *(name for name in others if name not in kinds)]
    with _opened(path, format) as (source, kind, options), _explained(path):
        for part in _parts(source, kind, options, kinds, wanted, path):
            _require_columns(part.schema.names, path)
            absent = [name for name in wanted if name not in part.schema.names]
            if absent:
                raise TableError(
                    f"{_name(path)} must have the columns that the model reads; it has no {absent[0]!r}. "
                    f"Its columns are {part.schema.names[:20]}."
                )
            table = part.select(wanted)
            for name, own in kinds.items():
                table = _with(table, name, _as_kind(table[name], own, name, path))
            yield _plain(table)


def ahead(parts: Iterator[pa.Table], most: int = 2) -> Iterator[pa.Table]:
    """The same parts, read in a thread of its own while the last one is worked on; so many wait at most."""
    waiting: Queue[Any] = Queue(most)
    left = Event()

    def read() -> None:
        try:
            for part in parts:
                waiting.put((part, None))
                if left.is_set():
                    return
            waiting.put((None, None))
        except BaseException as error:  # is raised where the parts are used
            waiting.put((None, error))

    thread = Thread(target=read, daemon=True)
    thread.start()
    try:
        while True:
            part, error = waiting.get()
            if error is not None:
                raise error
            if part is None:
                return
            yield part
    finally:
        left.set()
        while thread.is_alive():
            with suppress(Empty):
                waiting.get(timeout=0.1)


def _parts(
    source: Any, kind: str, options: Any, kinds: Mapping[str, Kind], wanted: list[str], path: Any
) -> Iterator[Any]:
    if kind == "csv":
        source, names = _header(source, options, path)
        known = {"number": pa.float64(), "category": pa.string(), "bool": pa.bool_()}
        types = {name: known[own] for name, own in kinds.items() if own in known and name in names}
        convert = _convert(types, [name for name in wanted if name in names])
        with _naming(names):
            yield from map(_table, csv.open_csv(source, csv.ReadOptions(block_size=BLOCK), options, convert))
    elif kind == "jsonl":
        with arrow_json.open_json(source, arrow_json.ReadOptions(block_size=BLOCK)) as reader:
            yield from map(_table, reader)
    elif kind == "parquet":
        file = pq.ParquetFile(source)
        some = [name for name in wanted if name in file.schema_arrow.names]
        yield from map(_table, file.iter_batches(ROWS, columns=some))
    else:
        yield _arrow_file(source)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _arrow_file(source: Any) -> pa.Table:
    """An Arrow file, an Arrow stream, or a Feather file of the first version."""
    content = source if isinstance(source, str) else pa.BufferReader(source.read())
    try:
        return feather.read_table(content)
    except pa.ArrowInvalid:
        stream = pa.OSFile(content) if isinstance(content, str) else content
        stream.seek(0)
        return pa.ipc.open_stream(stream).read_all()


@contextmanager
def _opened(path: str | os.PathLike[str], format: Format | None) -> Iterator[tuple[Any, Format, Any]]:  # noqa: A002
    """What Arrow reads from, the format, and for CSV how it is written."""
    if str(path) == "-":
        stream: Any = sys.stdin.buffer
        start = stream.peek(8)[:8] if hasattr(stream, "peek") else b""
    else:
        file = Path(path)
        if file.is_dir():
            raise TableError(f"{path} must be a file; it is a folder. Name a file in it.")
        with file.open("rb") as opened:
            start = opened.read(8)
        stream = str(file)
    suffixes = [] if str(path) == "-" else [s.lower() for s in Path(path).suffixes]
    packed = next((COMPRESSIONS[s] for s in suffixes[-1:] if s in COMPRESSIONS), None)
    packed = packed or next((name for sign, name in COMPRESSED_STARTS.items() if start.startswith(sign)), None)
    by_start = next((name for sign, name in STARTS.items() if start.startswith(sign)), "csv")
    kind: Any = format or next((SUFFIXES[s] for s in reversed(suffixes) if s in SUFFIXES), by_start)
    if kind in ("parquet", "arrow"):
        if str(path) == "-":
            stream = pa.BufferReader(stream.read())
        yield stream, kind, None
        return
    with pa.input_stream(stream, compression=packed, buffer_size=2**20) as unpacked:
        if kind == "csv":
            source = _Peekable(unpacked)
            yield source, kind, _dialect(source.peek(), path)
        else:
            yield unpacked, kind, None


class _Peekable:
    """A stream whose first megabyte can be looked at before it is read."""

    def __init__(self, stream: Any, start: bytes | None = None) -> None:
        self._stream, self._start, self.closed = stream, start, False

    def peek(self) -> bytes:
        if self._start is None:
            with _explained("the file"):
                self._start = bytes(self._stream.read(2**20))
        return self._start

    def read(self, size: int = -1) -> bytes:
        start = self.peek()
        if not start:
            return bytes(self._stream.read() if size < 0 else self._stream.read(size))
        if size < 0:
            self._start = b""
            return start + bytes(self._stream.read())
        self._start = start[size:]
        return start[:size]

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _dialect(start: bytes, path: Any) -> csv.ParseOptions:
    """How a CSV file is written, from its first bytes: what stands between the columns."""
    if not start.strip():
        raise TableError(f"{_name(path)} must have a line of column names; it is empty.")
    if b"\0" in start:
        raise TableError(f"{_name(path)} must be text; it has zero bytes. Say what it is with --format.")
    line = start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    unquoted = b"".join(line.split(b'"')[::2])
    between = max(b",;\t|", key=lambda sign: unquoted.count(bytes([sign])))
    return csv.ParseOptions(delimiter=chr(between), newlines_in_values=True)


def _header(source: _Peekable, options: csv.ParseOptions, path: Any) -> tuple[_Peekable, list[str]]:
    """The names of the columns, and the source as it was."""
    start = source.peek().split(b"\n", 1)[0].rstrip(b"\r") + b"\n"
    with _explained(path):
        return source, csv.read_csv(pa.BufferReader(start), parse_options=options).schema.names


def _convert(types: Mapping[str, pa.DataType], columns: Sequence[str] | None = None) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        column_types=types,
        null_values=list(MISSING),
        strings_can_be_null=True,
        include_columns=columns,
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )


def _require_columns(names: Sequence[str], path: Any) -> None:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise TableError(f"columns of {_name(path)} must have different names; {twice!r} is there twice. Rename one.")
    if not names:
        raise TableError(f"{_name(path)} must have columns; it has none.")


@contextmanager
def _naming(names: Sequence[str]) -> Iterator[None]:
    """Errors of Arrow with the name of the column instead of its number."""
    try:
        yield
    except pa.ArrowInvalid as error:
        text = re.sub(r"CSV column #(\d+)", lambda found: f"column {names[int(found[1])]!r}", str(error))
        raise pa.ArrowInvalid(text) from None


@contextmanager
def _explained(path: Any) -> Iterator[None]:
    """Errors of Arrow as ours."""
    try:
        yield
    except pa.ArrowInvalid as error:
        text = str(error)
        remedy = "Check the file."
        if "UTF8" in text or "UTF-8" in text:
            remedy = "Convert it to UTF-8, for example with: iconv -f latin1 -t utf8."
        elif "CSV parse error" in text:
            remedy = "Mend or remove that line."
        elif "conversion error" in text:
            remedy = "The model was fitted to another kind of column: mend the value, or fit again."
        raise TableError(f"{_name(path)} must be a table that can be read; {text}. {remedy}") from None
    except (pa.ArrowException, EOFError) as error:
        raise TableError(f"{_name(path)} must be a table that can be read; {error}.") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise TableError(f"{_name(path)} must be whole; {error}. Get the file again.") from None


def _name(path: Any) -> str:
    return "standard input" if str(path) == "-" else str(path)


# ---------------------------------------------------------------------------------------------- types


def kind_of(column: pa.ChunkedArray) -> Kind:
    """What a column of `read_table` is."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_dictionary(kind):
        return "category"
    return "date" if pa.types.is_temporal(kind) else "number"


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _plain(table: pa.Table) -> pa.Table:
    """Columns as numbers, dates, bools and dictionaries of strings; anything else is an error that names it."""
    for name in table.column_names:
        column = table[name]
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = column.dictionary_encode()
        elif pa.types.is_null(kind) or pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        elif pa.types.is_time(kind):
            unit = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
            whole = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
            column = pc.divide(whole.cast(pa.float64()), unit)  # seconds since midnight
        elif pa.types.is_dictionary(kind):
            column = column if pa.types.is_string(kind.value_type) else _as_text(column).dictionary_encode()
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise TableError(
                f"column {name!r} must be text in UTF-8; it is not. Convert the file, for example with: "
                "iconv -f latin1 -t utf8."
            )
        elif not (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)):
            raise TableError(f"column {name!r} must hold numbers, text, bools or dates; got {kind}. Leave it out.")
        table = _with(table, name, column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column)
    return table


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _as_kind(column: pa.ChunkedArray, kind: Kind, name: str, path: Any) -> pa.ChunkedArray:
    """A column as the model had it in training."""
    found = column.type
    text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_dictionary(found)
    if kind == "category":
        return column if text else _as_text(column)
    if kind == "bool":
        if pa.types.is_boolean(found):
            return column
        return column if text else _as_text(column)
    if kind == "number" and (pa.types.is_time(found) or pa.types.is_null(found)):
        return column
    if text:
        values = pc.drop_null(column.cast(pa.string()) if pa.types.is_dictionary(found) else column)
        if len(values) == 0:
            return pa.nulls(len(column), pa.float64())
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.float64() if kind == "number" else pa.timestamp("us"))
        wanted = "numbers" if kind == "number" else "dates"
        raise TableError(
            f"column {name!r} of {_name(path)} must hold {wanted}, as it did in training; got {values[0].as_py()!r}. "
            "Mend the column, or fit the model again."
        )
    if kind == "date" and not (pa.types.is_temporal(found) or pa.types.is_null(found)):
        raise TableError(
            f"column {name!r} of {_name(path)} must hold dates, as it did in training; got {found}. Write them as "
            "2026-01-31, or fit the model again."
        )
    return column


# ---------------------------------------------------------------------------------------------- writing


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
    packed = COMPRESSIONS.get(suffixes[-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        between = "\t" if ".tsv" in suffixes else ","
        with pa.output_stream(temporary, compression=packed) as stream, _sink(stream, kind, between) as write:
            yield write
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _sink(stream: BinaryIO, kind: Format, between: str = ",") -> Iterator[Any]:
    opened: list[Any] = []

    def write(table: pa.Table) -> None:
        if kind == "jsonl":
            stream.write("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()).encode())
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

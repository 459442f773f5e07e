"""Tables read from files, whole or batch by batch."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import csv

from cofrnet.tables.arrow import arrow_json, nothing, pc, pq, strings
from cofrnet.tables.formats import COMPRESSED_STARTS, COMPRESSIONS, NO_TEXT, STARTS, SUFFIXES, Format
from cofrnet.tables.kinds import MISSING, TYPES, Kind, TableError, as_kinds, as_text, name_of, plain, with_column

__all__ = ["ahead", "batches", "column_names", "in_order", "read_table"]

T = TypeVar("T")
R = TypeVar("R")

BLOCK = 4 * 2**20  # bytes of CSV at once
ROWS = 131_072  # of Parquet at once


def read_table(
    path: str | os.PathLike[str],
    format: Format | None = None,  # noqa: A002
    text: Sequence[str] = (),
    without: Sequence[str] = (),
) -> pa.Table:
    """The whole table.

    `text` names columns that stay text however much they look like numbers, `without` those that are left out.
    """
    with _opened(path, format) as (source, kind, options), _explained(path):
        if kind == "csv":
            convert = _convert({name: pa.string() for name in text})
            table = csv.read_csv(source.native(), csv.ReadOptions(block_size=BLOCK), options, convert)
        elif kind == "jsonl":
            table = arrow_json.read_json(source, arrow_json.ReadOptions(block_size=BLOCK))
        elif kind == "parquet":
            table = pq.read_table(source)
        else:
            reader = _arrow_reader(source)
            table = pa.Table.from_batches(_arrow_batches(reader), reader.schema)
        _require_columns(table.schema.names, path)
        table = table.drop_columns([name for name in dict.fromkeys(without) if name in table.column_names])
        for name in text:
            if name in table.column_names:
                table = with_column(table, name, as_text(table[name]))
        return plain(table)


def column_names(path: str | os.PathLike[str], format: Format | None = None) -> list[str]:  # noqa: A002
    """Names of the columns of a file; of JSON lines, those of its first rows."""
    with _opened(path, format) as (source, kind, options), _explained(path):
        if kind == "csv":
            return _header(source, options, path)
        if kind == "parquet":
            return list(pq.read_schema(source).names)
        return list((_json_schema(source, path)[1] if kind == "jsonl" else _arrow_reader(source).schema).names)


def batches(
    path: str | os.PathLike[str],
    kinds: Mapping[str, Kind],
    format: Format | None = None,  # noqa: A002
    others: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """Parts of a table, one after the other, in bounded memory; each with its columns of the given kinds.

    `others` are columns to have beside them, as text where the file is CSV; the rest is not read. There is at least
    one part, if without rows.
    """
    wanted = [*kinds, *(name for name in others if name not in kinds)]
    with _opened(path, format) as (source, kind, options), _explained(path):
        for part in _parts(source, kind, options, kinds, wanted, path):
            yield as_kinds(part.select(wanted), kinds, path)


def ahead(parts: Iterator[pa.Table], most: int = 2) -> Iterator[pa.Table]:
    """The same parts, read in a thread of its own while the last one is worked on; so many wait at most.

    Whoever leaves early does not wait for the thread: it may sit on a pipe that says nothing.
    """
    waiting: Queue[Any] = Queue(most)
    left = Event()

    def put(item: Any) -> None:
        while not left.is_set():
            with suppress(Full):
                waiting.put(item, timeout=0.1)
                return

    def read() -> None:
        try:
            for part in parts:
                put((part, None))
                if left.is_set():
                    return
            put((None, None))
        except BaseException as error:  # is raised where the parts are used
            put((None, error))

    Thread(target=read, daemon=True).start()
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


def in_order(function: Callable[[T], R], parts: Iterable[T], workers: int) -> Iterator[R]:
    """The function of every part, computed by so many threads, in the order of the parts; few are held at once."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Any] = deque()
        for part in parts:
            waiting.append(pool.submit(function, part))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _parts(
    source: Any, kind: str, options: Any, kinds: Mapping[str, Kind], wanted: list[str], path: Any
) -> Iterator[pa.Table]:
    if kind == "csv":
        names = _header(source, options, path)
        _require_columns(names, path, wanted)
        types = {name: pa.float64() if kinds.get(name) == "number" else pa.string() for name in wanted}
        types |= _times_of_day(source, options, [name for name in wanted if kinds.get(name) == "number"])
        convert = _convert(types, wanted, text_may_be_missing=False)  # what is kept stays as it is
        leveled = [name for name, own in kinds.items() if own in ("category", "bool")]
        with _naming(names):
            # Threads of Arrow's own would read several blocks before they gave the first.
            how = csv.ReadOptions(use_threads=False, block_size=BLOCK)
            reader = csv.open_csv(source, how, options, convert)
            for table in _tables(reader, reader.schema):
                for name in leveled:
                    blank = pc.is_in(table[name], strings(MISSING))
                    table = with_column(table, name, pc.if_else(blank, nothing(pa.string()), table[name]))
                yield table
    elif kind == "jsonl":
        source, seen = _json_schema(source, path)
        _require_columns(seen.names, path, [name for name in wanted if name not in kinds])
        told = {name: TYPES.get(own, pa.string()) for name, own in kinds.items() if own in ("number", "category")}
        fields = [pa.field(name, told.get(name) or _wide(seen, name)) for name in wanted]
        read = arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
        with arrow_json.open_json(source, arrow_json.ReadOptions(block_size=BLOCK), read) as reader:
            yield from _tables(reader, reader.schema)
    elif kind == "parquet":
        file = pq.ParquetFile(source, pre_buffer=False)
        _require_columns(file.schema_arrow.names, path, wanted)
        schema = pa.schema([file.schema_arrow.field(name) for name in wanted])
        yield from _tables(file.iter_batches(ROWS, columns=wanted), schema)
    else:
        reader = _arrow_reader(source)
        _require_columns(reader.schema.names, path, wanted)
        yield from _tables(_arrow_batches(reader), reader.schema)


def _times_of_day(source: _Peekable, options: csv.ParseOptions, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Types of the columns among these that hold times such as 12:30:00, by the first rows."""
    start = source.peek()
    whole = start[: start.rfind(b"\n") + 1] or start
    try:
        schema = csv.read_csv(pa.BufferReader(whole), parse_options=options, convert_options=_convert({}, names)).schema
    except pa.ArrowInvalid:  # a line that is not whole, or wrong: the reader will say so
        return {}
    return {field.name: field.type for field in schema if pa.types.is_time(field.type)} if names else {}


def _tables(found: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Parts as tables; one without rows where there are none."""
    some = False
    for batch in found:
        some = True
        yield pa.Table.from_batches([batch])
    if not some:
        yield schema.empty_table()


def _json_schema(source: Any, path: Any) -> tuple[Any, pa.Schema]:
    """The types of the first rows of JSON lines, and the source as it was."""
    start = source.peek()
    lines = start[: start.rfind(b"\n") + 1] or start
    with _explained(path):
        return source, arrow_json.read_json(pa.BufferReader(lines)).schema


def _wide(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column by its first rows; whole numbers may have fractions later."""
    kind = schema.field(name).type if name in schema.names else pa.string()
    return pa.float64() if pa.types.is_integer(kind) else pa.string() if pa.types.is_null(kind) else kind


def _arrow_reader(source: Any) -> Any:
    """A reader of an Arrow file or stream."""
    content = pa.memory_map(source) if isinstance(source, str) else source
    try:
        return pa.ipc.open_file(content)
    except pa.ArrowInvalid:
        content.seek(0)
        return pa.ipc.open_stream(content)


def _arrow_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(i) for i in range(reader.num_record_batches))
    return iter(reader)


@contextmanager
def _opened(path: str | os.PathLike[str], format: Format | None) -> Iterator[tuple[Any, Format, Any]]:  # noqa: A002
    """What Arrow reads from, the format, and for CSV how it is written."""
    if str(path) != "-" and Path(path).is_dir():
        raise TableError(f"{path} must be a file; it is a folder. Name a file in it.")
    piped = str(path) == "-" or (Path(path).exists() and not Path(path).is_file())
    raw: Any = _pipe(path) if piped else Path(path).open("rb")  # noqa: SIM115  (closed below)
    with raw:
        stream = _Peekable(raw, None if piped else str(path))
        start = stream.peek()[:8]
        suffixes = [] if piped else [s.lower() for s in Path(path).suffixes]
        packed = next((COMPRESSIONS[s] for s in suffixes[-1:] if s in COMPRESSIONS), None)
        packed = packed or next((name for sign, name in COMPRESSED_STARTS.items() if start.startswith(sign)), None)
        if packed is not None:
            stream = _Peekable(pa.CompressedInputStream(pa.PythonFile(stream, "r"), packed))
        with _explained(path):
            start = stream.peek()[:8]
        by_start = next((name for sign, name in STARTS.items() if start.startswith(sign)), "csv")
        kind: Any = format or next((SUFFIXES[s] for s in reversed(suffixes) if s in SUFFIXES), by_start)
        if kind in ("parquet", "arrow"):
            yield pa.BufferReader(stream.read()) if piped or packed else str(path), kind, None
        else:
            if kind == "jsonl" and start.lstrip().startswith(b"["):
                raise TableError(
                    f"{name_of(path)} must have one JSON object on each line; it holds one array. Convert it, for "
                    "example with: jq -c '.[]'."
                )
            yield stream, kind, _dialect(stream, path) if kind == "csv" else None


def _pipe(path: Any) -> Any:
    """Standard input, or a pipe with a name; not buffered, so that no thread that waits for it holds a lock."""
    if str(path) != "-":
        return Path(path).open("rb", buffering=0)
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    except (OSError, ValueError):  # standard input that is no file
        return sys.stdin.buffer


class _Peekable:
    """A stream whose first megabyte can be looked at before it is read; `path` is that of a file as it is."""

    def __init__(self, stream: Any, path: str | None = None) -> None:
        self._stream, self._path, self.closed = stream, path, False
        self._start: bytes | None = None
        self._dropped = 0

    def native(self) -> Any:
        """A file as Arrow reads it by itself, before anything was read of it; else the stream.

        Threads of Arrow that read a stream ask for Python's lock, even when a process that has failed is ending.
        """
        if self._path is None:
            return self
        try:
            file = pa.OSFile(self._path)
        except UnicodeEncodeError:  # a name that is no UTF-8
            return self
        file.seek(self._dropped)
        return file

    def peek(self) -> bytes:
        """The first megabyte, or all there is."""
        if self._start is None:
            found = b""
            while len(found) < 2**20 and (more := self._stream.read(2**20 - len(found))):
                found += bytes(more)
            self._start = found
        return self._start

    def drop(self, count: int) -> None:
        """Leave out the first bytes."""
        self._start = self.peek()[count:]
        self._dropped += count

    def read(self, size: int | None = -1) -> bytes:
        """As of any stream."""
        start = self.peek()
        if size is None or size < 0:
            self._start = b""
            parts = [start]
            while more := self._stream.read(2**20):
                parts.append(bytes(more))
            return b"".join(parts)
        if start:
            self._start = start[size:]
            return start[:size]
        return bytes(self._stream.read(size) or b"")

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _dialect(stream: _Peekable, path: Any) -> csv.ParseOptions:
    """How a CSV file is written, from its first bytes: what stands between the columns.

    Empty lines are left out, but where there is one column: there they are rows without a value.
    """
    start = stream.peek()
    if not start.strip():
        raise TableError(f"{name_of(path)} must have a line of column names; it is empty.")
    for sign, what in NO_TEXT.items():
        if start.startswith(sign):
            raise TableError(f"{name_of(path)} must be text in UTF-8; it is {what}.")
    if b"\0" in start:
        raise TableError(f"{name_of(path)} must be text; it has zero bytes. Say what it is with --format.")
    mark = len(b"\xef\xbb\xbf") if start.startswith(b"\xef\xbb\xbf") else 0
    stream.drop(len(start) - len(start[mark:].lstrip(b"\r\n")))
    unquoted = b"".join(_header_line(stream.peek()).split(b'"')[::2])
    between = max(b",;\t|", key=lambda sign: unquoted.count(bytes([sign])))
    one_column = unquoted.count(bytes([between])) == 0
    return csv.ParseOptions(delimiter=chr(between), newlines_in_values=True, ignore_empty_lines=not one_column)


def _header_line(start: bytes) -> bytes:
    """The first line; a name in quotes may have line ends of its own."""
    end = start.find(b"\n")
    while end >= 0 and start[:end].count(b'"') % 2:
        end = start.find(b"\n", end + 1)
    return start if end < 0 else start[:end]


def _header(source: _Peekable, options: csv.ParseOptions, path: Any) -> list[str]:
    """The names of the columns."""
    line = _header_line(source.peek()).rstrip(b"\r") + b"\n"
    with _explained(path):
        return list(csv.read_csv(pa.BufferReader(line), parse_options=options).schema.names)


def _convert(
    types: Mapping[str, pa.DataType], columns: Sequence[str] | None = None, text_may_be_missing: bool = True
) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        column_types=types,
        null_values=list(MISSING),
        strings_can_be_null=text_may_be_missing,
        include_columns=columns,
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )


def _require_columns(names: Sequence[str], path: Any, wanted: Sequence[str] = ()) -> None:
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise TableError(f"columns of {name_of(path)} must have different names; {twice!r} is there twice. Rename one.")
    if not names:
        raise TableError(f"{name_of(path)} must have columns; it has none.")
    absent = next((name for name in wanted if name not in names), None)
    if absent is not None:
        shown = ", ".join(map(repr, names[:20])) + (" ..." if len(names) > 20 else "")
        raise TableError(f"{name_of(path)} must have a column {absent!r}; it has none. Its columns are {shown}.")


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
        raise TableError(f"{name_of(path)} must be a table that can be read; {text}. {remedy}") from None
    except (pa.ArrowException, EOFError) as error:
        raise TableError(f"{name_of(path)} must be a table that can be read; {error}.") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise TableError(f"{name_of(path)} must be whole; {error}. Get the file again.") from None

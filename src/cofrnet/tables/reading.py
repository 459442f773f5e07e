"""Tables read from files, whole or batch by batch."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import csv

from cofrnet.tables.arrow import arrow_json, in_memory, pc, pq
from cofrnet.tables.formats import Format
from cofrnet.tables.kinds import (
    MISSING,
    TYPES,
    Kind,
    TableError,
    as_kinds,
    as_text,
    listed,
    name_of,
    plain,
    with_column,
)
from cofrnet.tables.opening import Peekable, explained, header_line, opened

__all__ = ["ahead", "as_written", "batches", "column_names", "in_order", "leading_zeros", "read_table"]

T = TypeVar("T")
R = TypeVar("R")

BLOCK = 4 * 2**20  # bytes of CSV at once
ROWS = 131_072  # of Parquet at once
EXACT = 2**53  # whole numbers up to it are the same as floats
PATIENCE = 0.5  # seconds to wait for a thread that reads
ZEROS = b"leading zeros"  # what is known of a table beside its columns


def read_table(
    path: str | os.PathLike[str],
    format: Format | None = None,  # noqa: A002
    text: Sequence[str] = (),
    without: Sequence[str] = (),
    codes: Sequence[str] = (),
) -> pa.Table:
    """The whole table.

    `text` names columns that stay text however much they look like numbers, `without` those that are left out, and
    `codes` those that stay text if CSV has them with leading zeros. `leading_zeros` names all that it has so.
    """
    zeros: list[str] = []
    with opened(path, format) as (source, kind, options), explained(path):
        if kind == "csv":
            zeros = _with_leading_zeros(source, options, path)
            text = [*text, *(name for name in codes if name in zeros)]
            convert = _convert({name: pa.string() for name in text})
            table = csv.read_csv(source.native(), csv.ReadOptions(block_size=BLOCK), options, convert)
        elif kind == "jsonl":
            table = arrow_json.read_json(source.native(), arrow_json.ReadOptions(block_size=BLOCK))
        elif kind == "parquet":
            table = pq.read_table(source)
        else:
            reader = _arrow_reader(source)
            table = pa.Table.from_batches(_arrow_batches(reader), reader.schema)
        _require_columns(table.schema.names, path, without)
        table = table.drop_columns(list(dict.fromkeys(without)))
        for name in text:
            if name in table.column_names:
                table = with_column(table, name, as_text(table[name]))
        return plain(table).replace_schema_metadata({ZEROS: json.dumps(zeros)})


def leading_zeros(table: pa.Table) -> list[str]:
    """The columns of `read_table` that CSV has with leading zeros, such as 007, by its first rows."""
    return list(json.loads((table.schema.metadata or {}).get(ZEROS, b"[]")))


def column_names(path: str | os.PathLike[str], format: Format | None = None) -> list[str]:  # noqa: A002
    """Names of the columns of a file; of JSON lines, those of its first rows."""
    with opened(path, format) as (source, kind, options), explained(path):
        return _names(source, kind, options, path)


def as_written(path: str | os.PathLike[str], format: Format | None = None) -> Iterator[pa.Table]:  # noqa: A002
    """Parts of a table, one after the other, with all its columns as they are in the file: those of CSV as text."""
    with opened(path, format) as (source, kind, options), explained(path):
        if kind == "jsonl":  # later rows may have other keys than the first
            first = _first_json(source).schema
            dates = [pa.field(own.name, pa.string()) for own in first if pa.types.is_temporal(own.type)]
            how = arrow_json.ParseOptions(explicit_schema=pa.schema(dates))
            table = arrow_json.read_json(source.native(), arrow_json.ReadOptions(block_size=BLOCK), how)
            yield table.select(list(dict.fromkeys([*first.names, *table.column_names])))
        else:
            yield from _parts(source, kind, options, {}, _names(source, kind, options, path), path)


def batches(
    path: str | os.PathLike[str],
    kinds: Mapping[str, Kind],
    format: Format | None = None,  # noqa: A002
    others: Sequence[str] = (),
    known: Mapping[str, Collection[str]] | None = None,
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Parts of a table, one after the other, in bounded memory: the columns of the given kinds, and the `others`.

    These are as they are in the file, so text where it is CSV, also if they are among the first; the rest is not read.
    `known` are levels that are not missing, even if they look so. There is at least one part, if without rows.
    """
    with opened(path, format) as (source, kind, options), explained(path):
        for part in _parts(source, kind, options, kinds, others, path):
            yield as_kinds(part.select(list(kinds)), kinds, path, known), part.select(list(dict.fromkeys(others)))


def ahead(parts: Iterator[T], most: int = 2) -> Iterator[T]:
    """The same parts, read in a thread of its own while the last one is worked on; so many wait at most.

    Whoever leaves early waits for the thread, so that it does not outlive Python, but not for long: it may sit on a
    pipe that says nothing.
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
        thread.join(PATIENCE)


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


def _names(source: Any, kind: str, options: Any, path: Any) -> list[str]:
    if kind == "csv":
        return _header(source, options, path)
    if kind == "parquet":
        return list(pq.read_schema(source).names)
    return list((_first_json(source).schema if kind == "jsonl" else _arrow_reader(source).schema).names)


def _parts(
    source: Any, kind: str, options: Any, kinds: Mapping[str, Kind], others: Sequence[str], path: Any
) -> Iterator[pa.Table]:
    """Parts with all these columns as they are in the file; numbers of CSV are numbers, if not among the others."""
    wanted = list(dict.fromkeys([*kinds, *others]))
    if kind == "csv":
        names = _header(source, options, path)
        _require_columns(names, path, wanted)
        numbers = [name for name, own in kinds.items() if own == "number" and name not in others]
        types = dict.fromkeys(wanted, pa.string()) | dict.fromkeys(numbers, pa.float64())
        types |= _times_of_day(source, options, numbers)
        with _naming(names):
            # Threads of Arrow's own would read several blocks before they gave the first.
            how = csv.ReadOptions(use_threads=False, block_size=BLOCK)
            convert = _convert(types, wanted, text_may_be_missing=False)
            reader = csv.open_csv(source.native(), how, options, convert)
            yield from _tables(reader, reader.schema)
    elif kind == "jsonl":
        seen = _first_json(source)
        _require_columns(seen.column_names, path, [name for name in wanted if name not in kinds])
        fields = [pa.field(name, _json_type(seen, name, kinds.get(name))) for name in wanted]
        read = arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
        with arrow_json.open_json(source.native(), arrow_json.ReadOptions(block_size=BLOCK), read) as reader:
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


def _times_of_day(source: Peekable, options: csv.ParseOptions, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Types of the columns among these that hold times such as 12:30:00, by the first rows."""
    start = _first_csv(source, options, _convert({}, names)) if names else None
    return {} if start is None else {own.name: own.type for own in start.schema if pa.types.is_time(own.type)}


def _with_leading_zeros(source: Peekable, options: csv.ParseOptions, path: Any) -> list[str]:
    """The columns that hold whole numbers such as 007, by the first rows."""
    start = _first_csv(source, options, _convert(dict.fromkeys(_header(source, options, path), pa.string())))
    if start is None:
        return []
    found = (pc.any(pc.match_substring_regex(column, r"^\s*[-+]?0\d+\s*$")).as_py() for column in start.columns)
    return [name for name, zeros in zip(start.column_names, found, strict=True) if zeros]


def _first_csv(source: Peekable, options: csv.ParseOptions, convert: csv.ConvertOptions) -> pa.Table | None:
    """The first rows of CSV; None where they cannot be read."""
    try:
        return csv.read_csv(in_memory(source.first_lines()), parse_options=options, convert_options=convert)
    except pa.ArrowInvalid:  # a line that is not whole, or wrong: the reader will say so
        return None


def _tables(found: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Parts as tables; one without rows where there are none."""
    some = False
    for batch in found:
        some = True
        yield pa.Table.from_batches([batch])
    if not some:
        yield schema.empty_table()


def _first_json(source: Peekable) -> pa.Table:
    """The first rows of JSON lines."""
    return arrow_json.read_json(in_memory(source.first_lines()))


def _json_type(seen: pa.Table, name: str, kind: Kind | None) -> pa.DataType:
    """The type of a column by its first rows, or else by what the model had.

    Whole numbers may have fractions later, but stay exact; dates are texts in JSON.
    """
    own = seen[name].type if name in seen.column_names else pa.null()
    if pa.types.is_null(own):
        return TYPES.get(kind or "", pa.string())
    if pa.types.is_integer(own):
        ends = pc.min_max(seen[name])
        return own if max(-ends["min"].as_py(), ends["max"].as_py()) > EXACT else pa.float64()
    return pa.string() if pa.types.is_temporal(own) else own


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


def _header(source: Peekable, options: csv.ParseOptions, path: Any) -> list[str]:
    """The names of the columns."""
    line = header_line(source.peek()).rstrip(b"\r") + b"\n"
    with explained(path):
        return list(csv.read_csv(in_memory(line), parse_options=options).schema.names)


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
    absent = [name for name in wanted if name not in names]
    if absent:
        which = f"a column {absent[0]!r}; it has none"
        if len(absent) > 1:
            which = f"columns {listed(absent)}; it has none of them"
        raise TableError(
            f"{name_of(path)} must have {which}. Its columns are {listed(names)}. One that nothing is known of may be "
            "left blank, but must be there."
        )


@contextmanager
def _naming(names: Sequence[str]) -> Iterator[None]:
    """Errors of Arrow with the name of the column instead of its number."""
    try:
        yield
    except pa.ArrowInvalid as error:
        text = re.sub(r"CSV column #(\d+)", lambda found: f"column {names[int(found[1])]!r}", str(error))
        raise pa.ArrowInvalid(text) from None

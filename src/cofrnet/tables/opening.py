"""What tables are read from: files, pipes and standard input, maybe compressed, with a start that can be looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from cofrnet.tables.arrow import in_memory
from cofrnet.tables.formats import COMPRESSED_STARTS, COMPRESSIONS, NO_TEXT, STARTS, SUFFIXES, Format
from cofrnet.tables.kinds import TableError, name_of

__all__ = ["Peekable", "explained", "header_line", "opened"]

LOOKED_AT = 2**20  # bytes of a start


@contextmanager
def opened(path: str | os.PathLike[str], format: Format | None) -> Iterator[tuple[Any, Format, Any]]:  # noqa: A002
    """What Arrow reads from, the format, and for CSV how it is written."""
    if str(path) != "-" and Path(path).is_dir():
        raise TableError(f"{path} must be a file; it is a folder. Name a file in it.")
    piped = str(path) == "-" or (Path(path).exists() and not Path(path).is_file())
    raw: Any = _pipe(path) if piped else Path(path).open("rb")  # noqa: SIM115  (closed below)
    with raw:
        stream = Peekable(raw, None if piped else str(path))
        start = stream.peek()[:8]
        suffixes = [] if piped else [s.lower() for s in Path(path).suffixes]
        packed = next((COMPRESSIONS[s] for s in suffixes[-1:] if s in COMPRESSIONS), None)
        packed = packed or next((name for sign, name in COMPRESSED_STARTS.items() if start.startswith(sign)), None)
        if packed is not None:
            content = pa.PythonFile(stream, "r") if piped else stream.native()
            stream = Peekable(pa.CompressedInputStream(content, packed), None if piped else str(path), packed)
        with explained(path):
            start = stream.peek()[:8]
        by_start = next((name for sign, name in STARTS.items() if start.startswith(sign)), "csv")
        kind: Any = format or next((SUFFIXES[s] for s in reversed(suffixes) if s in SUFFIXES), by_start)
        if kind in ("parquet", "arrow"):
            yield in_memory(stream.read()) if piped or packed else str(path), kind, None
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


class Peekable:
    """A stream whose first megabyte can be looked at before it is read; `path` is that of a file, maybe `packed`."""

    def __init__(self, stream: Any, path: str | None = None, packed: str | None = None) -> None:
        self._stream, self._path, self._packed, self.closed = stream, path, packed, False
        self._start: bytes | None = None
        self._dropped, self._ended = 0, False

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
        content = file if self._packed is None else pa.CompressedInputStream(file, self._packed)
        content.read(self._dropped)
        return content

    def peek(self) -> bytes:
        """The first megabyte, or all there is."""
        if self._start is None:
            found = b""
            while len(found) < LOOKED_AT and not self._ended:
                more = bytes(self._stream.read(LOOKED_AT - len(found)) or b"")
                found, self._ended = found + more, not more
            self._start = found
        return self._start

    def first_lines(self) -> bytes:
        """The lines that are whole in the first megabyte, or all there is."""
        start = self.peek()
        return start if self._ended else start[: start.rfind(b"\n") + 1] or start

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
        """As of any stream."""
        self.closed = True

    def readable(self) -> bool:
        """As of any stream."""
        return True

    def writable(self) -> bool:
        """As of any stream."""
        return False

    def seekable(self) -> bool:
        """As of any stream."""
        return False


def _dialect(stream: Peekable, path: Any) -> csv.ParseOptions:
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
    unquoted = b"".join(header_line(stream.peek()).split(b'"')[::2])
    between = max(b",;\t|", key=lambda sign: unquoted.count(bytes([sign])))
    one_column = unquoted.count(bytes([between])) == 0
    return csv.ParseOptions(delimiter=chr(between), newlines_in_values=True, ignore_empty_lines=not one_column)


def header_line(start: bytes) -> bytes:
    """The first line; a name in quotes may have line ends of its own."""
    end = start.find(b"\n")
    while end >= 0 and start[:end].count(b'"') % 2:
        end = start.find(b"\n", end + 1)
    return start if end < 0 else start[:end]


@contextmanager
def explained(path: Any) -> Iterator[None]:
    """Errors of Arrow as ours."""
    to_utf8 = "Convert it to UTF-8, for example with: iconv -f latin1 -t utf8."
    try:
        yield
    except UnicodeDecodeError as error:  # of the names of columns
        byte = error.object[error.start]
        raise TableError(
            f"{name_of(path)} must be text in UTF-8; its header has byte 0x{byte:02x}. {to_utf8}"
        ) from None
    except pa.ArrowInvalid as error:
        text = str(error)
        remedy = "Check the file."
        if "UTF8" in text or "UTF-8" in text:
            remedy = to_utf8
        elif "CSV parse error" in text:
            remedy = "Mend or remove that line."
        elif "conversion error" in text:
            remedy = "The model was fitted to another kind of column: mend the value, leave it blank, or fit again."
        raise TableError(f"{name_of(path)} must be a table that can be read; {text}. {remedy}") from None
    except (pa.ArrowException, EOFError) as error:
        raise TableError(f"{name_of(path)} must be a table that can be read; {error}.") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise TableError(f"{name_of(path)} must be whole; {error}. Get the file again.") from None

"""Formats of tables, by the ends of file names and by the first bytes of files."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["COMPRESSED_STARTS", "COMPRESSIONS", "NO_TEXT", "STARTS", "SUFFIXES", "Format"]

Format: TypeAlias = Literal["csv", "parquet", "arrow", "jsonl"]

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
NO_TEXT = {
    b"\xff\xfe": "UTF-16. Convert it, for example with: iconv -f utf16 -t utf8",
    b"\xfe\xff": "UTF-16. Convert it, for example with: iconv -f utf16 -t utf8",
    b"PK\x03\x04": "a zip archive or a spreadsheet. Unpack it, or save it as CSV",
    b"\xfd7zXZ": "compressed by xz. Unpack it",
}

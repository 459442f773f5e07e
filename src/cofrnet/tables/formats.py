"""Formats of tables, by the ends of file names and by the first bytes of files."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["COMPRESSED_STARTS", "COMPRESSIONS", "STARTS", "SUFFIXES", "Format"]

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

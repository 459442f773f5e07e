"""Tables in files: CSV, Parquet, Arrow and JSON lines, read whole or batch by batch, and written the same ways.

Columns come out as Arrow numbers, dates, bools and dictionaries of strings. CSV and JSON may be compressed (gz, zst,
bz2), and "-" is standard input or output. A file is written under a temporary name and renamed when it is whole.
"""

from cofrnet.tables.formats import Format
from cofrnet.tables.kinds import Kind, TableError, as_kinds, kind_of, listed
from cofrnet.tables.reading import ahead, as_written, batches, column_names, in_order, leading_zeros, read_table
from cofrnet.tables.writing import writer

__all__ = [
    "Format",
    "Kind",
    "TableError",
    "ahead",
    "as_kinds",
    "as_written",
    "batches",
    "column_names",
    "in_order",
    "kind_of",
    "leading_zeros",
    "listed",
    "read_table",
    "writer",
]

"""What columns are: numbers, dates, bools and categories, and how any column becomes what it was in training."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from cofrnet.tables.arrow import nothing, pc, strings

__all__ = [
    "MISSING",
    "TYPES",
    "Kind",
    "TableError",
    "as_kinds",
    "as_text",
    "kind_of",
    "name_of",
    "plain",
    "with_column",
]

Kind: TypeAlias = Literal["number", "category", "date", "bool"]

MISSING = ("", " ", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>")

# Types of Arrow for what a column was in training.
TYPES: dict[str, pa.DataType] = {"number": pa.float64(), "category": pa.string(), "bool": pa.bool_()}


class TableError(ValueError):
    """A file is no table that can be read; the message says what is wrong and what to do."""


def as_kinds(table: pa.Table, kinds: Mapping[str, Kind], path: Any = "the table") -> pa.Table:
    """The table with its columns of the given kinds; what cannot be so is an error that names column and value."""
    for name, kind in kinds.items():
        table = with_column(table, name, _as_kind(table[name], kind, name, path))
    return plain(table)


def name_of(path: Any) -> str:
    """How a message calls the file."""
    return "standard input" if str(path) == "-" else str(path)


def kind_of(column: pa.ChunkedArray) -> Kind:
    """What a column of `read_table` is."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_dictionary(kind):
        return "category"
    return "date" if pa.types.is_temporal(kind) else "number"


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    """The table with another column under the name."""
    return table.set_column(table.column_names.index(name), name, column)


def plain(table: pa.Table) -> pa.Table:
    """Columns as numbers, dates, bools and dictionaries of strings; anything else is an error that names it."""
    for name in table.column_names:
        column = table[name]
        kind = column.type
        if _is_string(kind):
            column = column.cast(pa.string()).dictionary_encode()
        elif pa.types.is_null(kind) or pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        elif pa.types.is_time(kind):
            unit = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
            whole = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
            column = pc.divide(whole.cast(pa.float64()), unit)  # seconds since midnight
        elif pa.types.is_duration(kind):
            unit = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
            column = pc.divide(column.cast(pa.int64()).cast(pa.float64()), unit)  # seconds
        elif pa.types.is_dictionary(kind):
            plain = pa.types.is_string(kind.value_type) and pa.types.is_signed_integer(kind.index_type)
            column = column if plain else as_text(column).dictionary_encode()
        elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise TableError(
                f"column {name!r} must be text in UTF-8; it is not. Convert the file, for example with: "
                "iconv -f latin1 -t utf8."
            )
        elif not (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)):
            raise TableError(f"column {name!r} must hold numbers, text, bools or dates; got {kind}. Leave it out.")
        table = with_column(table, name, column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column)
    return table


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as strings."""
    return column.cast(pa.string())


TRUE, FALSE = ("true", "True", "TRUE", "1", "1.0"), ("false", "False", "FALSE", "0", "0.0")


def _as_kind(column: pa.ChunkedArray, kind: Kind, name: str, path: Any) -> pa.ChunkedArray:
    """A column as the model had it in training."""
    found = column.type
    if pa.types.is_null(found):
        return pa.chunked_array([pa.nulls(len(column), TYPES.get(kind, pa.timestamp("us")))])
    if pa.types.is_dictionary(found) or _is_string(found):
        column = as_text(column)
        found = column.type
    text = pa.types.is_string(found)
    if kind == "category":
        return column if text else as_text(column)
    if kind == "bool" and not pa.types.is_boolean(found):
        return _as_bool(as_text(column), name, path)
    if kind == "bool":
        return column
    if text:
        return _parsed(column, kind, name, path)
    fits = pa.types.is_temporal(found) and not (pa.types.is_time(found) or pa.types.is_duration(found))
    if fits != (kind == "date"):
        raise _unlike_training(
            kind, pc.drop_null(column)[0].as_py() if column.null_count < len(column) else found, name, path
        )
    return column


def _unlike_training(kind: str, value: Any, name: str, path: Any) -> TableError:
    wanted = {"number": "numbers", "date": "dates", "bool": "true or false"}[kind]
    hint = " Write dates as 2026-01-31." if kind == "date" else ""
    return TableError(
        f"column {name!r} of {name_of(path)} must hold {wanted}, as it did in training; got {str(value)!r}. "
        f"Mend the value, or fit the model again.{hint}"
    )


def _as_bool(text: pa.ChunkedArray, name: str, path: Any) -> pa.ChunkedArray:
    true, false = (pc.is_in(text, strings(words)) for words in (TRUE, FALSE))
    strange = pc.and_(pc.invert(pc.or_(true, false)), text.is_valid())
    if pc.any(strange).as_py():
        raise _unlike_training("bool", text.filter(strange)[0].as_py(), name, path)
    return pc.if_else(text.is_valid(), true, nothing(pa.bool_()))


def _parsed(text: pa.ChunkedArray, kind: Kind, name: str, path: Any) -> pa.ChunkedArray:
    """Numbers or dates that are written as text; a few signs mean missing."""
    blank = pc.is_in(text, strings(MISSING))
    text = pc.if_else(blank, nothing(text.type), text)
    wanted = [pa.float64()] if kind == "number" else [pa.timestamp("us"), pa.timestamp("us", "UTC")]
    for own in wanted:
        with suppress(pa.ArrowInvalid):
            return text.cast(own)
    for value in pc.drop_null(text).unique():  # which of them is it?
        for own in wanted:
            with suppress(pa.ArrowInvalid):
                value.cast(own)
                break
        else:
            raise _unlike_training(kind, value.as_py(), name, path)
    raise _unlike_training(kind, "dates with and without time zones", name, path)

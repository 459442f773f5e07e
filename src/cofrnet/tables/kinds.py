"""What columns are: numbers, dates, bools and categories, and how any column becomes what it was in training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    "listed",
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


def as_kinds(
    table: pa.Table,
    kinds: Mapping[str, Kind],
    path: Any = "the table",
    known: Mapping[str, Collection[str]] | None = None,
) -> pa.Table:
    """The table with its columns of the given kinds; what cannot be so is an error that names column and value.

    Texts that look missing are, but for those that `known` has among the levels of their column.
    """
    for name, kind in kinds.items():
        table = with_column(table, name, _as_kind(table[name], kind, name, path, (known or {}).get(name, ())))
    return plain(table)


def listed(names: Sequence[str]) -> str:
    """The names of columns, the first twenty of them, for a message."""
    return ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


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


def _as_kind(column: pa.ChunkedArray, kind: Kind, name: str, path: Any, known: Collection[str] = ()) -> pa.ChunkedArray:
    """A column as the model had it in training."""
    found = column.type
    if pa.types.is_null(found):
        return pa.chunked_array([pa.nulls(len(column), TYPES.get(kind, pa.timestamp("us")))])
    if pa.types.is_dictionary(found) or _is_string(found):
        column = as_text(column)
        found = column.type
    text = pa.types.is_string(found)
    if kind == "category":
        return _with_gaps(column if text else as_text(column), known)
    if kind == "bool" and not pa.types.is_boolean(found):
        return _as_bool(_with_gaps(as_text(column)), name, path)
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


def _with_gaps(text: pa.ChunkedArray, known: Collection[str] = ()) -> pa.ChunkedArray:
    """The texts, missing where they look so and are not known."""
    blank = pc.is_in(text, strings(sign for sign in MISSING if sign not in known))
    return pc.if_else(blank, nothing(text.type), text) if pc.any(blank).as_py() else text


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
    """Numbers, times of day or dates that are written as text, maybe with blanks around them."""
    text = pc.ascii_trim_whitespace(_with_gaps(text))
    ways = (_numbers, _seconds) if kind == "number" else (_dates, _dates_of_zones)
    for way in ways:
        with suppress(pa.ArrowInvalid):
            return way(text)
    values = pc.drop_null(text).unique()
    for i in range(len(values)):  # which of them is it?
        for way in ways:
            with suppress(pa.ArrowInvalid):
                way(values[i : i + 1])
                break
        else:
            raise _unlike_training(kind, values[i].as_py(), name, path)
    both = "numbers and times of day" if kind == "number" else "dates with and without time zones"
    raise _unlike_training(kind, both, name, path)


def _numbers(text: Any) -> Any:
    return text.cast(pa.float64())


def _seconds(text: Any) -> Any:
    """Seconds since midnight of times such as 12:30:00."""
    if pc.all(pc.match_substring_regex(text, r"^\d\d:\d\d(:\d\d)?$")).as_py() is False:
        raise pa.ArrowInvalid("no times of day")
    day, between = strings(["1970-01-01", " "])
    times = pc.binary_join_element_wise(day, text, between).cast(pa.timestamp("s"))
    return times.cast(pa.int64()).cast(pa.float64())


def _dates(text: Any) -> Any:
    return text.cast(pa.timestamp("us"))


def _dates_of_zones(text: Any) -> Any:
    return text.cast(pa.timestamp("us", "UTC"))

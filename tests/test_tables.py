"""Tables in files: what comes out is what went in, of the right kinds, and nonsense is refused by name."""

import datetime as dt
import io
import json
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from cofrnet.tables import TableError, ahead, batches, column_names, kind_of, read_table, reading, writer

TABLE = pa.table(
    {
        "number": [1.5, None, -3.0],
        "whole": [1, 2, 3],
        "text": ["a,b", 'say "x"\nand more', None],
        "flag": [True, False, None],
        "day": [dt.date(2024, 1, 31), None, dt.date(1969, 12, 31)],
    }
)
KINDS = {"number": "number", "whole": "number", "text": "category", "flag": "bool", "day": "date"}
FILES = ["a.csv", "a.tsv", "a.csv.gz", "a.csv.zst", "a.parquet", "a.arrow", "a.feather", "a.jsonl", "a.jsonl.gz"]


def days(column):
    return [None if v is None else (v.date() if isinstance(v, dt.datetime) else v) for v in column.to_pylist()]


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_is_read(tmp_path, name):
    path = tmp_path / "new" / name
    with writer(path) as write:
        write(TABLE)
        write(TABLE)
    assert [p.name for p in path.parent.iterdir()] == [name]
    whole, parts = read_table(path), list(batches(path, KINDS))
    for found in (whole, pa.concat_tables(parts)):
        assert found.num_rows == 6
        assert {c: kind_of(found[c]) for c in found.column_names} == KINDS
        for c in ("number", "whole", "text", "flag"):
            assert found[c].to_pylist() == 2 * TABLE[c].to_pylist()
        assert days(found["day"]) == 2 * TABLE["day"].to_pylist()
    assert column_names(path) == TABLE.column_names


def test_many_parts_have_the_kinds_of_the_model(tmp_path, monkeypatch):
    """The first block holds whole numbers and nothing else; later ones what only the model knows of."""
    monkeypatch.setattr(reading, "BLOCK", 1024)
    lines = [f"{i},,,01\n" for i in range(500)] + ["0.5,true,x,2\n", "?,False,y,NA\n"]
    (tmp_path / "a.csv").write_text("a,b,c,d\n" + "".join(lines))
    parts = list(batches(tmp_path / "a.csv", {"a": "number", "b": "bool", "c": "category", "d": "category"}))
    assert len(parts) > 2
    found = pa.concat_tables(parts, promote_options="permissive")
    assert found["a"].to_pylist()[-2:] == [0.5, None]
    assert found["b"].to_pylist()[-2:] == [True, False]
    assert found["c"].to_pylist()[-3:] == [None, "x", "y"]
    assert found["d"].to_pylist()[:1] == ["01"]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"\xef\xbb\xbfa;b\n1;2\n", ["a", "b"]),
        (b"a\tb\r\n1\t2\r\n", ["a", "b"]),
        (b'"a,x"|b\n1|2\n', ["a,x", "b"]),
        (b"only\n1\n", ["only"]),
    ],
)
def test_how_a_csv_is_written_is_found_out(tmp_path, content, names):
    (tmp_path / "a.csv").write_bytes(content)
    found = read_table(tmp_path / "a.csv")
    assert found.column_names == names
    assert found.num_rows == 1


def test_time_of_day_is_a_number_and_text_stays_text(tmp_path):
    (tmp_path / "a.csv").write_text("t,zip\n12:30:00,01234\n00:00:01,99999\n")
    found = read_table(tmp_path / "a.csv", text=["zip"])
    assert found["t"].to_pylist() == [45000.0, 1.0]
    assert found["zip"].to_pylist() == ["01234", "99999"]
    assert next(batches(tmp_path / "a.csv", {"zip": "category"}))["zip"].to_pylist() == ["01234", "99999"]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.jsonl", "a.csv.gz"])
def test_standard_input_is_known_by_its_first_bytes(tmp_path, monkeypatch, name):
    with writer(tmp_path / name) as write:
        write(TABLE)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO((tmp_path / name).read_bytes()))))
    assert read_table("-")["whole"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "must have a line of column names"),
        ("a.csv", b"a,a\n1,2\n", "'a' is there twice"),
        ("a.csv", b"a,b\n1,2\n1,2,3\n", "Mend or remove that line"),
        ("a.csv", b"a\n\xff\xfe\xfd\n", "UTF-8"),
        ("a.csv", b"a\n\0\0\n", "zero bytes"),
        ("a.csv.gz", b"\x1f\x8b\x08\x00broken", "must be"),
        ("a.parquet", b"PAR1nonsense", "must be"),
        ("a.arrow", b"ARROW1nonsense", "must be"),
        ("a.jsonl", b'{"a": 1}\n{"a": ', "must be"),
        ("a.csv", b"\xff\xfea\x00,\x00", "UTF-16"),
        ("a.csv", b"PK\x03\x04rest", "zip archive or a spreadsheet"),
        ("a.json", b'[{"a": 1}]', "one JSON object on each line"),
        ("a.jsonl", b'{"a": [1, 2]}\n', "column 'a' must hold numbers, text, bools or dates"),
    ],
)
def test_nonsense_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=said):
        read_table(tmp_path / name)


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(TableError, match="it is a folder"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("number", "a\n1\nabc\n", "column 'a'.*'abc'"),
        ("bool", "a\ntrue\nmaybe\n", "column 'a'.*'maybe'"),
        ("date", "a\n17\n", "column 'a' .* must hold dates"),
        ("number", "b\n1\n", "must have a column 'a'; it has none. Its columns are 'b'"),
    ],
)
def test_another_kind_than_in_training_is_refused(tmp_path, kind, content, said):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(TableError, match=said):
        list(batches(tmp_path / "a.csv", {"a": kind}))


def test_numbers_as_text_are_numbers_where_the_model_had_numbers(tmp_path):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"a": ["1", "2.5", None], "d": ["2024-01-31", None, "2024-02-01"], "n": [None, None, None]}))
    found = next(batches(tmp_path / "a.parquet", {"a": "number", "d": "date", "n": "number"}))
    assert found["a"].to_pylist() == [1.0, 2.5, None]
    assert kind_of(found["d"]) == "date"
    assert found["n"].null_count == 3
    with writer(tmp_path / "b.parquet") as write:
        write(pa.table({"a": ["1", "x"]}))
    with pytest.raises(TableError, match=r"column 'a' .* must hold numbers, as it did in training"):
        list(batches(tmp_path / "b.parquet", {"a": "number"}))


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")

    def fail():
        with writer(path) as write:
            write(TABLE)
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_must_tell_the_format(tmp_path):
    with pytest.raises(TableError, match=r"must end in one of \.csv"), writer(tmp_path / "a.xlsx"):
        pass


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.arrow", "a.parquet"])
def test_a_large_table_is_read_in_bounded_memory(tmp_path, monkeypatch, name):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(reading, "BLOCK", 2**18)
    monkeypatch.setattr(reading, "ROWS", 4096)
    with writer(tmp_path / name) as write:
        for _ in range(40):
            write(pa.table({f"x{j}": rng.normal(size=5000) for j in range(5)}))
    before = pa.total_allocated_bytes()
    most, rows = 0, 0
    for part in batches(tmp_path / name, {f"x{j}": "number" for j in range(5)}):
        most = max(most, pa.total_allocated_bytes() - before)
        rows += part.num_rows
    assert rows == 200_000
    assert most < 4_000_000  # the table has 8 000 000 bytes


def test_kinds_come_from_the_model_in_every_part(tmp_path, monkeypatch):
    """What the first part does not show: dates, text to keep, fractions, keys that come later."""
    monkeypatch.setattr(reading, "BLOCK", 1024)
    early = [("", "", i) for i in range(300)]
    late = [("2024-01-01", "x", 0.5), ("2024-01-01 12:00:00", "y", 7)]
    (tmp_path / "a.csv").write_text("d,k,n\n" + "".join(f"{d},{k},{n}\n" for d, k, n in early + late))
    found = pa.concat_tables(batches(tmp_path / "a.csv", {"d": "date", "n": "number"}, others=["k"]))
    assert found["n"].to_pylist()[-2:] == [0.5, 7.0]
    assert found["k"].to_pylist()[-2:] == ["x", "y"]
    assert found["d"].to_pylist()[-1] == dt.datetime(2024, 1, 1, 12)
    lines = [json.dumps({"n": n}) for _, _, n in early] + [json.dumps({"n": 0.5, "c": "late", "b": True})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    found = pa.concat_tables(batches(tmp_path / "a.jsonl", {"n": "number", "c": "category"}))
    assert found["n"].to_pylist()[-1] == 0.5
    assert found["c"].to_pylist()[-2:] == [None, "late"]


@pytest.mark.parametrize("values", [["true", "False", None], [1, 0, None], [1.0, 0.0, None], [True, False, None]])
def test_bools_are_bools_however_they_are_written(tmp_path, values):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"b": values}))
    assert next(batches(tmp_path / "a.parquet", {"b": "bool"}))["b"].to_pylist() == [True, False, None]
    lines = ["" if value is None else str(value) for value in values]
    (tmp_path / "a.csv").write_text("\n".join(["b,c", *(f"{line},1" for line in lines)]) + "\n")
    assert next(batches(tmp_path / "a.csv", {"b": "bool"}))["b"].to_pylist() == [True, False, None]
    with writer(tmp_path / "b.parquet") as write:
        write(pa.table({"b": ["true", "maybe"]}))
    with pytest.raises(TableError, match=r"column 'b' .* must hold true or false, .* got 'maybe'"):
        list(batches(tmp_path / "b.parquet", {"b": "bool"}))


def test_the_value_that_is_wrong_is_named(tmp_path):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"d": ["2024-01-01", "yesterday"], "n": [dt.date(2024, 1, 1)] * 2}))
    with pytest.raises(TableError, match="got 'yesterday'"):
        list(batches(tmp_path / "a.parquet", {"d": "date"}))
    with pytest.raises(TableError, match=r"column 'n' .* must hold numbers"):
        list(batches(tmp_path / "a.parquet", {"n": "number"}))


@pytest.mark.parametrize("content", ['"a\nb",c\n1,2\n', "\n\nx;y\n1;2\n"])
def test_headers_are_the_same_whole_and_in_parts(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)
    names = read_table(tmp_path / "a.csv").column_names
    assert len(names) == 2
    assert column_names(tmp_path / "a.csv") == names
    assert next(batches(tmp_path / "a.csv", dict.fromkeys(names, "number"))).column_names == names


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow"])
def test_a_table_without_rows_has_columns(tmp_path, name):
    with writer(tmp_path / name) as write:
        write(pa.table({"a": pa.array([], pa.float64())}))
    (part,) = batches(tmp_path / name, {"a": "number"})
    assert (part.num_rows, part.column_names) == (0, ["a"])
    with pytest.raises(TableError, match="must have a column 'b'"):
        list(batches(tmp_path / name, {"b": "number"}))


def test_files_of_other_libraries(tmp_path):
    import polars as pl

    frame = pl.DataFrame({"c": ["u", None, "v"], "s": ["x", "y", "z"], "n": [1, 2, 3]})
    frame.with_columns(pl.col("c").cast(pl.Categorical)).write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.arrow")
    for name in ("a.parquet", "a.arrow"):
        found = read_table(tmp_path / name)
        assert [kind_of(found[c]) for c in found.column_names] == ["category", "category", "number"]
        assert found["c"].to_pylist() == ["u", None, "v"]


def test_what_is_left_out_may_be_anything(tmp_path):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"l": [[1], [2]], "n": [1, 2**62 + 7]}))
    assert read_table(tmp_path / "a.parquet", without=["l", "l"]).column_names == ["n"]
    assert next(batches(tmp_path / "a.parquet", {"n": "number"})).column_names == ["n"]


def test_duplicate_names_are_refused_in_parts_too(tmp_path):
    (tmp_path / "a.csv").write_text("a,a,b\n1,2,3\n")
    with pytest.raises(TableError, match="'a' is there twice"):
        list(batches(tmp_path / "a.csv", {"a": "number"}))


def test_parts_of_categories_and_gaps_can_be_written(tmp_path):
    parts = [pa.table({"c": pa.array([level, None]).dictionary_encode(), "x": [np.nan, 1.0]}) for level in "ab"]
    for name in ("a.arrow", "a.parquet", "a.csv", "a.jsonl"):
        with writer(tmp_path / name) as write:
            for part in parts:
                write(part)
        assert read_table(tmp_path / name)["c"].to_pylist() == ["a", None, "b", None]
    assert [json.loads(line)["x"] for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [None, 1, None, 1]


def test_links_are_followed_when_written_to(tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    with writer(tmp_path / "link.csv") as write:
        write(TABLE)
    assert (tmp_path / "link.csv").is_symlink()
    assert read_table(tmp_path / "real.csv").num_rows == 3
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError), writer(tmp_path / "folder.csv") as write:
        write(TABLE)


class TestAhead:
    def test_parts_come_in_order(self):
        assert list(ahead(iter(range(1, 50)))) == list(range(1, 50))

    def test_errors_are_raised_where_the_parts_are_used(self):
        def parts():
            yield 1
            raise TableError("broken")

        found = ahead(parts())
        assert next(found) == 1
        with pytest.raises(TableError, match="broken"):
            next(found)

    def test_who_leaves_early_does_not_wait(self):
        hold = threading.Event()

        def parts():
            yield 1
            hold.wait(30)
            yield 2

        found = ahead(parts())
        next(found)
        started = time.monotonic()
        found.close()
        assert time.monotonic() - started < 10
        hold.set()

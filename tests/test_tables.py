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

from cofrnet.tables import (
    TableError,
    ahead,
    as_written,
    batches,
    column_names,
    kind_of,
    leading_zeros,
    opening,
    read_table,
    reading,
    writer,
)
from cofrnet.tables.arrow import in_memory

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


def columns(path, kinds, **options):
    """The columns of the given kinds, of all parts."""
    return [part for part, _ in batches(path, kinds, **options)]


def days(column):
    return [None if v is None else (v.date() if isinstance(v, dt.datetime) else v) for v in column.to_pylist()]


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_is_read(tmp_path, name):
    path = tmp_path / "new" / name
    with writer(path) as write:
        write(TABLE)
        write(TABLE)
    assert [p.name for p in path.parent.iterdir()] == [name]
    whole, parts = read_table(path), columns(path, KINDS)
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
    parts = columns(tmp_path / "a.csv", {"a": "number", "b": "bool", "c": "category", "d": "category"})
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
    assert columns(tmp_path / "a.csv", {"zip": "category"})[0]["zip"].to_pylist() == ["01234", "99999"]


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
        columns(tmp_path / "a.csv", {"a": kind})


def test_numbers_as_text_are_numbers_where_the_model_had_numbers(tmp_path):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"a": ["1", "2.5", None], "d": ["2024-01-31", None, "2024-02-01"], "n": [None, None, None]}))
    found = columns(tmp_path / "a.parquet", {"a": "number", "d": "date", "n": "number"})[0]
    assert found["a"].to_pylist() == [1.0, 2.5, None]
    assert kind_of(found["d"]) == "date"
    assert found["n"].null_count == 3
    with writer(tmp_path / "b.parquet") as write:
        write(pa.table({"a": ["1", "x"]}))
    with pytest.raises(TableError, match=r"column 'a' .* must hold numbers, as it did in training"):
        columns(tmp_path / "b.parquet", {"a": "number"})


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
    monkeypatch.setattr(reading, "BLOCK", 2**16)  # Arrow reads 32 of them ahead
    monkeypatch.setattr(reading, "ROWS", 4096)
    with writer(tmp_path / name) as write:
        for _ in range(40):
            write(pa.table({f"x{j}": rng.normal(size=5000) for j in range(5)}))
    before = pa.total_allocated_bytes()
    most, rows = 0, 0
    for part, _ in batches(tmp_path / name, {f"x{j}": "number" for j in range(5)}):
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
    parts = list(batches(tmp_path / "a.csv", {"d": "date", "n": "number"}, others=["k"]))
    found, kept = (pa.concat_tables(own) for own in zip(*parts, strict=True))
    assert found["n"].to_pylist()[-2:] == [0.5, 7.0]
    assert kept["k"].to_pylist()[-2:] == ["x", "y"]
    assert found["d"].to_pylist()[-1] == dt.datetime(2024, 1, 1, 12)
    lines = [json.dumps({"n": n}) for _, _, n in early] + [json.dumps({"n": 0.5, "c": "late", "b": True})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    found = pa.concat_tables(columns(tmp_path / "a.jsonl", {"n": "number", "c": "category"}))
    assert found["n"].to_pylist()[-1] == 0.5
    assert found["c"].to_pylist()[-2:] == [None, "late"]


@pytest.mark.parametrize("values", [["true", "False", None], [1, 0, None], [1.0, 0.0, None], [True, False, None]])
def test_bools_are_bools_however_they_are_written(tmp_path, values):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"b": values}))
    assert columns(tmp_path / "a.parquet", {"b": "bool"})[0]["b"].to_pylist() == [True, False, None]
    lines = ["" if value is None else str(value) for value in values]
    (tmp_path / "a.csv").write_text("\n".join(["b,c", *(f"{line},1" for line in lines)]) + "\n")
    assert columns(tmp_path / "a.csv", {"b": "bool"})[0]["b"].to_pylist() == [True, False, None]
    with writer(tmp_path / "b.parquet") as write:
        write(pa.table({"b": ["true", "maybe"]}))
    with pytest.raises(TableError, match=r"column 'b' .* must hold true or false, .* got 'maybe'"):
        columns(tmp_path / "b.parquet", {"b": "bool"})


def test_the_value_that_is_wrong_is_named(tmp_path):
    with writer(tmp_path / "a.parquet") as write:
        write(pa.table({"d": ["2024-01-01", "yesterday"], "n": [dt.date(2024, 1, 1)] * 2}))
    with pytest.raises(TableError, match="got 'yesterday'"):
        columns(tmp_path / "a.parquet", {"d": "date"})
    with pytest.raises(TableError, match=r"column 'n' .* must hold numbers"):
        columns(tmp_path / "a.parquet", {"n": "number"})


@pytest.mark.parametrize("content", ['"a\nb",c\n1,2\n', "\n\nx;y\n1;2\n"])
def test_headers_are_the_same_whole_and_in_parts(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)
    names = read_table(tmp_path / "a.csv").column_names
    assert len(names) == 2
    assert column_names(tmp_path / "a.csv") == names
    assert columns(tmp_path / "a.csv", dict.fromkeys(names, "number"))[0].column_names == names


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow"])
def test_a_table_without_rows_has_columns(tmp_path, name):
    with writer(tmp_path / name) as write:
        write(pa.table({"a": pa.array([], pa.float64())}))
    (part,) = columns(tmp_path / name, {"a": "number"})
    assert (part.num_rows, part.column_names) == (0, ["a"])
    with pytest.raises(TableError, match="must have a column 'b'"):
        columns(tmp_path / name, {"b": "number"})


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
    assert columns(tmp_path / "a.parquet", {"n": "number"})[0].column_names == ["n"]


def test_duplicate_names_are_refused_in_parts_too(tmp_path):
    (tmp_path / "a.csv").write_text("a,a,b\n1,2,3\n")
    with pytest.raises(TableError, match="'a' is there twice"):
        columns(tmp_path / "a.csv", {"a": "number"})


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


def test_what_is_kept_is_as_in_the_file_though_the_model_reads_it(tmp_path):
    """Numbers with zeros before them or blanks around them, large ones, dates, times of day, signs for missing."""
    rows = [
        "id,day,time,code\n",
        "007,2024-01-31,12:30:00,?\n",
        "1152921504606846977,2024-02-01 00:00,00:00:01,x\n",
        " 5 ,NA,?,None\n",
        "?,2024-01-31,07:05,\n",
    ]
    (tmp_path / "a.csv").write_text("".join(rows))
    kinds = {"id": "number", "day": "date", "time": "number", "code": "category"}
    ((found, kept),) = batches(tmp_path / "a.csv", kinds, others=["code", "time", "day", "id"])
    assert kept.column_names == ["code", "time", "day", "id"]
    assert kept["id"].to_pylist() == ["007", "1152921504606846977", " 5 ", "?"]
    assert kept["day"].to_pylist() == ["2024-01-31", "2024-02-01 00:00", "NA", "2024-01-31"]
    assert kept["time"].to_pylist() == ["12:30:00", "00:00:01", "?", "07:05"]
    assert kept["code"].to_pylist() == ["?", "x", "None", ""]
    (alone,) = columns(tmp_path / "a.csv", kinds)
    for own in (found, alone):
        assert own["id"].to_pylist() == [7.0, 1152921504606846977.0, 5.0, None]
        assert own["time"].to_pylist() == [45000.0, 1.0, None, 25500.0]
        assert own["code"].to_pylist() == [None, "x", None, None]
        assert own["day"].to_pylist()[1:3] == [dt.datetime(2024, 2, 1), None]


def test_what_is_kept_of_other_formats_is_as_in_the_file(tmp_path):
    table = pa.table({"t": [dt.time(12, 30)], "l": [[1, 2]], "n": [2**60 + 1]})
    for name in ("a.parquet", "a.arrow"):
        with writer(tmp_path / name) as write:
            write(table)
        ((found, kept),) = batches(tmp_path / name, {"t": "number"}, others=["t", "l", "n"])
        assert kept.to_pylist() == table.to_pylist()
        assert found["t"].to_pylist() == [45000.0]
    with writer(tmp_path / "kept.csv") as write:
        write(kept)
    assert read_table(tmp_path / "kept.csv")["l"].to_pylist() == ["[1, 2]"]
    (tmp_path / "a.jsonl").write_text('{"n": 1152921504606846977, "d": "2024-01-31T12:00:00"}\n')
    ((found, kept),) = batches(tmp_path / "a.jsonl", {"n": "number", "d": "date"}, others=["n", "d"])
    assert kept.to_pylist() == [{"n": 1152921504606846977, "d": "2024-01-31T12:00:00"}]
    assert found["d"].to_pylist() == [dt.datetime(2024, 1, 31, 12)]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.jsonl"])
def test_texts_that_look_missing_are_unless_they_are_known(tmp_path, name):
    with writer(tmp_path / name) as write:
        write(pa.table({"c": ["x", "?", "N/A", "None"], "b": ["true", "?", "False", "NA"]}))
    kinds = {"c": "category", "b": "bool"}
    (found,) = columns(tmp_path / name, kinds)
    assert found["c"].to_pylist() == ["x", None, None, None]
    assert found["b"].to_pylist() == [True, None, False, None]
    (found,) = columns(tmp_path / name, kinds, known={"c": {"x", "?", "other"}})
    assert found["c"].to_pylist() == ["x", "?", None, None]


def test_json_may_have_numbers_for_categories_and_text_for_numbers(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"c": 7, "n": "1.5", "b": true}\n{"c": null, "n": "NA"}\n{"c": 12}\n')
    (found,) = columns(tmp_path / "a.jsonl", {"c": "category", "n": "number", "b": "category"})
    assert found["c"].to_pylist() == ["7", None, "12"]
    assert found["n"].to_pylist() == [1.5, None, None]
    assert found["b"].to_pylist() == ["true", None, None]


@pytest.mark.parametrize("end", ["\n", ""])
def test_leading_zeros_are_seen(tmp_path, end):
    (tmp_path / "a.csv").write_text(f"a,b,c,d\n7,0,0.5,07:30:00\n1,0,00.5,0{end}")
    assert leading_zeros(read_table(tmp_path / "a.csv")) == []
    (tmp_path / "b.csv").write_text(f"a,b,c\n7,0,007\n1,0,0010\n10,01,5{end}")
    table = read_table(tmp_path / "b.csv", codes=["c", "a"])
    assert leading_zeros(table) == ["b", "c"]
    assert table["c"].to_pylist() == ["007", "0010", "5"]
    assert [kind_of(table[name]) for name in "ab"] == ["number", "number"]
    with writer(tmp_path / "b.parquet") as write:
        write(table)
    assert leading_zeros(read_table(tmp_path / "b.parquet")) == []


def test_a_column_to_leave_out_must_be_there(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match=r"must have a column 'nope'; it has none. Its columns are 'a', 'b'"):
        read_table(tmp_path / "a.csv", without=["a", "nope"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.arrow", "a.jsonl"])
def test_all_columns_as_they_are_written(tmp_path, monkeypatch, name):
    monkeypatch.setattr(reading, "BLOCK", 256)
    table = pa.table({"z": ["007", " 5", "?", ""] * 50, "d": ["2024-01-31", "NA", "", "2024-02-01T00:00:00"] * 50})
    with writer(tmp_path / name) as write:
        write(table)
    assert pa.concat_tables(as_written(tmp_path / name)).to_pylist() == table.to_pylist()


def test_json_as_it_is_written(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"a": 1, "d": "2024-01-31T12:00:00"}\n{"a": 2.5, "z": [1]}\n')
    (found,) = as_written(tmp_path / "b.jsonl")
    assert found.column_names == ["a", "d", "z"]
    assert found["d"].to_pylist() == ["2024-01-31T12:00:00", None]


def test_threads_of_arrow_do_without_python(tmp_path, monkeypatch):
    """When a process that has failed is ending, they would wait for its lock, and abort."""
    content = bytes(range(100))
    before = sys.getrefcount(content)
    reader = in_memory(content)
    assert sys.getrefcount(content) == before
    assert reader.read() == content
    names = ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz"]
    for name in names:
        with writer(tmp_path / name) as write:
            write(TABLE)
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf\r\n" + (tmp_path / "a.csv").read_bytes())

    def touched(self, size=-1):
        raise AssertionError("read by Python")

    monkeypatch.setattr(opening.Peekable, "read", touched)
    for name in [*names[::2], "b.csv", names[1], names[3]]:
        (found,) = columns(tmp_path / name, KINDS)
        assert found["whole"].to_pylist() == [1, 2, 3]
        assert read_table(tmp_path / name)["whole"].to_pylist() == [1, 2, 3]


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
        assert time.monotonic() - started < 2
        hold.set()

    def test_who_leaves_early_leaves_no_thread_that_is_about_to_end(self):
        def parts():
            while True:
                yield 1
                time.sleep(0.2)

        before = set(threading.enumerate())
        found = ahead(parts())
        next(found)
        found.close()
        assert set(threading.enumerate()) <= before

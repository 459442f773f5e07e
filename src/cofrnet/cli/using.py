"""Commands that use a fitted model: `predict`, `evaluate`, `info`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cofrnet.cli.output import (
    busy,
    counted,
    print_json,
    print_table,
    quality_table,
    say,
    say_without_target,
    tell,
    warn,
)
from cofrnet.cli.pictures import image_batches, image_sources, reads_images
from cofrnet.cli.root import AsJson, Data, DataFormat, ModelPath, TableFormat, Threads, app
from cofrnet.files import require_writable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load_model", "read_rows"]


def load_model(path: Path) -> Any:
    """The estimator in a file."""
    from cofrnet.estimators import load

    with busy(f"loading {path}"):
        return load(path)


def reads_text(model: Any) -> bool:
    """Whether a model reads one column of texts."""
    return hasattr(model, "vocabulary_")


def text_column(model: Any, data: str, format: Any) -> str:  # noqa: A002
    """The column that a model of texts reads: the one it was fitted to, or the only one there is."""
    from cofrnet.tables import column_names

    if model.text_name_ is not None:
        return str(model.text_name_)
    names = column_names(data, format)
    if len(names) != 1:
        raise ValueError(f"{data} must have one column, of texts: the model does not know the name of its own.")
    return names[0]


def _kinds(model: Any) -> dict[str, Any]:
    """What each column was in training."""
    kinds: dict[str, Any] = {}
    for column in model.encoder_.columns:
        levels = getattr(column, "levels", None)
        if levels is None:
            kinds[column.name] = "date" if column.is_date else "number"
        else:
            kinds[column.name] = "bool" if column.known and {*column.known} <= {"True", "False"} else "category"
    return kinds


def _known(model: Any) -> dict[str, set[str]]:
    """The levels of each column of categories."""
    return {c.name: set(c.known) for c in model.encoder_.columns if hasattr(c, "levels")}


class _Levels:
    """Levels and codes of the rows beside those of the model: 3 may be written as 3.0, and many unseen are told."""

    def __init__(self, model: Any) -> None:
        self.known = _known(model)
        self.whole = {
            name
            for name, levels in self.known.items()
            if levels and all(level.lstrip("-").isdigit() for level in levels)
        }
        self.coded = {c.name: c for c in model.encoder_.columns if c.effects and hasattr(c, "codes")}
        self.unseen, self.rows = dict.fromkeys([*self.known, *self.coded], 0), 0

    def matched(self, table: pa.Table) -> pa.Table:
        """The table, its levels written as in training."""
        import pyarrow as pa

        from cofrnet.tables.arrow import pc, strings

        for name, known in self.known.items():
            column = table[name]
            if not pa.types.is_dictionary(column.type):
                continue
            if name in self.whole:
                text = pc.replace_substring_regex(column.cast(pa.string()), r"^(-?\d+)\.0+$", r"\1")
                column = text.dictionary_encode()
                table = table.set_column(table.column_names.index(name), name, column)
            strange = pc.invert(pc.is_in(column.cast(pa.string()), strings(sorted(known))))
            self.unseen[name] += pc.sum(pc.and_(strange, column.is_valid())).as_py() or 0
        for name, own in self.coded.items():
            self.unseen[name] += int((own.places(table[name]) < 0).sum()) - table[name].null_count
        self.rows += len(table)
        return table

    def warn(self, data: str) -> None:
        """Warn of columns most of whose values the model does not know."""
        for name, count in self.unseen.items():
            if self.rows and count > self.rows / 2 and len(self.known.get(name, (0, 1))) > 1:
                warn(
                    f"{count} of {self.rows} values of column {name!r} of {data} are levels that the model does not "
                    "know: training has not seen them, or has counted them as 'other'."
                )


def model_batches(
    model: Any,
    data: str,
    format: Any,  # noqa: A002
    others: tuple[str, ...] = (),
    target: str | None = None,
) -> Iterator[tuple[Any, pa.Table]]:
    """Rows of a file as the model reads them, part by part, and the target as text or the others as in the file."""
    import pyarrow as pa

    from cofrnet.tables import ahead, batches

    if reads_images(model):
        yield from image_batches(data, model.image_name_)
        return
    asked: dict[str, Any] = {} if target is None else {target: "category"}
    classes = dict.fromkeys(asked, set(map(str, getattr(model, "classes_", ()))) if asked else set())
    if reads_text(model):
        name = text_column(model, data, format)
        for columns, kept in ahead(batches(data, asked, format, (name, *others), classes)):
            rest = kept.select(list(others)) if target is None else columns
            yield pa.table({name: kept[name].cast(pa.string())}), rest
        return
    if hasattr(model, "feature_names_in_"):
        names = [str(name) for name in model.feature_names_in_]
        levels = _Levels(model)
        for columns, kept in ahead(batches(data, asked | _kinds(model), format, others, classes | levels.known)):
            yield levels.matched(columns.select(names)), kept if target is None else columns.select([target])
        levels.warn(data)
        return
    yield _array_rows(model, data, format, others, asked, classes)


def _array_rows(
    model: Any,
    data: str,
    format: Any,  # noqa: A002
    others: tuple[str, ...],
    asked: dict[str, Any],
    classes: dict[str, set[str]],
) -> tuple[Any, pa.Table]:
    """All rows of a file for a model of an array, which has columns by position; and the other columns."""
    import numpy as np
    import pyarrow as pa

    from cofrnet.tables import as_kinds, as_written

    table = pa.concat_tables(as_written(data, format))
    rest = [*others, *asked]
    absent = next((name for name in rest if name not in table.column_names), None)
    if absent is not None:
        raise ValueError(f"{data} must have a column {absent!r}; it has none.")
    features = table.drop_columns(rest)
    if features.num_columns != model.n_features_in_:
        raise ValueError(
            f"{data} must have {model.n_features_in_} columns, as the rows that the model was fitted to; it has "
            f"{features.num_columns}."
        )
    kinds = _kinds(model)
    features = as_kinds(features.rename_columns(list(kinds)), kinds, data, _known(model))
    x = np.stack([_array(column) for column in features.columns], axis=1)
    return x, as_kinds(table.select(rest), asked, data, classes) if asked else table.select(rest)


def _array(column: Any) -> Any:
    """A column of a table for models of arrays: floats, or objects."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_dictionary(column.type) or pa.types.is_boolean(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.cast("float64"))


def read_rows(model: Any, data: str, target: str | None, format: Any) -> tuple[Any, Any]:  # noqa: A002
    """All rows of a file as the model reads them, and their targets: None where the file does not have them."""
    if reads_images(model):
        return image_sources(data, target, model.image_name_)
    import numpy as np
    import pyarrow as pa

    from cofrnet.cli.columns import with_target

    with counted(f"reading {data}") as count:
        features, rest = [], []
        for own, part in model_batches(model, data, format, target=target):
            features.append(own)
            rest.append(part)
            count(len(own))
    if not features:
        raise ValueError(f"{data} must have rows; it has none.")
    X = np.concatenate(features) if isinstance(features[0], np.ndarray) else pa.concat_tables(features)
    if target is None:
        return X, None
    table = pa.concat_tables([part.select([target]) for part in rest], promote_options="permissive")
    _, _, y, places = with_target(table, target, data)
    if len(places) < len(table):
        say_without_target(len(table) - len(places))
        X = X[places] if isinstance(X, np.ndarray) else X.take(places)
    return X, _as_trained(model, y, target)


def _as_trained(model: Any, y: Any, target: str) -> Any:
    """Targets, which CSV gives as text, in the type that the model was fitted to."""
    import numpy as np

    classes = getattr(model, "classes_", None)
    if classes is None or classes.dtype.kind in "iuf":
        try:
            kind = np.float64 if classes is None else classes.dtype
            return y.astype(kind) if all(map(_is_whole, y)) else y.astype(np.float64)
        except ValueError:
            strange = next(value for value in y if not _is_number(value))
            raise ValueError(f"column {target!r} must hold numbers, as it did in training; got {strange!r}.") from None
    if classes.dtype.kind == "b" and y.dtype.kind in "OUST":
        words = {"true": True, "false": False, "1": True, "0": False}
        return np.array([words.get(str(value).lower(), value) for value in y])
    return y if classes.dtype.kind == "b" else y.astype(str)


def _is_whole(value: Any) -> bool:
    return str(value).lstrip("-").isdigit()


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def target_of(model: Any, target: str | None) -> str:
    """The name of the target: as given, or as the model knows it."""
    found = target or model.target_name_
    if found is None:
        raise typer.BadParameter("the model does not know the name of its target; say --target COLUMN.")
    return str(found)


@app.command()
def predict(
    model: ModelPath,
    data: Data,
    out: Annotated[str, typer.Option("--out", "-o", help="A file (.csv, .parquet, .arrow, .jsonl), or -.")] = "-",
    keep: Annotated[list[str] | None, typer.Option(help="A column of DATA to copy; may be repeated.")] = None,
    format: DataFormat = None,  # noqa: A002
    out_format: Annotated[TableFormat | None, typer.Option(help="Format of what is written.")] = None,
    threads: Threads = None,
) -> None:
    """Predict the rows of a table, however many: they are read, scored and written in parts.

    Writes the prediction and, for classes, the probability of each. Example: `cofrnet predict model.cofrnet
    new.csv --keep id -o predictions.parquet`
    """
    import pyarrow as pa
    from threadpoolctl import threadpool_limits

    from cofrnet.estimators.scoring import TableScorer
    from cofrnet.tables import in_order, writer

    if out != "-":
        require_writable(out)
    light = TableScorer.read(model)
    estimator = light or load_model(model)
    workers = 1 if light is None else threads or pa.cpu_count()  # an estimator has threads of its own
    others, pictures = tuple(dict.fromkeys(keep or ())), reads_images(estimator)
    if pictures and others:
        raise typer.BadParameter("--keep is for tables: of images the names are written.")

    def predicted(rows: tuple[Any, pa.Table]) -> pa.Table:
        kept = rows[1] if pictures else rows[1].select(list(others)) if others else None
        return _predictions(estimator, rows[0], kept)

    total = 0
    with (
        threadpool_limits(None if light is None else 1, "blas"),
        counted("predicting") as count,
        writer(out, None if out_format is None else out_format.value) as write,
    ):
        for part in in_order(predicted, model_batches(estimator, data, format, others), workers):
            write(part)
            total += len(part)
            count(len(part))
    if total == 0:
        say(f"{data} has no rows.")
    elif out != "-":
        tell(f"{total} predictions written to {out}")


def _column(values: Any) -> pa.Array:
    """Numbers or bools as a column. `pa.array` would do it, but imports pandas first, to ask whether they are of it."""
    import numpy as np
    import pyarrow as pa

    if values.dtype.kind == "b":
        return _column(values.astype(np.uint8)).cast(pa.bool_())
    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), len(whole), [None, pa.py_buffer(whole)])


def _labels(classes: Any, codes: Any) -> pa.Array:
    """The classes of the codes as a column. `take` would do it, but imports much more."""
    import numpy as np
    import pyarrow as pa

    if classes.dtype.kind in "biuf":
        return _column(classes[codes])
    texts = [str(name).encode() for name in classes]
    lengths = np.array([0, *map(len, texts)], dtype=np.int32)
    ends = np.cumsum(lengths[np.concatenate([[0], codes + 1])], dtype=np.int32)
    found = b"".join(map(texts.__getitem__, codes.tolist()))
    return pa.StringArray.from_buffers(len(codes), pa.py_buffer(ends), pa.py_buffer(found))


def _predictions(estimator: Any, features: Any, kept: Any) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    columns: dict[str, Any] = {} if kept is None else {name: kept[name] for name in kept.column_names}

    def add(name: str, values: Any) -> None:
        while name in columns:
            name = f"{name}_"
        columns[name] = values

    classes = getattr(estimator, "classes_", None)
    if classes is None:
        none = np.empty((0, len(estimator.target_mean_))[: 1 if estimator._flat_target else 2])
        y = estimator.predict(features) if len(features) else none
        names = ["prediction"] if y.ndim == 1 else [f"prediction_{c}" for c in range(y.shape[1])]
        for name, own in zip(names, [y] if y.ndim == 1 else y.T, strict=True):
            add(name, _column(own))
        return pa.table(columns)
    probabilities = estimator.predict_proba(features) if len(features) else np.empty((0, len(classes)))
    add("prediction", _labels(classes, probabilities.argmax(1)))
    for name, own in zip(classes, probabilities.T, strict=True):
        add(f"probability_{name}", _column(own))
    return pa.table(columns)


@app.command()
def evaluate(
    model: ModelPath,
    data: Data,
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column with the truth.")] = None,
    format: DataFormat = None,  # noqa: A002
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Say how good a model is on rows with known targets: metrics with 95 % confidence intervals.

    Give it rows that the model was not fitted to.
    """
    estimator = load_model(model)
    X, y = read_rows(estimator, data, None if reads_images(estimator) else target_of(estimator, target), format)
    if y is None and Path(data).is_dir():
        raise ValueError(f"{data} must have a folder of images for each class; it has images and no folders.")
    if y is None:
        X, y = read_rows(estimator, data, target_of(estimator, target), format)
    quality = estimator.quality(X, y)
    if as_json:
        print_json(quality.to_dict() | {"points": None})
        return
    quality_table(quality, f"{data}: {quality.n_rows} rows")
    names = quality.class_names
    if names and len(names) <= 12:
        rows = [(f"actual {a}", *map(int, own)) for a, own in zip(names, quality.confusion, strict=True)]
        print_table(("", *(f"predicted {name}" for name in names)), rows)


@app.command()
def info(model: ModelPath, as_json: AsJson = False) -> None:
    """Say what is in a model file: the model, its columns, how it was trained, what matters to it."""
    estimator = load_model(model)
    if as_json:
        about = {k: v for k, v in estimator._about().items() if k not in ("profile", "vocabulary")}
        print_json(about | {"columns": _columns(estimator)})
        return
    tell(f"{model}: {estimator.target_name_ or 'a target without a name'}")
    tell(estimator.summary())
    if reads_images(estimator):
        return
    lines = [(c["name"], c["kind"], c["values"]) for c in _columns(estimator)]
    print_table(("column", "kind", "values"), lines, left=3)


def _columns(estimator: Any) -> list[dict[str, Any]]:
    if reads_images(estimator):
        channels, height, width = estimator.shape_
        return [{"name": "", "kind": "image", "values": f"{height} by {width} pixels, {channels} channels"}]
    if reads_text(estimator):
        known = estimator.vocabulary_
        values = f"{len(known.words)} words and {len(known.pairs)} pairs"
        return [{"name": estimator.text_name_ or "", "kind": "text", "values": values}]
    kinds = _kinds(estimator)
    found = []
    for column in estimator.encoder_.columns:
        levels = getattr(column, "levels", None)
        if levels is None:
            values = f"{column.knots[0]:g} to {column.knots[-1]:g}" + (", or missing" if column.has_missing else "")
        else:
            values = ", ".join(levels[:8]) + (" ..." if len(levels) > 8 else "")
        found.append({"name": column.name, "kind": kinds[column.name], "values": values})
    return found

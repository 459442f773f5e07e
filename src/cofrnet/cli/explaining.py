"""Commands that say what a model does: `explain`, `plot`, `report`, `formula`, `export`."""

from __future__ import annotations

import warnings
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cofrnet.cli.output import busy, print_texts, say, tell
from cofrnet.cli.pictures import reads_images
from cofrnet.cli.root import AsJson, Data, DataFormat, ModelPath, Threads, app
from cofrnet.cli.using import load_model, read_rows, reads_text
from cofrnet.files import require_writable, write_atomically

__all__: list[str] = []

explain = typer.Typer(no_args_is_help=True, help="Say what a model does: overall, or row by row.")
app.add_typer(explain, name="explain")

OptionalData = Annotated[
    str | None, typer.Argument(help="Rows to explain the model on; by default those it was fitted to.", metavar="DATA")
]
Where = Annotated[
    Path | None, typer.Option("--out", "-o", help="A file: .json, .csv, .parquet, .arrow or .jsonl; else printed.")
]


class Method(StrEnum):
    """How rows are explained."""

    integrated = "integrated"
    gradient = "gradient"


MOST_TERMS = 400_000  # which take most of a minute


class Form(StrEnum):
    """Forms of a formula."""

    nested = "nested"
    rational = "rational"
    expanded = "expanded"
    factored = "factored"


@explain.command("global")
def explain_global(
    model: ModelPath,
    data: OptionalData = None,
    out: Where = None,
    format: DataFormat = None,  # noqa: A002
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Importances of the features, the strongest pairs and, in JSON, all curves."""
    estimator = load_model(model)
    if reads_images(estimator):
        raise ValueError("images are explained one by one: use cofrnet explain local, plot or report.")
    X = None if data is None else read_rows(estimator, data, None, format)[0]
    _give(estimator.explain_global(X), out, as_json)


@explain.command("local")
def explain_local(
    model: ModelPath,
    data: Data,
    rows: Annotated[str | None, typer.Option(help="Which rows, from 0: 3, or 0,5,9, or 10-20; else all.")] = None,
    method: Annotated[
        Method, typer.Option(help="integrated: what each feature adds; gradient: slopes in the feature's unit.")
    ] = Method.integrated,
    out: Where = None,
    format: DataFormat = None,  # noqa: A002
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """What every feature adds to the score of each row."""
    import numpy as np

    estimator = load_model(model)
    X = read_rows(estimator, data, None, format)[0]
    chosen = _rows(rows, len(X))
    if reads_images(estimator):
        found = estimator.explain_local([X[i] for i in chosen], method=method.value)
        _give(replace(found, rows=np.array(chosen)), out, as_json)
        return
    X = X[chosen] if not hasattr(X, "take") or hasattr(X, "dtype") else X.take(chosen)
    if reads_text(estimator):
        if method is not Method.integrated:
            raise typer.BadParameter("words have contributions and no slopes: leave --method out.")
        explanation = estimator.explain_local(X)
    else:
        explanation = estimator.explain_local(X, method=method.value)
    _give(replace(explanation, rows=np.array(chosen)), out, as_json)


def _rows(text: str | None, count: int) -> list[int]:
    """Positions named by 3, 0,5,9 or 10-20."""
    if text is None:
        return list(range(count))
    found: list[int] = []
    for part in text.split(","):
        first, sign, last = part.strip().partition("-")
        last = last if sign else first
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
            raise typer.BadParameter(f"--rows must be like 3, 0,5,9 or 10-20; got {text!r}.")
        if int(last) >= count:
            raise ValueError(f"rows must be from 0 to {count - 1}; got {int(last)}.")
        found += range(int(first), int(last) + 1)
    return found


def _give(explanation: Any, out: Path | None, as_json: bool) -> None:
    if out is not None and out.suffix != ".json":
        import pyarrow as pa

        from cofrnet.tables import writer

        with writer(out) as write:
            write(pa.table({name: pa.array(list(own)) for name, own in explanation.columns().items()}))
    elif out is not None:
        write_atomically(out, (explanation.to_json(indent=2) + "\n").encode())
    if out is not None:
        if str(out) != "-":
            tell(f"written to {out}")
    elif as_json:
        typer.echo(explanation.to_json(indent=2))
    elif hasattr(explanation, "pieces"):
        print_texts(explanation)
    else:
        tell(str(explanation))


@app.command()
def plot(
    model: ModelPath,
    data: OptionalData = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="A picture: .png, .svg or .pdf.")] = Path("plot.png"),
    feature: Annotated[str | None, typer.Option(help="Draw the curve of this feature.")] = None,
    pair: Annotated[tuple[str, str] | None, typer.Option(help="Draw what two features do together.")] = None,
    row: Annotated[int | None, typer.Option(min=0, help="Draw why this row of DATA is scored as it is.")] = None,
    curves: Annotated[bool, typer.Option("--curves", help="Draw the curves of the most important features.")] = False,
    cloud: Annotated[bool, typer.Option("--cloud", help="Of texts: draw a cloud of the words that matter.")] = False,
    format: DataFormat = None,  # noqa: A002
    threads: Threads = None,
) -> None:
    """Draw a picture: importances, or with an option curves, a pair of features, or one row.

    Examples: `cofrnet plot model.cofrnet -o importances.png`, `cofrnet plot model.cofrnet --feature age`
    · `cofrnet plot model.cofrnet data.csv --row 3`
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise ImportError("plot needs matplotlib. Install it with: pip install 'cofrnet[plot]'") from None
    mpl.use("agg")
    from cofrnet import plot as draw
    from cofrnet.explain.subject import evenly
    from cofrnet.images import image_name

    require_writable(out)

    estimator = load_model(model)
    X: Any = None if data is None else read_rows(estimator, data, None, format)[0]
    if row is not None:
        if X is None:
            raise typer.BadParameter("--row needs the rows: name DATA.")
        if row >= len(X):
            raise ValueError(f"row must be from 0 to {len(X) - 1}; got {row}.")
    axes: Any
    if reads_images(estimator):
        if X is None or feature is not None or pair is not None or curves or cloud:
            raise typer.BadParameter("of images name DATA, and --row or no option: a gallery is drawn, or one image.")
        shown = evenly(len(X), 24).tolist() if row is None else [row]
        explanation = estimator.explain_local([X[i] for i in shown])
        axes = draw.gallery(explanation, labels=[image_name(X[i]) for i in shown])
    elif reads_text(estimator):
        if feature is not None or pair is not None or curves:
            raise typer.BadParameter("a model of texts has words and no curves: use --cloud, --row, or neither.")
        if row is not None:
            axes = draw.text(estimator.explain_local(X[row : row + 1]))
        elif cloud:
            axes = draw.words(estimator.explain_global(X))
        else:
            axes = draw.word_bars(estimator.explain_global(X), stop_words=True)
    elif cloud:
        raise typer.BadParameter("--cloud is for models of texts.")
    elif row is not None:
        axes = draw.waterfall(estimator.explain_local(X[row : row + 1]))
    elif feature is not None:
        axes = draw.curve(estimator.curve(feature, X))
    elif pair is not None:
        axes = draw.surface(estimator.surface(*pair, X))
    elif curves:
        axes = draw.curves(estimator.explain_global(X))
    else:
        axes = draw.importances(estimator.explain_global(X, features=[]))
    _write_figure(axes, out)
    tell(f"picture written to {out}")


def _write_figure(axes: Any, out: Path) -> None:
    import io

    import numpy as np

    figure = np.ravel(axes)[0].figure
    known = figure.canvas.get_supported_filetypes()
    kind = out.suffix.removeprefix(".").lower()
    if kind not in known:
        raise ValueError(f"a picture must end in one of {', '.join(sorted(known))}; got {out.name!r}.")
    content = io.BytesIO()
    with warnings.catch_warnings():  # of letters that the font does not have
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(content, format=kind, dpi=150, bbox_inches="tight")
    write_atomically(out, content.getvalue())


@app.command()
def report(
    model: ModelPath,
    data: OptionalData = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column with the truth, if any.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    format: DataFormat = None,  # noqa: A002
    threads: Threads = None,
) -> None:
    """Write an interactive page about a model: how good it is, what it does, why each row, and what if.

    One HTML file that works offline. Open it in a browser. Where DATA has the target, rows that the model was not
    fitted to show how good it is.
    """
    require_writable(out)
    estimator = load_model(model)
    X = y = None
    if data is not None and reads_images(estimator):
        table = Path(data).suffix.lower() == ".parquet"
        own = estimator.target_name_ if table and _has_column(data, estimator.target_name_, format) else None
        X, y = read_rows(estimator, data, target or own, format)
    elif data is not None:
        named = target or estimator.target_name_
        if target is None and (named is None or not _has_column(data, named, format)):
            why = "From a pipe the target is read if --target names it" if data == "-" else "DATA has no target"
            say(f"{why}, so the page says nothing about how good the model is.")
            named = None
        X, y = read_rows(estimator, data, named, format)
    with busy("writing the page"):
        path = estimator.report(out, X, y, title=title)
    tell(f"page written to {path}")


def _has_column(data: str, name: str | None, format: Any) -> bool:  # noqa: A002
    from cofrnet.tables import column_names

    return data != "-" and name in column_names(data, format)


class Formula(StrEnum):
    """Ways to write a model down."""

    latex = "latex"
    sympy = "sympy"
    python = "python"
    c = "c"
    javascript = "javascript"
    sql = "sql"
    series = "series"


@app.command()
def formula(
    model: ModelPath,
    format: Annotated[Formula, typer.Option("--format", "-f", help="How to write it.")] = Formula.latex,  # noqa: A002
    form: Annotated[Form, typer.Option(help="Of latex and sympy: one fraction needs a small model.")] = Form.nested,
    order: Annotated[int, typer.Option(min=0, help="Of a series: the total degree to keep.")] = 2,
    name: Annotated[str, typer.Option(help="Of a program: its function, or for SQL the table to read.")] = "score",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file; else printed.")] = None,
) -> None:
    """Write the model as a formula or as a program without dependencies.

    Example: `cofrnet formula model.cofrnet --format sql --name customers > score.sql`
    """
    estimator = load_model(model)
    if reads_text(estimator) or reads_images(estimator):
        raise ValueError("a model of texts or images is no formula to read: use cofrnet explain, plot or report.")
    if format is Formula.latex:
        text = estimator.to_latex(form.value)
    elif format is Formula.sympy:
        text = _written(estimator, form)
    elif format is Formula.series:
        text = str(estimator.power_series(order))
    else:
        text = estimator.to_code(format.value, name)
    text = text.rstrip("\n") + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        tell(f"written to {out}")


def _written(estimator: Any, form: Form) -> str:
    """The expressions of SymPy as text, if it is not too long for anybody."""
    terms = estimator.plan().terms if form is Form.nested else 0
    if terms > MOST_TERMS:
        raise ValueError(
            f"a formula in one line must have at most {MOST_TERMS} terms; this one has {terms}, as every ladder is "
            "written in full wherever it is read. Say --format latex, which gives ladders names, or python, which is a "
            "program; or fit a model with --set n_ladders=8 --set ladders_per_feature=2."
        )
    with busy("writing the formula"):
        found = estimator.to_sympy(form.value)
        return "\n".join(map(str, found if isinstance(found, list) else [found]))


class Export(StrEnum):
    """Formats for other runtimes."""

    onnx = "onnx"
    torch = "torch"


@app.command()
def export(
    model: ModelPath,
    format: Annotated[  # noqa: A002
        Export | None, typer.Option("--format", "-f", help="onnx, or a torch.export program; by the name of --out.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; MODEL with .onnx or .pt2.")] = None,
    contributions: Annotated[
        bool, typer.Option("--contributions", help="Also give what each feature adds to the score.")
    ] = False,
    opset: Annotated[int, typer.Option(min=18, help="Of ONNX; an older runtime may need a smaller one.")] = 25,
) -> None:
    """Write the whole model, with its preprocessing, for ONNX runtimes or as a torch.export program."""
    if format is None:
        format = Export.torch if out is not None and out.suffix in (".pt2", ".pt") else Export.onnx  # noqa: A001
    path = out or model.with_suffix(".onnx" if format is Export.onnx else ".pt2")
    if path.suffix != (".onnx" if format is Export.onnx else ".pt2"):
        raise typer.BadParameter(f"--out must end in .onnx, or in .pt2 for a torch.export program; got {path.name!r}.")
    require_writable(path)
    estimator = load_model(model)
    with busy("exporting"):
        if format is Export.onnx:
            written = estimator.to_onnx(path, contributions=contributions, opset=opset)
        else:
            written = estimator.to_torch(path, contributions=contributions)
    tell(f"written to {written}")

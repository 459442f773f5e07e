"""What came of it, as Markdown and as HTML: tables with ours beside the printed values, and pictures."""

from __future__ import annotations

import html as html_text
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from cofrnet import plot
from cofrnet.datasets import FUNCTIONS
from cofrnet.files import write_atomically
from cofrnet.plot.drawing import few_ticks
from cofrnet.reproduce import data_tables, functions, pictures, texts
from cofrnet.reproduce.claims import CHANGES
from cofrnet.reproduce.claims import TABLES as CLAIM_TABLES
from cofrnet.reproduce.findings import accuracies_of, findings_on_functions, mape_of, summary
from cofrnet.reproduce.records import Records

__all__ = ["write_pages"]

FUNCTION_COLUMNS = (
    "CoFrNet-F, ours",
    "CoFrNet-F, paper",
    "MLP, second order",
    "MLP one wider, second order",
    "MLP, Adam",
)
METHODS = ("CoFrNet-S", "CoFrNet-S, 8 members", "CoFrNet-DL", "CoFrNet-D", "CoFrNet-DL, paper", "CoFrNet-D, paper",
           "GAM", "NAM", "EBM", "CART", "LassoNet", "MLP", "boosted trees")  # fmt: skip
SIGNIFICANT = 0.05


def write_pages(folder: Path, docs: Path) -> tuple[Path, Path]:
    """Write reproduction.md and reproduction.html of all results in the folder; returns their paths."""
    parts: list[Callable[[Path, Path], list[str]]] = [
        summary, _synperf, _figure3, _realexp, _texts, pictures.section, _figure4, _clouds, _claims,
    ]  # fmt: skip
    lines = ["# The paper, reproduced", ""]
    for part in parts:
        lines += part(folder, docs)
    markdown = "\n".join(lines).rstrip() + "\n"
    return (
        write_atomically(docs / "reproduction.md", markdown.encode()),
        write_atomically(docs / "reproduction.html", _as_html(markdown).encode()),
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines] + [""]


# ---------------------------------------------------------------------------------------------- synperf


def _synperf(folder: Path, docs: Path) -> list[str]:
    found = mape_of(folder)
    if not found:
        return []
    seeds = max(len(own["train"]) for methods in found.values() for own in methods.values())
    lines = [
        "## Ten functions (supplement, table of MAPE)",
        "",
        f"300 points of each, means over up to {seeds} seeds, in percent of the range; on the points themselves, "
        "and after the stroke on 3000 fresh ones. The paper prints one figure and does not say on which points. "
        "Boxes are those usual for the functions; the paper does not give its own.",
        "",
    ]
    rows = []
    for name, (paper, paper_mlp) in functions.PAPER.items():
        cells = [name, f"{paper:.2f}", f"{paper_mlp:.2f}"]
        own = found.get(name, {})
        best = min((np.mean(v["train"]) for v in own.values()), default=np.nan)
        for method in FUNCTION_COLUMNS:
            if method not in own:
                cells.append("")
                continue
            train, fresh = (float(np.mean(own[method][part])) for part in ("train", "fresh"))
            text = f"{train:.2f} / {fresh:.2f}"
            cells.append(f"**{text}**" if train == best else text)
        rows.append(cells)
    lines += _table(["function", "paper's CoFrNet-F", "paper's MLP", *FUNCTION_COLUMNS], rows)
    return [*lines, *findings_on_functions(found)]


# ---------------------------------------------------------------------------------------------- Figure 3


def _figure3(folder: Path, docs: Path) -> list[str]:
    records = Records(folder / "figure3.jsonl").results()
    if not records:
        return []
    lines = [
        "## Matyas and Rosenbrock (Figure 3)",
        "",
        "Power series about 0 of six ladders of depth 2, fitted to 300 points of the square from -1 to 1 by "
        "second-order least squares; coefficients divided by the largest true one. IC: the slopes at 0, beside the "
        "linear terms. Terms below 0.005 in every column are left out.",
        "",
    ]
    for record in records:
        rows = []
        for term in record["terms"]:
            paper = term["paper"]
            if max(abs(term["true"]), abs(term["found"]), abs(paper or 0)) < 0.005:
                continue
            name = " ".join(f"{v}^{k}" if k > 1 else v for v, k in zip("xy", term["powers"], strict=True) if k) or "1"
            rows.append((name, f"{term['true']:.4f}", f"{term['found']:.4f}", "" if paper is None else f"{paper:.3f}"))
        slopes = ", ".join(f"{v:.4f}" for v in record["ic"])
        lines += [f"**{record['function']}** (MAPE {record['train']:.3f} %; IC for x and y: {slopes})", ""]
        lines += _table(["term", "true", "ours", "paper"], rows)
    _draw_surfaces(records, docs / "images" / "figure3.png")
    return [*lines, "![Surfaces: the function, and the power series of the model](images/figure3.png)", ""]


def _draw_surfaces(records: list[dict[str, Any]], path: Path) -> None:
    """The functions (orange) and the power series of the models (blue lines), from the coefficients in the records."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    x, y = np.meshgrid(*2 * [np.linspace(*functions.FIGURE_BOX, 41)])
    for i, record in enumerate(records):
        axes: Any = figure.add_subplot(1, len(records), i + 1, projection="3d")
        true, found = (
            sum(term[part] * x ** term["powers"][0] * y ** term["powers"][1] for term in record["terms"])
            for part in ("true", "found")
        )
        axes.plot_surface(x, y, true, color="tab:orange", alpha=0.6, linewidth=0)
        axes.plot_wireframe(x, y, found, color="tab:blue", rcount=14, ccount=14, linewidth=0.8)
        axes.set(title=record["function"], xlabel="x", ylabel="y")
    _write_figure(figure, path)


def _write_figure(figure: Any, path: Path) -> None:
    import io

    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    write_atomically(path, content.getvalue())


# ---------------------------------------------------------------------------------------------- realexp


def _realexp(folder: Path, docs: Path) -> list[str]:
    found = accuracies_of(folder)
    if not found:
        return []
    lines = [
        "## Three tables of data (Table 1)",
        "",
        "Mean accuracy over five splits, with the standard deviation; in brackets the paper's figure. Bold: the "
        f"best but for boosted trees, and what a paired t-test does not tell from it (p ≥ {SIGNIFICANT}). With five "
        "splits such a test finds large differences only.",
        "",
    ]
    tables = [table for table in data_tables.TABLES if table in found]
    rows = []
    for method in METHODS:
        cells = [method]
        for table in tables:
            own = found[table].get(method)
            paper = data_tables.PAPER.get(method.removesuffix(", paper"), {}).get(table.partition(",")[0])
            printed = "" if paper is None or "8 members" in method else f" ({paper:.2f})"
            cells.append("" if own is None else _accuracy(own, found[table]) + printed)
        if any(cells[1:]):
            rows.append(cells)
    return [*lines, *_table(["method", *tables], rows)]


def _accuracy(own: list[float], others: dict[str, list[float]]) -> str:
    failed = int(np.isnan(own).sum())
    if failed == len(own):
        return "failed"
    text = f"{np.nanmean(own):.4f} ± {np.nanstd(own):.4f}"
    return f"{text}, {failed} failed" if failed else _bold(text, own, others)


def _bold(text: str, own: list[float], others: dict[str, list[float]]) -> str:
    fair = {m: values for m, values in others.items() if m != "boosted trees" and not np.isnan(values).any()}
    best = max(fair.values(), key=np.mean)
    alike = own == best or float(ttest_rel(own, best).pvalue) >= SIGNIFICANT
    return f"**{text}**" if alike and own in fair.values() else text


# ---------------------------------------------------------------------------------------------- texts


def _texts(folder: Path, docs: Path) -> list[str]:
    records = Records(folder / "texts.jsonl")
    if not len(records):
        return []
    lines = [
        "## Two sets of texts (Table 1, Sentiment and Quora)",
        "",
        "Test reviews of IMDB as the data set divides them; of Quora a sample of the questions (means over five splits "
        "and standard deviations), at about its natural share of insincere ones, and with half of them, as the paper's "
        "figures suggest: it prints 0.49 for methods that did not learn. In brackets the paper's figure. The paper's "
        "input is vectors of words side by side; only 4811 of GloVe's words were at hand, which are 83 % of the words "
        "of these texts. Seconds were taken beside other work; `python -m benchmarks text` measures side by side.",
        "",
    ]
    for table in texts.TABLES:
        measures = ("accuracy", "auc") if table == "imdb" else ("accuracy", "f1", "auc")
        rows = []
        for method in texts.METHODS:
            found = records.results(table=table, method=method)
            if not found:
                continue
            cells = [method]
            for measure in measures:
                own = [record[measure] for record in found]
                cells.append(f"{np.mean(own):.4f}" + (f" ± {np.std(own):.4f}" if len(own) > 1 else ""))
            paper = texts.TEXT_PAPER.get(method.partition(",")[0], {}).get(table.partition(",")[0])
            if paper is not None and ("paper" in method or "learned" in method):
                cells[1] += f" ({paper:.2f})"
            rows.append([*cells, f"{np.mean([r['seconds'] for r in found]):.1f}"])
        share = records.results(table=table)[0]["share"] if records.results(table=table) else 0.5
        lines += [f"**{table}**, {share:.1%} of the test texts of the second class", ""]
        lines += _table(["method", *measures, "fit, s"], rows)
    printed = ", ".join(
        f"{method} {own['imdb']} and {own['quora']}"
        for method, own in texts.TEXT_PAPER.items()
        if "CoFrNet" not in method
    )
    return [*lines, f"The paper's other figures, Sentiment and Quora: {printed}.", ""]


# ---------------------------------------------------------------------------------------------- Figure 4


def _figure4(folder: Path, docs: Path) -> list[str]:
    records = Records(folder / "figure4.jsonl").results()
    if not records:
        return []
    lines = [
        "## Curves of the three most important features (Figure 4 and supplement)",
        "",
        "The score as one feature moves, averaged over test rows of the first split; shaded, two standard "
        "deviations of the members to either side.",
        "",
    ]
    for record in records:
        name = re.sub(r"\W+", "-", f"figure4 {record['table']} {record['method']}".lower())
        _draw_curves(record["curves"], docs / "images" / f"{name}.png")
        first = ", ".join(record["ranking"][:3])
        lines += [
            f"**{record['table']}, {record['method']}**: {first}",
            "",
            f"![Curves]({'images/' + name + '.png'})",
            "",
        ]
    return lines


def _draw_curves(curves: list[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.6), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        for c, output in enumerate(curve["outputs"]):
            color = mpl.colormaps["tab10"](c)
            axes.fill_between(curve["grid"], curve["low"][c], curve["high"][c], color=color, alpha=0.2, lw=0)
            axes.plot(curve["grid"], curve["values"][c], color=color, label=f"class {output}")
        few_ticks(axes)
        axes.set_xlabel(curve["feature"])
        axes.spines[["top", "right"]].set_visible(False)
        if len(curve["outputs"]) > 1:
            axes.legend(frameon=False, fontsize=7)
    _write_figure(figure, path)


def _clouds(folder: Path, docs: Path) -> list[str]:
    records = Records(folder / "clouds.jsonl").results()
    if not records:
        return []
    lines = [
        "## Words that matter (Figure 4)",
        "",
        "The words of most importance on test texts, without articles, prepositions and auxiliary verbs: red speaks "
        "for the second class (a good film, an insincere question), blue against it. Quora's insincere questions are "
        "partly offensive, and so are some of these words.",
        "",
    ]
    for record in records:
        name = re.sub(r"\W+", "-", f"cloud {record['table']} {record['method']}".lower())
        path = docs / "images" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        axes = plot.words(record["sizes"])
        _write_figure(axes.figure, path)
        first = ", ".join(list(record["sizes"])[:8])
        lines += [f"**{record['table']}, {record['method']}**: {first}", "", f"![Words](images/{name}.png)", ""]
    return lines


# ---------------------------------------------------------------------------------------------- claims


def _claims(folder: Path, docs: Path) -> list[str]:
    records = Records(folder / "claims.jsonl")
    if not len(records):
        return []
    lines = [
        "## Claims checked",
        "",
        "One setting changed at a time from the defaults of this library; mean accuracy and standard deviation over "
        "three splits. The paper says that ladders of depth 12 or less were best for most data sets.",
        "",
    ]
    lines += _parameter_counts(folder)
    for change, settings in CHANGES.items():
        rows = []
        for setting in settings:
            cells = [setting]
            for table in CLAIM_TABLES:
                own = [r["accuracy"] for r in records.results(change=change, setting=setting, table=table)]
                cells.append(f"{np.mean(own):.4f} ± {np.std(own):.4f}" if own else "")
            rows.append(cells)
        lines += _table([change, *CLAIM_TABLES], rows)
    return lines


def _parameter_counts(folder: Path) -> list[str]:
    """Parameters of the models of the ten functions, beside the supplement's formulas."""
    records = Records(folder / "synperf.jsonl")
    rows = []
    for depth in sorted({functions.depth_of(function) for function in FUNCTIONS.values()}):
        name = next(n for n, function in FUNCTIONS.items() if functions.depth_of(function) == depth)
        width = functions.width_of(depth)
        counted = [
            {record["parameters"] for record in records.results(function=name, method=method)}
            for method in ("CoFrNet-F, paper", "MLP, second order")
        ]
        if all(counted):
            ladder, mlp = (", ".join(map(str, sorted(own))) for own in counted)
            rows.append([str(depth), f"{3 * (depth + 1) + 1}", ladder, f"{3 * width + depth * width**2 + width}", mlp])
    if not rows:
        return []
    said = (
        "**Counts of parameters.** The supplement's p L (d - 1) + L q for CoFrNet-F and p L + (d - 2) L² + L q for an "
        "MLP, with the constant as one of the p = 3 inputs and d two more than our depth, beside the numbers that the "
        "modules have. The formula of the MLP leaves out the biases behind its first layer; the ladders here have a "
        "linear path beside them, three numbers more."
    )
    return [said, "", *_table(["depth", "ladder, formula", "ladder", "MLP, formula", "MLP"], rows)]


# ---------------------------------------------------------------------------------------------- HTML


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #1c2430 }
table { border-collapse: collapse; font-size: .85rem; display: block; overflow-x: auto }
td, th { padding: .25rem .6rem; border-bottom: 1px solid #dfe3e8; text-align: right }
td:first-child, th:first-child { text-align: left }
img { max-width: 100% }
@media (prefers-color-scheme: dark) {
  body { color: #e6eaf0; background: #12161c } td, th { border-color: #313a46 } img { background: #fff }
}
"""


def _as_html(markdown: str) -> str:
    """The page as HTML: headings, paragraphs, tables, pictures and bold, which is all that it has."""

    def inline(text: str) -> str:
        text = html_text.escape(text)
        text = re.sub(r"!\[([^\]]*)\]\(([^)]*)\)", r'<img alt="\1" src="\2">', text)
        text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)

    body = []
    for block in markdown.strip().split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            body.append(f"<h{level}>{inline(lines[0].lstrip('# '))}</h{level}>")
        elif lines[0].startswith("|"):
            cells = [[inline(cell.strip()) for cell in line.strip("|").split("|")] for line in lines if line]
            head = "".join(f'<th scope="col">{cell}</th>' for cell in cells[0])
            rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells[2:])
            body.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        else:
            body.append(f"<p>{inline(' '.join(lines))}</p>")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>The paper, reproduced</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )

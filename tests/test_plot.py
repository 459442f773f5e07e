"""Pictures: they are drawn, saved by their suffix, and look as the ones kept in tests/images do.

After a change that is meant, make those anew: ``COFRNET_NEW_IMAGES=1 python -m pytest tests/test_plot.py``, and look.
"""

import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.testing.compare import compare_images  # noqa: E402

from cofrnet import plot  # noqa: E402
from cofrnet.explain.data import OF_CLASSES, Curve, GlobalExplanation, Interaction, LocalExplanation, Surface  # noqa: E402
from cofrnet.explain.pictures import ImageExplanation  # noqa: E402
from cofrnet.export.plan import ColumnPlan as Column  # noqa: E402
from cofrnet.export.plan import LadderPlan, MemberPlan, Plan  # noqa: E402

IMAGES = Path(__file__).parent / "images"
UNIT = "log-odds of class yes"


@pytest.fixture(autouse=True)
def plain_style():
    with plt.rc_context({"figure.dpi": 80, "savefig.dpi": 80, "font.family": "DejaVu Sans"}):
        yield
    plt.close("all")


def line(outputs=("yes",), missing=True):
    grid = np.linspace(0, 10, 30)
    values = np.stack([np.sin(grid / (2 + c)) for c in range(len(outputs))])
    gap = np.array([0.5 - c for c in range(len(outputs))]) if missing else np.full(len(outputs), np.nan)
    edges = np.linspace(0, 10, 21)
    counts = np.exp(-((edges[1:] - 4) ** 2) / 6) * 100
    return Curve("age", False, grid, values, values, values[:, None], values - 0.2, values + 0.2, gap, edges,
                 counts, np.ones(30), tuple(outputs), UNIT)  # fmt: skip


def bars():
    values = np.array([[0.5, -0.3, 0.1]])
    levels = np.array(["Bern", "Oslo", "Rome"], dtype=object)
    return Curve("city", True, levels, values, values, values[:, None], values - 0.1,
                 values + 0.1, np.array([np.nan]), np.array([]), np.array([50.0, 30.0, 20.0]), np.ones(3),
                 ("yes",), UNIT)  # fmt: skip


def overall(outputs=("yes",)):
    importances = np.array([[0.9, 0.4]] * len(outputs)) * np.arange(1, len(outputs) + 1)[:, None]
    curves = (line(outputs), bars()) if len(outputs) == 1 else (line(outputs),)
    return GlobalExplanation(importances, curves, (), (Interaction(("age", "city"), np.ones(len(outputs))),),
                             ("age", "city"), tuple(outputs), UNIT, "mean absolute effect", "strength")  # fmt: skip


def local(method="integrated"):
    values = np.array([[[1.2, -0.7, 0.3, 0.05]]])
    return LocalExplanation(method, values, np.array([-0.4]), np.array([[0.45]]), np.zeros((1, 1)), np.zeros(1),
                            np.array([[41.5, "Bern", 3, None]], dtype=object), ("age", "city", "rooms", "note"),
                            ("yes",), UNIT, "what each feature adds")  # fmt: skip


def together():
    a, b = np.linspace(-1, 1, 12), np.linspace(0, 2, 9)
    values = np.outer(a, b - 1)[None]
    return Surface(
        ("u", "v"), a, b, values, values, values, values + 0.5, ((), ()), ((), ()), values[0], ("yes",), UNIT
    )


def with_gap():
    a = np.append(np.linspace(20, 80, 12), np.nan)
    values = np.outer(np.append(np.linspace(-1, 1, 12), -0.8), [1.0, -0.5])[None]
    cities = np.array(["Bern", "Oslo"], dtype=object)
    return Surface(
        ("age", "city"), a, cities, values, values, values, values, ((), ()), ((), ()), values[0], ("yes",), UNIT
    )


def plan():
    ladder = LadderPlan((0, 1), ((0.5, (1.0, -2.0)), (-0.25, (0.0, 0.5)), (2.0, (0.125, 0.0))))
    member = MemberPlan(((0.0, 0.0),), (0.0,), (ladder,), ((1.0,),))
    return Plan((Column("u", (0.0, 1.0), (0.0, 1.0)), Column("v", (0.0, 1.0), (0.0, 1.0))), (member,), "smooth", 1.0,
                (1.0,), (0.0,), ("yes",), UNIT, ("u", "v"))  # fmt: skip


def pictures(outputs=("cat", "$dog$")):
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=(5, len(outputs), 8, 8)), axis=3)
    images = np.broadcast_to(np.linspace(0, 255, 8)[:, None, None], (5, 8, 8, 3)).astype(np.uint8)
    scores = rng.normal(size=(5, len(outputs)))
    base = np.zeros(len(outputs))
    which = np.tile(np.arange(len(outputs)), (5, 1))
    return ImageExplanation("integrated", values, which, images, base, scores, 0 * scores, outputs, "score", "adds")


GRID = np.linspace(-1, 1, 15)
PICTURES = {
    "curve": lambda: plot.curve(line()),
    "curve_of_classes": lambda: plot.curve(line(("a", "b", "c"), missing=False)),
    "curve_of_levels": lambda: plot.curve(bars()),
    "curves": lambda: plot.curves(overall())[0, 0],
    "importances": lambda: plot.importances(overall(("a", "b"))),
    "waterfall": lambda: plot.waterfall(local(), most=3),
    "surface": lambda: plot.surface(together()),
    "surface_with_missing": lambda: plot.surface(with_gap()),
    "series": lambda: plot.series(GRID, GRID, {"function": np.outer(GRID, GRID), "series": np.outer(GRID, GRID)})[0, 0],
    "ladder": lambda: plot.ladder(plan()),
    "image": lambda: plot.image(np.tile(np.linspace(0, 1, 16), (16, 1)), np.outer(np.sin(np.arange(16)), np.ones(16))),
    "gallery": lambda: plot.gallery(pictures(), labels=list("abcde"), columns=3)[0, 0],
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_look_as_they_did(name, tmp_path):
    figure = PICTURES[name]().get_figure()
    kept, drawn = IMAGES / f"{name}.png", tmp_path / f"{name}.png"
    if os.environ.get("COFRNET_NEW_IMAGES"):
        IMAGES.mkdir(exist_ok=True)
        figure.savefig(kept, metadata={"Software": None})
    figure.savefig(drawn)
    difference = compare_images(str(kept), str(drawn), tol=12)  # fonts are drawn a little differently elsewhere
    assert difference is None, difference


def test_another_picture_is_told_apart(tmp_path):
    flat = line()
    other = Curve(**{**{f: getattr(flat, f) for f in flat.__dataclass_fields__}, "values": -2 * flat.values})
    plot.curve(other).get_figure().savefig(tmp_path / "other.png")
    assert compare_images(str(IMAGES / "curve.png"), str(tmp_path / "other.png"), tol=12) is not None


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_suffix_decides_the_format(suffix, tmp_path):
    path = tmp_path / f"curve.{suffix}"
    plot.curve(line(), path=path)
    assert path.stat().st_size > 1000
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_pictures_are_drawn_into_given_axes():
    _, (left, right) = plt.subplots(1, 2)
    assert plot.curve(bars(), ax=left) is left
    assert plot.waterfall(local(), ax=right) is right
    assert "log-odds of class yes" in left.get_ylabel().replace("\n", " ")
    assert left.get_xlabel() == "city"


def test_large_numbers_do_not_run_together_and_given_ticks_stay():
    explanation = replace(line(missing=False), grid=np.linspace(10_000, 530_000, len(line().grid)))
    figure, axes = plt.subplots(1, 3, figsize=(12, 3))
    axes[1].set_xscale("log")
    axes[2].set_xticks([20_000, 30_000])
    for ax in axes:
        plot.curve(explanation, ax=ax)
    figure.canvas.draw()
    left, right = axes[0].get_xlim()
    boxes = [t.label1.get_window_extent() for t in axes[0].xaxis.get_major_ticks() if left <= t.get_loc() <= right]
    assert len(boxes) >= 3
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
    assert list(axes[2].get_xticks()) == [20_000, 30_000]


def test_word_clouds_are_drawn(tmp_path):
    pytest.importorskip("wordcloud")
    plot.words({"good": 2.0, "bad": -1.0}, path=tmp_path / "words.png")
    assert (tmp_path / "words.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="at least one word"):
        plot.words({})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.curve(line(), output="no"), "output must be one of"),
        (lambda: plot.curve(line(), output=1), "output must be from 0 to 0"),
        (lambda: plot.waterfall(local("gradient")), "needs contributions"),
        (lambda: plot.waterfall(local(), row=5), "row must be from 0 to 0; got row=5"),
        (lambda: plot.image(np.zeros((4, 4)), np.zeros((3, 3))), "attribution must have the image's shape"),
        (lambda: plot.gallery(pictures(), rows=[]), "rows must name one image or more"),
        (lambda: plot.ladder(plan(), ladder=3), "ladder must be from 0 to 0"),
    ],
)
def test_impossible_pictures_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_of_many_levels_the_lowest_and_the_highest_are_drawn():
    values = np.random.default_rng(0).permutation(40)[None] / 10 - 2
    levels = np.array([f"a long name of level {i}" for i in range(40)], dtype=object)
    many = replace(bars(), grid=levels, values=values, low=values, high=values, counts=np.ones(40), margin=np.ones(40))
    ax = plot.curve(many)
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == sorted(values[0])[:12] + sorted(values[0])[-12:]
    assert "of 40 levels the lowest and the highest" in ax.get_xlabel()
    shown = [tick.get_text() for tick in ax.get_xticklabels()]
    assert shown[0] == str(levels[values[0].argmin()])
    assert len(shown) == 24


def test_of_very_many_levels_the_curve_says_which_it_has():
    levels = np.array([f"shop {i}" for i in range(40)], dtype=object)
    values = np.arange(40.0)[None]
    some = replace(bars(), grid=levels, values=values, low=values, high=values, counts=np.ones(40), levels=3000)
    assert "of the 40 most frequent levels" in plot.curve(some).get_xlabel()


def test_days_are_drawn_as_dates():
    days = np.linspace(18_262, 19_723, len(line().grid))  # 2020 to 2024
    for missing in (False, True):
        ax = plot.curve(replace(line(missing=missing), grid=days, edges=days[[0, -1]], counts=np.ones(1), is_date=True))
        ax.get_figure().canvas.draw()
        shown = [tick.get_text() for tick in ax.get_xticklabels()]
        assert {"2021", "2022", "2023"} <= set(shown)
        assert ("missing" in shown) == missing
    far = np.linspace(18_262, 2_932_896, len(line().grid))  # to 9999, and its margin beyond
    for missing in (False, True):
        plot.curve(replace(line(missing=missing), grid=far, is_date=True)).get_figure().canvas.draw()
    ax = plot.surface(replace(together(), first=np.linspace(18_262, 19_723, 12), are_dates=(True, False)))
    ax.get_figure().canvas.draw()
    assert "2022" in [tick.get_text() for tick in ax.get_xticklabels()]


def test_of_very_many_classes_those_that_differ_most_are_drawn():
    """As many as there are colours, the same ones in all panels; importances are not divided."""
    names = tuple(f"class {i}" for i in range(20))
    values = np.arange(20.0)[:, None] * np.linspace(-1, 1, 30)
    many = replace(line(names, missing=False), values=values, low=values, high=values)
    drawn = [text.get_text() for text in plot.curve(many).get_legend().get_texts()]
    assert drawn == [f"class {i}" for i in range(12, 20)]
    panels = plot.curves(replace(overall(names), curves=(many, replace(many, feature="city", values=-values))))
    assert [panels[0, i].get_legend() is not None for i in range(2)] == [False, True]
    assert len(plot.importances(overall(names)).patches) == 2


def test_a_row_of_classes_shows_the_most_probable_one():
    scores = np.array([[0.1, 2.0, -1.0]])
    values = np.arange(12.0).reshape(1, 3, 4)
    row = replace(
        local(), values=values, base_values=np.zeros(3), scores=scores, output_names=("a", "b", "c"), unit=OF_CLASSES
    )
    assert plot.waterfall(row).get_xlabel().startswith("b: score of each class")
    assert plot.waterfall(row, output="c").get_xlabel().startswith("c: ")
    assert row.output_of(0) == 1
    assert replace(row, unit="unit of each target").output_of(0) == 0

"""Pictures of texts: words by what they add."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cofrnet.explain.words import TextExplanation, WordExplanation
from cofrnet.plot.drawing import (
    BLUE,
    GREY,
    RED,
    chosen_outputs,
    literal,
    new_axes,
    plain,
    saved,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["text", "word_bars", "words"]


def words(
    weights: Mapping[str, float] | WordExplanation,
    ax: Axes | None = None,
    path: str | Path | None = None,
    random_state: int = 0,
) -> Axes:
    """A cloud of words, their size by what they do: red adds to the score, blue takes from it.

    Of an explanation, the hundred most important words that are no stop words.
    """
    if isinstance(weights, WordExplanation):
        weights = weights.sizes(100, pairs=False, stop_words=True)
    try:
        from wordcloud import WordCloud
    except ImportError as error:
        raise ImportError("plot.words needs wordcloud. Install it with: pip install 'cofrnet[plot]'") from error
    if not weights:
        raise ValueError("weights must name at least one word; got none.")

    def color(word: str, **_: Any) -> str:
        return RED if weights[word] > 0 else BLUE

    cloud = WordCloud(width=900, height=450, background_color="white", color_func=color, random_state=random_state)
    cloud.generate_from_frequencies({word: abs(weight) for word, weight in weights.items()})
    ax = new_axes(ax, 6, 3)
    ax.imshow(cloud.to_array(), interpolation="bilinear")
    ax.axis("off")
    saved(ax, path)
    return ax


def word_bars(
    explanation: WordExplanation,
    most: int = 15,
    output: str | int = 0,
    pairs: bool | None = None,
    stop_words: bool = False,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """Bars of the most important words and pairs, the largest on top: red adds to the score, blue takes from it."""
    c = chosen_outputs(explanation.output_names, output)[0]
    found = explanation.top(most, c, pairs, stop_words)[::-1]
    ax = new_axes(ax, 6, 0.9 + 0.28 * len(found))
    colors = [RED if effect > 0 else BLUE for _, _, effect in found]
    ax.barh(range(len(found)), [np.sign(effect) * size for _, size, effect in found], color=colors)
    ax.set_yticks(range(len(found)), [literal(name) for name, _, _ in found])
    ax.axvline(0, color=GREY, lw=0.8)
    ax.set_xlabel(wrapped(f"{explanation.definition}, with its sign; {explanation.unit}", 70), fontsize="small")
    plain(ax)
    saved(ax, path)
    return ax


def text(
    explanation: TextExplanation,
    row: int = 0,
    output: str | int = 0,
    most: int = 1200,
    ax: Axes | None = None,
    path: str | Path | None = None,
) -> Axes:
    """A text with its words shaded by what they add: red adds to the score, blue takes from it.

    Of a long text the first `most` characters.
    """
    c = chosen_outputs(explanation.output_names, output)[0]
    placed, lines = _lines_of(explanation.pieces(row, c), most)
    ax = new_axes(ax, 7.6, 0.5 + 0.26 * lines)
    strongest = max(explanation.strength(row, c), 1e-9)
    for x, y, word, value in placed:
        shade = None
        if value is not None:
            color = RED if value > 0 else BLUE
            shade = {"facecolor": color, "alpha": 0.65 * min(1.0, abs(value) / strongest), "lw": 0, "pad": 1.5}
        ax.text(x, y, literal(word), family="monospace", fontsize=10, va="center", bbox=shade)
    ax.set_xlim(0, LINE + 2)
    ax.set_ylim(lines - 0.4, -0.6)
    score = f"score {explanation.scores[row, c]:+.3g} ({explanation.unit})"
    ax.set_title(literal(score), fontsize="medium", loc="left")
    ax.axis("off")
    saved(ax, path)
    return ax


LINE = 84  # characters


def _lines_of(
    pieces: Sequence[tuple[str, float | None]], most: int
) -> tuple[list[tuple[int, int, str, float | None]], int]:
    """Column, line, text and value of the pieces of a text, broken into lines; and how many lines there are."""
    placed: list[tuple[int, int, str, float | None]] = []
    x = y = used = 0
    for piece, value in pieces:
        for i, part in enumerate(re.split(r"(\s)", piece) if value is None else [piece]):
            if part == "\n" and i % 2 == 1:
                x, y = 0, y + 1
                continue
            word = part if part.strip() or value is not None else " " * (len(part) if x else 0)
            if x and x + len(word) > LINE and word.strip():
                x, y = 0, y + 1
            if word.strip():
                placed.append((x, y, word, value))
            x += len(word)
            used += len(word)
        if used > most:
            return [*placed, (x, y, " …", None)], y + 1
    return placed, y + 1

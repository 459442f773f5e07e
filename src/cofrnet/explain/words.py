"""Explanations of texts: what each word adds to the score, and which words matter overall.

A text is a bag of words and pairs with weights x_j, its embedding z = sum_j x_j E_j. On the straight line from the
empty text to it, integrated gradients of score = sum_j x_j U_j + CoFrNet(z) are

    c_j = x_j (U_j + E_j·m),     m the mean slope of the CoFrNet along the line from 0 to z

so that one integral for each text serves all its words. They sum to the difference of the scores. What a feature adds
is shared evenly by its occurrences, and what a pair adds by its two words.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.explain import inputs
from cofrnet.explain.data import Explanation, signed
from cofrnet.nn import Bag, BagCoFrNet, VectorCoFrNet

__all__ = ["STOP_WORDS", "TextExplanation", "WordExplanation", "bag_contributions", "vector_contributions"]

Floats = NDArray[np.floating[Any]]

NUMBERS_AT_ONCE = 2**22  # for bounded memory

# Articles, prepositions, conjunctions, pronouns and auxiliary verbs of English.
_STOP = """
a an the and or but nor so yet if then than that this these those there here of in on at by for with about against
between into through during before after above below to from up down out off over under again as until while because i
me my myself we our ours ourselves you your yours yourself he him his himself she her hers herself it its itself they
them their theirs themselves who whom whose which what am is are was were be been being have has had having do does did
doing can could will would shall should may might must ought it's i'm i've i'd i'll he's she's that's there's they're
we're you're who's what's s t d ll m re ve upon without within among across around behind near since toward towards onto
along beside besides beyond despite except per via throughout underneath
"""
STOP_WORDS = frozenset(_STOP.split())


def bag_contributions(model: BagCoFrNet, x: Bag, tolerance: float = 1e-5) -> tuple[Floats, Floats]:
    """What each entry of each bag adds to the scores, (entries, q), and what they fall short by, (n, q)."""
    with torch.no_grad():
        z = model.embedded(x)
        found = inputs.mean_slopes(model.cofrnet, z, torch.zeros_like(z), tolerance)
        slopes = found.values.transpose(1, 2)  # (n, k, q)
        rows = torch.repeat_interleave(torch.arange(len(x)), x.offsets.diff())
        values = model.linear[x.ids]
        at_once = max(1, NUMBERS_AT_ONCE // max(1, slopes.shape[1] * slopes.shape[2]))
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            values[part] += torch.einsum("ek,ekq->eq", model.embedding[x.ids[part]], slopes[rows[part]])
        values *= x.weights.unsqueeze(1)
        wide = values.double()
        whole = torch.zeros_like(found.gap, dtype=torch.float64).index_add_(0, rows, wide)
        gap = model(x).double() - model.cofrnet(torch.zeros_like(z[:1])).double() - whole
    return wide.numpy(), gap.numpy()


def vector_contributions(model: VectorCoFrNet, words: Tensor, tolerance: float = 1e-5) -> tuple[Floats, Floats]:
    """What each word adds to the scores, (n, length, q), and what they fall short by, (n, q)."""
    z = model.embedded(words)
    found = inputs.contributions(model.cofrnet, z, torch.zeros_like(z), tolerance)
    each = found.values.view(len(z), found.values.shape[1], model.length, -1).sum(3)
    return each.transpose(1, 2).double().numpy(), found.gap.double().numpy()


@dataclass(frozen=True, eq=False)
class TextExplanation(Explanation):
    """What every word of every text adds to its scores.

    texts : as they were read; spans : for each text (words, 2), where its words begin and end; values : for each text
    (words, q), what each adds, with half of what the pairs add that it is in; pairs : for each text, places of the
    first words of its pairs that the model knows, and pair_values, (pairs, q), what these add.
    scores : (n, q); base_values : (q,), the score of an empty text; gap : (n, q), what the values fall short by.
    """

    texts: tuple[str, ...]
    spans: tuple[NDArray[np.int64], ...]
    values: tuple[Floats, ...]
    pairs: tuple[NDArray[np.int64], ...]
    pair_values: tuple[Floats, ...]
    base_values: Floats
    scores: Floats
    gap: Floats
    output_names: tuple[str, ...]
    unit: str
    rows: NDArray[np.int64] | None = None
    definition: str = "what each word adds to the score, from an empty text on; a pair adds half to each of its words"

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of the texts in their table."""
        return np.arange(len(self)) if self.rows is None else self.rows

    def words(self, row: int) -> list[str]:
        """The words of a text, as they are written in it."""
        return [self.texts[row][begin:end] for begin, end in self.spans[row].tolist()]

    def phrases(self, row: int) -> list[tuple[str, Floats]]:
        """The pairs of a text that the model knows, and what they add to each score."""
        words = self.words(row)
        return [
            (f"{words[i]} {words[i + 1]}", own)
            for i, own in zip(self.pairs[row].tolist(), self.pair_values[row], strict=True)
        ]

    def columns(self) -> dict[str, Any]:
        """One line for each word and output."""
        table: dict[str, list[Any]] = {name: [] for name in ("row", "word", "begin", "end", "output", "adds")}
        for i, place in enumerate(self.places.tolist()):
            for word, (begin, end), own in zip(self.words(i), self.spans[i].tolist(), self.values[i], strict=True):
                for output, value in zip(self.output_names, own.tolist(), strict=True):
                    for name, cell in zip(table, (place, word, begin, end, output, value), strict=True):
                        table[name].append(cell)
        return table

    def pieces(self, row: int, output: int = 0) -> list[tuple[str, float | None]]:
        """The text cut into words, with what each adds, and what is between them, with None."""
        text, at = self.texts[row], 0
        found: list[tuple[str, float | None]] = []
        for (begin, end), value in zip(self.spans[row].tolist(), self.values[row][:, output].tolist(), strict=True):
            if begin > at:
                found.append((text[at:begin], None))
            found.append((text[begin:end], value))
            at = end
        if at < len(text):
            found.append((text[at:], None))
        return found

    def strength(self, row: int, output: int = 0) -> float:
        """What the strongest word of a text adds, for colours."""
        own = np.abs(self.values[row][:, output])
        return float(own.max()) if len(own) else 1.0

    def to_html(self, row: int = 0, output: int = 0) -> str:
        """The text with its words coloured: red for those that raise the score, blue for those that lower it."""
        most = max(self.strength(row, output), 1e-9)
        parts = []
        for piece, value in self.pieces(row, output):
            shown = html.escape(piece)
            if value is None:
                parts.append(shown)
                continue
            colour = "213,94,0" if value > 0 else "0,114,178"
            style = f"background:rgba({colour},{min(1.0, abs(value) / most) * 0.75:.2f});border-radius:3px"
            parts.append(f'<span style="{style}" title="{value:+.3f}">{shown}</span>')
        return f'<div style="white-space:pre-wrap;line-height:1.7">{"".join(parts)}</div>'

    def _repr_html_(self) -> str:
        return "".join(self.to_html(i) for i in range(min(3, len(self))))

    def strongest(self, row: int, output: int = 0, most: int = 10) -> list[tuple[str, float]]:
        """The words of a text that add most, either way, occurrences of a word together."""
        total: dict[str, float] = {}
        for word, value in zip(self.words(row), self.values[row][:, output].tolist(), strict=True):
            total[word.lower()] = total.get(word.lower(), 0.0) + value
        return sorted(total.items(), key=lambda item: -abs(item[1]))[:most]

    def __str__(self) -> str:
        """The first texts, and their strongest words."""
        lines = [self.definition, f"scale: {self.unit}"]
        for i in range(min(len(self), 3)):
            for c, output in enumerate(self.output_names):
                lines += ["", f"row {self.places[i]}, {output}: score {self.scores[i, c]:.4g}"]
                lines.append(f"  {'an empty text':<24}{signed(float(self.base_values[c])):>10}")
                lines += [f"  {word:<24}{signed(value):>10}" for word, value in self.strongest(i, c)]
        if len(self) > 3:
            lines += ["", f"and {len(self) - 3} more"]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class WordExplanation(Explanation):
    """Which words and pairs matter overall.

    names : of words and pairs, the most important first; is_pair : whether each is a pair; importances : (V, q), the
    mean size of what it adds, over all texts; effects : (V, q), the mean of what it adds to the texts it is in;
    counts : (V,), how many of the texts it is in.
    """

    names: tuple[str, ...]
    is_pair: NDArray[np.bool_]
    importances: Floats
    effects: Floats
    counts: NDArray[np.int64]
    n_texts: int
    output_names: tuple[str, ...]
    unit: str
    definition: str = "mean size of what a word or pair adds to the score, over all texts"

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> dict[str, Any]:
        """One line for each word or pair and output."""
        v, q = self.importances.shape
        return {
            "name": [name for name in self.names for _ in range(q)],
            "pair": np.repeat(self.is_pair, q),
            "output": list(self.output_names) * v,
            "importance": self.importances.reshape(-1),
            "effect": self.effects.reshape(-1),
            "texts": np.repeat(self.counts, q),
        }

    def top(
        self,
        most: int = 20,
        output: int = 0,
        pairs: bool | None = None,
        stop_words: Iterable[str] | bool = False,
        sign: int = 0,
    ) -> list[tuple[str, float, float]]:
        """The most important names with importance and effect.

        `pairs` asks for pairs alone or for words alone; `stop_words` leaves out those of English (True), or words of
        one's own, and pairs of such; `sign` asks for those that raise (+1) or lower (-1) the score.
        """
        left_out = STOP_WORDS if stop_words is True else frozenset(stop_words or ())
        found = []
        for j in np.argsort(-self.importances[:, output], kind="stable").tolist():
            effect = float(self.effects[j, output])
            if (pairs is not None and bool(self.is_pair[j]) != pairs) or effect * sign < 0:
                continue
            if all(word in left_out for word in self.names[j].split(" ")):
                continue
            found.append((self.names[j], float(self.importances[j, output]), effect))
            if len(found) == most:
                break
        return found

    def sizes(self, most: int = 100, output: int = 0, **chosen: Any) -> dict[str, float]:
        """Importances by name, with the sign of the effect, of the `top` names."""
        return {name: size if effect > 0 else -size for name, size, effect in self.top(most, output, **chosen)}

    def __str__(self) -> str:
        """The most important words and pairs."""
        lines = [self.definition, f"scale: {self.unit}; {self.n_texts} texts"]
        for c, output in enumerate(self.output_names):
            lines += ["", f"{output}{'':<{max(1, 28 - len(output))}}importance    adds"]
            lines += [f"  {name:<26}{size:>10.4f}{signed(effect):>10}" for name, size, effect in self.top(20, c)]
        return "\n".join(lines)


def overall(
    names: Sequence[str],
    is_pair: NDArray[np.bool_],
    statistics: tuple[Floats, Floats, NDArray[np.int64]],
    n_texts: int,
    output_names: tuple[str, ...],
    unit: str,
) -> WordExplanation:
    """Words and pairs by their importance; those that are in no text are left out.

    `statistics` are sums over texts of what each adds and of its size, (V, q), and in how many texts it is, (V,).
    """
    sums, sizes, counts = statistics
    order = np.argsort(-sizes.max(1), kind="stable")
    order = order[counts[order] > 0]
    return WordExplanation(
        tuple(names[j] for j in order.tolist()),
        is_pair[order],
        sizes[order] / max(1, n_texts),
        sums[order] / counts[order, None],
        counts[order],
        n_texts,
        output_names,
        unit,
    )

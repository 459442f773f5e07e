"""The page of a model of texts: which words matter, texts with their words coloured, and a box to type in.

The model itself is in the page, for texts that are typed. Where its words are many, their numbers are rounded, to half
precision or to bytes, and the page says how far its scores are from the model's on the texts it shows.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.explain.quality import Quality
from cofrnet.explain.words import STOP_WORDS, TextExplanation, WordExplanation
from cofrnet.report import metric_words, quality_note, render, script, short

__all__ = ["LiveModel", "TextPage", "html_of_texts"]

MOST_WORDS = 3000  # in the table of words
EXACT_BYTES, MOST_BYTES = 3_000_000, 6_000_000  # of the numbers that stand for words
UNUSED = 1e-7  # share of an embedding's squares that may be lost
NODES = 32  # of the integrals behind the live contributions


@dataclass(frozen=True)
class LiveModel:
    """What a page needs to score a text: words, pairs as numbers of words, weights, and numbers for each feature.

    embedding : (V, width) and straight : (V, q), the embedding and the linear part of each feature; strength : (V,), by
    which features are chosen where there is no room for all; ladders : the CoFrNet above them as arrays, weight
    (members, rungs, L, width), bias (members, rungs, L), head (members, q, L), linear (members, q, width), intercept
    (members, q, 1); characters : where kinds of characters start, and which they are.
    """

    words: Sequence[str]
    pairs: NDArray[np.int64]
    weights: NDArray[np.float64]
    embedding: NDArray[np.float32]
    straight: NDArray[np.float32]
    strength: NDArray[np.float64]
    ladders: Mapping[str, NDArray[np.float32]]
    smooth: bool
    epsilon: float
    characters: tuple[Sequence[int], Sequence[int]]
    longest_tag: int
    axes: NDArray[np.float32] | None = None  # (own width of the model, width): what the embedding was cut down by

    def narrowed(self, share: NDArray[np.float64]) -> LiveModel:
        """The same model with an embedding of fewer dimensions, where it hardly uses the others.

        Its axes are the principal ones, with each feature weighted by its `share` in texts. Small models stay exact.
        """
        if self.embedding.nbytes <= EXACT_BYTES:
            return self
        weighted = self.embedding * share[:, None]
        energies, axes = np.linalg.eigh(weighted.T.astype(np.float64) @ weighted.astype(np.float64))
        lost = np.cumsum(energies) / max(energies.sum(), 1e-300)
        kept = axes[:, int(np.searchsorted(lost, UNUSED)) :].astype(np.float32)
        ladders = {name: v @ kept if name in ("weight", "linear") else v for name, v in self.ladders.items()}
        return replace(self, embedding=self.embedding @ kept, ladders=ladders, axes=kept)

    @cached_property
    def kept(self) -> NDArray[np.int64] | None:
        """Features whose numbers are in the page; None for all of them."""
        most = MOST_BYTES // (self.embedding.shape[1] + 2 * self.straight.shape[1])
        return None if len(self.embedding) <= most else np.sort(np.argsort(-self.strength, kind="stable")[:most])

    @cached_property
    def rounded(self) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The embeddings that are kept as the page has them, and what each is to be multiplied by."""
        rows = self.embedding if self.kept is None else self.embedding[self.kept]
        ones = np.ones(len(rows), dtype=np.float32)
        if rows.nbytes <= EXACT_BYTES:
            return rows, ones
        if rows.nbytes // 2 <= MOST_BYTES:
            return rows.astype(np.float16), ones
        scale = np.maximum(np.abs(rows).max(1), 1e-30) / 127
        return np.round(rows / scale[:, None]).astype(np.int8), scale.astype(np.float32)

    @cached_property
    def straight_kept(self) -> NDArray[Any]:
        """The linear parts that are kept, in half precision where embeddings are rounded too."""
        rows = self.straight if self.kept is None else self.straight[self.kept]
        return rows if self.rounded[0].dtype == np.float32 else rows.astype(np.float16)

    @property
    def near(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Embedding, in the model's own dimensions, and linear part that the page computes with: (V, k) and (V, q)."""
        where = slice(None) if self.kept is None else self.kept
        embedding, straight = np.zeros_like(self.embedding), np.zeros_like(self.straight)
        rows, scale = self.rounded
        embedding[where] = rows.astype(np.float32) * scale[:, None]
        straight[where] = self.straight_kept
        return embedding if self.axes is None else embedding @ self.axes.T, straight

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the script; arrays as base64."""
        kept, (rows, scale) = self.kept, self.rounded
        points, shares = np.polynomial.legendre.leggauss(NODES)
        members, rungs, ladders, width = self.ladders["weight"].shape
        return {
            "words": list(self.words),
            "left": _packed(self.pairs[:, 0], np.uint32),
            "right": _packed(self.pairs[:, 1], np.uint32),
            "weights": _packed(self.weights, np.float32),
            "places": None if kept is None else _packed(kept, np.uint32),
            "embedding": _packed(rows, rows.dtype),
            "kind": str(rows.dtype),
            "scale": _packed(scale, np.float32),
            "straight": _packed(self.straight_kept, self.straight_kept.dtype),
            "straightKind": str(self.straight_kept.dtype),
            **{name: _packed(values, np.float32) for name, values in self.ladders.items()},
            "members": members,
            "rungs": rungs,
            "ladders": ladders,
            "width": width,
            "smooth": self.smooth,
            "epsilon": self.epsilon,
            "nodes": ((points + 1) / 2).tolist(),
            "shares": (shares / 2).tolist(),
            "characters": {"starts": list(self.characters[0]), "kinds": list(self.characters[1])},
            "longestTag": self.longest_tag,
        }


def _packed(values: NDArray[Any], kind: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


@dataclass(frozen=True)
class TextPage:
    """All that a page of texts shows; `live` is None where the model cannot be in it, and `live_note` says why.

    index : places of the texts in their table; predicted, actual and loss : of each, the last two None where y is not
    known; total : texts of the table.
    """

    title: str
    facts: Sequence[tuple[str, str]]
    overall: WordExplanation
    classes: Sequence[str]
    live: LiveModel | None
    live_note: str
    quality: Quality | None = None
    history: Mapping[str, Sequence[float]] | None = None
    explanation: TextExplanation | None = None
    index: Sequence[int] = ()
    predicted: Sequence[str] = ()
    actual: Sequence[str] | None = None
    loss: Sequence[float] | None = None
    total: int = 0


def html_of_texts(page: TextPage) -> str:
    """The text of the page."""
    quality, explanation = page.quality, page.explanation
    sections = [("quality", "Quality" if quality else "Model"), ("words", "Words"), ("try", "Try a text")]
    sections += [("texts", "Texts")] if explanation is not None else []
    return render(
        "texts.html.j2",
        [script("common.js"), script("charts.js"), script("texts.js")],
        _data(page),
        title=page.title,
        subtitle=page.facts[0][1],
        facts=page.facts,
        sections=sections,
        outputs=page.overall.output_names,
        output_word="Class",
        unit=page.overall.unit,
        importance_definition=page.overall.definition,
        metrics=[] if quality is None else [metric_words(m.to_dict()) for m in quality.metrics],
        quality_note="" if quality is None else quality_note(quality),
        live=page.live is not None,
        live_note=page.live_note,
        has_texts=explanation is not None,
        texts_note=_texts_note(page),
        footer="" if not page.total else f"It was made from {page.total:,} texts.",
    )


def _texts_note(page: TextPage) -> str:
    if len(page.index) == page.total:
        return f"All {page.total:,} texts. Choose one to see why the model says what it says of it."
    wrong = "those the model is most wrong about, and " if page.actual is not None else ""
    return (
        f"A sample of {len(page.index):,} of {page.total:,} texts: {wrong}texts evenly spread over the table. "
        "Choose one to see why the model says what it says of it."
    )


def _data(page: TextPage) -> dict[str, Any]:
    overall, explanation, quality = page.overall, page.explanation, page.quality
    some = slice(0, MOST_WORDS)
    found: dict[str, Any] = {
        "outputs": overall.output_names,
        "classes": list(page.classes),
        "counted": "texts",
        "unit": overall.unit,
        "words": {
            "names": overall.names[some],
            "pair": overall.is_pair[some].tolist(),
            "stop": [all(word in STOP_WORDS for word in name.split(" ")) for name in overall.names[some]],
            "importances": overall.importances[some].T,
            "effects": overall.effects[some].T,
            "counts": overall.counts[some].tolist(),
        },
        "quality": None if quality is None else {"confusion": quality.confusion, "calibration": quality.calibration},
        "history": {} if page.history is None else dict(page.history),
    }
    texts = None
    if explanation is not None:
        texts = {
            "index": list(page.index),
            "texts": list(explanation.texts),
            "pieces": [_pieces(explanation, i) for i in range(len(explanation))],
            "scores": short(explanation.scores),
            "base": short(explanation.base_values),
            "predicted": list(page.predicted),
            "actual": None if page.actual is None else list(page.actual),
            "loss": None if page.loss is None else short(list(page.loss), 6),
        }
    start = explanation.texts[0] if explanation is not None and len(explanation) else ""
    model = None if page.live is None else page.live.to_dict()
    return short(found, 6) | {"texts": texts, "start": start, "model": model}


def _pieces(explanation: TextExplanation, row: int) -> list[list[Any]]:
    """Where each piece of a text begins and ends, in UTF-16 units as the browser counts, and what it adds."""
    text = explanation.texts[row]
    at = np.cumsum([0, *(1 + (ord(letter) > 0xFFFF) for letter in text)])
    found: list[list[Any]] = []
    last = 0
    for (begin, end), own in zip(explanation.spans[row].tolist(), explanation.values[row].tolist(), strict=True):
        if begin > last:
            found.append([int(at[last]), int(at[begin]), None])
        found.append([int(at[begin]), int(at[end]), short(own, 6)])
        last = end
    if last < len(text):
        found.append([int(at[last]), int(at[-1]), None])
    return found

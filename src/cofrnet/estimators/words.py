"""The explanations of a fitted classifier of texts, as its methods."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import cofrnet
from cofrnet.explain import words as explained
from cofrnet.explain.subject import evenly
from cofrnet.explain.words import TextExplanation, WordExplanation
from cofrnet.nn import Bag
from cofrnet.texts import Tokens, Vocabulary, tokenized

__all__ = ["ExplainingWords"]

AT_ONCE = 256  # texts, for bounded memory
STATISTICS_TEXTS = 2000
TOLERANCE = 1e-4


class ExplainingWords:
    """Explanations by the closed forms of `cofrnet.explain.words`, in the unit of the score."""

    vocabulary_: Vocabulary
    statistics_: tuple[NDArray[Any], NDArray[Any], NDArray[Any], int]
    model_: Any
    input: str
    ordered_: bool

    def explain_local(self, X: Any) -> TextExplanation:
        """What every word of every text adds to the score, from an empty text on; the sums are checked (`gap`).

        The score is the log-odds of the second class, or one score for each class (before the softmax).
        """
        me: Any = self
        texts = me._texts(X)
        parts = [self._explained(texts[start : start + AT_ONCE]) for start in range(0, len(texts), AT_ONCE)]
        _, _, names, unit = me._score_scale()
        kinds = ("texts", "spans", "values", "pairs", "pair_values")
        each: dict[str, Any] = {kind: tuple(one for part in parts for one in part[kind]) for kind in kinds}
        scores, gap = (
            np.concatenate([part[kind] for part in parts]) if parts else np.empty((0, len(names)))
            for kind in ("scores", "gap")
        )
        return TextExplanation(
            **each, base_values=self._base_values(), scores=scores, gap=gap, output_names=names, unit=unit
        )

    def _base_values(self) -> NDArray[np.float64]:
        """Scores of a text without words, (q,)."""
        nothing = torch.zeros(1, dtype=torch.int64)
        empty = Bag(nothing.repeat(2), nothing[:0], torch.empty(0))
        with torch.no_grad():
            x = nothing.repeat(1, self.model_.length) if self.ordered_ else empty
            return self.model_(x)[0].double().numpy()

    def _explained(self, texts: Sequence[str]) -> dict[str, Any]:
        """Of some texts: as they were read, spans and values of their words, pairs and their values, scores, gaps."""
        me: Any = self
        found: dict[str, Any] = {name: [] for name in ("texts", "spans", "values", "pairs", "pair_values")}
        x = me._encoded(texts)
        with torch.no_grad():
            found["scores"] = me.model_(x).double().numpy()
        if isinstance(x, Bag):
            values, found["gap"] = explained.bag_contributions(me.model_, x, TOLERANCE)
        else:
            values, found["gap"] = explained.vector_contributions(me.model_, x, TOLERANCE)
        for first, tokens in tokenized(texts, me.tokenizer):
            numbers = me._vocabulary().look_up(tokens)
            for i in range(len(tokens.starts) - 1):
                text, spans = _as_read(tokens, i, listed=me.tokenizer is not None)
                found["texts"].append(text)
                found["spans"].append(spans)
                own = slice(int(tokens.starts[i]), int(tokens.starts[i + 1]))
                if isinstance(x, Bag):
                    entries = slice(int(x.offsets[first + i]), int(x.offsets[first + i + 1]))
                    shared = _shared(x.ids[entries].numpy(), values[entries], *(part[own] for part in numbers))
                else:
                    shared = np.zeros((len(spans), values.shape[2])), np.empty(0, np.int64), values[0, :0]
                    read = values[first + i][: len(spans)]
                    shared[0][: len(read)] = read
                for name, value in zip(("values", "pairs", "pair_values"), shared, strict=True):
                    found[name].append(value)
        return found

    def _statistics(self, texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], int]:
        """Sums of what each word and pair adds and of its size, (V, q), and in how many texts it is, (V,)."""
        me: Any = self
        size, q = len(self.vocabulary_), me._count_outputs()
        sums, sizes, counts = np.zeros((size, q)), np.zeros((size, q)), np.zeros(size, dtype=np.int64)
        for start in range(0, len(texts), AT_ONCE):
            x = me._encoded(texts[start : start + AT_ONCE])
            if isinstance(x, Bag):
                values, ids = explained.bag_contributions(me.model_, x, TOLERANCE)[0], x.ids.numpy()
            else:
                values, ids = _by_word(explained.vector_contributions(me.model_, x, TOLERANCE)[0], x.numpy())
            for total, part in ((sums, values), (sizes, np.abs(values))):
                for c in range(q):
                    total[:, c] += np.bincount(ids, part[:, c], size)
            counts += np.bincount(ids, minlength=size)
        return sums, sizes, counts, len(texts)

    def explain_global(self, X: Any = None) -> WordExplanation:
        """Which words and pairs matter overall: by two thousand of the training texts, or by texts X."""
        check_is_fitted(self)
        me: Any = self
        sums, sizes, counts, n = self.statistics_ if X is None else self._statistics(me._texts(X))
        _, _, names, unit = me._score_scale()
        known = np.flatnonzero(counts)
        is_pair = (known >= len(self.vocabulary_.words)) & (
            known < len(self.vocabulary_.words) + len(self.vocabulary_.pairs)
        )
        spelled = [self.vocabulary_.name(j) for j in known.tolist()]
        return explained.overall(spelled, is_pair, (sums[known], sizes[known], counts[known]), n, names, unit)

    def token_ids(self, X: Any) -> NDArray[np.int64]:
        """Numbers of the words of texts, as exported programs read them, (n, T).

        For a bag the different words and pairs that the model knows, -1 after the last; for vectors the first words in
        their order, 0 for none. Numbers are places in ``vocabulary_``.
        """
        me: Any = self
        x = me._encoded(me._texts(X))
        if not isinstance(x, Bag):
            return x.numpy()
        counts = x.offsets.diff().numpy()
        found = np.full((len(x), max(1, int(counts.max(initial=0)))), -1, dtype=np.int64)
        found[np.arange(found.shape[1]) < counts[:, None]] = x.ids.numpy()
        return found

    def to_onnx(self, path: str | os.PathLike[str], contributions: bool = False, opset: int = 25) -> Path:
        """Write an ONNX file that takes "words", (n, T) of int64 as `token_ids` gives them; returns its path.

        Outputs are "label" and "probabilities". The metadata hold the words by their numbers, and pairs as numbers of
        words.
        """
        from cofrnet.export.classifiers import onnx_of

        program = self._program(contributions)
        return onnx_of(program, "words", self.classes_, self._described(), path, opset)  # type: ignore[attr-defined]

    def to_torch(self, path: str | os.PathLike[str], contributions: bool = False) -> Path:
        """Write a ``torch.export`` program, which needs torch alone, of what `token_ids` gives; returns its path."""
        from cofrnet.export.classifiers import torch_of

        return torch_of(self._program(contributions), self._described(), path)

    def _program(self, contributions: bool) -> Any:
        from cofrnet.export import texts

        check_is_fitted(self)
        if contributions:
            raise ValueError("contributions of words must be asked of explain_local; exported texts give none.")
        model = copy.deepcopy(self.model_).eval().requires_grad_(False)
        return texts.TextProgram(model, torch.from_numpy(self.weights_))  # type: ignore[attr-defined]

    def _described(self) -> dict[str, Any]:
        """What an exported file says of itself."""
        _, _, outputs, unit = self._score_scale()  # type: ignore[attr-defined]
        return {
            "cofrnet": cofrnet.__version__,
            "outputs": list(outputs),
            "unit": unit,
            "classes": [str(name) for name in self.classes_],  # type: ignore[attr-defined]
            "words": list(self.vocabulary_.words),
            "pairs": self.vocabulary_.pairs.tolist(),
            "buckets": self.vocabulary_.n_buckets,
        }

    def summary(self) -> str:
        """A page of text: what the model is, how it was trained, and what matters to it."""
        check_is_fitted(self)
        spec, history = self.model_.spec, getattr(self, "history_", {})
        words, pairs = len(self.vocabulary_.words), len(self.vocabulary_.pairs)
        members = f", {spec.n_members} members" if spec.n_members > 1 else ""
        kind = f"variant {spec.variant}," if self.input == "vectors" else f"{spec.n_ladders} full"
        lines = [
            f"{type(self).__name__}, input {self.input!r}: {kind} ladders of depth {spec.depth}{members}",
            f"{words} words and {pairs} pairs; {spec.n_parameters} parameters",
        ]
        if "validation_loss" in history:
            best, losses = getattr(self, "best_epoch_", -1), history["validation_loss"]
            kept = f"weights of epoch {best + 1}: validation loss {losses[best]:.4g}"
            lines.append(f"trained {len(losses)} epochs, {'the start was best' if best < 0 else kept}")
        return "\n".join([*lines, "", str(self.explain_global())])

    def _keep_statistics(self, texts: Sequence[str]) -> None:
        self.statistics_ = self._statistics([texts[i] for i in evenly(len(texts), STATISTICS_TEXTS)])


def _as_read(tokens: Tokens, text: int, listed: bool) -> tuple[str, NDArray[np.int64]]:
    """A text, and where its words begin and end in it; words that a tokenizer gave are joined by spaces."""
    first, last = int(tokens.firsts[text]), int(tokens.firsts[text + 1])
    own = slice(int(tokens.starts[text]), int(tokens.starts[text + 1]))
    spans = np.stack([tokens.begins[own], tokens.ends[own]], axis=1) - first
    return tokens.written(first, last).replace("\0", " " if listed else "\0"), spans


def _by_word(values: NDArray[Any], words: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """What each different word of each text adds, (words, q), and its number.

    Shapes: values (n, length, q) and words (n, length), 0 for none.
    """
    rows, places = np.nonzero(words)
    pairs, which = np.unique(np.stack([rows, words[rows, places]]), axis=1, return_inverse=True)
    total = np.zeros((pairs.shape[1], values.shape[2]))
    np.add.at(total, which.ravel(), values[rows, places])
    return total, pairs[1] - 1


def _shared(
    ids: NDArray[np.int64], values: NDArray[Any], words: NDArray[np.int64], pairs: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    """What each occurrence of a word adds, with its share of pairs; places of pairs, and what these add.

    Shapes: ids (e,) and values (e, q) of a bag; words and pairs (t,), the features at each place, -1 for none.
    """
    order = np.argsort(ids)
    each = np.zeros((len(words), values.shape[1]))
    places = np.flatnonzero(pairs >= 0)
    occurrences = np.concatenate([words[words >= 0], pairs[places]])
    where = order[np.searchsorted(ids[order], occurrences)] if len(ids) else np.empty(0, np.int64)
    shares = values[where] / np.bincount(where, minlength=len(ids))[where, None]
    of_words, of_pairs = np.split(shares, [int((words >= 0).sum())])
    each[words >= 0] = of_words
    np.add.at(each, places, of_pairs / 2)
    np.add.at(each, places + 1, of_pairs / 2)
    return each, places, of_pairs

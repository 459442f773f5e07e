"""The words and pairs of words that a model knows, learned from texts, and texts as bags of them.

Words and pairs share one list of features: first the words, then the pairs, then buckets. The most frequent of the
training texts get a place of their own; where there were more than that, the others share buckets by their hash. What
was not among the training texts is left out, or falls into a bucket where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cofrnet.compiled.jit import jit
from cofrnet.texts.tokens import PAIR, Tokenizer, Tokens, mixed, tokenized, words_of

__all__ = ["Bags", "Vocabulary", "relevance"]

SMOOTHING = 2.0  # occurrences that every feature has beforehand

Integers = NDArray[np.int64]


@jit
def _pair(left: np.uint64, right: np.uint64) -> np.uint64:
    return mixed(left * np.uint64(PAIR) + right)


@jit
def _slot(keys: Any, key: Any) -> Any:
    """Where a key is in a table, or the empty slot where it would be; keys are never 0."""
    last = np.uint64(len(keys) - 1)
    slot = key & last
    while keys[slot] != np.uint64(0) and keys[slot] != key:
        slot = (slot + np.uint64(1)) & last
    return np.int64(slot)


@jit
def _count(
    hashes: Any,
    starts: Any,
    number: Any,
    text: Any,
    pairs: Any,
    keys: Any,
    counts: Any,
    seen: Any,
    left: Any,
    right: Any,
    used: Any,
    fresh: Any,
) -> Any:
    """Count in how many texts each word and pair is, from `text` on, while there is room.

    Returns the text to go on with, how many slots are used, and how many of `fresh`, places of words not seen before.
    """
    new = 0
    for t in range(text, len(starts) - 1):
        begin, end = starts[t], starts[t + 1]
        if 2 * (used + 2 * (end - begin)) > len(keys):
            return t, used, new
        for i in range(begin, end):
            for kind in range(2 if pairs and i + 1 < end else 1):
                key = hashes[i] if kind == 0 else _pair(hashes[i], hashes[i + 1])
                slot = _slot(keys, key)
                if keys[slot] == np.uint64(0):
                    keys[slot] = key
                    used += 1
                    if kind == 0:
                        fresh[new] = i
                        new += 1
                    else:
                        left[slot], right[slot] = hashes[i], hashes[i + 1]
                if seen[slot] != number + t:
                    seen[slot] = number + t
                    counts[slot] += 1
    return len(starts) - 1, used, new


@jit
def _enter(keys: Any, values: Any, new_keys: Any, new_values: Any) -> Any:
    for i in range(len(new_keys)):
        slot = _slot(keys, new_keys[i])
        keys[slot], values[slot] = new_keys[i], new_values[i]


@jit
def _look_up(
    hashes: Any, starts: Any, pairs: Any, keys: Any, values: Any, known: Any, buckets: Any, words: Any, phrases: Any
) -> Any:
    """Number of each word, and of the pair that it begins; -1 where there is none."""
    for t in range(len(starts) - 1):
        for i in range(starts[t], starts[t + 1]):
            for kind in range(2):
                found = np.int64(-1)
                if kind == 0 or (pairs and i + 1 < starts[t + 1]):
                    key = hashes[i] if kind == 0 else _pair(hashes[i], hashes[i + 1])
                    slot = _slot(keys, key)
                    if keys[slot] != np.uint64(0):
                        found = values[slot]
                    elif buckets > 0:
                        found = known + np.int64(key % np.uint64(buckets))
                if kind == 0:
                    words[i] = found
                else:
                    phrases[i] = found


@jit
def _collect(words: Any, phrases: Any, starts: Any, last: Any, place: Any, offsets: Any, ids: Any, counts: Any) -> Any:
    """Fill in the different features of each text and how often each occurs; returns how many."""
    total = 0
    for t in range(len(starts) - 1):
        offsets[t] = total
        for i in range(starts[t], starts[t + 1]):
            for found in (words[i], phrases[i]):
                if found >= 0:
                    if last[found] != t:
                        last[found], place[found] = t, total
                        ids[total], counts[total] = found, 0
                        total += 1
                    counts[place[found]] += 1
    offsets[len(starts) - 1] = total
    return total


def _table(size: int) -> int:
    """Slots of a table for so many keys: a power of two, at most half full."""
    return 1 << max(4, (2 * size).bit_length())


class _Counts:
    """In how many texts words and pairs are: a table that grows."""

    def __init__(self, pairs: bool) -> None:
        self.pairs, self.used, self.spelled = pairs, 0, dict[int, str]()
        self._make(_table(2**16))

    def _make(self, size: int) -> None:
        self.keys, self.left, self.right = (np.zeros(size, dtype=np.uint64) for _ in range(3))
        self.counts, self.seen = np.zeros(size, dtype=np.int64), np.full(size, -1, dtype=np.int64)

    def _grow(self, more: int) -> None:
        old = self.keys, self.left, self.right, self.counts, self.seen
        kept = np.flatnonzero(self.keys)
        self._make(max(2 * len(self.keys), _table(self.used + more)))
        places = np.zeros(len(self.keys), dtype=np.int64)
        _enter(self.keys, places, old[0][kept], np.arange(len(kept)))
        filled = np.flatnonzero(self.keys)
        order = kept[places[filled]]
        for new, before in zip((self.left, self.right, self.counts, self.seen), old[1:], strict=True):
            new[filled] = before[order]

    def add(self, number: int, tokens: Tokens) -> None:
        """Count the words of texts, the first of which has a number."""
        text, texts = 0, len(tokens.starts) - 1
        fresh = np.empty(len(tokens), dtype=np.int64)
        while True:
            table = self.keys, self.counts, self.seen, self.left, self.right
            text, self.used, new = _count(
                tokens.hashes, tokens.starts, number, text, self.pairs, *table, self.used, fresh
            )
            for i in fresh[:new].tolist():
                self.spelled[int(tokens.hashes[i])] = tokens.word(i)
            if text == texts:
                return
            self._grow(2 * int(tokens.starts[text + 1] - tokens.starts[text]))


@dataclass(frozen=True)
class Bags:
    """Texts as bags of features: text t has `ids[offsets[t]:offsets[t + 1]]`, all different, and their `counts`."""

    offsets: Integers
    ids: Integers
    counts: Integers

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Vocabulary:
    """Words; pairs as numbers of words, (pairs, 2); in how many training texts each was; how many buckets there are.

    `has_pairs` says whether pairs count at all: those that are not known may fall into buckets.
    """

    words: tuple[str, ...]
    pairs: Integers
    texts: Integers
    n_buckets: int = 0
    n_texts: int = 1
    has_pairs: bool = True
    tokenizer: Tokenizer | None = field(default=None, compare=False)

    def __len__(self) -> int:
        """How many features there are."""
        return len(self.words) + len(self.pairs) + self.n_buckets

    @classmethod
    def learn(
        cls,
        texts: Sequence[str],
        pairs: bool = True,
        min_texts: int = 2,
        most: int = 200_000,
        buckets: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> Vocabulary:
        """The `most` frequent words and pairs that are in at least `min_texts` of the texts.

        Frequency is in how many texts; words come before pairs of the same frequency, so that the words of every pair
        are there too. `buckets` are made only where there were more.
        """
        counts = _Counts(pairs)
        for first, tokens in tokenized(texts, tokenizer):
            counts.add(first, tokens)
        slots = np.flatnonzero(counts.counts >= min_texts)
        is_pair = counts.left[slots] != 0
        order = np.lexsort((counts.keys[slots], is_pair, -counts.counts[slots]))
        cut = len(slots) > most
        slots, is_pair = slots[order[:most]], is_pair[order[:most]]
        words = counts.keys[slots[~is_pair]]
        number = dict(zip(words.tolist(), range(len(words)), strict=True))
        sides = (counts.left[slots[is_pair]].tolist(), counts.right[slots[is_pair]].tolist())
        paired = np.array([[number[key] for key in side] for side in sides], dtype=np.int64).reshape(2, -1).T
        found = np.concatenate([counts.counts[slots[~is_pair]], counts.counts[slots[is_pair]]])
        spelled = tuple(counts.spelled[key] for key in words.tolist())
        return cls(spelled, paired, found, buckets if cut else 0, len(texts), pairs, tokenizer)

    def name(self, feature: int) -> str:
        """A feature in words."""
        known = len(self.words)
        if feature < known:
            return self.words[feature]
        if feature < known + len(self.pairs):
            return " ".join(self.words[i] for i in self.pairs[feature - known])
        return f"rare words, bucket {feature - known - len(self.pairs)}"

    @cached_property
    def _keys(self) -> tuple[NDArray[np.uint64], Integers]:
        hashes = words_of(["\0".join(self.words)], listed=True).hashes if self.words else np.empty(0, np.uint64)
        left, right = (hashes[self.pairs[:, side]] for side in (0, 1))
        joined = np.concatenate([hashes, _pairs_of(left, right)])
        size = _table(len(joined))
        keys, values = np.zeros(size, dtype=np.uint64), np.zeros(size, dtype=np.int64)
        _enter(keys, values, joined, np.arange(len(joined)))
        return keys, values

    def look_up(self, tokens: Tokens) -> tuple[Integers, Integers]:
        """Number of the feature that each word is, and of the pair that it begins; -1 where there is none."""
        words, pairs = np.empty(len(tokens), dtype=np.int64), np.empty(len(tokens), dtype=np.int64)
        known = len(self.words) + len(self.pairs)
        _look_up(tokens.hashes, tokens.starts, self.has_pairs, *self._keys, known, self.n_buckets, words, pairs)
        return words, pairs

    def bags(self, texts: Sequence[str]) -> Bags:
        """Texts as bags of features."""
        last, place = np.full(len(self), -1, dtype=np.int64), np.zeros(len(self), dtype=np.int64)
        offsets, ids, counts = [np.zeros(1, dtype=np.int64)], [], []
        total = 0
        for _, tokens in tokenized(texts, self.tokenizer):
            last.fill(-1)
            starts = np.empty(len(tokens.starts), dtype=np.int64)
            found, often = np.empty(2 * len(tokens), dtype=np.int64), np.empty(2 * len(tokens), dtype=np.int64)
            some = _collect(*self.look_up(tokens), tokens.starts, last, place, starts, found, often)
            offsets.append(starts[1:] + total)
            ids.append(found[:some].copy())
            counts.append(often[:some].copy())
            total += some
        empty = np.empty(0, dtype=np.int64)
        return Bags(np.concatenate(offsets), np.concatenate([empty, *ids]), np.concatenate([empty, *counts]))


def _pairs_of(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.uint64]:
    found = np.empty(len(left), dtype=np.uint64)
    _fill_pairs(left, right, found)
    return found


@jit
def _fill_pairs(left: Any, right: Any, found: Any) -> Any:
    for i in range(len(left)):
        found[i] = _pair(left[i], right[i])


def relevance(counts: NDArray[Any]) -> NDArray[np.float64]:
    """How differently classes use each feature: root mean square over classes of a logarithm of odds.

        r_c = log(p(feature | class c) / p(feature | other classes))

    with two more occurrences of each feature, as classes have them on average: what is rare tells little.

    Shapes: counts (classes, V); returns (V,).
    """
    counts = counts[counts.sum(1) > 0]  # a class that has no words says nothing of them
    if len(counts) < 2:
        return np.ones(counts.shape[1])
    share = counts.sum(1, keepdims=True) / counts.sum()
    seen = counts.sum(0)
    own, others = counts + SMOOTHING * share, seen - counts + SMOOTHING * (1 - share)
    ratios = np.log(own / share) - np.log(others / (1 - share))
    found: NDArray[np.float64] = np.sqrt((ratios**2).mean(0))
    return found

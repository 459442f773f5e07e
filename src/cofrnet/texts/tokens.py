"""Words of texts: where they begin and end, and a hash of each, at the speed of compiled code.

A word is a run of letters, marks, digits and underscores of any script, with apostrophes inside it ("don't"), in small
letters. Scripts that are written without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) have a
word for every character: pairs of words are then what carries meaning. ``!`` and ``?`` are words of their own; other
punctuation, symbols and the tags of HTML are left out. Texts are brought to Unicode's composed form (NFC) first.

A tokenizer of one's own is a function from a text to a list of strings, which are taken as they are.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cofrnet.compiled.jit import jit

__all__ = [
    "LONGEST_TAG", "PAIR", "Tokenizer", "Tokens", "composed", "kinds_of_characters", "mixed", "tokenized", "words_of",
]  # fmt: skip

Tokenizer: TypeAlias = Callable[[str], Sequence[str]]

AT_ONCE = 2**21  # characters, for bounded memory
LONGEST_TAG = 512  # characters
MOST_MARKS = 64  # one after the other
OTHER, LETTER, MARK, ALONE, APOSTROPHE, TAG = range(6)
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "YI ", "TANGUT", "BOPOMOFO")
PLANES = 0x20000  # code points that are looked at one by one; those above are ideographs or nothing
BASIS, PRIME, PAIR = 0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15


@cache
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """The kind of every code point, and the small letter of it."""
    kinds = np.full(sys.maxunicode + 1, OTHER, dtype=np.uint8)
    kinds[PLANES:0x40000] = ALONE
    small = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    for point in range(PLANES):
        letter = chr(point)
        category = unicodedata.category(letter)
        if category[0] in "LMN" or letter == "_":
            unspaced = category[0] == "L" and unicodedata.name(letter, "").startswith(UNSPACED)
            kinds[point] = ALONE if unspaced else MARK if category[0] == "M" else LETTER
            lowered = letter.lower()
            if len(lowered) == 1:
                small[point] = ord(lowered)
    for letter in "!?！？؟":
        kinds[ord(letter)] = ALONE
    for letter in "'’ʼ":
        kinds[ord(letter)] = APOSTROPHE
    small[ord("’")] = small[ord("ʼ")] = ord("'")
    kinds[ord("<")] = TAG
    return kinds, small


def kinds_of_characters() -> tuple[list[int], list[int]]:
    """Where runs of code points of one kind begin, and which kind each is, for programs that read texts alike."""
    kinds = _tables()[0]
    starts = np.flatnonzero(np.concatenate([[True], kinds[1:] != kinds[:-1]]))
    return starts.tolist(), kinds[starts].tolist()


@cache
def _tables_of_lists() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """For strings that are words already, joined by the character 0."""
    kinds = np.full(sys.maxunicode + 1, LETTER, dtype=np.uint8)
    kinds[0] = OTHER
    return kinds, np.arange(sys.maxunicode + 1, dtype=np.uint32)


@dataclass(frozen=True)
class Tokens:
    """The words of some texts, one after the other.

    whole : the texts, one after the other; codes : their code points in small letters; firsts : where each text begins
    in them, one more than texts; starts : where each text's words start, one more than texts; begins, ends : where each
    word is in `codes`; hashes : of each word.
    """

    whole: str
    codes: NDArray[np.uint32]
    firsts: NDArray[np.int64]
    starts: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.hashes)

    def written(self, begin: int, end: int) -> str:
        """What is written from one place to another."""
        return self.whole[begin:end]

    def word(self, place: int) -> str:
        """The word at a place, in small letters."""
        return self.codes[self.begins[place] : self.ends[place]].tobytes().decode("utf-32-le", "surrogatepass")


@jit
def mixed(h: np.uint64) -> np.uint64:
    """Bits of a hash spread over all of it."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@jit
def _tag_ends(codes: Any, place: Any, stop: Any) -> Any:
    """Where a tag of HTML that begins here ends; the place itself if there is none."""
    after = codes[place + 1] if place + 1 < stop else np.uint32(0)
    letter = (97 <= after <= 122) or (65 <= after <= 90) or after == 47 or after == 33
    if not letter:
        return place
    for i in range(place + 1, min(stop, place + LONGEST_TAG)):
        if codes[i] == 62:
            return i
        if codes[i] == 60:
            return place
    return place


@jit
def _tokenize(codes: Any, firsts: Any, kinds: Any, small: Any, starts: Any, begins: Any, ends: Any, hashes: Any) -> Any:
    """Fill in the words of all texts; returns how many."""
    count = 0
    for text in range(len(firsts) - 1):
        starts[text] = count
        place, stop = firsts[text], firsts[text + 1]
        while place < stop:
            kind = kinds[codes[place]]
            if kind == TAG:
                place = _tag_ends(codes, place, stop) + 1
                continue
            if kind in (OTHER, APOSTROPHE):
                place += 1
                continue
            begin = place
            h = np.uint64(BASIS)
            while True:
                codes[place] = small[codes[place]]
                h = (h ^ np.uint64(codes[place])) * np.uint64(PRIME)
                place += 1
                following = kinds[codes[place]] if place < stop else OTHER
                if following == APOSTROPHE and place + 1 < stop and kinds[codes[place + 1]] == LETTER:
                    following = LETTER
                if following != MARK and (following != LETTER or kind == ALONE):
                    break
            begins[count], ends[count], hashes[count] = begin, place, mixed(h)
            count += 1
    starts[len(firsts) - 1] = count
    return count


@cache
def _many_marks() -> re.Pattern[str]:
    """Runs of marks that no language has, and that take a time that grows with their square to be composed."""
    marks = [chr(point) for point in range(PLANES) if unicodedata.combining(chr(point))]
    return re.compile(f"[{re.escape(''.join(marks))}]{{{MOST_MARKS}}}")


def composed(text: str) -> str:
    """The text in Unicode's composed form; as it is where some letter has more marks than any language gives it."""
    if text.isascii() or _many_marks().search(text):
        return text
    return unicodedata.normalize("NFC", text)


def tokenized(texts: Sequence[str], tokenizer: Tokenizer | None = None) -> Iterator[tuple[int, Tokens]]:
    """The words of texts, some texts at a time: the number of the first, and the words of it and those that follow."""
    first, waiting, size = 0, list[str](), 0
    for i, text in enumerate(texts):
        text = composed(text) if tokenizer is None else _joined(tokenizer(text))
        if waiting and size + len(text) > AT_ONCE:
            yield first, words_of(waiting, listed=tokenizer is not None)
            first, waiting, size = i, [], 0
        waiting.append(text)
        size += len(text)
    if waiting:
        yield first, words_of(waiting, listed=tokenizer is not None)


def _joined(words: Any) -> str:
    """Words of a tokenizer as one text; the character 0 stands between them, and in none."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise ValueError(f"tokenizer must return a list of strings; got {words!r:.60}.")
    words = list(words)
    strange = next((word for word in words if not isinstance(word, str)), None)
    if strange is not None:
        raise ValueError(f"tokenizer must return a list of strings; got {strange!r:.60} in it.")
    return "\0".join(word.replace("\0", " ") for word in words)


def words_of(texts: Sequence[str], listed: bool = False) -> Tokens:
    """The words of composed texts; with `listed`, of texts that are words joined by the character 0."""
    whole = "".join(texts)
    codes = np.frombuffer(whole.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).copy()
    firsts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    starts = np.empty(len(texts) + 1, dtype=np.int64)
    most = len(codes)
    begins, ends, hashes = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.uint64)
    kinds, small = _tables_of_lists() if listed else _tables()
    count = _tokenize(codes, firsts, kinds, small, starts, begins, ends, hashes)
    return Tokens(whole, codes, firsts, starts, begins[:count].copy(), ends[:count].copy(), hashes[:count].copy())

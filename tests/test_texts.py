"""Words of texts, vocabularies and vectors: against plain Python that does the same."""

import gzip
import itertools
import re
import unicodedata
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cofrnet.texts import Vocabulary, composed, read_vectors, reduced, tokenized, words_of
from cofrnet.texts.tokens import kinds_of_characters

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "YI ", "TANGUT", "BOPOMOFO")


def words(text):
    read = words_of([composed(text)])
    return [read.word(i) for i in range(len(read))]


def kind(letter):
    if letter in "!?！？؟":
        return "alone"
    if letter in "'’ʼ":
        return "apostrophe"
    category = unicodedata.category(letter)[0]
    if ord(letter) >= 0x20000:
        return "alone" if ord(letter) < 0x40000 else "other"
    if category == "L" and unicodedata.name(letter, "").startswith(UNSPACED):
        return "alone"
    return {"L": "letter", "N": "letter", "M": "mark"}.get(category, "letter" if letter == "_" else "other")


def plain_words(text):
    """The rules of the tokenizer, letter by letter."""
    text = re.sub(r"<[a-zA-Z/!][^<>]{0,509}>", lambda tag: "\x01" * len(tag[0]), unicodedata.normalize("NFC", text))
    found, open_word = [], False
    for i, letter in enumerate(text):
        own = kind(letter)
        follows = kind(text[i + 1]) if i + 1 < len(text) else "other"
        inside = open_word and own == "apostrophe" and follows == "letter" and kind(found[-1][0]) != "alone"
        if open_word and (own == "mark" or inside or (own == "letter" and kind(found[-1][0]) != "alone")):
            found[-1] += letter
        elif own in ("letter", "mark", "alone"):
            found.append(letter)
            open_word = True
        else:
            open_word = False
    small = lambda letter: letter.lower() if len(letter.lower()) == 1 else letter  # noqa: E731
    return ["".join("'" if c in "’ʼ" else small(c) for c in word) for word in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop!", ["don't", "stop", "!"]),
        ("it’s 'quoted' rock'n'roll o'", ["it's", "quoted", "rock'n'roll", "o"]),
        ("a<br /><br/>b <3 x<y", ["a", "b", "3", "x", "y"]),
        ("Größe, ÉTÉ; naïve", ["größe", "été", "naïve"]),
        ("它很好。ひらがな", ["它", "很", "好", "ひ", "ら", "が", "な"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("мир, труд 2024 snake_case", ["мир", "труд", "2024", "snake_case"]),
        ("", []),
        (" \n\t…", []),
        ("e\u0301te\u0301", ["été"]),
    ],
)
def test_words_of_any_language(text, expected):
    assert words(text) == expected
    assert plain_words(text) == expected


@settings(max_examples=400, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=60) | st.text("ab'’<>/! 9e\u0301好ไา_-", max_size=80))
def test_the_compiled_tokenizer_is_the_plain_one(text):
    assert words(text) == plain_words(text)


def test_kinds_of_characters_are_told_in_runs():
    starts, kinds = kinds_of_characters()
    numbers = {"other": 0, "letter": 1, "mark": 2, "alone": 3, "apostrophe": 4}
    for letter in "aé9_!'’ 好\u0301\U00020000\U0010ffff":
        assert kinds[np.searchsorted(starts, ord(letter), side="right") - 1] == numbers[kind(letter)]


def test_texts_are_read_in_parts(monkeypatch):
    monkeypatch.setattr("cofrnet.texts.tokens.AT_ONCE", 10)
    texts = ["one two", "", "three four five six seven", "eight"]
    parts = list(tokenized(texts))
    assert len(parts) > 1
    found = [
        [own.word(i) for i in range(own.starts[t], own.starts[t + 1])]
        for _, own in parts
        for t in range(len(own.starts) - 1)
    ]
    assert found == [plain_words(text) for text in texts]
    assert [first for first, _ in parts] == sorted({first for first, _ in parts})


def features(text, pairs=True):
    own = plain_words(text)
    return own + ([" ".join(pair) for pair in itertools.pairwise(own)] if pairs else [])


sentences = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "!"]), max_size=12).map(" ".join), max_size=30
)


@settings(max_examples=150, deadline=None)
@given(sentences, st.booleans(), st.integers(1, 3), st.integers(1, 30))
def test_vocabulary_counts_texts(texts, pairs, least, most):
    known = Vocabulary.learn(texts, pairs, min_texts=least, most=most)
    counts = Counter(feature for text in texts for feature in set(features(text, pairs)))
    enough = {feature: count for feature, count in counts.items() if count >= least}
    names = [known.name(i) for i in range(len(known))]
    assert len(names) == len(set(names)) == min(most, len(enough))
    assert [counts[name] for name in names] == known.texts.tolist()
    if names:  # the most frequent are kept
        assert min(known.texts) >= sorted(enough.values(), reverse=True)[:most][-1]
    assert all(" " not in name for name in names[: len(known.words)])


@settings(max_examples=150, deadline=None)
@given(sentences, sentences)
def test_bags_count_features(texts, others):
    known = Vocabulary.learn(texts, min_texts=1)
    bags = known.bags(others)
    names = {known.name(i): i for i in range(len(known))}
    assert len(bags) == len(others)
    for t, text in enumerate(others):
        own = slice(bags.offsets[t], bags.offsets[t + 1])
        expected = Counter(names[feature] for feature in features(text) if feature in names)
        assert dict(zip(bags.ids[own].tolist(), bags.counts[own].tolist(), strict=True)) == expected


def test_what_is_beyond_the_cap_shares_buckets():
    texts = [f"word{i} common" for i in range(50)] * 2
    known = Vocabulary.learn(texts, most=5, buckets=8)
    assert (len(known.words) + len(known.pairs), len(known)) == (5, 13)
    bags = known.bags(["word7 never seen"])
    assert len(bags.ids) >= 3
    assert Vocabulary.learn(texts, most=1000, buckets=8).n_buckets == 0
    assert len(Vocabulary.learn(texts, most=1000, buckets=8).bags(["never"]).ids) == 0
    assert known.name(12) == "rare words, bucket 7"


def test_many_words_and_growing_tables():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{j}" for j in rng.integers(0, 60_000, 400)) for _ in range(700)]
    known = Vocabulary.learn(texts, min_texts=1, most=10**9)
    counts = Counter(feature for text in texts for feature in set(features(text)))
    assert len(known) == len(counts) > 2**17
    for i in rng.integers(0, len(known), 200).tolist():
        assert known.texts[i] == counts[known.name(i)]


def test_tokenizer_of_ones_own():
    known = Vocabulary.learn(["New York;is big", "New York;is old"], tokenizer=lambda text: text.split(";"))
    assert known.words == ("New York",)
    assert known.bags(["New York;New York"]).counts.tolist() == [2]


def test_vectors_in_fewer_dimensions():
    rng = np.random.default_rng(0)
    flat = (rng.standard_normal((200, 2)) @ rng.standard_normal((2, 9))).astype(np.float32)
    low = reduced(flat, 2)
    assert low.shape == (200, 2)
    distances = lambda x: np.linalg.norm(x[:, None] - x[None], axis=2)  # noqa: E731
    np.testing.assert_allclose(distances(low), distances(flat), atol=1e-4)
    assert reduced(flat, 9) is flat


def test_strange_files_of_vectors(tmp_path):
    file = tmp_path / "v.txt"
    for content, said in (("a 1 nan\n", "line of 'a'"), ("a x y\n", "line of 'a'"), ("", "it has none")):
        file.write_text(content)
        with pytest.raises(ValueError, match=said):
            read_vectors(file)


def test_files_of_vectors_of_every_kind(tmp_path):
    content = "4 2\na 3 4\nnew york 1 2\n. . . 7 8\nb 5 6\n"
    (tmp_path / "v.txt").write_text(content)
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(content.encode()))
    with pa.CompressedOutputStream(str(tmp_path / "v.txt.zst"), "zstd") as stream:
        stream.write(content.encode())
    for name in ("v.txt", "v.txt.gz", "v.txt.zst"):
        words, vectors = read_vectors(tmp_path / name)
        assert dict(zip(words, vectors.tolist(), strict=True)) == {
            "a": [3, 4], "new york": [1, 2], ". . .": [7, 8], "b": [5, 6],
        }  # fmt: skip
        assert read_vectors(tmp_path / name, most=2)[0] == ["a", "new york"]
        assert read_vectors(tmp_path / name, only={"b", "zzz"})[0] == ["b"]


def test_many_marks_take_no_time():
    text = "e" + "\u0301" * 100_000
    assert composed(text) == text
    assert composed("e\u0301") == "é"


def test_pairs_fall_into_buckets_where_no_pair_is_known():
    known = Vocabulary.learn([f"w{i} w{i + 1}" for i in range(50)] * 2, most=5, buckets=1000)
    assert len(known.pairs) == 0
    assert len(known.bags(["x y"]).ids) == 3

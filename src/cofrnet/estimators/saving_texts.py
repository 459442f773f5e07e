"""What a fitted estimator for texts puts into its file: its vocabulary, weights, and statistics of the words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cofrnet.estimators.contents import fits, read_spec, spec_of
from cofrnet.estimators.saving import Saving, dtype_of, filled
from cofrnet.files import Fields
from cofrnet.nn import BagCoFrNet, BagSpec, VectorCoFrNet
from cofrnet.texts import Vocabulary

__all__ = ["SavingTexts"]


class SavingTexts(Saving):
    """Files of estimators for texts."""

    input: str
    length: int
    tokenizer: Any
    own_tokenizer_: bool
    vocabulary_: Vocabulary
    text_name_: str | None
    weights_: NDArray[np.float64]
    statistics_: tuple[NDArray[Any], NDArray[Any], NDArray[Any], int]

    def _more_tensors(self) -> dict[str, Tensor]:
        sums, sizes, counts, _ = self.statistics_
        arrays = {
            "vocabulary/pairs": self.vocabulary_.pairs,
            "vocabulary/texts": self.vocabulary_.texts,
            "vocabulary/weights": self.weights_,
            "statistics/sums": sums,
            "statistics/sizes": sizes,
            "statistics/counts": counts,
        }
        return {name: torch.from_numpy(np.asarray(values, dtype=np.float64)) for name, values in arrays.items()}

    def _about(self) -> dict[str, Any]:
        vocabulary = self.vocabulary_
        return super()._about() | {
            "vocabulary": {
                "words": list(vocabulary.words),
                "buckets": vocabulary.n_buckets,
                "texts": vocabulary.n_texts,
                "own_tokenizer": self.own_tokenizer_,
                "pairs": vocabulary.has_pairs,
            },
            "explained_texts": self.statistics_[3],
            "text_name": self.text_name_,
        }

    def _restore_model(self, tensors: dict[str, Tensor], about: Fields, outputs: int) -> None:
        fits(self.tokenizer is None, "tokenizer", "left out")
        fits(self.input in ("bag", "tfidf", "vectors"), "input", "'bag', 'tfidf' or 'vectors'")
        fits(isinstance(self.length, int) and self.length >= 1, "length", "1 or more")
        self.ordered_ = self.input == "vectors"
        self._restore_vocabulary(tensors, about.object("vocabulary"))
        named = about.any("text_name")
        fits(named is None or isinstance(named, str), "name of the texts", "text")
        self.text_name_ = named
        size = len(self.vocabulary_)
        own = {name: t for name, t in tensors.items() if name.startswith("model/")}
        numbers = sum(t.numel() for t in own.values())
        generator = torch.Generator().manual_seed(0)
        model: Any
        if self.input == "vectors":
            vectors = tensors.get("model/vectors")
            fits(vectors is not None and vectors.ndim == 2 and len(vectors) == size + 1, "vectors", "one for each word")
            assert vectors is not None
            spec = read_spec(about.object("spec"), numbers - vectors.numel())
            fits(spec.n_features == self.length * vectors.shape[1], "spec", "for the vectors")
            fits(spec.n_outputs == outputs, "spec", "for as many outputs as y has")
            model = VectorCoFrNet(vectors, self.length, spec, generator)
        else:
            model = BagCoFrNet(_read_bag_spec(about.object("spec"), numbers, size, outputs), generator, dtype_of(own))
        self.model_ = filled(model, own)
        arrays = [self._array(tensors, f"statistics/{name}") for name in ("sums", "sizes", "counts")]
        fits(arrays[0].shape == arrays[1].shape == (size, outputs), "statistics", "of every word and output")
        fits(arrays[2].shape == (size,), "statistics", "of every word")
        whole = arrays[2] == np.floor(arrays[2])
        fits(bool(whole.all() and (arrays[2] >= 0).all()), "statistics", "counts")
        self.statistics_ = arrays[0], arrays[1], arrays[2].astype(np.int64), about.integer("explained_texts")

    def _restore_vocabulary(self, tensors: dict[str, Tensor], fields: Fields) -> None:
        words = fields.texts("words")
        fits(len(set(words)) == len(words), "words", "all different")
        fits(not any("\0" in word or not word for word in words), "words", "without the character 0, and not empty")
        pairs = self._array(tensors, "vocabulary/pairs")
        places = pairs.astype(np.int64)
        inside = bool((pairs == places).all() and (pairs >= 0).all() and (pairs < max(1, len(words))).all())
        fits(pairs.ndim == 2 and pairs.shape[1] == 2 and inside, "pairs", "places of two words each")
        fits(len(words) > 0 or len(pairs) == 0, "pairs", "of words")
        texts = self._array(tensors, "vocabulary/texts")
        fits(texts.shape == (len(words) + len(pairs),), "vocabulary", "with a count for each word and pair")
        buckets = fields.integer("buckets", 0, 2**31)
        self.weights_ = self._array(tensors, "vocabulary/weights")
        fits(self.weights_.shape == (len(words) + len(pairs) + buckets,), "weights", "one for each word and pair")
        counts = fields.integer("texts", 1)
        has_pairs = fields.flag("pairs")
        self.vocabulary_ = Vocabulary(words, places, texts.astype(np.int64), buckets, counts, has_pairs)
        self.own_tokenizer_ = fields.flag("own_tokenizer")

    @staticmethod
    def _array(tensors: dict[str, Tensor], name: str) -> NDArray[np.float64]:
        fits(name in tensors and bool((tensors[name].abs() < 2**53).all()), name, "there, of numbers that are not huge")
        return tensors[name].double().numpy()


def _read_bag_spec(fields: Fields, numbers: int, size: int, outputs: int) -> BagSpec:
    """The spec, if a model of it has just as many numbers as the file: nothing is allocated before that is known."""
    for name in ("n_inputs", "n_outputs", "n_ladders", "depth", "n_members"):
        fields.integer(name, 0, max(64, numbers))
    if fields.any("width") is not None:
        fields.integer("width", 1, max(64, numbers))
    if fields.any("epsilon") is not None:
        fields.number("epsilon")
    fields.text("pole")
    spec = spec_of(BagSpec, fields, numbers, lambda spec: spec.n_parameters)
    fits(spec.n_inputs == size and spec.n_outputs == outputs, "spec", "for the words and classes of the file")
    return spec

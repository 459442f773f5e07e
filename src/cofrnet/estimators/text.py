"""The scikit-learn estimator for texts: `CoFrNetTextClassifier`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cofrnet.estimators.checks import (
    as_texts,
    checked_weight,
    is_number,
    is_whole,
    name_of,
    require,
    require_same_length,
)
from cofrnet.estimators.classes import Classes
from cofrnet.estimators.fitting import Fitting, chosen_rows, device_named, require_both, unharmed
from cofrnet.estimators.reporting_texts import ReportingTexts
from cofrnet.estimators.saving_texts import SavingTexts
from cofrnet.estimators.words import ExplainingWords
from cofrnet.nn import Bag, BagCoFrNet, BagSpec, CoFrNetSpec, VectorCoFrNet
from cofrnet.texts import Tokenizer, Vocabulary, read_vectors, reduced, relevance, tokenized
from cofrnet.training import Callback, LoopOptions, Rows
from cofrnet.training.threads import look_after_forks

__all__ = ["CoFrNetTextClassifier"]

Floats = NDArray[np.floating[Any]]

BAG_WIDTH = 32
LINEAR_C = 3.0  # of the logistic regression that ladders start from: underfitted, so that they have something to learn
RELEVANCE = 0.75  # power of the relevance of words
AT_ONCE = 4096  # texts, for bounded memory


class CoFrNetTextClassifier(
    Classes, ExplainingWords, ReportingTexts, SavingTexts, Fitting, ClassifierMixin, BaseEstimator
):
    """Classifier of texts made of continued fractions.

    With the default input, a text is the set of its words and of its pairs of neighbouring words, however often it has
    them. Each has a weight:
    how rare it is (its inverse document frequency) times how differently the classes use it (the logarithm of the ratio
    of its frequencies, to the power of 3/4). Those of a text are scaled to a norm of 1. A logistic regression reads
    them, and ladders over a learned embedding of them add what it leaves over; the whole is a rational function of the
    weights, so that every word has an exact contribution.

    Parameters
    ----------
    input : {"bag", "tfidf", "vectors"}
        "bag" as above. "tfidf": weights by rarity alone, and ladders that read them directly, without an embedding;
        here too a word counts once in a text.
        "vectors": the paper's, vectors of the first `length` words side by side, from the file `embeddings`.
    variant : {"auto", "F", "D", "DL"}
        Which ladders: "F" (full) for bags; "D" or "DL" for vectors. "auto" takes "F" or "DL".
    embeddings : path, optional
        A text file of word vectors as GloVe and word2vec write them (plain, gz or zst): needed for "vectors"; the
        embedding of a "bag" starts from it, if given.
    width : int, optional
        Numbers that stand for a word; vectors that are longer are cut to their principal components, those of the words
        of the texts. By default 32 for a bag, and all there are for vectors.
    tune_embeddings : bool
        Whether the vectors of "vectors" are learned with the rest, from those of the file; else they stay.
    length : int
        Words that "vectors" reads of a text.
    pairs : bool
        Whether pairs of neighbouring words count too, in "bag" and "tfidf".
    min_texts : int
        Texts that a word or pair must be in to be known.
    max_features : int
        Most words and pairs that are known by themselves, the most frequent.
    n_buckets : int
        Where there are more than that, the others share so many places by their hash; 0 leaves them out.
    tokenizer : callable, optional
        From a text to a list of its words; the own one knows words of any language (`cofrnet.texts.tokens`).
    depth, n_ladders, pole, epsilon
        Of the ladders. For "D" there are `n_ladders` for each input if given, else one.
    n_members : int
        Models that are averaged; the result is one model.
    max_epochs : int or "auto"
        Passes over the texts; "auto" makes 5, fewer from 40000 texts on; twice as many for vectors.
    batch_size : int
        Texts of one step; fewer where there are not enough for forty steps an epoch.
    learning_rate : float or "auto"
        Highest of the one cycle it goes through; "auto" is 0.002 for bags and 0.005 for vectors.
    weight_decay : float
        How much a weight that the data do not hold shrinks over the whole training: by exp(-weight_decay).
    early_stopping, validation_fraction, n_iter_no_change
        Whether to hold out texts and keep the weights that are best on them; which share; and how many epochs without
        improvement end the training.
    class_weight : dict, "balanced" or None
    warm_start : bool
        Whether `fit` goes on from the model there is, with its words.
    checkpoint, checkpoint_every, callbacks, device, random_state, verbose
        As for `CoFrNetClassifier`.

    Attributes
    ----------
    classes_ : ndarray
    vocabulary_ : cofrnet.texts.Vocabulary
    weights_ : ndarray, the weight of each word and pair in a bag
    model_ : BagCoFrNet or VectorCoFrNet
    history_, n_iter_, best_epoch_
    """

    def __init__(
        self,
        input: Literal["bag", "tfidf", "vectors"] = "bag",  # noqa: A002
        variant: Literal["auto", "F", "D", "DL"] = "auto",
        embeddings: str | os.PathLike[str] | None = None,
        width: int | None = None,
        tune_embeddings: bool = True,
        length: int = 250,
        pairs: bool = True,
        min_texts: int = 2,
        max_features: int = 200_000,
        n_buckets: int = 0,
        tokenizer: Tokenizer | None = None,
        depth: int = 3,
        n_ladders: int | None = None,
        n_members: int = 1,
        pole: str = "smooth",
        epsilon: float | None = None,
        max_epochs: int | Literal["auto"] = "auto",
        batch_size: int = 512,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 30.0,
        early_stopping: bool = True,
        validation_fraction: float = 0.05,
        n_iter_no_change: int | None = None,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        callbacks: Iterable[Callback] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.input = input
        self.variant = variant
        self.embeddings = embeddings
        self.width = width
        self.tune_embeddings = tune_embeddings
        self.length = length
        self.pairs = pairs
        self.min_texts = min_texts
        self.max_features = max_features
        self.n_buckets = n_buckets
        self.tokenizer = tokenizer
        self.depth = depth
        self.n_ladders = n_ladders
        self.n_members = n_members
        self.pole = pole
        self.epsilon = epsilon
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    # ------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit to texts X (a list, array or series of strings) and their labels y.

        A missing text counts as an empty one. `X_val`, `y_val` are texts to stop by; without them a share of X is held
        out.
        """
        with unharmed(self, self.warm_start):
            return self._fit(X, y, sample_weight, X_val, y_val)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Self:
        self._check_parameters()
        again = self.warm_start and hasattr(self, "model_")
        if again:
            ordered = isinstance(self.model_, VectorCoFrNet)
            require(ordered == (self.input == "vectors"), "input", self.input, "as it was in the fit to go on from")
        require_both(X_val, y_val)
        self.target_name_, self.text_name_ = name_of(y), name_of(X)
        texts = as_texts(X)
        if len(texts) < 2:
            raise ValueError(f"X must have at least two texts to fit; got n_samples={len(texts)}. Pass more.")
        targets = self._checked_targets(y, reset=not again)
        require_same_length(len(texts), len(targets))
        weight = self._balance(targets, checked_weight(sample_weight, len(texts)))
        rng = self._draws()
        rows, held = self._split(targets, rng, X_val is not None, weight)
        if not again:
            self._learn_words([texts[i] for i in rows], targets[rows], None if weight is None else weight[rows])
        x = self._encoded(texts)
        data = chosen_rows(x, targets, weight, rows)
        validation = None if held is None else chosen_rows(x, targets, weight, held)
        del x
        if X_val is not None:
            t_val = self._checked_targets(y_val, reset=False)
            texts_val = as_texts(X_val)
            require_same_length(len(texts_val), len(t_val))
            own = self._balance(t_val, None, like=targets)
            validation = chosen_rows(self._encoded(texts_val), t_val, own, np.arange(len(t_val)))
        self._train(data, validation, rng, again)
        self._keep_statistics([texts[i] for i in rows])
        return self

    def _check_parameters(self) -> None:
        whole = {
            "length": 1, "min_texts": 1, "max_features": 1, "n_buckets": 0, "depth": 0, "n_members": 1, "batch_size": 1,
            "checkpoint_every": 1,
        }  # fmt: skip
        for name, least in whole.items():
            value = getattr(self, name)
            require(is_whole(value, least), name, value, f"an integer, {least} or more")
        for name in ("width", "n_ladders", "n_iter_no_change"):
            value = getattr(self, name)
            require(value is None or is_whole(value, 1), name, value, "None or an integer, 1 or more")
        epochs, rate, decay = self.max_epochs, self.learning_rate, self.weight_decay
        require(epochs == "auto" or is_whole(epochs, 1), "max_epochs", epochs, "'auto' or an integer, 1 or more")
        require(rate == "auto" or is_number(rate, 0), "learning_rate", rate, "'auto' or positive and finite")
        require(decay == 0 or is_number(decay, 0), "weight_decay", decay, "0 or more and finite")
        share = self.validation_fraction
        require(is_number(share, 0, 1), "validation_fraction", share, "between 0 and 1")
        require(self.input in ("bag", "tfidf", "vectors"), "input", self.input, "'bag', 'tfidf' or 'vectors'")
        ladders = ("auto", "D", "DL") if self.input == "vectors" else ("auto", "F")
        require(
            self.variant in ladders, "variant", self.variant, f"one of {', '.join(ladders)} for input={self.input!r}"
        )
        if self.input == "vectors":
            require(self.embeddings is not None, "embeddings", None, "a file of word vectors for input='vectors'")
        if self.input == "tfidf":
            require(
                self.embeddings is None, "embeddings", self.embeddings, "None for input='tfidf', which has no embedding"
            )
        require(self.tokenizer is None or callable(self.tokenizer), "tokenizer", self.tokenizer, "None or a function")
        several = self.checkpoint is not None and self.n_members > 1
        require(not several, "n_members", self.n_members, "1 with a checkpoint")
        epsilon = self.epsilon
        require(epsilon is None or is_number(epsilon, 0), "epsilon", epsilon, "None or positive and finite")
        named = self.checkpoint is None or isinstance(self.checkpoint, str | Path)
        require(named, "checkpoint", self.checkpoint, "None or a path")
        device_named(self.device)

    def _learn_words(self, texts: Sequence[str], targets: NDArray[Any], weight: Floats | None) -> None:
        """Vocabulary and weights of its words, by the training texts."""
        ordered = self.input == "vectors"
        self.own_tokenizer_, self.ordered_ = self.tokenizer is not None, ordered
        self.vocabulary_ = Vocabulary.learn(
            texts,
            pairs=self.pairs and not ordered,
            min_texts=min(self.min_texts, len(texts)),
            most=self.max_features,
            buckets=0 if ordered else self.n_buckets,
            tokenizer=self.tokenizer,
        )
        if not len(self.vocabulary_):
            raise ValueError(
                f"X must have words that are in at least min_texts={self.min_texts} texts; it has none. Pass other "
                "texts, or set min_texts=1."
            )
        self.vectors_: NDArray[np.float32] | None = None
        if self.embeddings is not None:
            self._learn_vectors(ordered)
        self.weights_ = np.ones(len(self.vocabulary_))
        if ordered:
            return
        bags = self.vocabulary_.bags(texts)
        n, size = len(texts), len(self.vocabulary_)
        often = np.bincount(bags.ids, minlength=size)
        self.weights_ = np.log((n + 1) / (often + 1)) + 1
        if self.input == "bag":
            rows = np.repeat(np.arange(n), np.diff(bags.offsets))
            mass = np.ones(n) if weight is None else weight
            codes = targets.astype(np.int64)
            own = [np.bincount(bags.ids, mass[rows] * (codes[rows] == c), size) for c in range(len(self.classes_))]
            self.weights_ *= relevance(np.stack(own)) ** RELEVANCE

    def _learn_vectors(self, ordered: bool) -> None:
        """Vectors of the words of the vocabulary that the file has; a bag keeps its other words, without."""
        words, vectors = read_vectors(self.embeddings, only=set(self.vocabulary_.words))  # type: ignore[arg-type]
        if not words:
            raise ValueError(f"embeddings must have words of the texts; {self.embeddings} has none of them.")
        vectors = reduced(vectors, self.width or (vectors.shape[1] if ordered else BAG_WIDTH))
        place = {word: i for i, word in enumerate(words)}
        known = [(i, place[word]) for i, word in enumerate(self.vocabulary_.words) if word in place]
        if ordered:
            kept = np.array([i for i, _ in known])
            self.vocabulary_ = replace(
                self.vocabulary_,
                words=tuple(self.vocabulary_.words[i] for i in kept),
                texts=self.vocabulary_.texts[kept],
            )
            self.vectors_ = np.vstack([np.zeros_like(vectors[:1]), vectors[[j for _, j in known]]])
            return
        self.vectors_ = np.zeros((len(self.vocabulary_), vectors.shape[1]), dtype=np.float32)
        self.vectors_[[i for i, _ in known]] = vectors[[j for _, j in known]] / max(1e-9, float(vectors.std()))

    def _vocabulary(self) -> Vocabulary:
        """The vocabulary, with the tokenizer it was learned by."""
        if (self.tokenizer is not None) != self.own_tokenizer_:
            raise ValueError(
                "tokenizer must be the function that the model was fitted with, which files do not hold, or None if "
                f"there was none; got tokenizer={self.tokenizer!r}. Set it: model.set_params(tokenizer=...)."
            )
        if self.vocabulary_.tokenizer is not self.tokenizer:
            self.vocabulary_ = replace(self.vocabulary_, tokenizer=self.tokenizer)
        return self.vocabulary_

    def _texts(self, X: Any) -> list[str]:
        check_is_fitted(self)
        look_after_forks()
        return as_texts(X)

    def _encoded(self, texts: Sequence[str]) -> Bag | Tensor:
        """Texts as the model reads them."""
        vocabulary = self._vocabulary()
        if self.ordered_:
            found = np.zeros((len(texts), self.length), dtype=np.int64)
            for first, tokens in tokenized(texts, self.tokenizer):
                words = vocabulary.look_up(tokens)[0]
                for i, (start, stop) in enumerate(zip(tokens.starts, tokens.starts[1:], strict=False)):
                    own = words[start : min(stop, start + self.length)]
                    found[first + i, : len(own)] = own + 1
            return torch.from_numpy(found)
        bags = vocabulary.bags(texts)
        counts = np.diff(bags.offsets)
        values = self.weights_[bags.ids]
        rows = np.repeat(np.arange(len(texts)), counts)
        norms = np.sqrt(np.bincount(rows, values**2, len(texts)))
        values /= np.maximum(norms, 1e-30)[rows]
        return Bag(torch.from_numpy(bags.offsets), torch.from_numpy(bags.ids), torch.from_numpy(values).float())

    def _options(self, n: int) -> LoopOptions:
        ordered = self.input == "vectors"
        few = min(5, max(2, round(200_000 / n))) * (1 + ordered)
        epochs = few if self.max_epochs == "auto" else int(self.max_epochs)
        rate = self.learning_rate
        if rate == "auto":
            rate = 0.005 if ordered else 0.002
        batch = min(self.batch_size, max(16, n // 40))
        patience = self.n_iter_no_change if self.early_stopping else None
        return LoopOptions(epochs, batch, float(rate), float(self.weight_decay), patience=patience)

    def _train(self, data: Rows, validation: Rows | None, rng: Any, again: bool) -> None:
        """Fit the model, or each member of it in turn: their words are too many to be trained side by side."""
        several = 1 if again or self.input == "vectors" else self.n_members
        generators = [torch.Generator().manual_seed(int(rng.randint(2**31 - 1))) for _ in range(several)]
        options = self._options(len(data))
        start = None if again or self.input == "vectors" else self._linear_start(data)
        members: list[Any] = []
        for generator in generators:
            model: Any = self.model_ if again else self._new_model(generator)
            if start is not None:
                model.start_from_linear(*start)
            trained = self._run(model, data, validation, generator, options)
            members.append(model)
            if trained.interrupted:
                break
        self._record(trained)
        self.model_: BagCoFrNet | VectorCoFrNet
        self.model_ = members[0] if len(members) == 1 else BagCoFrNet.of_members(members).eval()

    def _new_model(self, generator: torch.Generator) -> BagCoFrNet | VectorCoFrNet:
        common: dict[str, Any] = {
            "n_outputs": self._count_outputs(),
            "depth": self.depth,
            "pole": self.pole,
            "epsilon": self.epsilon,
        }
        if self.input == "vectors":
            assert self.vectors_ is not None
            spec = CoFrNetSpec(
                n_features=self.length * self.vectors_.shape[1],
                variant="DL" if self.variant == "auto" else self.variant,
                n_ladders=self.n_ladders or 8,
                ladders_per_feature=(self.n_ladders or 1) if self.variant == "D" else 1,
                n_members=self.n_members,
                **common,
            )
            start = torch.from_numpy(self.vectors_)
            return VectorCoFrNet(start, self.length, spec, generator, self.tune_embeddings)
        wide = BAG_WIDTH if self.width is None else int(self.width)
        width = None if self.input == "tfidf" else wide
        ladders = self.n_ladders or 16
        model = BagCoFrNet(BagSpec(len(self.vocabulary_), width=width, n_ladders=ladders, **common), generator)
        if self.vectors_ is not None and width is not None:
            known = np.flatnonzero(self.vectors_.any(1))
            with torch.no_grad():
                model.embedding[known, : self.vectors_.shape[1]] = 0.1 * torch.from_numpy(self.vectors_[known])
        return model

    def _linear_start(self, data: Rows) -> tuple[Tensor, Tensor]:
        """Weights (V, q) and intercepts (q,) of a logistic regression on the bags."""
        from scipy.sparse import csr_matrix

        bag: Any = data.x
        shape = (len(bag), len(self.vocabulary_))
        x = csr_matrix((bag.weights.numpy(), bag.ids.numpy(), bag.offsets.numpy()), shape=shape)
        own = None if data.weight is None else data.weight.numpy()
        found = self._logistic(LogisticRegression(C=LINEAR_C), x, data.y.numpy(), own)
        weight, intercept = (torch.from_numpy(part).float() for part in found)
        return weight.T.contiguous(), intercept

    # ------------------------------------------------------------------------------ predicting

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores (n, q), in parts of bounded memory."""
        texts = self._texts(X)
        at_once = VectorCoFrNet.rows_at_once if self.ordered_ else AT_ONCE
        found = np.empty((len(texts), self._count_outputs()))
        with torch.no_grad():
            for start in range(0, len(texts), at_once):
                part = slice(start, start + at_once)
                found[part] = self.model_(self._encoded(texts[part])).double().numpy()
        return found

"""Texts as words: the tokenizer, the vocabulary, and vectors of words."""

from cofrnet.texts.tokens import Tokenizer, Tokens, composed, tokenized, words_of
from cofrnet.texts.vectors import read_vectors, reduced
from cofrnet.texts.vocabulary import Bags, Vocabulary, relevance

__all__ = [
    "Bags",
    "Tokenizer",
    "Tokens",
    "Vocabulary",
    "composed",
    "read_vectors",
    "reduced",
    "relevance",
    "tokenized",
    "words_of",
]

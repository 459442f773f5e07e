"""A CoFrNet over the vectors of the first words of a text, one after the other: the paper's way to read text."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cofrnet.nn.cofrnet import CoFrNet, CoFrNetSpec

__all__ = ["VectorCoFrNet"]


class VectorCoFrNet(nn.Module):
    """Scores of texts given as numbers of words, by a CoFrNet that reads their vectors side by side.

        score(words) = CoFrNet([v_1, ..., v_length]),     v_i the vector of the i-th word, 0 where the text has ended

    The vectors are fixed, or learned with the rest. No more than a batch is ever written out. Scores start at 0.

    Shapes: vectors (words, width), the first of them 0 and kept so; words (n, length); scores (n, q).
    """

    rows_at_once = 256  # that are written out where no gradient is wanted
    members_share = True  # the vectors

    def __init__(
        self,
        vectors: Tensor,
        length: int,
        spec: CoFrNetSpec,
        generator: torch.Generator | None = None,
        learned: bool = False,
    ) -> None:
        super().__init__()
        if spec.n_features != length * vectors.shape[1]:
            raise ValueError(
                f"spec must have a feature for each number of {length} vectors of {vectors.shape[1]}; "
                f"got n_features={spec.n_features}."
            )
        self.length, self.spec = length, spec
        self.vectors = nn.Parameter(vectors, requires_grad=learned)
        self.cofrnet = CoFrNet(spec, generator=generator, dtype=vectors.dtype)
        with torch.no_grad():
            self.cofrnet.head.zero_()

    @staticmethod
    def decays(name: str) -> bool:
        """Whether training lets a parameter shrink."""
        return not name.endswith(("bias", "intercept", "vectors"))

    def embedded(self, words: Tensor) -> Tensor:
        """Vectors of the words side by side, (n, length * width)."""
        return nn.functional.embedding(words, self.vectors, padding_idx=0).flatten(1)

    def member_scores(self, words: Tensor) -> Tensor:
        """Scores of each member, (n, members, q)."""
        return self.cofrnet.member_scores(self.embedded(words))

    def forward(self, words: Tensor) -> Tensor:
        """Scores, (n, q)."""
        return self.cofrnet(self.embedded(words))

    def clamped_share(self, words: Tensor) -> Tensor:
        """Share of the rungs below the first that are clamped, of every row, (n,)."""
        return self.cofrnet.clamped_share(self.embedded(words))

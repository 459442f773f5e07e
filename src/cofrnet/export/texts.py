"""A fitted classifier of texts for other runtimes, from the numbers of its words on.

    words (n, T)  ->  weights, embedding  ->  ladders  ->  scores  ->  probabilities

Words are numbers of features: for a bag the different ones of each text, in any order, -1 where there are no more; for
vectors the words in their order, 0 where there is none. The file tells the words by their numbers.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cofrnet.export.program import OPSET, add_label, quiet
from cofrnet.files import write_atomically
from cofrnet.nn import BagCoFrNet, VectorCoFrNet

__all__ = ["TextProgram", "to_onnx", "to_torch"]


class TextProgram(nn.Module):
    """A fitted classifier of texts as a function of the numbers of words, in operations that every runtime has."""

    weights: Tensor

    def __init__(self, model: BagCoFrNet | VectorCoFrNet, weights: Tensor) -> None:
        super().__init__()
        self.model, self.is_bag = model, isinstance(model, BagCoFrNet)
        self.register_buffer("weights", weights)

    def forward(self, words: Tensor) -> Tensor:
        """Probabilities (n, C) of texts given as numbers of words (n, T)."""
        model: Any = self.model
        if self.is_bag:
            there = (words >= 0).to(self.weights.dtype)
            places = words.clamp(min=0)
            x = self.weights[places] * there  # (n, T)
            x = x / (x * x).sum(1, keepdim=True).sqrt().clamp(min=1e-30)
            x = x.to(model.linear.dtype).unsqueeze(-1)
            z, straight = (x * model.embedding[places]).sum(1), (x * model.linear[places]).sum(1)
        else:
            z, straight = model.embedded(words), 0.0
        scores = model.cofrnet.member_scores_by_autograd(z).mean(0).T + straight  # (n, q)
        scores = scores.double()
        several = scores.shape[1] > 1
        return torch.softmax(scores if several else torch.cat([torch.zeros_like(scores), scores], 1), 1)


def _example(program: TextProgram) -> tuple[Tensor, Any]:
    """Words to trace with, and which of their sizes are free."""
    rows = torch.export.Dim("rows")
    model: Any = program.model
    if program.is_bag:
        return torch.zeros(3, 5, dtype=torch.int64), ({0: rows, 1: torch.export.Dim("words")},)
    return torch.zeros(3, model.length, dtype=torch.int64), ({0: rows},)


def to_torch(program: TextProgram, about: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a ``torch.export`` program, and return its path; "cofrnet.json" in it tells the words."""
    with quiet():
        example, free = _example(program)
        exported = torch.export.export(program.eval(), (example,), dynamic_shapes=free)
        content = io.BytesIO()
        torch.export.save(exported, content, extra_files={"cofrnet.json": json.dumps(about)})
    return write_atomically(path, content.getvalue())


def to_onnx(
    program: TextProgram,
    classes: Sequence[Any],
    about: dict[str, Any],
    path: str | os.PathLike[str],
    opset: int = OPSET,
) -> Path:
    """Write an ONNX file: "words" (n, T) of int64 to "label" and "probabilities"; its metadata tell the words."""
    try:
        import onnx
    except ImportError:
        raise ImportError("ONNX needs the package onnx. Install it with: pip install 'cofrnet[onnx]'") from None
    with quiet():
        example, free = _example(program)
        exported = torch.onnx.export(
            program.eval(), (example,), dynamo=True, opset_version=opset, input_names=["words"],
            output_names=["probabilities"], dynamic_shapes=free, verbose=False,
        )  # fmt: skip
    assert exported is not None
    body = exported.model_proto
    add_label(body.graph, classes)
    onnx.helper.set_model_props(body, {k: v if isinstance(v, str) else json.dumps(v) for k, v in about.items()})
    body.producer_name = "cofrnet"
    onnx.checker.check_model(body, full_check=True)
    return write_atomically(path, body.SerializeToString())

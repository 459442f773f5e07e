"""Programs of classifiers of texts and images, written for other runtimes."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import torch

from cofrnet.export.program import OPSET, add_label, quiet, require_opset
from cofrnet.files import write_atomically

__all__ = ["onnx_of", "torch_of"]


def torch_of(program: Any, about: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a ``torch.export`` program, and return its path; "cofrnet.json" in it tells what is in `about`.

    The program has an `example` to trace it with: its input, and which of its sizes are free.
    """
    with quiet():
        example, free = program.example()
        exported = torch.export.export(program.eval(), (example,), dynamic_shapes=free)
        content = io.BytesIO()
        torch.export.save(exported, content, extra_files={"cofrnet.json": json.dumps(about)})
    return write_atomically(path, content.getvalue())


def onnx_of(
    program: Any,
    reads: str,
    classes: Any,
    about: dict[str, Any],
    path: str | os.PathLike[str],
    opset: int = OPSET,
) -> Path:
    """Write an ONNX file, from the input `reads` to "label" and "probabilities"; `about` is in its metadata."""
    try:
        import onnx
    except ImportError:
        raise ImportError("ONNX needs the package onnx. Install it with: pip install 'cofrnet[onnx]'") from None
    with quiet():
        example, free = program.example()
        exported = torch.onnx.export(
            program.eval(), (example,), dynamo=True, opset_version=opset, input_names=[reads],
            output_names=["probabilities"], dynamic_shapes=free, verbose=False,
        )  # fmt: skip
    assert exported is not None
    body = exported.model_proto
    require_opset(body, opset)
    add_label(body.graph, classes)
    onnx.helper.set_model_props(body, {k: v if isinstance(v, str) else json.dumps(v) for k, v in about.items()})
    body.producer_name = "cofrnet"
    onnx.checker.check_model(body, full_check=True)
    return write_atomically(path, body.SerializeToString())

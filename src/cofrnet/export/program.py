"""The whole estimator for other runtimes: a torch module of plain operations, and ONNX and torch.export made from it.

    table (n, P)  ->  inputs  ->  ladders  ->  scores  ->  probabilities or predictions [, contributions]

A table is numbers: a column of levels is the position of the level in its list, -1 for any other, and NaN is missing.
The ONNX graph takes text for such columns and looks the positions up.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cofrnet.core import backend
from cofrnet.explain.inputs import path_contributions
from cofrnet.explain.subject import Subject
from cofrnet.files import write_atomically

__all__ = ["OPSET", "Program", "add_label", "probabilities", "quiet", "require_opset", "to_onnx", "to_torch"]

NODES, SECANTS = 64, 8  # of the integrals behind the contributions; of clamped ladders, which may jump
OPSET = 25
CLASSES, NUMBERS = ("label", "probabilities"), ("prediction",)


def _keep(module: nn.Module, name: str, values: Any) -> None:
    if np.size(values):  # torch's files hold no empty tensors
        module.register_buffer(name, torch.from_numpy(np.array(values)))


class _Maps(nn.Module):
    """Functions of numbers that are linear between knots, each of the number of its owner.

    Starts, values, slopes and widths of their pieces stand one map after another, as many for each as the longest has.
    """

    owner: Tensor
    starts: Tensor
    values: Tensor
    slopes: Tensor
    widths: Tensor
    first: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, maps: Sequence[tuple[int, Sequence[float], Sequence[float], bool]]) -> None:
        """Of each map its owner, knots, values, and whether it stays at the outermost values beyond them."""
        super().__init__()
        most = max([len(knots) - 1 for _, knots, _, _ in maps], default=1)
        self.levels_of_search = max(1, (most - 1).bit_length())
        size = 2**self.levels_of_search
        starts, widths = np.full((len(maps), size), np.inf), np.ones((len(maps), size))
        values, slopes = np.zeros((len(maps), size)), np.zeros((len(maps), size))
        ends = np.tile([[-np.inf], [np.inf]], len(maps))
        for i, (_, knots, own, bounded) in enumerate(maps):
            pieces = len(knots) - 1
            starts[i, :pieces], values[i, :pieces] = knots[:-1], own[:-1]
            widths[i, :pieces] = np.diff(knots)
            slopes[i, :pieces] = np.diff(own) / np.diff(knots)
            if bounded:
                ends[:, i] = knots[0], knots[-1]
        for name, table in (("starts", starts), ("values", values), ("slopes", slopes), ("widths", widths)):
            _keep(self, name, table.reshape(-1))
        _keep(self, "owner", np.array([owner for owner, *_ in maps], dtype=np.int64))
        _keep(self, "first", np.arange(len(maps)) * size)
        _keep(self, "low", ends[0])
        _keep(self, "high", ends[1])

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, 0 for NaN; the piece of each, from 0; and the share of it that lies before the number, all (n, maps).

        given : (n, columns).
        """
        own = given[:, self.owner]
        x = torch.maximum(torch.minimum(own, self.high), self.low)
        piece = torch.zeros_like(x, dtype=torch.int64) + self.first
        for level in reversed(range(self.levels_of_search)):  # the last piece that starts at or below x
            further = piece + 2**level
            piece = torch.where(x >= self.starts[further], further, piece)
        beyond = x - self.starts[piece]
        values = torch.where(torch.isnan(own), 0.0, self.values[piece] + beyond * self.slopes[piece])
        return values, piece - self.first, beyond / self.widths[piece]


class Program(nn.Module):
    """A fitted estimator as a function of its table, in operations that every runtime has.

    Returns the probabilities (n, C) of a classifier, or the predictions (n, q), and with `contributions` also what each
    column adds to each score on the way from the mean row, (n, q, P).
    """

    scale: Tensor
    offset: Tensor
    baseline: Tensor
    numeric: Tensor
    leveled: Tensor
    order: Tensor
    owners: Tensor
    hat_owner: Tensor
    hat_place: Tensor
    hat_height: Tensor
    level_counts: Tensor
    place_of_missing: Tensor
    place_of_other: Tensor
    level_inputs: Tensor
    level_owner: Tensor
    level_place: Tensor
    effect_owner: Tensor
    first_effect: Tensor
    level_effects: Tensor

    def __init__(self, subject: Subject, classes: Sequence[Any] | None, contributions: bool = False) -> None:
        super().__init__()
        self.model = subject.model
        self.classify, self.several = classes is not None, len(subject.output_names) > 1
        self.contributions = contributions
        numeric = [j for j, column in enumerate(subject.columns) if hasattr(column, "knots")]
        leveled = [j for j, column in enumerate(subject.columns) if not hasattr(column, "knots")]
        self.has_numbers, self.has_levels = len(numeric) > 0, any(len(subject.columns[j].inputs) for j in leveled)
        self._keep("scale", subject.scale)
        self._keep("offset", subject.offset)
        self._keep("baseline", subject.baseline("mean").numpy())
        self._keep("numeric", np.array(numeric, dtype=np.int64))
        self._keep("leveled", np.array(leveled, dtype=np.int64))
        self._keep_scaling([subject.columns[j] for j in numeric])
        self._keep_levels([subject.columns[j] for j in leveled])
        self._keep("order", _order(subject.columns, numeric, leveled))
        self.n_columns = len(subject.columns)
        self._keep("owners", np.repeat(np.arange(self.n_columns), [len(column.inputs) for column in subject.columns]))

    def _keep(self, name: str, values: Any) -> None:
        _keep(self, name, values)

    def _keep_scaling(self, columns: Sequence[Any]) -> None:
        """The maps of numbers: the scaling of each column and, apart from those, as they are far longer, its effects;
        for each hat whose it is, and at which knot.
        """
        self.scalings = _Maps([(i, column.knots, column.values, column.bounded) for i, column in enumerate(columns)])
        coded = [(i, column.effect_map) for i, column in enumerate(columns) if column.effects]
        self.effect_maps = _Maps([(i, knots, own, True) for i, (knots, values) in coded for own in values.T])
        self.has_codes = len(coded) > 0
        self.has_hats = any(column.hats for column in columns)
        counts = [len(column.hats) for column in columns]
        self._keep("hat_owner", np.repeat(np.arange(len(columns)), counts))
        self._keep("hat_height", np.repeat([column.height for column in columns], counts))
        self._keep("hat_place", np.array([i for column in columns for i in column.hats], dtype=np.int64))

    def _keep_levels(self, columns: Sequence[Any]) -> None:
        """For each column of levels how many it has and where missing and other are; for each level that is an input
        whose it is; effects of the levels of other columns, after a row of zeros for no level.
        """
        counts = [len(column.levels) for column in columns]
        self._keep("level_counts", np.array(counts, dtype=np.float64))
        self._keep("place_of_missing", np.array([column.place_of_missing for column in columns], dtype=np.float64))
        self._keep("place_of_other", np.array([column.place_of_other for column in columns], dtype=np.float64))
        inputs = [column.first_effect for column in columns]
        self._keep("level_inputs", np.array(inputs, dtype=np.float64))
        self._keep("level_owner", np.repeat(np.arange(len(columns)), inputs))
        self._keep("level_place", np.array([i for count in inputs for i in range(count)], dtype=np.float64))
        coded = [j for j, column in enumerate(columns) if column.effects]
        self.has_level_inputs, self.has_level_effects = sum(inputs) > 0, len(coded) > 0
        self._keep("effect_owner", np.array(coded, dtype=np.int64))
        self._keep("first_effect", np.cumsum([1, *(counts[j] for j in coded)])[:-1])
        effects = [own for j in coded for own in columns[j].effects]
        self._keep("level_effects", np.array([np.zeros_like(effects[0]), *effects] if coded else []))

    def inputs(self, table: Tensor) -> Tensor:
        """Inputs of the model, (n, p), of a table (n, P)."""
        parts = [*self._numbers(table), *self._levels(table)]
        return torch.cat(parts, 1)[:, self.order].to(self.model.head.dtype)

    def _numbers(self, table: Tensor) -> Iterator[Tensor]:
        """Values, effects, gaps and hats of the numeric columns."""
        if not self.has_numbers:
            return
        given = table[:, self.numeric]
        z, piece, share = self.scalings(given)
        yield z
        if self.has_codes:
            yield self.effect_maps(given)[0]
        missing = torch.isnan(given)
        yield missing.double()
        if self.has_hats:
            share = share[:, self.hat_owner]
            above = self.hat_place - piece[:, self.hat_owner]  # 0: knot before x, 1: after it
            height = torch.where(above == 0, 1 - share, torch.where(above == 1, share, 0.0))
            yield torch.where(missing[:, self.hat_owner], 0.0, self.hat_height * height)

    def _levels(self, table: Tensor) -> Iterator[Tensor]:
        """0 or 1 for each level, then effects of levels."""
        if not self.has_levels:
            return
        codes = table[:, self.leveled]
        strange = (codes < 0) | (codes >= self.level_counts)
        codes = torch.where(strange, self.place_of_other, codes)
        codes = torch.where(torch.isnan(codes), self.place_of_missing, codes)
        if self.has_level_inputs:
            frequent = torch.where(codes < self.level_inputs, codes, self.place_of_other)
            yield (frequent[:, self.level_owner] == self.level_place).double()
        if self.has_level_effects:
            own = codes[:, self.effect_owner]
            place = torch.where(own < 0, 0, self.first_effect + own.long())
            yield self.level_effects[place].flatten(1)

    def forward(self, table: Tensor) -> tuple[Tensor, ...]:
        """Probabilities or predictions, and contributions where they are asked for."""
        x = self.inputs(table)
        raw = self.model.member_scores_by_autograd(x).mean(0).T  # (n, q)
        scores = raw.double() * self.scale + self.offset
        found = probabilities(scores) if self.classify else scores
        if not self.contributions:
            return (found,)
        nodes = NODES if self.model.spec.pole == "smooth" else None
        own = path_contributions(self.model, self.baseline.to(x.dtype).expand_as(x), x, nodes, SECANTS)  # (n, q, p)
        own = own.double() * self.scale.unsqueeze(-1)
        columns = own.new_zeros(*own.shape[:2], self.n_columns)
        return found, columns.scatter_add(2, self.owners.expand_as(own), own)


def _order(columns: Sequence[Any], numeric: Sequence[int], leveled: Sequence[int]) -> NDArray[np.int64]:
    """Places of the inputs, in the order of the model, among those that a program makes kind by kind.

    The kinds: scaled numbers, effects of numbers, gaps, hats, levels, effects of levels.
    """
    kinds: list[tuple[Sequence[int], Any]] = [
        (numeric, lambda column: [0]),
        (numeric, lambda column: range(column.first_effect, len(column.inputs))),
        (numeric, lambda column: [1] if column.has_missing else [-1]),
        (numeric, lambda column: range(column.first_hat, column.first_effect)),
        (leveled, lambda column: range(column.first_effect)),
        (leveled, lambda column: range(column.first_effect, len(column.inputs))),
    ]
    made = [(j, place) for own, places in kinds for j in own for place in places(columns[j])]
    where = {key: i for i, key in enumerate(made)}
    wanted = [(j, place) for j, column in enumerate(columns) for place in range(len(column.inputs))]
    return np.array([where[key] for key in wanted], dtype=np.int64)


def require_opset(body: Any, opset: int) -> None:
    """Raise unless an ONNX model has the opset asked for: torch takes another where it does not know it."""
    found = next(own.version for own in body.opset_import if own.domain in ("", "ai.onnx"))
    if found != opset:
        raise ValueError(f"opset must be one that the installed torch and onnx can write; got opset={opset}.")


def probabilities(scores: Tensor) -> Tensor:
    """Probabilities (n, C) from scores (n, q): the softmax, with a score of 0 in front where q = 1."""
    scores = scores.double()
    several = scores.shape[1] > 1
    return torch.softmax(scores if several else torch.cat([torch.zeros_like(scores), scores], 1), 1)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the remarks of torch's exporters about themselves."""
    import logging

    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), backend("reference"), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _exported(program: Program, columns: int) -> Any:
    example = torch.zeros(3, columns, dtype=torch.float64)
    return torch.export.export(program.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("rows")},))


def to_torch(program: Program, columns: Sequence[Any], about: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a ``torch.export`` program, and return its path; ``torch.export.load(path).module()(table)`` runs it.

    It needs torch alone. The file "cofrnet.json" in it tells the columns, their levels and the outputs.
    """
    with quiet():
        exported = _exported(program, len(columns))
        content = io.BytesIO()
        text = json.dumps(about | {"columns": [_described(column) for column in columns]})
        torch.export.save(exported, content, extra_files={"cofrnet.json": text})
    return write_atomically(path, content.getvalue())


def _described(column: Any) -> dict[str, Any]:
    levels = getattr(column, "levels", None)
    if levels is not None:
        return {"name": column.name, "kind": "level", "levels": list(levels)}
    return {"name": column.name, "kind": "days since 1970-01-01" if column.is_date else "number"}


def to_onnx(
    program: Program,
    columns: Sequence[Any],
    classes: Sequence[Any] | None,
    about: dict[str, Any],
    path: str | os.PathLike[str],
    one_input: bool,
    opset: int = OPSET,
) -> Path:
    """Write an ONNX file of the whole estimator, and return its path.

    Inputs: "X", (n, P) of doubles, where `one_input`; else one for each column, by its name, (n, 1): doubles with NaN
    for missing, or strings, with "" for missing. Outputs: "label" and "probabilities", or "prediction"; "contributions"
    where the program gives them. The number of rows is free.
    """
    try:
        import onnx
        from onnx import compose
    except ImportError:
        raise ImportError("ONNX needs the package onnx. Install it with: pip install 'cofrnet[onnx]'") from None
    names = [*(CLASSES[1:] if classes is not None else NUMBERS), *(["contributions"] if program.contributions else [])]
    with quiet():
        exported = torch.onnx.export(
            program.eval(), (torch.zeros(3, len(columns), dtype=torch.float64),), dynamo=True, opset_version=opset,
            input_names=["table"], output_names=names, dynamic_shapes=({0: torch.export.Dim("rows")},), verbose=False,
        )  # fmt: skip
    assert exported is not None
    require_opset(exported.model_proto, opset)
    body = compose.add_prefix(exported.model_proto, "cofrnet/", rename_inputs=False, rename_outputs=False)
    graph = body.graph
    if one_input:
        _rename_input(graph, "table", "X")
    else:
        taken = next(
            (column.name for column in columns if column.name in (*CLASSES, *NUMBERS, "contributions", "")), None
        )
        if taken is not None:
            raise ValueError(
                f"a column must not have the name of an output of the ONNX graph; got {taken!r}. Rename the "
                "column and fit again."
            )
        _rename_input(graph, "table", "cofrnet/table")
        _read_columns(graph, columns)
    if classes is not None:
        add_label(graph, classes)
    if classes is None and not program.several:
        _flatten(graph, NUMBERS[0])
    onnx.helper.set_model_props(body, {k: v if isinstance(v, str) else json.dumps(v) for k, v in about.items()})
    body.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 4))
    body.producer_name = "cofrnet"
    onnx.checker.check_model(body, full_check=True)
    return write_atomically(path, body.SerializeToString())


def _rename_input(graph: Any, old: str, new: str) -> None:
    graph.input[0].name = new
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == old:
                node.input[i] = new


def _read_columns(graph: Any, columns: Sequence[Any]) -> None:
    """Inputs for the columns, put together to the table."""
    from onnx import TensorProto, helper

    del graph.input[:]
    nodes, parts = [], []
    for j, column in enumerate(columns):
        levels = getattr(column, "levels", None)
        kind = TensorProto.DOUBLE if levels is None else TensorProto.STRING
        graph.input.append(helper.make_tensor_value_info(column.name, kind, ["rows", 1]))
        if levels is None:
            parts.append(column.name)
            continue
        known = [(level, float(i)) for i, level in enumerate(levels)]
        if "" not in levels:
            known.append(("", float("nan")))
        nodes.append(
            helper.make_node(
                "LabelEncoder", [column.name], [f"cofrnet/place/{j}"], domain="ai.onnx.ml",
                keys_strings=[level for level, _ in known], values_floats=[place for _, place in known],
                default_float=-1.0,
            )
        )  # fmt: skip
        nodes.append(helper.make_node("Cast", [f"cofrnet/place/{j}"], [f"cofrnet/code/{j}"], to=TensorProto.DOUBLE))
        parts.append(f"cofrnet/code/{j}")
    nodes.append(helper.make_node("Concat", parts, ["cofrnet/table"], axis=1))
    _put_first(graph, nodes)


def _put_first(graph: Any, nodes: Sequence[Any]) -> None:
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])


def add_label(graph: Any, classes: Sequence[Any]) -> None:
    """The most probable class, as the first output: text or int64."""
    from onnx import TensorProto, helper

    values = np.asarray(classes)
    if values.dtype.kind in "iub":
        kind, content = TensorProto.INT64, values.astype(np.int64).tolist()
    elif values.dtype.kind == "f":
        kind, content = TensorProto.DOUBLE, values.tolist()
    else:
        kind, content = TensorProto.STRING, [str(value).encode() for value in values]
    graph.initializer.append(helper.make_tensor("cofrnet/classes", kind, [len(values)], content))
    graph.node.append(
        helper.make_node("ArgMax", ["probabilities"], ["cofrnet/best"], axis=1, keepdims=0, select_last_index=0)
    )
    graph.node.append(helper.make_node("Gather", ["cofrnet/classes", "cofrnet/best"], ["label"], axis=0))
    outputs = [helper.make_tensor_value_info("label", kind, ["rows"]), *graph.output]
    del graph.output[:]
    graph.output.extend(outputs)


def _flatten(graph: Any, name: str) -> None:
    """The predictions of one target, (n,), as `predict` gives them."""
    from onnx import TensorProto, helper

    for node in graph.node:
        for i, own in enumerate(node.output):
            if own == name:
                node.output[i] = "cofrnet/wide"
        for i, own in enumerate(node.input):
            if own == name:
                node.input[i] = "cofrnet/wide"
    graph.initializer.append(helper.make_tensor("cofrnet/one", TensorProto.INT64, [1], [1]))
    graph.node.append(helper.make_node("Squeeze", ["cofrnet/wide", "cofrnet/one"], [name]))
    for i, output in enumerate(graph.output):
        if output.name == name:
            graph.output[i].CopyFrom(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows"]))

"""Scores of a CoFrNet and their gradients in closed form, without autograd in between.

The general way builds a graph of some thirty torch operations a step; on small batches, walking it costs more than the
arithmetic. Here they are written out by the chain rule, into memory that is taken once:

    V = [x; curves; full]  (p + C + L, n),     scores = [U, H] V + c
    dV = [U, H]^T g,   da = dV_full (df/da),   dW = da z^T,   dz = W^T da + dV_z,   then the curves by their own rungs

where z is what the full ladders read: x, or [x; curves] in "S". It is used where it applies and gives the
numbers of the general way to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from cofrnet.core.ladder import fused_kernels, gradients_that_are_needed

if TYPE_CHECKING:
    from cofrnet.nn.cofrnet import CoFrNet

__all__ = ["ClosedForm", "closed_form", "compiled_kind", "compiled_numbers", "covered", "member_scores"]

ROWS_AT_ONCE = 16_384  # whose inputs are copied, feature by feature


def member_scores(model: CoFrNet, x: Tensor) -> Tensor | None:
    """Scores of each member, or None where the closed form does not cover the model or the call.

    Where no gradient is wanted, compiled code goes over the rows by itself. Shapes: x (n, p); returns (members, q, n).
    """
    found = covered(model, x)
    if found is None:
        return None
    parameters, kernels = found
    if torch.is_grad_enabled():
        form = ClosedForm(model, parameters, len(x), kernels, None)
        return _Scores.apply(form, x, *parameters)
    numbers = compiled_numbers(model, [t.detach() for t in parameters], kernels)
    kind, parts = compiled_kind(model, kernels, x.detach().numpy()), []
    for rows in x.detach().split(ROWS_AT_ONCE):
        parts.append(x.new_empty(model.spec.n_members, model.spec.n_outputs, len(rows)))
        kernels.scores.member_scores(np.ascontiguousarray(rows.numpy().T), numbers, kind, parts[-1].numpy())
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def covered(model: Any, x: Tensor) -> tuple[list[Tensor], Any] | None:
    """The parameters that a closed form reads, in its order, and the kernels; None where it does not apply."""
    from cofrnet.nn.cofrnet import CoFrNet

    if not isinstance(model, CoFrNet) or model.subsets is not None or model.linear is None:
        return None
    banks = [bank for bank in (model.curves, model.full) if bank is not None]
    if model.training and model.spec.dropout > 0:
        return None
    if forward_ad.unpack_dual(x).tangent is not None:
        return None
    if any(bank.is_uneven or bank.log_epsilon is not None for bank in banks):
        return None
    own: list[Tensor] = [t for t in (model.linear, model.intercept, model.head) if t is not None]
    parameters: list[Tensor] = own + [t for bank in banks for t in (bank.weight, bank.bias)]
    kernels = fused_kernels(x, *parameters)
    if kernels is None or not all(t.is_contiguous() for t in parameters):
        return None
    return parameters, kernels


def closed_form(model: Any, x: Tensor, gradients_to_grad: bool = False) -> ClosedForm | None:
    """The closed form for as many rows as x, (n, p), has; None where it does not cover the model or the call.

    Gradients are written to memory of its own or, if so asked, to the `grad` that every parameter must then have.
    """
    found = covered(model, x)
    if found is None:
        return None
    parameters, kernels = found
    if gradients_to_grad and any(t.grad is None for t in parameters):
        return None
    return ClosedForm(model, parameters, len(x), kernels, [t.grad for t in parameters] if gradients_to_grad else None)


def _shaped(model: CoFrNet, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Parameters of a closed form, or gradients by them, in the shapes of `compiled.scores.Numbers`."""
    linear, intercept, head, *rest = tensors
    members, q, curves, full = model.spec.n_members, model.spec.n_outputs, model.curves, model.full
    empty = linear.new_empty
    of_curves = [empty(members, 1, 0, 1), empty(members, 1, 0, 1)]
    if curves is not None:
        of_curves = [t.view(members, -1, curves.n_features, curves.ladders_per_feature) for t in rest[:2]]
        rest = rest[2:]
    of_full = [empty(members, 0, 1), empty(members, 0)]
    if full is not None:
        of_full = [rest[0].view(members, -1, full.n_features), rest[1].view(members, -1)]
    own = [linear.view(members, q, -1), intercept.view(members, q), head.view(members, q, -1)]
    return [*own, *of_curves, *of_full]


def compiled_numbers(model: CoFrNet, tensors: Sequence[Any], kernels: Any) -> Any:
    """Parameters of a closed form, or gradients by them, as compiled code reads them; they share memory."""
    return kernels.scores.Numbers(*(t.numpy() for t in _shaped(model, tensors)))


def compiled_kind(model: CoFrNet, kernels: Any, like: Any) -> Any:
    """What ladders a model has, as compiled code reads it; `like` is an array of its dtype."""
    spec, full = model.spec, model.full
    rungs, first = 1, False
    if full is not None:
        rungs, first = full.bias.numel() // (spec.n_members * len(spec.full_depths)), full.first
    curved = np.arange(spec.n_features) if model._curved is None else model._curved.numpy()
    scalars = kernels.strips.scalars(like, spec.epsilon)
    return kernels.scores.Kind(rungs, first, *scalars, spec.pole == "smooth", curved)


class ClosedForm:
    """Scores of n rows at a time, and the way back from them to the gradients.

    It can be used again and again: memory is taken and cut into blocks once, but for the scores.
    """

    def __init__(
        self, model: CoFrNet, parameters: Sequence[Tensor], n: int, kernels: Any, gradients: Sequence[Any] | None
    ) -> None:
        self.model, self.parameters, self.n, self.kernels, self._gradients = model, parameters, n, kernels, gradients
        spec, curves, full = model.spec, model.curves, model.full
        members, p = spec.n_members, spec.n_features
        self.pole: tuple[Any, bool] = (spec.epsilon, spec.pole == "smooth")
        self.linear, self.intercept, self.head, of_curves, self.of_full = self.shaped([t.detach() for t in parameters])
        self.widths = [p, spec.n_curves, len(spec.full_depths)]
        self.v = torch.empty(members, sum(self.widths), n, dtype=parameters[0].dtype)
        self.straight, curved, values = self.v.split(self.widths, dim=1)
        self.ladders = self.v[:, p:]
        self.has_curves, self.has_full, self.curved = curves is not None, full is not None, model._curved
        if curves is not None:
            some = self.straight[0] if self.curved is None else self.v.new_empty(curves.n_features, n)
            self.features = some
            self.of_curves = [(some.numpy(), *own) for own in _each(*of_curves)]
            self.curve_values = self.by_curve(curved)
        if full is not None:
            self.first = full.first
            self.reads = self.v[:, : full.n_features]
            self.a = torch.empty(members, self.of_full[0].shape[1], n, dtype=self.v.dtype)
            self.rungs, self.full_values = self.by_rung(self.a), self.flat(values)

    def by_curve(self, t: Tensor) -> list[Any]:
        """What curves give, (members, curves, n), as an array (1, curved features, curves of each, n) for each member.

        Rows of several members do not lie side by side, but those of one do.
        """
        curves = self.model.curves
        assert curves is not None
        return [own.view(1, curves.n_features, curves.ladders_per_feature, self.n).numpy() for own in t]

    def by_rung(self, t: Tensor) -> list[Any]:
        """(members, rungs of all ladders, n) as an array (1, rungs, ladders times n) for each member."""
        return [own.view(1, -1, self.widths[2] * self.n).numpy() for own in t]

    def flat(self, t: Tensor) -> list[Any]:
        """(members, ladders, n) as an array (1, ladders times n) for each member."""
        return [own.view(1, -1).numpy() for own in t]

    def shaped(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Parameters, or gradients by them, in the shapes of the formulas."""
        linear, intercept, head, *of_curves, weight, bias = _shaped(self.model, tensors)
        return linear, intercept.unsqueeze(2), head, of_curves, (weight, bias.unsqueeze(2))

    def scores(self, x: Tensor) -> Tensor:
        """Shapes: x (n, p); returns (members, q, n)."""
        strips = self.kernels.strips
        self.straight.copy_(x.detach().T)
        if self.has_curves:
            if self.curved is not None:
                torch.index_select(self.straight[0], 0, self.curved, out=self.features)
            for own, values in zip(self.of_curves, self.curve_values, strict=True):
                strips.feature_values(*self.pole, *own, values)
        if self.has_full:
            weight, bias = self.of_full
            torch.baddbmm(bias, weight, self.reads, out=self.a)
            for rungs, values in zip(self.rungs, self.full_values, strict=True):
                strips.value(*self.pole, rungs, values, self.first)
        return torch.baddbmm(self.intercept, self.linear, self.straight).baddbmm_(self.head, self.ladders)

    @cached_property
    def _back(self) -> _WayBack:
        gradients = [torch.empty_like(t) for t in self.parameters] if self._gradients is None else self._gradients
        return _WayBack(self, gradients)

    def gradients(self, g: Tensor, with_x: bool = False) -> tuple[Sequence[Tensor], Tensor | None]:
        """Gradients of sum(g scores) for the rows last given to `scores`: by the parameters, and by x where asked for.

        Shapes: g (members, q, n); returns shapes of the parameters, and (n, p) or None.
        """
        return self._back.gradients, self._back.go(g, with_x)


class _WayBack:
    """From gradients by the scores of a closed form to those by its parameters, into memory that is taken once."""

    def __init__(self, form: ClosedForm, gradients: Sequence[Tensor]) -> None:
        self.form, self.gradients = form, gradients
        self.by_linear, self.by_intercept, self.by_head, by_curves, self.by_full = form.shaped(gradients)
        p, count, _ = form.widths
        self.by_v = torch.empty_like(form.v)
        self.by_ladders = self.by_v[:, p:]
        self.straight, self.ladders = form.straight.transpose(1, 2), form.ladders.transpose(1, 2)
        self.linear, self.head = form.linear.transpose(1, 2), form.head.transpose(1, 2)
        if form.has_full:
            self.by_a = torch.empty_like(form.a)
            self.by_rungs = form.by_rung(self.by_a)
            self.by_full_values = form.flat(self.by_v[:, p + count :])
            self.reads = form.reads.transpose(1, 2)
            width = form.reads.shape[1]
            # What the full ladders read and the weights they read it by; the features' own only where asked for.
            self.by_reads = [
                (self.by_v[:, first:width], form.of_full[0][:, :, first:].transpose(1, 2)) for first in (p, 0)
            ]
        if form.has_curves:
            self.by_curve_values = form.by_curve(self.by_v[:, p : p + count])
            self.by_curves = _each(*by_curves)
            self.no_features = form.features.new_empty(len(form.features), 0).numpy()

    def go(self, g: Tensor, with_x: bool) -> Tensor | None:
        """Write the gradients; returns those by x, (n, p), where asked for."""
        form, strips, p = self.form, self.form.kernels.strips, self.form.widths[0]
        torch.bmm(g, self.straight, out=self.by_linear)
        torch.sum(g, 2, keepdim=True, out=self.by_intercept)
        torch.bmm(g, self.ladders, out=self.by_head)
        torch.bmm(self.head, g, out=self.by_ladders)
        if with_x:
            torch.bmm(self.linear, g, out=self.by_v[:, :p])
        if form.has_full:
            for values, rungs, by_rungs in zip(self.by_full_values, form.rungs, self.by_rungs, strict=True):
                strips.sensitivity_products(*form.pole, values, rungs, by_rungs, form.first)
            torch.bmm(self.by_a, self.reads, out=self.by_full[0])
            torch.sum(self.by_a, 2, keepdim=True, out=self.by_full[1])
            by_reads, weight = self.by_reads[with_x]
            if by_reads.shape[1]:
                by_reads.baddbmm_(weight, self.by_a)
        by_x = self.by_v[:, :p].sum(0) if with_x else None
        if form.has_curves:
            by_features = torch.zeros_like(form.features) if with_x else None
            into = self.no_features if by_features is None else by_features.numpy()
            for values, own, by_own in zip(self.by_curve_values, form.of_curves, self.by_curves, strict=True):
                strips.feature_gradients(*form.pole, values, *own, into, *by_own)
            if by_x is not None and by_features is not None:
                by_x.index_add_(0, form.model.curved, by_features)
        return None if by_x is None else by_x.T


def _each(*tensors: Tensor) -> list[tuple[Any, ...]]:
    """The arrays of each member, (1, ...), of tensors (members, ...)."""
    return list(zip(*([own.numpy() for own in t.split(1)] for t in tensors), strict=True))


class _Scores(torch.autograd.Function):
    """The closed form as an operation of autograd."""

    @staticmethod
    def forward(ctx: Any, form: ClosedForm, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.form = form
        ctx.save_for_backward(x, *parameters)
        return form.scores(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        form, inputs = ctx.form, ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the general way can be differentiated again
            scores = form.model.member_scores_by_autograd(inputs[0])
            return None, *gradients_that_are_needed(scores, inputs, ctx.needs_input_grad[1:], g)
        gradients, by_x = form.gradients(g, ctx.needs_input_grad[1])
        return None, by_x, *(t.clone() for t in gradients)

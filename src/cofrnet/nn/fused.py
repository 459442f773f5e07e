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

import torch
from torch import Tensor

from cofrnet.core.ladder import fused_kernels, gradients_that_are_needed

if TYPE_CHECKING:
    from cofrnet.nn.cofrnet import CoFrNet

NUMBERS_AT_ONCE, FEWEST_ROWS = 2**20, 256  # where no gradient is wanted, for bounded memory

__all__ = ["ClosedForm", "closed_form", "member_scores"]


def member_scores(model: CoFrNet, x: Tensor) -> Tensor | None:
    """Scores of each member, or None where the closed form does not cover the model or the call.

    Shapes: x (n, p); returns (members, q, n).
    """
    if torch.is_grad_enabled():
        form = closed_form(model, x)
        return None if form is None else _Scores.apply(form, x, *form.parameters)
    each = model.spec.n_features + model.spec.total_ladders + sum(model.spec.full_depths)
    rows = max(NUMBERS_AT_ONCE // (each * model.spec.n_members), FEWEST_ROWS)
    parts = max(1, -(-len(x) // rows))
    size = -(-len(x) // parts)
    form = closed_form(model, x[:size])
    if form is None or parts == 1:
        return None if form is None else form.scores(x)
    scores = x.new_empty(*form.intercept.shape[:2], len(x))
    for start in [*range(0, len(x) - size, size), len(x) - size]:  # the last may begin before the one before it ends
        scores[:, :, start : start + size] = form.scores(x[start : start + size])
    return scores


def closed_form(model: Any, x: Tensor, gradients_to_grad: bool = False) -> ClosedForm | None:
    """The closed form for as many rows as x, (n, p), has; None where it does not cover the model or the call.

    Gradients are written to memory of its own or, if so asked, to the `grad` that every parameter must then have.
    """
    from cofrnet.nn.cofrnet import CoFrNet

    if not isinstance(model, CoFrNet) or model.subsets is not None or model.linear is None:
        return None
    banks = [bank for bank in (model.curves, model.full) if bank is not None]
    if model.training and model.spec.dropout > 0:
        return None
    if any(bank.is_uneven or bank.log_epsilon is not None for bank in banks):
        return None
    own = [t for t in (model.linear, model.intercept, model.head) if t is not None]
    parameters = own + [t for bank in banks for t in (bank.weight, bank.bias)]
    kernels = fused_kernels(x, *parameters)
    if kernels is None or (gradients_to_grad and any(t.grad is None for t in parameters)):
        return None
    return ClosedForm(model, parameters, len(x), kernels, [t.grad for t in parameters] if gradients_to_grad else None)


class ClosedForm:
    """Scores of n rows at a time, and the way back from them to the gradients.

    It can be used again and again; memory is taken once, but for the scores.
    """

    def __init__(
        self, model: CoFrNet, parameters: Sequence[Tensor], n: int, kernels: Any, gradients: Sequence[Any] | None
    ) -> None:
        self.model, self.parameters, self.n, self.kernels, self._gradients = model, parameters, n, kernels, gradients
        spec, full = model.spec, model.full
        members, p = spec.n_members, spec.n_features
        self.pole: tuple[Any, bool] = (spec.epsilon, spec.pole == "smooth")
        self.linear, self.intercept, self.head, self.of_curves, self.of_full = self._shaped(
            [t.detach() for t in parameters]
        )
        self.widths = [p, spec.n_curves, len(spec.full_depths)]
        self.v = torch.empty(members, sum(self.widths), n, dtype=parameters[0].dtype)
        self.straight, self.curved, self.full = self.v.split(self.widths, dim=1)
        self.ladders = self.v[:, p:]
        self.reads = self.v[:, : 0 if full is None else full.n_features]
        if full is not None:
            self.a = torch.empty(members, self.of_full[0].shape[1], n, dtype=self.v.dtype)

    def _shaped(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Parameters, or gradients by them, in the shapes of the formulas."""
        spec, curves, full = self.model.spec, self.model.curves, self.model.full
        members, rest = spec.n_members, list(tensors[3:])
        own = [t.view(members, spec.n_outputs, -1) for t in tensors[:3]]
        of_curves: tuple[Tensor, ...] = ()
        if curves is not None:
            shape = (members, -1, curves.n_features, curves.ladders_per_feature)
            of_curves = rest.pop(0).view(shape), rest.pop(0).view(shape)
        of_full: tuple[Tensor, ...] = ()
        if full is not None:
            of_full = rest.pop(0).view(members, -1, full.n_features), rest.pop(0).view(members, -1, 1)
        return *own, of_curves, of_full

    def _by_rung(self, t: Tensor) -> Tensor:
        """(members, rungs of all ladders, n) as (members, rungs, ladders times n)."""
        return t.view(len(t), -1, self.widths[2] * self.n)

    def scores(self, x: Tensor) -> Tensor:
        """Shapes: x (n, p); returns (members, q, n)."""
        curves, full = self.model.curves, self.model.full
        self.straight.copy_(x.detach().T)
        if curves is not None:
            features, curved = self.straight[0], self.model._curved
            self.features = features if curved is None else features[curved]
            into = _one_piece(self.curved, len(self.v), curves.n_features, -1, self.n)
            values = self.kernels.feature_values(self.features, *self.of_curves, *self.pole, out=into)
            if into is None:
                self.curved.copy_(values.view(self.curved.shape))
        if full is not None:
            weight, bias = self.of_full
            torch.baddbmm(bias, weight, self.reads, out=self.a)
            into = _one_piece(self.full, len(self.v), -1)
            values = self.kernels.value(self._by_rung(self.a), *self.pole, full.first, out=into)
            if into is None:
                self.full.copy_(values.view(self.full.shape))
        scores = torch.baddbmm(self.intercept, self.linear, self.straight)
        return scores.baddbmm_(self.head, self.ladders) if self.ladders.shape[1] else scores

    @cached_property
    def _back(self) -> tuple[Any, ...]:
        """Memory for the way back: by V, by a, and by the parameters, as they are and in the shapes of the formulas."""
        by_v = torch.empty_like(self.v)
        by_a = torch.empty_like(self.a) if self.model.full is not None else None
        gradients = [torch.empty_like(t) for t in self.parameters] if self._gradients is None else self._gradients
        return by_v, by_a, gradients, self._shaped(gradients)

    def gradients(self, g: Tensor, with_x: bool = False) -> tuple[list[Tensor], Tensor | None]:
        """Gradients of sum(g scores) for the rows last given to `scores`: by the parameters, and by x where asked for.

        Shapes: g (members, q, n); returns shapes of the parameters, and (n, p) or None.
        """
        curves, full = self.model.curves, self.model.full
        by_v, by_a, gradients, (by_linear, by_intercept, by_head, by_curves, by_full) = self._back
        p = self.widths[0]
        torch.bmm(g, self.straight.transpose(1, 2), out=by_linear)
        torch.sum(g, 2, keepdim=True, out=by_intercept)
        torch.bmm(g, self.ladders.transpose(1, 2), out=by_head)
        torch.bmm(self.head.transpose(1, 2), g, out=by_v[:, p:])
        if with_x:
            torch.bmm(self.linear.transpose(1, 2), g, out=by_v[:, :p])
        if full is not None:
            g_full = by_v[:, -self.widths[2] :].reshape(len(by_v), -1)
            self.kernels.sensitivity_products(
                g_full, self._by_rung(self.a), *self.pole, full.first, out=self._by_rung(by_a)
            )
            torch.bmm(by_a, self.reads.transpose(1, 2), out=by_full[0])
            torch.sum(by_a, 2, keepdim=True, out=by_full[1])
            first, width = 0 if with_x else p, full.n_features  # the features' own gradient only where asked for
            if first < width:
                by_v[:, first:width].baddbmm_(self.of_full[0][:, :, first:].transpose(1, 2), by_a)
        by_x = by_v[:, :p].sum(0) if with_x else None
        if curves is not None:
            g_curves = by_v[:, p : p + self.widths[1]].reshape(len(by_v), curves.n_features, -1, self.n)
            by_features, *_ = self.kernels.feature_gradients(
                g_curves, self.features, *self.of_curves, *self.pole, with_x, out=by_curves
            )
            if by_x is not None:
                by_x.index_add_(0, self.model.curved, by_features)
        return gradients, None if by_x is None else by_x.T


def _one_piece(block: Tensor, *shape: int) -> Tensor | None:
    """The block in another shape, for a kernel to write to; None where it is not one piece of memory."""
    return block.view(shape) if block.is_contiguous() else None


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

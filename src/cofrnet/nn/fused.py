"""Scores of a CoFrNet and their gradients in closed form, without autograd in between.

The general way builds a graph of some thirty torch operations a step; on small batches, walking it costs more than the
arithmetic. Here forward is six operations and backward ten, written out by the chain rule:

    V = [x; curves; full]  (p + C + L, n),     scores = [U, H] V + c
    dV = [U, H]^T g,   da = dV_full (df/da),   dW = da z^T,   dz = W^T da + dV_z,   then the curves by their own rungs

where z is what the full ladders read: x, or [x; curves] in "S". It is used where it applies and gives the
numbers of the general way to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cofrnet.core.ladder import fused_kernels, gradients_that_are_needed

if TYPE_CHECKING:
    from cofrnet.nn.cofrnet import CoFrNet

__all__ = ["member_scores"]


def member_scores(model: CoFrNet, x: Tensor) -> Tensor | None:
    """Scores of each member, or None where the closed form does not cover the model or the call.

    Shapes: x (n, p); returns (members, q, n).
    """
    if model.subsets is not None or model.linear is None or (model.training and model.spec.dropout > 0):
        return None
    if any(
        bank is not None and (bank.is_uneven or bank.log_epsilon is not None) for bank in (model.curves, model.full)
    ):
        return None
    parameters = _parameters(model)
    if fused_kernels(x, *parameters) is None:
        return None
    return _Scores.apply(model, x, *parameters)


def _parameters(model: CoFrNet) -> Sequence[Tensor]:
    banks = [bank for bank in (model.curves, model.full) if bank is not None]
    own = [model.linear, model.intercept, model.head]
    return [t for t in own if t is not None] + [t for bank in banks for t in (bank.weight, bank.bias)]


def _in_place(block: Tensor, *shape: int) -> Tensor | None:
    """The block in another shape, for a kernel to write to; None where it is not one piece of memory."""
    return block.view(shape) if block.is_contiguous() else None


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, model: CoFrNet, x: Tensor, *parameters: Tensor) -> Tensor:
        spec, curves, full = model.spec, model.curves, model.full
        members, q, p, n = spec.n_members, spec.n_outputs, spec.n_features, len(x)
        ladders, smooth, kernels = spec.total_ladders, spec.pole == "smooth", fused_kernels(x)
        assert kernels is not None
        features = x.T.contiguous()  # (p, n)
        v = torch.empty(members, p + ladders, n, dtype=x.dtype)
        v[:, :p] = features
        curved = features if curves is None or model._curved is None else features[model._curved]
        if curves is not None:
            shape = (members, -1, curves.n_features, curves.ladders_per_feature)
            into = _in_place(v[:, p : p + spec.n_curves], members, *shape[2:], n)
            values = kernels.feature_values(
                curved, curves.weight.view(shape), curves.bias.view(shape), spec.epsilon, smooth, out=into
            )
            if into is None:
                v[:, p : p + spec.n_curves] = values.view(members, -1, n)
        a = None
        if full is not None:
            z = v[:, : full.n_features]
            weight, bias = full.weight.view(members, -1, full.n_features), full.bias.view(members, -1, 1)
            a = torch.baddbmm(bias, weight, z).view(members, -1, full.n_ladders * n)  # (members, rungs, L n)
            into = _in_place(v[:, p + spec.n_curves :], members, full.n_ladders * n)
            values = kernels.value(a, spec.epsilon, smooth, full.first, out=into)
            if into is None:
                v[:, p + spec.n_curves :] = values.view(members, -1, n)
        linear, intercept, head = (t.view(members, q, -1) for t in parameters[:3])
        readout = torch.cat([linear, head], dim=2)  # (members, q, p + L)
        ctx.model, ctx.a, ctx.curved = model, a, curved
        ctx.save_for_backward(x, v, readout, *parameters)
        return torch.baddbmm(intercept, readout, v)  # (members, q, n)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        model, (x, v, readout, *parameters) = ctx.model, ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the general way can be differentiated again
            scores = model.member_scores_by_autograd(x)
            return None, *gradients_that_are_needed(scores, (x, *parameters), ctx.needs_input_grad[1:], g)
        spec, curves, full, a = model.spec, model.curves, model.full, ctx.a
        members, p, n = spec.n_members, spec.n_features, len(x)
        smooth, kernels = spec.pole == "smooth", fused_kernels(x)
        assert kernels is not None
        by_readout = g @ v.transpose(1, 2)  # (members, q, p + L)
        by_v = readout.transpose(1, 2) @ g  # (members, p + L, n)
        gradients: list[Any] = [by_readout[:, :, :p], g.sum(2), by_readout[:, :, p:]]
        from_full: list[Any] = []
        if full is not None and a is not None:
            width = full.n_features
            weight = full.weight.view(members, -1, width)
            g_full = by_v[:, p + spec.n_curves :].reshape(members, -1)
            by_a = kernels.sensitivity_products(g_full, a, spec.epsilon, smooth, full.first).view(members, -1, n)
            from_full = [by_a @ v[:, :width].transpose(1, 2), by_a.sum(2)]
            if (curves is not None and spec.variant == "S") or ctx.needs_input_grad[1]:
                by_v[:, :width] += weight.transpose(1, 2) @ by_a
        by_x = by_v[:, :p].sum(0) if ctx.needs_input_grad[1] else None
        if curves is not None:
            shape = (members, -1, curves.n_features, curves.ladders_per_feature)
            g_curves = by_v[:, p : p + spec.n_curves].reshape(members, *shape[2:], n)
            weights = curves.weight.view(shape), curves.bias.view(shape)
            by_curved, *by_curves = kernels.feature_gradients(
                g_curves, ctx.curved, *weights, spec.epsilon, smooth, by_x is not None
            )
            gradients += by_curves
            if by_x is not None:
                if model._curved is None:
                    by_x += by_curved
                else:
                    by_x.index_add_(0, model._curved, by_curved)
        gradients += from_full
        shaped = [gradient.reshape(t.shape) for gradient, t in zip(gradients, parameters, strict=True)]
        return None, None if by_x is None else by_x.T, *shaped

"""Ladders: the value of a continued fraction, what lies below each rung, and how the value depends on it.

A ladder of depth d has partial denominators a_0 .. a_d, one tensor `a` of shape (d+1, ...): the rung axis comes first
and any number of batch axes follow. Everything here is elementwise over the batch axes.

    t_d = a_d,   t_k = a_k + r(t_{k+1}),   f = t_0

with r the safe reciprocal of `poles`. A rung of a_k = +-inf has r = 0: it ends the ladder above it, so ladders of
different depth share one tensor by filling the rungs they do not have with +inf.

Two implementations give the same numbers to rounding: the plain recurrence in torch operations (the reference), and
the fused kernels of `kernels`, behind the operators ``cofrnet::ladder`` and ``cofrnet::sensitivity_products``, with
which autograd to any order, ``torch.compile``, ``torch.func`` and ``torch.export`` work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from cofrnet.compiled.settings import Pole, backend, has_numba, uses_numba
from cofrnet.core.poles import curvature, is_clamped, reciprocal, resolve_pole, slope

__all__ = [
    "backend",
    "clamped",
    "continuant_sensitivities",
    "continuants",
    "convergents",
    "feature_ladders",
    "feature_slopes",
    "ladder",
    "prepare",
    "sensitivities",
    "tails",
]

T = TypeVar("T")


# ---------------------------------------------------------------------------------------------- public functions


def ladder(a: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None) -> Tensor:
    """Value of ladders from their partial denominators.

        f = a_0 + r(a_1 + r(a_2 + ... + r(a_d)))

    The value is finite for any finite `a` and any depth; a_k = +-inf ends the ladder above rung k; NaN in any rung
    gives NaN. Depth 0 is just a_0.

    Paper: equation (2), with the safe reciprocal of Section 4.

    a : (d+1, ...) floating; pole : "smooth" or "clamp"; epsilon : float, or a tensor that broadcasts against a[0] and
    receives a gradient; by default 1 for smooth and 0.1 for clamp.
    Returns (...).
    """
    kind, epsilon = _checked(a, pole, epsilon)
    if a.shape[0] == 1:
        return a[0]
    if isinstance(epsilon, Tensor) or not _use_operator(a):
        return _reference_value(a, kind, epsilon)
    order = _memory_order(a)
    if order is None:
        return _value(a, 0, epsilon, kind == "smooth")
    f = _value(a.permute(order), order.index(0), epsilon, kind == "smooth")
    return f.permute(_inverse([axis - 1 for axis in order if axis != 0]))


def feature_ladders(
    x: Tensor, weight: Tensor, bias: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None
) -> Tensor:
    """Value of ladders that read one feature each, a_k = w_k x_j + b_k.

    Equal to `ladder` of these partial denominators. On the CPU, in ordinary eager code, they are never stored: memory
    is that of the values alone, and the backward pass sums the gradients of weights and biases on the way.

    x : (p, n), features first; weight, bias : (members, d+1, p, m), m ladders for each feature.
    Returns (members, p, m, n).
    """
    kind, epsilon = _checked_features(x, weight, bias, pole, epsilon)
    if not isinstance(epsilon, Tensor) and fused_kernels(x, weight, bias) is not None:
        apply: Any = _FeatureLadders.apply
        return apply(x, weight, bias, epsilon, kind == "smooth")  # type: ignore[no-any-return]
    return _feature_ladders_plain(x, weight, bias, kind, epsilon)


def feature_slopes(
    x: Tensor, weight: Tensor, bias: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None
) -> Tensor:
    """Derivative of the ladders of `feature_ladders` by the feature each reads: sum_k w_k df/da_k.

    x : (p, n); weight, bias : (members, d+1, p, m). Returns (members, p, m, n), differentiable.
    """
    kind, epsilon = _checked_features(x, weight, bias, pole, epsilon)
    plain = isinstance(epsilon, Tensor) or wants_gradient(x, weight, bias)
    kernels = None if plain else fused_kernels(x, weight, bias)
    if kernels is not None:
        return kernels.feature_slopes(x, weight, bias, epsilon, kind == "smooth")  # type: ignore[no-any-return]
    a = torch.addcmul(bias.unsqueeze(-1), weight.unsqueeze(-1), x.unsqueeze(1)).transpose(0, 1)
    return (weight.transpose(0, 1).unsqueeze(-1) * sensitivities(a, kind, epsilon)).sum(0)


def tails(a: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None) -> Tensor:
    """Value from each rung down: t_d = a_d, t_k = a_k + r(t_{k+1}); t_0 is the value of the ladder.

    a : (d+1, ...). Returns (d+1, ...).
    """
    kind, epsilon = _checked(a, pole, epsilon)
    return torch.stack(_reference_tails(a.unbind(0), kind, epsilon))


def sensitivities(a: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None) -> Tensor:
    """Derivative of the value by each partial denominator.

        df/da_k = r'(t_1) r'(t_2) ... r'(t_k)

    which off the clamp is (-1)^k (K_{d-k}(a_{k+1}..a_d) / K_d(a_1..a_d))^2. Below a clamped rung it is 0. It is the
    backward pass of `ladder` itself, so that model and explanation cannot drift apart. Slopes are at most 1/eps^2
    each; a product of many such slopes that leaves the range of the dtype is +-inf.

    Paper: Proposition 1, Lemma 1.

    a : (d+1, ...). Returns (d+1, ...), differentiable.
    """
    kind, epsilon = _checked(a, pole, epsilon)
    ones = torch.ones_like(a[0], memory_format=torch.contiguous_format)
    if isinstance(epsilon, Tensor) or not _use_operator(a):
        return torch.stack(_reference_products(ones, a.unbind(0), kind, epsilon))
    return _products(ones, a, 0, epsilon, kind == "smooth")


def convergents(a: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None) -> Tensor:
    """Value of the ladder cut after each rung: c_k = a_0 + r(a_1 + ... + r(a_k)); c_d is the value of the ladder.

    The safe reciprocal has no forward recurrence, so this takes O(d^2) operations, d of them vectorised.

    a : (d+1, ...). Returns (d+1, ...).
    """
    kind, epsilon = _checked(a, pole, epsilon)
    depth = a.shape[0] - 1
    cut = a[depth:]  # tails at rung k of the ladders cut after k, k+1, ..., d
    for k in range(depth - 1, -1, -1):
        cut = torch.cat([a[k : k + 1], a[k] + reciprocal(cut, kind, epsilon)])  # (d+1-k, ...)
    return cut


def clamped(a: Tensor, pole: str = "smooth", epsilon: float | Tensor | None = None) -> Tensor:
    """Which rungs were clamped: |t_k| < eps for k >= 1. Rung 0 never is, nor any rung of a smooth ladder.

    a : (d+1, ...). Returns bool (d+1, ...).
    """
    kind, epsilon = _checked(a, pole, epsilon)
    inside = is_clamped(tails(a, kind, epsilon), kind, epsilon)
    inside[0] = False
    return inside


def continuants(a: Sequence[T] | Tensor) -> list[T]:
    """Continuants of the last k partial denominators, k = 0 .. d+1, over anything that has + and *.

        K_0 = 1,  K_1 = a_d,  K_k = a_{d-k+1} K_{k-1} + K_{k-2}

    so that f = K_{d+1}(a_0..a_d) / K_d(a_1..a_d). Exact for `fractions.Fraction`, polynomials and SymPy; floats grow
    like the product of the a_k and overflow float32 at depth 39 for |a| = 10: use `ladder` and `sensitivities` there.

    Paper: equations (4) and (5).
    """
    rungs: list[Any] = list(a)
    result: list[Any] = [1 + 0 * rungs[-1], rungs[-1]]
    for rung in reversed(rungs[:-1]):
        result.append(rung * result[-1] + result[-2])
    return result


def continuant_sensitivities(a: Sequence[T] | Tensor) -> list[T]:
    """Derivative of the exact value by each partial denominator, by the formula of the paper.

        df/da_k = (-1)^k (K_{d-k}(a_{k+1}..a_d) / K_d(a_1..a_d))^2

    Over anything that has +, * and /. No pole handling: equal to `sensitivities` where no rung is clamped, in the
    limit of small epsilon.

    Paper: Lemma 1.
    """
    rungs: list[Any] = list(a)
    depth = len(rungs) - 1
    below: list[Any] = list(continuants(rungs))
    return [(-1) ** k * (below[depth - k] / below[depth]) ** 2 for k in range(depth + 1)]


def prepare(*kinds: str) -> None:
    """Compile the fused kernels now: those for a "table", a "text" or an "image", or all.

    The first use on a machine takes some ten seconds, later ones load from disk.
    """
    if has_numba:
        _kernels().prepare(*(kinds or ("table", "text", "image")))


# ---------------------------------------------------------------------------------------------- reference


def _checked(a: Tensor, pole: str, epsilon: float | Tensor | None) -> tuple[Pole, float | Tensor]:
    if not isinstance(a, Tensor) or not a.is_floating_point():
        found = a.dtype if isinstance(a, Tensor) else type(a).__name__
        raise TypeError(f"a must be a floating-point tensor; got {found}. Convert it, e.g. torch.as_tensor(a).float().")
    if a.ndim == 0 or a.shape[0] == 0:
        raise ValueError(
            f"a must have shape (d+1, ...) with d >= 0; got shape {tuple(a.shape)}. Add the rung axis first."
        )
    return resolve_pole(pole, epsilon)


def _checked_features(
    x: Tensor, weight: Tensor, bias: Tensor, pole: str, epsilon: float | Tensor | None
) -> tuple[Pole, float | Tensor]:
    if weight.ndim != 4 or weight.shape[1] == 0 or weight.shape != bias.shape:
        raise ValueError(
            "weight and bias must have one shape (members, d+1, p, m) with d >= 0; got "
            f"weight {tuple(weight.shape)} and bias {tuple(bias.shape)}."
        )
    if x.ndim != 2 or x.shape[0] != weight.shape[2]:
        raise ValueError(
            f"x must have shape (p, n) with p={weight.shape[2]}, as weight has; got {tuple(x.shape)}. "
            "Put the features first, e.g. x.T."
        )
    return resolve_pole(pole, epsilon)


def _reference_tails(rungs: Sequence[Tensor], pole: Pole, epsilon: float | Tensor) -> list[Tensor]:
    t = [rungs[-1]]
    for rung in reversed(rungs[:-1]):
        t.append(rung + reciprocal(t[-1], pole, epsilon))
    return t[::-1]


def _reference_value(a: Tensor, pole: Pole, epsilon: float | Tensor, axis: int = 0) -> Tensor:
    rungs = a.unbind(axis)
    t = rungs[-1]
    for rung in reversed(rungs[:-1]):
        t = rung + reciprocal(t, pole, epsilon)
    return t


def _reference_products(g: Tensor, rungs: Sequence[Tensor], pole: Pole, epsilon: float | Tensor) -> list[Tensor]:
    products = [g]
    for t in _reference_tails(rungs, pole, epsilon)[1:]:
        products.append(products[-1] * slope(t, pole, epsilon))
    return products


def _second_order(v: Tensor, g: Tensor, a: Tensor, axis: int, pole: Pole, epsilon: float) -> tuple[Tensor, Tensor]:
    """Gradients of sum(v * g * df/da) by g and by a: v·(df/da), and g times the Hessian of f applied to v.

    With s_k = df/da_k and a dot for the derivative along v:

        t'_k = v_k + r'(t_{k+1}) t'_{k+1},     s'_k = s'_{k-1} r'(t_k) + s_{k-1} r''(t_k) t'_k

    Plain torch operations: derivatives of any higher order follow from autograd.
    """
    t = _reference_tails(a.unbind(axis), pole, epsilon)
    slopes = [slope(x, pole, epsilon) for x in t]
    tangents = [v.select(axis, -1)]
    for k in range(len(t) - 2, -1, -1):
        tangents.append(v.select(axis, k) + slopes[k + 1] * tangents[-1])
    tangents.reverse()
    s, s_dot = torch.ones_like(g), torch.zeros_like(g)
    along = [s_dot]
    for k in range(1, len(t)):
        s_dot = s_dot * slopes[k] + s * curvature(t[k], pole, epsilon) * tangents[k]
        s = s * slopes[k]
        along.append(s_dot)
    return tangents[0], g.unsqueeze(axis) * torch.stack(along, axis)


# ---------------------------------------------------------------------------------------------- the operators


def _use_operator(a: Tensor) -> bool:
    if not uses_numba():
        return False
    return a.device.type == "cpu" and a.dtype in (torch.float32, torch.float64)


def _memory_order(a: Tensor) -> list[int] | None:
    """Axes of `a` from the slowest to the fastest in memory; None where that is the order they have already."""
    if a.is_contiguous():
        return None
    return sorted(range(a.ndim), key=a.stride, reverse=True)


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _kind(smooth: bool) -> Pole:
    return "smooth" if smooth else "clamp"


def _without(shape: torch.Size, axis: int) -> list[int]:
    return [*shape[:axis], *shape[axis + 1 :]]


def _is_short(a: Tensor, axis: int) -> bool:
    """Whether so little lies behind the rung axis that copying it to the front beats strips that short."""
    return axis > 0 and math.prod(a.shape[axis + 1 :]) < _FEW


@cache
def _kernels() -> ModuleType:
    from cofrnet.core import kernels

    return kernels


_FEW = 8

_library: Any = torch.library.Library("cofrnet", "DEF")  # type: ignore[no-untyped-call]
_library.define("ladder(Tensor a, int axis, float epsilon, bool smooth) -> Tensor")
_library.define("sensitivity_products(Tensor g, Tensor a, int axis, float epsilon, bool smooth) -> Tensor")


@torch.library.impl(_library, "ladder", "CompositeExplicitAutograd")
def _ladder_plain(a: Tensor, axis: int, epsilon: float, smooth: bool) -> Tensor:
    return _reference_value(a, _kind(smooth), epsilon, axis).contiguous()


@torch.library.impl(_library, "ladder", "CPU")
def _ladder_cpu(a: Tensor, axis: int, epsilon: float, smooth: bool) -> Tensor:
    if not has_numba or a.numel() == 0:
        return _ladder_plain(a, axis, epsilon, smooth)
    if _is_short(a, axis):
        a, axis = a.movedim(axis, 0), 0
    return _kernels().value(a, epsilon, smooth, axis=axis)  # type: ignore[no-any-return]


@torch.library.impl(_library, "sensitivity_products", "CompositeExplicitAutograd")
def _products_plain(g: Tensor, a: Tensor, axis: int, epsilon: float, smooth: bool) -> Tensor:
    return torch.stack(_reference_products(g, a.unbind(axis), _kind(smooth), epsilon), axis)


@torch.library.impl(_library, "sensitivity_products", "CPU")
def _products_cpu(g: Tensor, a: Tensor, axis: int, epsilon: float, smooth: bool) -> Tensor:
    if not has_numba or a.numel() == 0:
        return _products_plain(g, a, axis, epsilon, smooth)
    if _is_short(a, axis):
        front: Tensor = _kernels().sensitivity_products(g, a.movedim(axis, 0), epsilon, smooth, axis=0)
        return front.movedim(0, axis).contiguous()
    return _kernels().sensitivity_products(g, a, epsilon, smooth, axis=axis)  # type: ignore[no-any-return]


torch.library.register_fake("cofrnet::ladder", lambda a, axis, epsilon, smooth: a.new_empty(_without(a.shape, axis)))
torch.library.register_fake("cofrnet::sensitivity_products", lambda g, a, axis, epsilon, smooth: a.new_empty(a.shape))


def _value_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, *ctx.rest = inputs
    ctx.save_for_backward(a)


def _value_backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
    return _products(g, *ctx.saved_tensors, *ctx.rest), None, None, None


def _value_vmap(info: Any, dims: tuple[Any, ...], a: Tensor, axis: int, *rest: Any) -> tuple[Tensor, int]:
    return _value(a.movedim(dims[0], 0), axis + 1, *rest), 0


def _products_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    g, a, *ctx.rest = inputs
    ctx.save_for_backward(g, a)


def _products_backward(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
    axis, epsilon, smooth = ctx.rest
    g, a = ctx.saved_tensors
    by_g, by_a = _second_order(v, g, a, axis, _kind(smooth), epsilon)
    return by_g, by_a, None, None, None


def _products_vmap(info: Any, dims: tuple[Any, ...], g: Tensor, a: Tensor, axis: int, *rest: Any) -> tuple[Tensor, int]:
    n = info.batch_size
    g, a = (x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip((g, a), dims, strict=False))
    return _products(g, a, axis + 1, *rest), 0


def _register(name: str, context: Any, backward: Any, vmap: Any) -> Any:
    """The autograd.Function of an operator.

    Formulas registered with a library serve torch.compile and torch.export; torch.func sees only those of a Function.
    """
    torch.library.register_autograd(f"cofrnet::{name}", backward, setup_context=context, lib=_library)
    torch.library.register_vmap(f"cofrnet::{name}", vmap, lib=_library)
    operator = getattr(torch.ops.cofrnet, name).default
    members = {
        "forward": lambda *arguments: operator(*arguments),
        "setup_context": context,
        "backward": backward,
        "vmap": vmap,
    }
    return type(name, (torch.autograd.Function,), {key: staticmethod(member) for key, member in members.items()})


_value_op: Any = torch.ops.cofrnet.ladder.default
_products_op: Any = torch.ops.cofrnet.sensitivity_products.default
_ValueFunction = _register("ladder", _value_context, _value_backward, _value_vmap)
_ProductsFunction = _register("sensitivity_products", _products_context, _products_backward, _products_vmap)


class _PlainValue(torch.autograd.Function):
    """The operator without the dispatcher: a third of its overhead, for ordinary tensors in ordinary eager code."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        _value_context(ctx, inputs, inputs[0])
        return _ladder_cpu(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            return _value_backward(ctx, g)
        return _products_cpu(g, *ctx.saved_tensors, *ctx.rest), None, None, None


# Both are private to torch: where a version lacks them, every call takes the way through the dispatcher.
_transforms_active: Any = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_dispatch_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)


def _is_ordinary(a: Tensor) -> bool:
    return type(a) in (Tensor, torch.nn.Parameter) and not _transforms_active() and not _dispatch_modes()


def fused_kernels(*tensors: Tensor) -> Any | None:
    """The module of fused kernels, where it may be called on these tensors as they are; else None.

    They must be ordinary tensors on the CPU, of one dtype (float32 or float64), not empty, in ordinary eager code: not
    under torch.compile, torch.func or a dispatch mode.
    """
    if torch.compiler.is_compiling() or not uses_numba():
        return None
    fit = all(_use_operator(t) and _is_ordinary(t) and t.dtype == tensors[0].dtype and t.numel() > 0 for t in tensors)
    return _kernels() if fit else None


def wants_gradient(*tensors: Tensor) -> bool:
    """Whether autograd is to differentiate what is made of these tensors."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _value(a: Tensor, axis: int, epsilon: float, smooth: bool) -> Tensor:
    if torch.compiler.is_compiling():
        apply: Any = _value_op
    else:
        apply = _PlainValue.apply if _is_ordinary(a) else _ValueFunction.apply
    return apply(a, axis, epsilon, smooth)  # type: ignore[no-any-return]


def _products(g: Tensor, a: Tensor, axis: int, epsilon: float, smooth: bool) -> Tensor:
    apply: Any = _products_op if torch.compiler.is_compiling() else _ProductsFunction.apply
    return apply(g, a, axis, epsilon, smooth)  # type: ignore[no-any-return]


def _feature_ladders_plain(x: Tensor, weight: Tensor, bias: Tensor, pole: Pole, epsilon: float | Tensor) -> Tensor:
    a = torch.addcmul(bias.unsqueeze(-1), weight.unsqueeze(-1), x.unsqueeze(1))  # (members, d+1, p, m, n)
    return ladder(a.transpose(0, 1), pole, epsilon)


class _FeatureLadders(torch.autograd.Function):
    """Single-feature ladders fused with their partial denominators, for ordinary tensors in ordinary eager code."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, smooth: bool) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.rest = (epsilon, smooth)
        return _kernels().feature_values(x, weight, bias, epsilon, smooth)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        inputs, (epsilon, smooth), needs = ctx.saved_tensors, ctx.rest, ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # create_graph=True
            x, weight, bias = inputs
            f = _feature_ladders_plain(x, weight, bias, _kind(smooth), epsilon)
            return *gradients_that_are_needed(f, inputs, needs, g), None, None
        by_x, by_weight, by_bias = _kernels().feature_gradients(g, *inputs, epsilon, smooth, needs[0])
        return by_x if needs[0] else None, by_weight, by_bias, None, None


def gradients_that_are_needed(
    f: Tensor, inputs: Sequence[Tensor], needs: Sequence[bool], g: Tensor
) -> list[Tensor | None]:
    """Differentiable gradients of sum(g f) by the inputs that need one, None for the others."""
    wanted = [t for t, need in zip(inputs, needs, strict=True) if need]
    found = iter(torch.autograd.grad(f, wanted, g, create_graph=True))
    return [next(found) if need else None for need in needs]

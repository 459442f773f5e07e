"""Convolutional ladders: blocks for images, without any activation but the ladder.

Stacked, every channel of a convolution is normalised and bent by a ladder of its own, which a convolution after it
mixes; or the rungs themselves are convolutions of the same input.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cofrnet.compiled.settings import with_epsilon
from cofrnet.core import ladder
from cofrnet.core.ladder import fused_kernels, gradients_that_are_needed

__all__ = ["ChannelLadders", "ConvLadder"]

TINY = 1e-5  # is added to variances


def _memory(t: Tensor) -> Any:
    """A tensor as an array; of half precision, its bits."""
    t = t.detach()
    return (t.view(torch.uint16) if t.dtype == torch.bfloat16 else t).numpy()


class _Bend(torch.autograd.Function):
    """Normalised and bent channels by the fused kernels. Shapes: x (rows, C); weight, bias (d+1, C)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor, rest: Any) -> Tensor:
        kernels, epsilon, _ = rest
        y = torch.empty_like(x)
        kernels.bend(*map(_memory, (x, mean, inverse, weight, bias)), epsilon, _memory(y))
        ctx.save_for_backward(x, mean, inverse, weight, bias)
        ctx.rest = rest
        return y

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        kernels, epsilon, normed = ctx.rest
        x, mean, inverse, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the plain recurrence can be differentiated again
            if normed:
                variance, mean = torch.var_mean(x.to(weight.dtype), 0, correction=0)
                inverse = (variance + TINY).rsqrt()
            y = _plain(x.to(weight.dtype), mean, inverse, weight, bias, epsilon).to(x.dtype)
            wanted = [*ctx.needs_input_grad[:1], False, False, *ctx.needs_input_grad[3:5]]
            return *gradients_that_are_needed(y, ctx.saved_tensors, wanted, slopes), None
        by_x = torch.empty_like(x)
        own, slopes = map(_memory, ctx.saved_tensors), _memory(slopes.to(x.dtype).contiguous())
        by_weight, by_bias = kernels.bend_gradients(*own, epsilon, slopes, _memory(by_x), normed)
        return by_x, None, None, torch.from_numpy(by_weight), torch.from_numpy(by_bias), None


def _plain(rows: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Normalised and bent channels in torch operations, (rows, C)."""
    u = (rows - mean) * inverse
    return ladder(weight.unsqueeze(1) * u + bias.unsqueeze(1), "smooth", epsilon)


class ChannelLadders(nn.Module):
    """Every channel normalised, and bent by a ladder of its own.

        y = t_0,   t_k = w_k u + b_k + r(t_{k+1}),   u = (x - mean) / sqrt(variance + 1e-5)

    with the smooth r(t) = t / (t^2 + epsilon^2). Mean and variance are of the batch in training and running ones after
    it, when they fold into the rungs: a ladder in x itself. It starts as u/8 + r(0.7 u - 1), which falls nowhere and is
    steepest at u = 1.4.

    Shapes: x (n, C, ...); returns the same; weight, bias (d+1, C).
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, depth: int = 1, epsilon: float = 1.0, momentum: float = 0.1) -> None:
        super().__init__()
        if depth < 0 or channels < 1:
            raise ValueError(f"channels must be 1 or more and depth 0 or more; got channels={channels}, depth={depth}.")
        self.channels, self.depth, self.momentum = channels, depth, momentum
        self.epsilon = with_epsilon("smooth", epsilon)[1]
        self.weight = nn.Parameter(torch.full((depth + 1, channels), 0.7))
        self.bias = nn.Parameter(torch.full((depth + 1, channels), -1.0))
        with torch.no_grad():
            self.weight[0] = 0.125
            self.bias[0] = 0.0
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def folded(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of the rungs, (d+1, C), in x itself, by the running mean and variance."""
        inverse = (self.running_var + TINY).rsqrt()
        return self.weight * inverse, self.bias - self.weight * inverse * self.running_mean

    def forward(self, x: Tensor) -> Tensor:
        """Bent channels."""
        rows = x.movedim(1, -1).reshape(-1, self.channels)  # a view, where channels come last in memory
        half = rows.dtype == torch.bfloat16 and self.weight.dtype == torch.float32 and rows.device.type == "cpu"
        kernels = fused_kernels(self.weight) if half else fused_kernels(rows, self.weight)
        if kernels is None or not rows.is_contiguous() or rows.numel() == 0:
            kernels, rows = None, rows.to(self.weight.dtype)
        if self.training:
            mean, variance = self._moments(rows, kernels)
            y = self._bent(rows, mean, (variance + TINY).rsqrt(), kernels, normed=True)
        else:
            y = self._bent(rows, self.running_mean, (self.running_var + TINY).rsqrt(), kernels, normed=False)
        shape = (x.shape[0], *x.shape[2:], self.channels)
        return y.view(shape).movedim(-1, 1)

    def _moments(self, rows: Tensor, kernels: Any) -> tuple[Tensor, Tensor]:
        if kernels is None:
            variance, mean = torch.var_mean(rows, 0, correction=0)
        else:
            mean, variance = (torch.from_numpy(part) for part in kernels.moments(_memory(rows)))
        with torch.no_grad():
            many = len(rows) / max(1, len(rows) - 1)
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(variance.detach() * many, self.momentum)
        return mean, variance

    def _bent(self, rows: Tensor, mean: Tensor, inverse: Tensor, kernels: Any, normed: bool) -> Tensor:
        if kernels is not None:
            return _Bend.apply(rows, mean, inverse, self.weight, self.bias, (kernels, self.epsilon, normed))
        return _plain(rows, mean, inverse, self.weight, self.bias, self.epsilon)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.channels}, depth={self.depth}, epsilon={self.epsilon:g}"


class ConvLadder(nn.Module):
    """A convolutional ladder: a convolution whose channels are bent by ladders, or are the rungs of ladders.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, groups : int
        Of the convolution, which keeps the size of the image but for the stride.
    depth : int
        Of the ladders.
    form : {"stacked", "rungs"}
        "stacked": each channel of one convolution is bent by a ladder of its own, y_c = ladder(conv_c(x)). "rungs":
        a_k = conv_k(x), all rungs in one convolution; each is normalised, and the ladder taken at every position.
    pool : {None, "mean", "max"}
        Of two by two positions, after the ladders.
    maxout : int
        The largest of so many ladders is taken for every channel.

    Shapes: x (n, in_channels, h, w) to (n, out_channels, h', w').
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        groups: int = 1,
        depth: int = 1,
        form: Literal["stacked", "rungs"] = "stacked",
        pool: Literal["mean", "max"] | None = None,
        maxout: int = 1,
        epsilon: float = 1.0,
    ) -> None:
        super().__init__()
        if form not in ("stacked", "rungs") or pool not in (None, "mean", "max") or maxout < 1:
            raise ValueError(
                "form must be 'stacked' or 'rungs', pool None, 'mean' or 'max', and maxout 1 or more; "
                f"got form={form!r}, pool={pool!r}, maxout={maxout}."
            )
        ladders = out_channels * maxout
        rungs = 1 if form == "stacked" else depth + 1
        self.form, self.pool, self.maxout, self.depth, self.epsilon = form, pool, maxout, depth, epsilon
        self.conv = nn.Conv2d(
            in_channels, ladders * rungs, kernel_size, stride, kernel_size // 2, groups=groups, bias=False
        )
        nn.init.normal_(self.conv.weight, std=1 / math.sqrt(self.conv.weight[0].numel()))
        self.bend: nn.Module
        if form == "stacked":
            self.bend = ChannelLadders(ladders, depth, epsilon)
        else:
            self.bend = nn.BatchNorm2d(ladders * rungs)
            with torch.no_grad():
                self.bend.bias.view(rungs, ladders)[1:] = -1.0

    def forward(self, x: Tensor) -> Tensor:
        """Values of the ladders at every position."""
        y = self.bend(self.conv(x))
        if self.form == "rungs":
            n, channels, h, w = y.shape
            a = y.view(n, self.depth + 1, channels // (self.depth + 1), h, w).movedim(1, 0)
            y = ladder(a.to(self.conv.weight.dtype), "smooth", self.epsilon)
        if self.maxout > 1:
            y = y.unflatten(1, (-1, self.maxout)).amax(2)
        if self.pool == "mean":
            y = nn.functional.avg_pool2d(y, 2)
        elif self.pool == "max":
            y = nn.functional.max_pool2d(y, 2)
        return y

"""A network of convolutional ladders for images: no activation but the ladder, a rational function of the pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cofrnet.nn.cofrnet import CoFrNet, CoFrNetSpec
from cofrnet.nn.conv import ConvLadder
from cofrnet.nn.specs import Spec

__all__ = ["ImageCoFrNet", "ImageSpec", "PixelCoFrNet"]


@dataclass(frozen=True)
class ImageSpec(Spec):
    """What an `ImageCoFrNet` is made of.

    `widths` are the channels after each stage. The first stage keeps the size of the image, each other halves it by
    pooling; then, as often as `residual` says, two more convolutional ladders follow, whose values are added.
    `stem_stride` shrinks large images at once. The head is a CoFrNet of full ladders over the mean of each channel.
    """

    n_outputs: int
    in_channels: int = 3
    widths: tuple[int, ...] = (32, 64, 128, 256)
    residual: tuple[int, ...] = (0, 1, 0, 1)
    stem_stride: int = 1
    depth: int = 1
    n_ladders: int = 16
    head_depth: int = 2
    pool: Literal["mean", "max"] = "mean"
    form: Literal["stacked", "rungs"] = "stacked"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        object.__setattr__(self, "residual", tuple(map(int, self.residual)))
        if (
            len(self.widths) < 1
            or len(self.residual) != len(self.widths)
            or min(*self.widths, 1) < 1
            or min(self.residual) < 0
        ):
            raise ValueError(
                "widths must be one or more positive numbers, and residual as many, 0 or more; "
                f"got widths={self.widths}, residual={self.residual}."
            )
        for name, least in {
            "n_outputs": 1, "in_channels": 1, "stem_stride": 1, "depth": 0, "n_ladders": 1, "head_depth": 0,
        }.items():  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more; got {name}={getattr(self, name)}.")
        if self.pool not in ("mean", "max") or self.form not in ("stacked", "rungs"):
            raise ValueError(
                f"pool must be 'mean' or 'max', form 'stacked' or 'rungs'; got pool={self.pool!r}, form={self.form!r}."
            )

    @property
    def head(self) -> CoFrNetSpec:
        """The CoFrNet over the channels."""
        return CoFrNetSpec(
            n_features=self.widths[-1],
            n_outputs=self.n_outputs,
            variant="F",
            n_ladders=self.n_ladders,
            depth=self.head_depth,
        )

    @property
    def n_channels(self) -> int:
        """Channels of all convolutional ladders together."""
        return sum(width * (1 + 2 * residual) for width, residual in zip(self.widths, self.residual, strict=True))

    @property
    def total_ladders(self) -> int:
        """Ladders of channels and of the head."""
        return self.n_channels + self.n_ladders

    @property
    def n_parameters(self) -> int:
        """Numbers to be learned."""
        convolved, before = 0, self.in_channels
        for width, residual in zip(self.widths, self.residual, strict=True):
            convolved += 9 * before * width + residual * 2 * 9 * width * width
            before = width
        rungs = self.depth + 1
        return self.head.n_parameters + 2 * self.n_channels * rungs + convolved * (rungs if self.form == "rungs" else 1)

    @property
    def n_numbers(self) -> int:
        """Numbers of a stacked network: those to be learned, running means and variances, and the scale of pixels."""
        return self.n_parameters + 2 * self.n_channels + 2 * self.in_channels


class _Added(nn.Module):
    """What a few blocks make of the image, added to it."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.blocks(x)
        return added


class ImageCoFrNet(nn.Module):
    """Scores of images: stages of convolutional ladders, the mean of every channel, and a CoFrNet.

    Pixels are numbers from 0 to 255 of any dtype, scaled by the `mean` and `deviation` of each channel. With
    `precision` "bfloat16" images between the stages are of half precision, all sums and ladders are made in single.

    Shapes: x (n, channels, h, w); scores (n, q).
    """

    mean: Tensor
    deviation: Tensor
    rows_at_once = 512
    work_of_row: int | None = None

    def __init__(
        self,
        spec: ImageSpec,
        generator: torch.Generator | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        super().__init__()
        self.spec, self.precision = spec, precision
        options: dict[str, Any] = {"depth": spec.depth, "form": spec.form}
        blocks: list[nn.Module] = []
        before = spec.in_channels
        state = None if generator is None else torch.get_rng_state()  # torch's layers draw from its own generator
        for stage, (width, residual) in enumerate(zip(spec.widths, spec.residual, strict=True)):
            stride = spec.stem_stride if stage == 0 else 1
            blocks.append(ConvLadder(before, width, stride=stride, pool=spec.pool if stage else None, **options))
            pairs = [[ConvLadder(width, width, **options) for _ in range(2)] for _ in range(residual)]
            blocks += [_Added(*pair) for pair in pairs]
            before = width
        self.blocks: Any = nn.Sequential(*blocks)
        self.head = CoFrNet(spec.head, generator=generator)
        self.register_buffer("mean", torch.full((spec.in_channels,), 127.5))
        self.register_buffer("deviation", torch.full((spec.in_channels,), 64.0))
        if generator is not None and state is not None:
            torch.set_rng_state(state)
            self._draw(generator)

    def _draw(self, generator: torch.Generator) -> None:
        for module in self.modules():
            if isinstance(module, ConvLadder):
                weight = module.conv.weight
                with torch.no_grad():
                    weight.copy_(torch.empty(weight.shape).normal_(generator=generator) / weight[0].numel() ** 0.5)

    @property
    def n_parameters(self) -> int:
        """Numbers to be learned."""
        return sum(parameter.numel() for parameter in self.parameters())

    @staticmethod
    def decays(name: str) -> bool:
        """Whether training lets a parameter shrink: weights of convolutions and of the head."""
        return name.endswith("conv.weight") or (name.startswith("head.") and not name.endswith(("bias", "intercept")))

    @contextmanager
    def _cast(self) -> Iterator[None]:
        with torch.autocast(self.mean.device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"):
            yield

    def features(self, x: Tensor) -> Tensor:
        """What the head reads, (n, channels of the last stage)."""
        shape = (1, -1, 1, 1)
        x = (x.to(self.mean.dtype) - self.mean.view(shape)) / self.deviation.view(shape)
        with self._cast():
            found = self.blocks(x.contiguous(memory_format=torch.channels_last))
        return found.to(self.mean.dtype).mean((2, 3))

    def member_scores(self, x: Tensor) -> Tensor:
        """Scores as of one member, (n, 1, q)."""
        return self.head.member_scores(self.features(x))

    def forward(self, x: Tensor) -> Tensor:
        """Scores, (n, q)."""
        return self.member_scores(x).squeeze(1)


class PixelCoFrNet(nn.Module):
    """Scores of images by a CoFrNet over their pixels, scaled by channel: the paper's way.

    Shapes: x (n, channels, h, w); scores (n, q).
    """

    mean: Tensor
    deviation: Tensor
    rows_at_once = 256

    def __init__(
        self, spec: CoFrNetSpec, shape: tuple[int, int, int], generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.spec, self.shape = spec, shape
        self.head = CoFrNet(spec, generator=generator)
        with torch.no_grad():
            self.head.head.zero_()
        self.register_buffer("mean", torch.full((shape[0],), 127.5))
        self.register_buffer("deviation", torch.full((shape[0],), 64.0))

    def features(self, x: Tensor) -> Tensor:
        """What the ladders read, (n, channels * h * w)."""
        shape = (1, -1, 1, 1)
        return ((x.to(self.mean.dtype) - self.mean.view(shape)) / self.deviation.view(shape)).flatten(1)

    def member_scores(self, x: Tensor) -> Tensor:
        """Scores as of one member, (n, 1, q)."""
        return self.head.member_scores(self.features(x))

    def forward(self, x: Tensor) -> Tensor:
        """Scores, (n, q)."""
        return self.member_scores(x).squeeze(1)

    def clamped_share(self, x: Tensor) -> Tensor:
        """Share of the rungs below the first that are clamped, of every row, (n,)."""
        return self.head.clamped_share(self.features(x))

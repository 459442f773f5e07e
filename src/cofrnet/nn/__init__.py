"""Torch modules made of ladders: banks of them, and the CoFrNet that combines them. Use any of them as a layer.

Each is imported when first asked for: specs, which are data, need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofrnet.nn.bags import Bag, BagCoFrNet, BagSpec
    from cofrnet.nn.cofrnet import CoFrNet, LadderDropout
    from cofrnet.nn.conv import ChannelLadders, ConvLadder
    from cofrnet.nn.images import ImageCoFrNet, ImageSpec, PixelCoFrNet
    from cofrnet.nn.ladders import DiagonalLadders, FullLadders, Ladders, SubsetLadders
    from cofrnet.nn.specs import CoFrNetSpec, Variant
    from cofrnet.nn.vectors import VectorCoFrNet

__all__ = [
    "Bag",
    "BagCoFrNet",
    "BagSpec",
    "ChannelLadders",
    "CoFrNet",
    "CoFrNetSpec",
    "ConvLadder",
    "DiagonalLadders",
    "FullLadders",
    "ImageCoFrNet",
    "ImageSpec",
    "LadderDropout",
    "Ladders",
    "PixelCoFrNet",
    "SubsetLadders",
    "Variant",
    "VectorCoFrNet",
]

_MODULES = {
    "Bag": "bags",
    "BagCoFrNet": "bags",
    "BagSpec": "bags",
    "ChannelLadders": "conv",
    "CoFrNet": "cofrnet",
    "CoFrNetSpec": "specs",
    "ConvLadder": "conv",
    "DiagonalLadders": "ladders",
    "FullLadders": "ladders",
    "ImageCoFrNet": "images",
    "ImageSpec": "images",
    "LadderDropout": "cofrnet",
    "Ladders": "ladders",
    "PixelCoFrNet": "images",
    "SubsetLadders": "ladders",
    "Variant": "specs",
    "VectorCoFrNet": "vectors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cofrnet.nn' has no attribute {name!r}")
    return getattr(import_module(f"cofrnet.nn.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

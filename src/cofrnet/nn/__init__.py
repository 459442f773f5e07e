"""Torch modules made of ladders: banks of them, and the CoFrNet that combines them. Use any of them as a layer."""

from cofrnet.nn.cofrnet import CoFrNet, CoFrNetSpec, LadderDropout, Variant
from cofrnet.nn.ladders import DiagonalLadders, FullLadders, Ladders, SubsetLadders

__all__ = [
    "CoFrNet",
    "CoFrNetSpec",
    "DiagonalLadders",
    "FullLadders",
    "LadderDropout",
    "Ladders",
    "SubsetLadders",
    "Variant",
]

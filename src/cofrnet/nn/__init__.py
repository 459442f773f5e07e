"""Torch modules made of ladders: banks of them, and the CoFrNet that combines them. Use any of them as a layer."""

from cofrnet.nn.bags import Bag, BagCoFrNet, BagSpec
from cofrnet.nn.cofrnet import CoFrNet, CoFrNetSpec, LadderDropout, Variant
from cofrnet.nn.conv import ChannelLadders, ConvLadder
from cofrnet.nn.images import ImageCoFrNet, ImageSpec, PixelCoFrNet
from cofrnet.nn.ladders import DiagonalLadders, FullLadders, Ladders, SubsetLadders
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

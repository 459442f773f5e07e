"""Training: the epoch loop."""

from cofrnet.training.loop import train

__all__ = ["train"]

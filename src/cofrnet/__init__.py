"""Interpretable neural models made of continued fractions."""

__version__ = "0.1.0"

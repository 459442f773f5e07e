"""Explanations of fitted models, as data."""

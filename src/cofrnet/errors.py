"""The exceptions and warnings that cofrnet raises besides ``ValueError`` and ``TypeError``."""

__all__ = ["ModelFileError", "PoleError", "PoleWarning"]


class PoleError(ArithmeticError):
    """The result asked for does not exist: a partial denominator vanishes where it is divided by."""


class PoleWarning(UserWarning):
    """The result exists, but some rungs were clamped on the way to it."""


class ModelFileError(ValueError):
    """A file is not a model that this version can read: truncated, damaged, of a later version, or something else."""

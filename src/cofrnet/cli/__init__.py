"""The command line; the only part that prints. Heavy imports happen inside the commands."""

from cofrnet.cli import demo, explaining, fitting, reproducing, tuning, using  # noqa: F401  (each adds its commands)
from cofrnet.cli.app import app, main

__all__ = ["app", "main"]

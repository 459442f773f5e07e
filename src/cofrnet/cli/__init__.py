"""The command line; the only part that prints. Heavy imports happen inside the commands."""

import sys
from importlib import import_module
from typing import Any

__all__ = ["app", "main"]

# Where each command is: a module is imported when one of its commands is asked for, so that short ones start at once.
COMMANDS = {
    "demo": "demo",
    "evaluate": "using",
    "explain": "explaining",
    "export": "explaining",
    "fit": "fitting",
    "formula": "explaining",
    "info": "using",
    "plot": "explaining",
    "predict": "using",
    "report": "explaining",
    "reproduce": "reproducing",
    "tune": "tuning",
}


def _with(modules: set[str]) -> Any:
    """The module of the application, which has the commands of these modules by then."""
    for module in sorted(modules):
        import_module(f"cofrnet.cli.{module}")
    return import_module("cofrnet.cli.root")


def main() -> None:
    """Run the command line."""
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    modules = {COMMANDS[asked]} if asked in COMMANDS else set(COMMANDS.values())
    _with(modules).main()


def __getattr__(name: str) -> Any:
    if name == "app":
        return _with(set(COMMANDS.values())).app
    raise AttributeError(f"module 'cofrnet.cli' has no attribute {name!r}")

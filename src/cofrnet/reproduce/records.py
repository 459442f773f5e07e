"""Results as they come: one JSON object on a line, with all that is needed to tell what was run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["Records"]

PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "interpret",
    "pygam",
    "lassonet",
    "lightgbm",
    "xgboost",
    "dnamite",
)


class Records:
    """A file of results. What is in it already is not run again."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:  # the last line of a run that was killed
                    continue
                self._found[_key(record["what"])] = record

    def __contains__(self, what: Mapping[str, Any]) -> bool:
        return _key(what) in self._found

    def __len__(self) -> int:
        return len(self._found)

    def add(self, what: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Append the result of what was run."""
        record = {"what": dict(what), "result": dict(result), "versions": versions()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._found[_key(what)] = record

    def results(self, **wanted: Any) -> list[dict[str, Any]]:
        """What was run with its result, in one object each, of those that are as wanted."""
        found = [record["what"] | record["result"] for record in self._found.values()]
        return [r for r in found if all(r.get(k) == v for k, v in wanted.items())]


def _key(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True)


def versions() -> dict[str, str]:
    """Versions of what the results depend on."""
    import cofrnet

    found = {"cofrnet": cofrnet.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

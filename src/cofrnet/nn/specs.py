"""What the specs of models share: plain values, and the way back from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self

__all__ = ["Spec"]


class Spec:
    """The base of the frozen dataclasses that say what a model is made of."""

    def to_dict(self) -> dict[str, Any]:
        """The spec as plain JSON values."""
        return {name: _plain(value) for name, value in asdict(self).items()}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The spec that `to_dict` wrote; unknown names are refused."""
        unknown = set(values) - {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if unknown:
            raise ValueError(f"a {cls.__name__} must have known fields only; got {sorted(unknown)}. Remove them.")
        return cls(**values)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value

"""What can be chosen about ladders: the kind of pole with its epsilon, and whether compiled code evaluates them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal, TypeAlias, get_args

__all__ = ["DEFAULT_EPSILON", "Backend", "Pole", "backend", "has_numba", "uses_numba", "with_epsilon"]

Pole: TypeAlias = Literal["smooth", "clamp"]
Backend: TypeAlias = Literal["auto", "fused", "reference"]

DEFAULT_EPSILON: dict[Pole, float] = {"smooth": 1.0, "clamp": 0.1}

# Inside this range eps^2, 1/eps^2 and the curvature ~ 1/eps^3 are ordinary float32 numbers.
_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-12, 1e6

_backend: Backend = "auto"  # a plain global, which torch.compile can read
_entered: dict[object, Backend] = {}  # by context, the newest last; contexts of several threads end in any order


def with_epsilon(pole: str, epsilon: float | None = None) -> tuple[Pole, float]:
    """The pole kind and its epsilon, checked; ``epsilon=None`` takes the default of the kind."""
    if pole not in get_args(Pole):
        raise ValueError(f"pole must be 'smooth' or 'clamp'; got pole={pole!r}. Choose one of the two.")
    kind: Pole = "smooth" if pole == "smooth" else "clamp"
    if epsilon is None:
        return kind, DEFAULT_EPSILON[kind]
    value = float(epsilon)
    if not _SMALLEST_EPSILON <= value <= _LARGEST_EPSILON:  # NaN fails here too
        raise ValueError(
            f"epsilon must lie in [{_SMALLEST_EPSILON:g}, {_LARGEST_EPSILON:g}]; got epsilon={epsilon!r}. "
            f"The default for pole={kind!r} is {DEFAULT_EPSILON[kind]:g}."
        )
    return kind, value


@contextmanager
def backend(name: Backend) -> Iterator[None]:
    """Within the context, evaluate ladders one way: "auto", "fused" (numba kernels) or "reference" (plain torch).

    "auto" is fused for float32 and float64 on the CPU where numba is installed, else the reference. It holds for the
    whole process, and where several contexts overlap, that of the newest.
    """
    global _backend
    if name not in get_args(Backend):
        raise ValueError(f"backend must be 'auto', 'fused' or 'reference'; got {name!r}. Choose one of the three.")
    if name == "fused" and not has_numba:
        raise ImportError("backend('fused') needs numba. Install it with: pip install numba")
    context = object()
    _entered[context] = _backend = name
    try:
        yield
    finally:
        del _entered[context]
        _backend = [*_entered.values()][-1] if _entered else "auto"


has_numba = find_spec("numba") is not None


def uses_numba() -> bool:
    """Whether compiled code is to be used where there is any."""
    return has_numba and _backend != "reference"

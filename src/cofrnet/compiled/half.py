"""Half precision in compiled code: bfloat16 is the upper half of a float32, and is held as uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cofrnet.compiled.jit import Array

__all__ = ["narrow", "wide", "widened"]

_BITS, _FLOAT = ir.IntType(32), ir.FloatType()


def _wide(_: Any, value: Any) -> Any:
    """The number that the bits of a bfloat16 stand for, as float32; other numbers as they are."""

    def unchanged(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0]

    def shifted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.shl(builder.zext(arguments[0], _BITS), ir.Constant(_BITS, 16))
        return builder.bitcast(bits, _FLOAT)

    half = value == types.uint16
    return (types.float32 if half else value)(value), shifted if half else unchanged


def _narrow(_: Any, value: Any, like: Any) -> Any:
    """A number in the type of another; for uint16, the bits of the nearest bfloat16, the even one of two as near."""

    def unchanged(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0]

    def rounded(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _BITS)
        odd = builder.and_(builder.lshr(bits, ir.Constant(_BITS, 16)), ir.Constant(_BITS, 1))
        bits = builder.add(bits, builder.add(odd, ir.Constant(_BITS, 0x7FFF)))
        bits = builder.trunc(builder.lshr(bits, ir.Constant(_BITS, 16)), ir.IntType(16))
        is_nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.select(is_nan, ir.Constant(ir.IntType(16), 0x7FC0), bits)

    half = like == types.uint16
    return (types.uint16 if half else value)(value, like), rounded if half else unchanged


wide: Any = intrinsic(_wide)
narrow: Any = intrinsic(_narrow)


def widened(values: Array) -> Array:
    """A copy of numbers; of the bits of bfloat16, the numbers in float32."""
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values.copy()

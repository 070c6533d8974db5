"""What kernels are made of: elements in memory, operations on numbers, and compilation.

Numba knows a dtype by its place in CODES. `stored`, `widen`, `narrow`, `combine` and `quotient` are empty in Python:
when a kernel is compiled, `overload` puts the text for its literal code and operation in their place. Half precision
is computed in float32. All operations are bitwise commutative, so that ranks adding the same values get the same
bits: -0 < +0 in min and max, NaN wins everywhere, and there is one NaN.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numba import carray, njit
from numba.extending import overload

from .cache import callback
from .half import HAS_F16C, float_to_bfloat16, float_to_half_by_bits, half_to_float_by_bits
from .machine import compiling, float_from_bits, float_to_half, half_to_float, maximum, minimum, pointer

__all__ = ["CODES", "OPS", "Kernel", "combine", "compiled", "narrow", "quotient", "stored", "type_named", "widen"]

OPS = ("sum", "prod", "min", "max", "avg", "land", "lor", "lxor", "band", "bor", "bxor")
SUM, PROD, MIN, MAX, AVG, LAND, LOR, LXOR, BAND, BOR, BXOR = range(len(OPS))

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: dtypes with compiled kernels; the place in this tuple is the code under which Numba knows them
CODES = (
    *(np.dtype(c) for c in "bhilqBHILQ"), np.dtype(np.float32), np.dtype(np.float64),
    np.dtype(np.complex64), np.dtype(np.complex128), np.dtype(np.float16), BFLOAT16, np.dtype(bool),
)  # fmt: skip
FLOAT16_CODE, BFLOAT16_CODE, BOOL_CODE = (CODES.index(d) for d in (np.dtype(np.float16), BFLOAT16, np.dtype(bool)))
STORED = tuple(np.dtype({2: "u2", 1: "u1"}[d.itemsize]) if d.num >= 23 or d.kind in "b" else d for d in CODES)
LONG = (np.dtype(np.longdouble), np.dtype(np.clongdouble))


def type_named(what: str, value: Any) -> np.dtype:
    """A dtype, bfloat16 included.

    Raises
    ------
    TypeError
        Naming what it is and what was given.
    """
    try:
        return BFLOAT16 if str(value) == "bfloat16" else np.dtype(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be a dtype such as 'float32', not {value!r}") from None


class Kernel(NamedTuple):
    """A function (out, a, b, count, step) on addresses."""

    address: int  # 0 for one that only Python can call
    call: Callable[[int, int, int, int, int], Any]


def stored(code: int, address: int, count: int) -> Any:
    """The elements at an address; specialised by `overload` on the literal code."""


@overload(stored, prefer_literal=True)
def _stored_of(code, address, count):
    dtype = STORED[code.literal_value]
    return lambda code, address, count: carray(pointer(address), (count,), dtype)


def widen(code: int, x: Any) -> Any:
    """A stored element as a number to compute with."""


@overload(widen, prefer_literal=True)
def _widen_of(code, x):
    if code.literal_value == FLOAT16_CODE:
        return (lambda code, x: half_to_float(x)) if HAS_F16C else (lambda code, x: half_to_float_by_bits(x))
    if code.literal_value == BFLOAT16_CODE:
        return lambda code, x: float_from_bits(np.uint32(x) << np.uint32(16))
    return lambda code, x: x


def narrow(code: int, x: Any) -> Any:
    """A number as it is stored."""


@overload(narrow, prefer_literal=True)
def _narrow_of(code, x):
    if code.literal_value == FLOAT16_CODE:
        if HAS_F16C:
            return lambda code, x: float_to_half(np.float32(x))
        return lambda code, x: float_to_half_by_bits(np.float32(x))
    if code.literal_value == BFLOAT16_CODE:
        return lambda code, x: float_to_bfloat16(np.float32(x))
    return lambda code, x: x


@njit(inline="always")
def _one_nan(x: Any) -> Any:
    """NaNs carry bits that depend on the order of the operands: let there be one."""
    return x if x == x else type_nan(x)


def type_nan(x: Any) -> Any:
    """The NaN of a type."""


@overload(type_nan)
def _type_nan_of(x):
    nan = np.float32(np.nan) if x.bitwidth == 32 else np.float64(np.nan)
    return lambda x: nan


def combine(op: int, a: Any, b: Any) -> Any:
    """a op b; specialised by `overload` on the literal op and the types."""


@overload(combine, prefer_literal=True)
def _combine_of(op, a, b):
    kind = "c" if hasattr(a, "underlying_float") else "i" if hasattr(a, "signed") else "f"
    return COMBINE[op.literal_value, kind]


@njit(inline="always")
def _complex_product(a: Any, b: Any) -> Any:
    return complex(
        _one_nan(a.real * b.real - a.imag * b.imag), _one_nan(a.real * b.imag + a.imag * b.real)
    )


COMBINE: dict[tuple[int, str], Callable] = {
    (SUM, "i"): lambda op, a, b: a + b,
    (SUM, "f"): lambda op, a, b: _one_nan(a + b),
    (PROD, "i"): lambda op, a, b: a * b,
    (PROD, "f"): lambda op, a, b: _one_nan(a * b),
    (PROD, "c"): lambda op, a, b: _complex_product(a, b),
    (MIN, "i"): lambda op, a, b: min(a, b),
    (MIN, "f"): lambda op, a, b: _one_nan(minimum(a, b)),
    (MAX, "i"): lambda op, a, b: max(a, b),
    (MAX, "f"): lambda op, a, b: _one_nan(maximum(a, b)),
    (LAND, "i"): lambda op, a, b: (a != 0) & (b != 0),
    (LOR, "i"): lambda op, a, b: (a != 0) | (b != 0),
    (LXOR, "i"): lambda op, a, b: (a != 0) ^ (b != 0),
    (BAND, "i"): lambda op, a, b: a & b,
    (BOR, "i"): lambda op, a, b: a | b,
    (BXOR, "i"): lambda op, a, b: a ^ b,
}
#: The sum of truths is "any", their product "all".
OF_BOOLEANS = {SUM: LOR, PROD: LAND, MIN: LAND, MAX: LOR, BAND: LAND, BOR: LOR, BXOR: LXOR}

#: (out, a, b, count, step): addresses, a count of elements, and for a codec the number of a random stream.
SIGNATURE = "void(int64, int64, int64, int64, int64)"


def compiled(function: Callable, signature: str = SIGNATURE) -> Kernel:
    with compiling():
        kernel = callback(function, signature)
    return Kernel(kernel.address or 0, kernel.ctypes)


def quotient(x: Any, divisor: int) -> Any:
    """x / divisor: rounded down for integers."""


@overload(quotient)
def _quotient_of(x, divisor):
    if not hasattr(x, "signed"):
        return lambda x, divisor: x / divisor
    # Numba would divide uint64 by int64 as floats
    return (lambda x, divisor: x // divisor) if x.signed else (lambda x, divisor: x // np.uint64(divisor))

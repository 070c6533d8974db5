"""The kernels: out = a op b for every pair of dtype and operation, casts, and the division of an average.

All are bitwise commutative, so that ranks adding the same values get the same bits: -0 < +0 in min and max, NaN
wins everywhere, and there is one NaN. Half precision is computed in float32 and rounded once. A kernel has the C
signature (out, a, b, count, step), addresses, a count of elements and a number that only codecs mind; out may be a
or b. It is compiled on first use.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numba import carray, njit
from numba.extending import overload

from .cache import callback
from .half import HAS_F16C, float_to_bfloat16, float_to_half_by_bits, half_to_float_by_bits
from .machine import (
    compiling,
    float_from_bits,
    float_to_half,
    half_to_float,
    load64,
    maximum,
    minimum,
    pointer,
)

__all__ = ["OPS", "Kernel", "cast", "check", "divide", "fused", "python_kernel", "reduction", "shortfall", "view"]

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


class Kernel(NamedTuple):
    """A function (out, a, b, count, step) on addresses."""

    address: int  # 0 for one that only Python can call
    call: Callable[[int, int, int, int, int], Any]


def check(dtype: np.dtype, op: str) -> None:
    """Refuse what has no meaning, before anything is sent.

    Raises
    ------
    TypeError
        Naming the dtype, and what it can do.
    ValueError
        Unknown operation.
    """
    if op not in OPS:
        raise ValueError(f"unknown op {op!r}; have {', '.join(OPS)}, an MPI.Op or a callable of two arrays")
    allowed = allowed_ops(dtype)
    if not allowed:
        raise TypeError(f"cannot reduce dtype {dtype}; have {', '.join(str(d) for d in dict.fromkeys(CODES + LONG))}")
    if op not in allowed:
        raise TypeError(f"op {op!r} is not defined for dtype {dtype}; have {', '.join(allowed)}")


def allowed_ops(dtype: np.dtype) -> tuple[str, ...]:
    """What can be done with a dtype, as in MPI; avg of booleans is left out, for it is no boolean."""
    if dtype not in CODES + LONG:
        return ()
    if dtype.kind == "c":
        return ("sum", "prod", "avg")
    if dtype.kind in "iu":
        return OPS
    if dtype.kind == "b":
        return tuple(op for op in OPS if op != "avg")
    return ("sum", "prod", "min", "max", "avg")


def reduction(dtype: np.dtype, op: str) -> tuple[Kernel, int]:
    """The kernel of an operation, and how many of its elements one element of the dtype is."""
    op = "sum" if op == "avg" else op
    if dtype in LONG:
        return python_kernel(dtype, _long_double(op)), 1
    if dtype.kind == "c" and op == "sum":
        return _binary(CODES.index(np.dtype(f"f{dtype.itemsize // 2}")), SUM), 2
    return _binary(CODES.index(dtype), OPS.index(op)), 1


def divide(dtype: np.dtype) -> tuple[Kernel, int]:
    """out = a / b where b is the plain number of ranks: true division, of integers rounded down as NumPy's //."""
    if dtype in LONG:
        return Kernel(0, lambda out, a, b, n, step: np.divide(view(a, n, dtype), b, out=view(out, n, dtype))), 1
    if dtype.kind == "c":
        return _divide(CODES.index(np.dtype(f"f{dtype.itemsize // 2}"))), 2
    return _divide(CODES.index(dtype)), 1


def cast(to: np.dtype, from_: np.dtype) -> Kernel:
    """out = a in another dtype, rounded to nearest even; b is not used."""
    return _cast(CODES.index(to), CODES.index(from_))


def shortfall(dtype: np.dtype) -> Kernel:
    """out += a - b."""
    return _shortfall(CODES.index(dtype))


def python_kernel(dtype: np.dtype, function: Callable[[np.ndarray, np.ndarray], Any]) -> Kernel:
    """A kernel from a Python function of two arrays."""

    def call(out: int, a: int, b: int, n: int, step: int) -> None:
        # the result may share memory with a or b only after it is complete
        view(out, n, dtype)[...] = function(view(a, n, dtype), view(b, n, dtype))

    return Kernel(0, call)


def view(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """The elements at an address, for Python."""
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype=dtype)


def _long_double(op: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """No processor register but the x87 one: NumPy adds, and we make zeros and NaNs unique."""
    ufunc = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]

    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result = ufunc(a, b)
        if op in ("min", "max"):
            zeros = (a == 0) & (b == 0)
            sign = np.signbit(a) | np.signbit(b) if op == "min" else np.signbit(a) & np.signbit(b)
            result[zeros] = np.where(sign, -0.0, 0.0)[zeros]
        parts = result.view(LONG[0])
        parts[np.isnan(parts)] = np.nan
        return result

    return function


def _stored(code: int, address: int, count: int) -> Any:
    """The elements at an address; specialised by `overload` on the literal code."""


@overload(_stored, prefer_literal=True)
def _stored_of(code, address, count):
    dtype = STORED[code.literal_value]
    return lambda code, address, count: carray(pointer(address), (count,), dtype)


def _widen(code: int, x: Any) -> Any:
    """A stored element as a number to compute with."""


@overload(_widen, prefer_literal=True)
def _widen_of(code, x):
    if code.literal_value == FLOAT16_CODE:
        return (lambda code, x: half_to_float(x)) if HAS_F16C else (lambda code, x: half_to_float_by_bits(x))
    if code.literal_value == BFLOAT16_CODE:
        return lambda code, x: float_from_bits(np.uint32(x) << np.uint32(16))
    return lambda code, x: x


def _narrow(code: int, x: Any) -> Any:
    """A number as it is stored."""


@overload(_narrow, prefer_literal=True)
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


def _combine(op: int, a: Any, b: Any) -> Any:
    """a op b; specialised by `overload` on the literal op and the types."""


@overload(_combine, prefer_literal=True)
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

SIGNATURE = "void(int64, int64, int64, int64, int64)"


def _compiled(function: Callable, signature: str = SIGNATURE) -> Kernel:
    with compiling():
        kernel = callback(function, signature)
    return Kernel(kernel.address or 0, kernel.ctypes)


@cache
def _binary(code: int, op: int) -> Kernel:
    if code == BOOL_CODE:
        op = OF_BOOLEANS.get(op, op)

    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, y, z = _stored(code, a, count), _stored(code, b, count), _stored(code, out, count)
        # written out, because a loop whose output may be its input is not vectorised
        if out == a:
            for i in range(count):
                x[i] = _narrow(code, _combine(op, _widen(code, x[i]), _widen(code, y[i])))
        elif out == b:
            for i in range(count):
                y[i] = _narrow(code, _combine(op, _widen(code, x[i]), _widen(code, y[i])))
        else:
            for i in range(count):
                z[i] = _narrow(code, _combine(op, _widen(code, x[i]), _widen(code, y[i])))

    return _compiled(kernel)


def fused(dtype: np.dtype, op: str) -> tuple[Kernel, int]:
    """out = also = the reduction of `size` parts, in order, rounded once; (out, addresses of parts, size, count, also).

    Half precision is summed in float32 throughout; an average is divided before it is rounded.
    """
    mean = int(op == "avg")
    op = "sum" if mean else op
    if dtype.kind == "c" and op == "sum":
        return _fused(CODES.index(np.dtype(f"f{dtype.itemsize // 2}")), SUM, mean), 2
    return _fused(CODES.index(dtype), OPS.index(op), mean), 1


#: Elements summed over all parts before the next: the sums stay in the first-level cache.
STRIP = 512


@cache
def _fused(code: int, op: int, mean: int) -> Kernel:
    if code == BOOL_CODE:
        op = OF_BOOLEANS.get(op, op)

    def kernel(out: int, parts: int, size: int, count: int, also: int) -> None:
        z, w = _stored(code, out, count), _stored(code, also if also else out, count)
        x = _stored(code, load64(parts), count)
        if size == 2 and not mean:
            y = _stored(code, load64(parts + 8), count)
            if also:
                for i in range(count):
                    w[i] = z[i] = _narrow(code, _combine(op, _widen(code, x[i]), _widen(code, y[i])))
            elif out == load64(parts):
                for i in range(count):
                    x[i] = _narrow(code, _combine(op, _widen(code, x[i]), _widen(code, y[i])))
            else:
                for i in range(count):
                    z[i] = _narrow(code, _combine(op, _widen(code, x[i]), _widen(code, y[i])))
            return
        total = _accumulators(code)
        for start in range(0, count, STRIP):
            length = min(STRIP, count - start)
            for i in range(length):
                total[i] = _widen(code, x[start + i])
            for part in range(1, size):
                y = _stored(code, load64(parts + 8 * part), count)
                for i in range(length):
                    total[i] = _combine(op, total[i], _widen(code, y[start + i]))
            for i in range(length):
                z[start + i] = _narrow(code, _mean(mean, total[i], size))
            if also:
                for i in range(length):
                    w[start + i] = z[start + i]

    return _compiled(kernel)


def _accumulators(code: int) -> Any:
    """A strip of numbers to compute with."""


@overload(_accumulators, prefer_literal=True)
def _accumulators_of(code):
    half = code.literal_value in (FLOAT16_CODE, BFLOAT16_CODE)
    dtype = np.dtype(np.float32) if half else STORED[code.literal_value]
    return lambda code: np.empty(STRIP, dtype)


def _mean(mean: int, x: Any, size: int) -> Any:
    """x / size if a mean is wanted."""


@overload(_mean, prefer_literal=True)
def _mean_of(mean, x, size):
    return (lambda mean, x, size: _quotient(x, size)) if mean.literal_value else (lambda mean, x, size: x)


@cache
def _divide(code: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, z = _stored(code, a, count), _stored(code, out, count)
        for i in range(count):
            z[i] = _narrow(code, _quotient(_widen(code, x[i]), b))

    return _compiled(kernel)


@cache
def _shortfall(code: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, y, z = _stored(code, a, count), _stored(code, b, count), _stored(code, out, count)
        for i in range(count):
            z[i] = _narrow(code, _widen(code, z[i]) + (_widen(code, x[i]) - _widen(code, y[i])))

    return _compiled(kernel)


def _quotient(x: Any, divisor: int) -> Any:
    """x / divisor: rounded down for integers."""


@overload(_quotient)
def _quotient_of(x, divisor):
    if not hasattr(x, "signed"):
        return lambda x, divisor: x / divisor
    # Numba would divide uint64 by int64 as floats
    return (lambda x, divisor: x // divisor) if x.signed else (lambda x, divisor: x // np.uint64(divisor))


@cache
def _cast(to: int, from_: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, z = _stored(from_, a, count), _stored(to, out, count)
        for i in range(count):
            z[i] = _narrow(to, _widen(from_, x[i]))

    return _compiled(kernel)

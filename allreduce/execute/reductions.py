"""The kernels: out = a op b for every pair of dtype and operation, casts, and the division of an average.

A kernel has the C signature (out, a, b, count, step), addresses, a count of elements and a number that only codecs
mind; out may be a or b. It is compiled on first use.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba.extending import overload

from .elements import (
    BFLOAT16_CODE,
    BOOL_CODE,
    CODES,
    FLOAT16_CODE,
    LONG,
    OF_BOOLEANS,
    OPS,
    STORED,
    SUM,
    Kernel,
    combine,
    compiled,
    narrow,
    quotient,
    stored,
    widen,
)
from .machine import load64

__all__ = [
    "allowed_ops", "cast", "check", "difference", "divide", "fused", "python_kernel", "reduction", "view", "zeros",
]  # fmt: skip


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


def difference(dtype: np.dtype) -> Kernel:
    """out = a - b."""
    return _difference(CODES.index(dtype))


def zeros(dtype: np.dtype) -> Kernel:
    """out = 0; a and b are not used."""
    return _zeros(CODES.index(dtype))


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


@cache
def _binary(code: int, op: int) -> Kernel:
    if code == BOOL_CODE:
        op = OF_BOOLEANS.get(op, op)

    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, y, z = stored(code, a, count), stored(code, b, count), stored(code, out, count)
        # written out, because a loop whose output may be its input is not vectorised
        if out == a:
            for i in range(count):
                x[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))
        elif out == b:
            for i in range(count):
                y[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))
        else:
            for i in range(count):
                z[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))

    return compiled(kernel)


def fused(dtype: np.dtype, op: str) -> tuple[Kernel, int]:
    """out = also = the reduction of `size` parts, in order, rounded once; (out, addresses of parts, size, count, also).

    Half precision is summed in float32 throughout; an average is divided before it is rounded. If there is a second
    output, the first is none of the parts.
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
        z, w = stored(code, out, count), stored(code, also if also else out, count)
        x = stored(code, load64(parts), count)
        if size == 2 and not mean:
            y = stored(code, load64(parts + 8), count)
            if also:
                for i in range(count):
                    w[i] = z[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))
            elif out == load64(parts):
                for i in range(count):
                    x[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))
            elif out == load64(parts + 8):
                for i in range(count):
                    y[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))
            else:
                for i in range(count):
                    z[i] = narrow(code, combine(op, widen(code, x[i]), widen(code, y[i])))
            return
        total = _accumulators(code)
        for start in range(0, count, STRIP):
            length = min(STRIP, count - start)
            for i in range(length):
                total[i] = widen(code, x[start + i])
            for part in range(1, size):
                y = stored(code, load64(parts + 8 * part), count)
                for i in range(length):
                    total[i] = combine(op, total[i], widen(code, y[start + i]))
            for i in range(length):
                z[start + i] = narrow(code, _mean(mean, total[i], size))
            if also:
                for i in range(length):
                    w[start + i] = z[start + i]

    return compiled(kernel)


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
    return (lambda mean, x, size: quotient(x, size)) if mean.literal_value else (lambda mean, x, size: x)


@cache
def _divide(code: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, z = stored(code, a, count), stored(code, out, count)
        for i in range(count):
            z[i] = narrow(code, quotient(widen(code, x[i]), b))

    return compiled(kernel)


@cache
def _difference(code: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, y, z = stored(code, a, count), stored(code, b, count), stored(code, out, count)
        for i in range(count):
            z[i] = narrow(code, widen(code, x[i]) - widen(code, y[i]))

    return compiled(kernel)


@cache
def _zeros(code: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        z = stored(code, out, count)
        for i in range(count):
            z[i] = 0

    return compiled(kernel)


@cache
def _cast(to: int, from_: int) -> Kernel:
    def kernel(out: int, a: int, b: int, count: int, step: int) -> None:
        x, z = stored(from_, a, count), stored(to, out, count)
        for i in range(count):
            z[i] = narrow(to, widen(from_, x[i]))

    return compiled(kernel)

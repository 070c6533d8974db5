"""Arrays of any dtype, read as float32 and written from it."""

from typing import Any

import ml_dtypes
import numpy as np
from numba.extending import overload

from allreduce.execute.elements import CODES, SUM, combine, narrow, stored, widen

from .memory import inline
from .values import LARGEST

__all__ = ["FLOAT32", "fetch", "put", "rounded", "saturated", "settle", "start"]

FLOAT32 = CODES.index(np.dtype(np.float32))
#: What float32 may exceed, by the code of the dtype.
NARROWER = {CODES.index(np.dtype(t)): np.float32(ml_dtypes.finfo(t).max) for t in (np.float16, ml_dtypes.bfloat16)}


def saturated(code: int, value: Any) -> Any:
    """The value, or the largest finite one of a dtype if it is finite, too, but larger."""


@overload(saturated, prefer_literal=True)
def _saturated_of(code, value):
    top = NARROWER.get(code.literal_value)
    if top is None:
        return lambda code, value: value
    return lambda code, value: top if top < value <= LARGEST else -top if -LARGEST <= value < -top else value


def fetch(code: int, address: int, n: int, values: Any) -> Any:
    """The values at an address as float32: the memory itself, or converted into `values`."""


@overload(fetch, prefer_literal=True)
def _fetch_of(code, address, n, values):
    if code.literal_value == FLOAT32:
        return lambda code, address, n, values: stored(code, address, n)

    def convert(code, address, n, values):
        x = stored(code, address, n)
        for i in range(n):
            values[i] = np.float32(widen(code, x[i]))
        return values

    return convert


@inline
def rounded(code: int, value: Any) -> Any:
    """A decoded value as it is stored."""
    return narrow(code, saturated(code, value))


@inline
def put(code: int, y: Any, i: int, value: Any) -> None:
    """y[i] += value, which is rounded to the dtype first, so that decode-then-add is the same."""
    y[i] = narrow(code, combine(SUM, widen(code, y[i]), widen(code, rounded(code, value))))


@inline
def start(adding: int, code: int, out: int, a: int, n: int) -> Any:
    """What decoded values are added to: zeros, or the values at an address."""
    y = stored(code, out, n)
    if not adding:
        for i in range(n):
            y[i] = 0
    elif out != a:  # a loop whose output may be its input would not be vectorised
        x = stored(code, a, n)
        for i in range(n):
            y[i] = x[i]
    return y


@inline
def settle(adding: int, code: int, out: int, a: int, n: int, values: Any) -> None:
    """out = values, or out = a + values."""
    if adding:
        y = start(adding, code, out, a, n)
        for i in range(n):
            put(code, y, i, values[i])
    else:
        y = stored(code, out, n)
        for i in range(n):
            y[i] = rounded(code, values[i])

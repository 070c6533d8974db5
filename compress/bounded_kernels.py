"""The kernels of the codec `bounded`, whose records differ in length."""

from functools import cache
from typing import Any

import numpy as np
from numba.extending import overload

from allreduce.execute.elements import CODES, Kernel, compiled, narrow, stored, widen

from .arrays import put, saturated, start
from .context import Kernels
from .memory import at8, at32, scratch

__all__ = ["BLOCK", "bounded_kernels"]

#: Values in a block: as many as there are bits in a plane.
BLOCK = 32
RAW = 255
#: (out, a, b, bytes, count, eb) -> bytes written or read: out = message of a, or out = message of b, or a + it.
SIGNATURE = "int64(int64, int64, int64, int64, int64, float64)"


def _rounded(code: int, multiple: Any) -> Any:
    """What a multiple of the step, in float64, decodes to."""


@overload(_rounded, prefer_literal=True)
def _rounded_of(code, multiple):
    if CODES[code.literal_value] == np.float64:
        return lambda code, multiple: multiple
    return lambda code, multiple: widen(code, narrow(code, saturated(code, np.float32(multiple))))


@cache
def bounded_kernels(code: int) -> Kernels:
    size, room = CODES[code].itemsize, 4 * BLOCK

    def encode(out: int, a: int, b: int, nbytes: int, count: int, eb: float) -> int:
        codes, at = at32(scratch(room), BLOCK), out
        for first in range(0, count, BLOCK):
            n = min(BLOCK, count - first)
            x = stored(code, a + first * size, n)
            fits, used = True, np.uint32(0)
            for i in range(n):
                value = np.float64(widen(code, x[i]))
                q = np.rint(value / (2 * eb))
                fits &= abs(np.float64(_rounded(code, q * (2 * eb))) - value) <= eb and abs(q) < 2.0**30
                number = np.int32(q) if fits else np.int32(0)
                codes[i] = np.uint32(number << np.int32(1) ^ number >> np.int32(31))
                used |= codes[i]
            width = 0
            while used >> np.uint32(width):
                width += 1
            fits &= 4 * width < n * size
            at8(at, 1)[0] = width if fits else RAW
            if fits:
                planes = at32(at + 1, width)
                for p in range(width):
                    planes[p] = 0
                    for i in range(n):
                        planes[p] |= (codes[i] >> np.uint32(p) & np.uint32(1)) << np.uint32(i)
            else:
                raw = stored(code, at + 1, n)
                for i in range(n):
                    raw[i] = x[i]
            at += 1 + (4 * width if fits else n * size)
        return at - out

    return Kernels(compiled(encode, SIGNATURE), _decoder(code, 0), _decoder(code, 1))


def _decoder(code: int, adding: int) -> Kernel:
    size, room = CODES[code].itemsize, 4 * BLOCK

    def decode(out: int, a: int, b: int, nbytes: int, count: int, eb: float) -> int:
        y = start(adding, code, out, a, count)
        codes, at, end = at32(scratch(room), BLOCK), b, b + nbytes
        for first in range(0, count, BLOCK):
            n = min(BLOCK, count - first)
            width = np.int64(at8(at, 1)[0]) if at < end else 0
            rest = at + 1
            at = rest + (n * size if width == RAW else 4 * width)
            if at > end:
                return -1
            if width == RAW:
                raw = stored(code, rest, n)
                for i in range(n):
                    put(code, y, first + i, widen(code, raw[i]))
            else:
                planes = at32(rest, width)
                for i in range(n):
                    codes[i] = 0
                for p in range(width):
                    for i in range(n):
                        codes[i] |= (planes[p] >> np.uint32(i) & np.uint32(1)) << np.uint32(p)
                for i in range(n):
                    q = np.int32(codes[i] >> np.uint32(1)) ^ -np.int32(codes[i] & np.uint32(1))
                    put(code, y, first + i, _rounded(code, np.float64(q) * (2 * eb)))
        return at - b

    return compiled(decode, SIGNATURE)

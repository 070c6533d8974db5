"""Powers of two."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from .memory import at8
from .noise import random32
from .packing import pack, packed, unpack
from .rounding import Rounding
from .values import INFINITE, magnitude

__all__ = ["Natural"]


@dataclass(frozen=True)
class Natural(Rounding):
    """One of the two powers of two that a value lies between, by default at random so that the mean is the value.

    Zero and its sign are exact, numbers below 2**-126 become that or zero, those above 2**127 become that, with a
    bias. Every value stands for itself: infinity and NaN decode to NaN, and nothing else does.

    Message: per block the exponents, a byte each, 255 for NaN, then the signs, the first in the lowest bit.

    Parameters
    ----------
    block : int
        Elements whose signs follow their exponents, a power of two.
    rounding : {"stochastic", "nearest", "correlated"}
        See `Rounding`.
    seed : int
        Of the stochastic rounding.

    See: Horvath et al., Natural compression for distributed deep learning, 2019.

    >>> x = np.array([1.0, -1.5, 0.3, 0.0], np.float32)
    >>> Natural().encode(x)
    array([127, 127, 125,   0,   2], dtype=uint8)
    >>> Natural().decode(Natural().encode(x), np.empty(4, np.float32))
    array([ 1.  , -1.  ,  0.25,  0.  ], dtype=float32)
    """

    block: int = 256
    rounding: str = "stochastic"
    seed: int = 0

    @property
    def idempotent(self) -> bool:
        return True

    @property
    def params(self) -> tuple[int, ...]:
        return (int(self.random),)

    def record(self, n: int) -> int:
        return n + packed(1, n)

    def errors(self, x: np.ndarray) -> np.ndarray:
        usual = x if self.random else x / 3
        return np.where(x < 2.0**-126, 2.0**-126 * (x > 0), np.where(x < 2.0**127, usual, x / 2))


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    y = at8(out, n)
    for i in range(n):
        size = magnitude(x[i])
        carry = random32(key, i) >> np.uint32(9) if params[0] else np.uint32(0x400000)
        exponent = np.uint32(size + np.uint32(carry)) >> np.uint32(23)
        y[i] = np.uint8(min(exponent, np.uint32(254)) if size < INFINITE else np.uint32(255))
        codes[i] = np.uint8(bits_of_float(x[i]) >> np.uint32(31))
    pack(1, words, n, out + n)


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    y = at8(message, n)
    unpack(1, message + n, n, words)
    for i in range(n):
        size = np.uint32(0x7FC00000) if y[i] == 255 else np.uint32(np.uint32(y[i]) << np.uint32(23))
        values[i] = float_from_bits(np.uint32(size | np.uint32(codes[i]) << np.uint32(31)))

"""One bit a value."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from . import doors
from .blocks import Blockwise
from .bounds import per_block
from .memory import at16
from .packing import pack, packed, unpack
from .values import INFINITE, LARGEST, NAN_SCALE, filled, magnitude, peak, scale, scale_up, tree_sum

__all__ = ["Sign"]


@dataclass(frozen=True)
class Sign(Blockwise):
    """The sign of every value, times the mean magnitude of its block, which has the least squared error.

    Biased: to be used with error feedback. A zero counts with its sign. A block of zeros decodes to zeros, one that
    holds NaN or infinity to NaN.

    Message: per block the mean in 2 bytes, 9 significant bits rounded up, then the signs, the first in the lowest bit.

    Parameters
    ----------
    block : int
        Elements that share a mean, a power of two.

    See: Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Karimireddy et al., Error feedback fixes
    SignSGD, ICML 2019.

    >>> x = np.array([0.5, -1.5, 2.0, -0.0], np.float32)
    >>> Sign().encode(x)
    array([  0, 127,  10], dtype=uint8)
    >>> Sign().decode(Sign().encode(x), np.empty(4, np.float32))
    array([ 1., -1.,  1., -1.], dtype=float32)
    """

    block: int = 512

    def __post_init__(self) -> None:
        doors.power_of_two(self, "block")

    @property
    def idempotent(self) -> bool:
        """Sums of numbers of 9 significant bits are exact."""
        return True

    def record(self, n: int) -> int:
        return 2 + packed(1, n)

    def errors(self, x: np.ndarray) -> np.ndarray:
        mean = per_block(x, self.block, np.mean)
        return np.abs(x - mean) + mean * 2**-7 + 2.0**-133


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    size = filled(n)
    unit = np.float32(0.5) / np.float32(size)  # no sum of so many overflows
    for i in range(n, size):
        work[i] = np.float32(0)
    for i in range(n):
        work[i] = float_from_bits(magnitude(x[i])) * unit
        codes[i] = np.uint8(bits_of_float(x[i]) >> np.uint32(31))
    mean = tree_sum(work, size) / (np.float32(n) * unit)
    finite = peak(x, n) < INFINITE
    at16(out, 1)[0] = np.uint16(scale_up(mean, LARGEST) if finite else NAN_SCALE)
    pack(1, words, n, out + 2)


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    mean = bits_of_float(scale(at16(message, 1)[0]))
    unpack(1, message + 2, n, words)
    for i in range(n):
        values[i] = float_from_bits(np.uint32(mean | np.uint32(codes[i]) << np.uint32(31)))

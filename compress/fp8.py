"""Eight-bit floating-point numbers with a scale per block."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from . import doors
from .blocks import Blockwise
from .bounds import per_block
from .memory import at8
from .values import INFINITE, magnitude, peak

__all__ = ["Fp8"]

#: Bits of the mantissa, and bias of the exponent; the largest number is 1.75 * 2**(8 or 15).
FORMATS = {"e4m3": (3, 7), "e5m2": (2, 15)}
TOP = {"e4m3": 8, "e5m2": 15}


@dataclass(frozen=True)
class Fp8(Blockwise):
    """The nearest number of 8 bits, ties to even, times a power of two that is shared by a block.

    The power is the least for which the largest magnitude does not overflow, so that scaling is exact and nothing
    saturates but what would decode to more than float32 holds. ``block=32`` is MXFP8 of the OCP specification. A block
    that holds NaN or infinity decodes to NaN; signs of zeros and denormal numbers are kept.

    Message: per block a byte e, for 2**(e - 127), 255 for NaN, then the numbers.

    Parameters
    ----------
    format : {"e4m3", "e5m2"}
    block : int
        Elements that share a scale, a power of two.

    See: Micikevicius et al., FP8 formats for deep learning, 2022; OCP Microscaling formats, 2023.

    >>> x = np.array([1000.0, -333.0, 0.01, 0.0], np.float32)
    >>> Fp8().encode(x)
    array([129, 120, 234,   1,   0], dtype=uint8)
    >>> Fp8().decode(Fp8().encode(x), np.empty(4, np.float32))
    array([ 1.0240e+03, -3.2000e+02,  7.8125e-03,  0.0000e+00], dtype=float32)
    """

    format: str = "e4m3"
    block: int = 128

    def __post_init__(self) -> None:
        doors.choice(self, "format", *FORMATS)
        doors.power_of_two(self, "block")

    @property
    def idempotent(self) -> bool:
        return True

    @property
    def params(self) -> tuple[int, ...]:
        return *FORMATS[self.format], TOP[self.format]

    def record(self, n: int) -> int:
        return 1 + n

    def errors(self, x: np.ndarray) -> np.ndarray:
        mantissa, bias, top = self.params
        scale = np.maximum(per_block(x, self.block, np.max) * 2 / (1.75 * 2.0**top), 2.0**-127)
        return np.maximum(x * 2.0 ** -(mantissa + 1), scale * 2.0 ** -(bias + mantissa))


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    mantissa, bias, top = params[0], params[1], params[2]
    drop = np.uint32(23 - mantissa)
    largest = peak(x, n)
    exponent = np.int32(largest >> np.uint32(23)) + np.int32((largest & np.uint32(0x7FFFFF)) > np.uint32(0x600000))
    exponent = max(exponent - np.int32(top), np.int32(0))
    inverse = float_from_bits(np.uint32((254 - exponent) << 23))
    limit = np.float32((2 - 0.5**mantissa) * 2.0**127)  # the next number decodes to infinity
    rebias = np.uint32((127 - bias) << mantissa)
    normal = np.float32(2.0 ** (1 - bias))
    shifter = np.float32(2.0 ** (24 - bias - mantissa))  # its last bit is the least number's
    y = at8(out + 1, n)
    if largest < INFINITE:
        at8(out, 1)[0] = np.uint8(exponent)
        for i in range(n):
            size = min(float_from_bits(magnitude(x[i])), limit) * inverse
            bits = bits_of_float(size)
            even = np.uint32(bits >> drop) & np.uint32(1)
            rounded = np.uint32(np.uint32(bits + np.uint32((1 << (22 - mantissa)) - 1) + even) >> drop) - rebias
            small = bits_of_float(size + shifter) - bits_of_float(shifter)
            sign = bits_of_float(x[i]) >> np.uint32(24) & np.uint32(0x80)
            y[i] = np.uint8((rounded if size >= normal else small) | sign)
    else:
        at8(out, 1)[0] = np.uint8(255)
        for i in range(n):
            y[i] = np.uint8(0)


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    mantissa, bias = params[0], params[1]
    exponent = np.uint32(at8(message, 1)[0])
    bits = exponent << np.uint32(23)
    scale = float_from_bits(np.uint32(0x00400000 if exponent == 0 else 0x7FC00000 if exponent == 255 else bits))
    rebias = np.float32(2.0 ** (127 - bias))
    y = at8(message + 1, n)
    for i in range(n):
        code = np.uint32(y[i])
        sign = (code & np.uint32(0x80)) << np.uint32(24)
        size = (code & np.uint32(0x7F)) << np.uint32(23 - mantissa)
        values[i] = float_from_bits(np.uint32(sign | size)) * rebias * scale

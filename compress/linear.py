"""Block-wise linear quantisation: int8, int6, int5, int4, int3, int2, and what follows from them: qsgd, terngrad."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from . import doors
from .bounds import per_block
from .memory import at16
from .noise import noise
from .packing import pack, packed, unpack
from .rounding import Rounding
from .values import INFINITE, LARGEST, NAN_SCALE, SMALLEST, nearest, norm, peak, scale, scale_near, scale_up

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear(Rounding):
    """Whole multiples of a step, up to L = 2**(width-1) - 1 of them to either side of zero.

    The step of a block is its largest magnitude over L. Zero is exact, and so is the sign; a value is off by at most
    half a step, rounded to nearest, or by one, rounded stochastically, which is unbiased. With ``norm="l2"`` the step
    is the Euclidean norm over L: QSGD, of fixed width. Two bits, rounded stochastically, are TernGrad.

    Message: per block the step in 2 bytes, 9 significant bits, rounded to nearest if values are, else up, so that none
    is cut off; then the codes, packed. A block that holds NaN or infinity decodes to NaN, one with a step below
    2**-126 to zero, and -0 to 0.

    Parameters
    ----------
    width : int
        Bits of a value, 2..8.
    block : int
        Elements that share a step, a power of two.
    rounding : {"nearest", "stochastic", "correlated"}
        See `Rounding`.
    norm : {"max", "l2"}
    seed : int
        Of the stochastic rounding.

    See: Alistarh et al., QSGD, NIPS 2017; Wen et al., TernGrad, NIPS 2017.

    >>> x = np.array([0.1, -0.7, 0.35, 0.0], np.float32)
    >>> message = Linear(width=4).encode(x)
    >>> message
    array([154, 123,   8, 122,   0,   0], dtype=uint8)
    >>> Linear(width=4).decode(message, np.empty(4, np.float32))
    array([ 0.10009766, -0.7006836 ,  0.30029297,  0.        ], dtype=float32)
    """

    width: int = 8
    block: int = 64
    rounding: str = "nearest"
    norm: str = "max"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        doors.whole(self, "width", 2, 8)
        doors.choice(self, "norm", "max", "l2")

    @property
    def idempotent(self) -> bool:
        """Of the largest value the code is L, if it is not chosen at random, so that the step is found again."""
        return self.norm == "max" and not self.random

    @property
    def levels(self) -> int:
        return 2 ** (self.width - 1) - 1

    @property
    def params(self) -> tuple[int, ...]:
        return self.width, int(self.random), int(self.norm == "l2")

    def record(self, n: int) -> int:
        return 2 + packed(self.width, n)

    def errors(self, x: np.ndarray) -> np.ndarray:
        size = per_block(x, self.block, np.max if self.norm == "max" else np.linalg.norm)
        step = size / self.levels * (1 + 2**-8)
        steps = (1.0 if self.random else 0.5) + self.levels * 2**-21
        return np.where(step < 2.0**-125, size, step * steps)


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    width, stochastic, l2 = params[0], params[1], params[2]
    levels = (1 << (width - 1)) - 1
    top = peak(x, n)
    size = norm(x, n, work) if l2 else float_from_bits(top)
    step = size / np.float32(levels)
    most = LARGEST / np.float32(levels)
    bits = scale_up(step, most) if stochastic else scale_near(step, most)
    bits = bits if bits_of_float(step) >= SMALLEST else np.uint32(0)
    bits = NAN_SCALE if top >= INFINITE else bits
    if np.uint32(0) < bits < NAN_SCALE:
        inverse = np.float32(1) / scale(bits)
        if stochastic:
            for i in range(n):
                q = np.int32(nearest(x[i] * inverse + noise(key, i)) - nearest(np.float32(0)))
                codes[i] = np.uint8(min(max(q, np.int32(-levels)), np.int32(levels)) + np.int32(levels))
        else:
            for i in range(n):
                codes[i] = np.uint8(nearest(x[i] * inverse) + np.uint32(levels))
    else:
        for i in range(n):
            codes[i] = np.uint8(levels)
    at16(out, 1)[0] = np.uint16(bits)
    pack(width, words, n, out + 2)


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    width = params[0]
    levels = (1 << (width - 1)) - 1
    step = scale(at16(message, 1)[0])
    unpack(width, message + 2, n, words)
    for i in range(n):
        values[i] = np.float32(np.int32(codes[i]) - np.int32(levels)) * step

"""Small whole numbers, most of them zero, in as few bits as they need."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.elements import CODES

from . import doors
from .bounds import per_block
from .codec import Codec
from .context import Context
from .elias_kernels import LONGEST, reader, write_blocks

__all__ = ["Elias"]


@dataclass(frozen=True)
class Elias(Codec):
    """QSGD as it was published: multiples of the Euclidean norm over so many levels, at random, in Elias' gamma code.

    Zeros cost next to nothing, so that many levels may be had: as many as the square root of the block, for less than
    three bits a value and a variance of at most the square of the block. A block that holds NaN or infinity decodes to
    NaN, one with a step below 2**-126 to zero.

    Message: per block the step in 2 bytes, 9 significant bits rounded up; if that is a finite number above zero, then
    for every value that is not zero how many places it lies behind the one before, its sign and its magnitude in steps,
    and how far the end of the block lies behind the last, unless that is the end. The gamma code of k is floor(log2 k)
    zeros, a one, and the bits of k below its highest; bits fill bytes from the lowest, and blocks begin with a byte.

    Parameters
    ----------
    levels : int
        Up to 127.
    block : int
        Elements that share a norm, a power of two.
    seed : int
        Of the rounding.

    See: Alistarh et al., QSGD, NIPS 2017; Elias, IEEE Transactions on Information Theory 21 (1975).

    >>> x = np.array([0, 3, 0, 0, -4, 0, 0, 0], np.float32)
    >>> message = Elias(levels=5).encode(x)
    >>> message
    array([  0, 127,  98,  39,   4], dtype=uint8)
    >>> Elias(levels=5).decode(message, np.empty(8, np.float32))
    array([ 0.,  3.,  0.,  0., -4.,  0.,  0.,  0.], dtype=float32)
    """

    levels: int = 32
    block: int = 1024
    seed: int = 0

    random = True
    exact_size = False

    def __post_init__(self) -> None:
        doors.whole(self, "levels", 1, 127)
        doors.power_of_two(self, "block", most=LONGEST)
        doors.whole(self, "seed")

    def nbytes(self, n: int) -> int:
        full, rest = divmod(n, self.block)
        return full * self._most(self.block) + (self._most(rest) if rest else 0)

    def _most(self, n: int) -> int:
        """Bytes of a block of n values of the highest level, and one more place."""
        return 2 + (n * (1 + 2 * self.levels.bit_length()) + 2 * n.bit_length() + 7) // 8

    def errors(self, x: np.ndarray) -> np.ndarray:
        size = per_block(x, self.block, np.linalg.norm)
        step = size / self.levels * (1 + 2**-8)
        return np.where(step < 2.0**-125, size, step * (1 + self.levels * 2**-21))

    def _encode(self, x: np.ndarray, out: np.ndarray | None, at: Context) -> np.ndarray:
        with np.errstate(over="ignore"):
            x = doors.values(x).reshape(-1).astype(np.float32, copy=False)
        message = doors.room(out, self.nbytes(x.size))
        place, end = message.ctypes.data, message.ctypes.data + message.size
        return message[: write_blocks(x, self.block, self.levels, self.seed, at.stream, at.offset, place, end)]

    def _decode(self, message: np.ndarray, out: np.ndarray, add: bool) -> np.ndarray:
        message = doors.readable(self, message, out)
        decode: Any = reader(CODES.index(out.dtype), int(add))
        source, target = message.ctypes.data, out.ctypes.data
        if decode.call(target, target, source, message.size, out.size, self.block) != message.size:
            raise ValueError(f"a message of {message.size} bytes does not fit {out.size} of {out.dtype}")
        return out

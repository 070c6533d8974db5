"""No value is off by more than a given bound."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.elements import CODES

from . import doors
from .bounded_kernels import BLOCK, bounded_kernels
from .codec import Codec
from .context import Context

__all__ = ["Bounded"]


@dataclass(frozen=True)
class Bounded(Codec):
    """Multiples of twice the bound, in as many bits as the largest of a block of 32 needs.

    What is decoded is compared when it is encoded: a block in which a value would be off by more than the bound, or is
    not finite, or which would not get shorter, travels as it is, bit for bit. Two ranks must use the same dtype.

    Message: per block the number of bits in a byte, then for each, from the lowest, that bit of all codes in 4 bytes;
    codes are 0, -1, 1, -2, ... as 0, 1, 2, 3, ...; or 255, and the values.

    Parameters
    ----------
    eb : float
        The bound, absolute.

    See: Huang et al., An optimized error-controlled MPI collective framework (C-Coll), 2023.

    >>> x = np.sin(np.arange(32, dtype=np.float32))
    >>> message = Bounded(eb=0.01).encode(x)
    >>> x.nbytes, message.size
    (128, 29)
    >>> x[:4]
    array([0.       , 0.841471 , 0.9092974, 0.14112  ], dtype=float32)
    >>> Bounded(eb=0.01).decode(message, x)[:4]
    array([0.  , 0.84, 0.9 , 0.14], dtype=float32)
    """

    eb: float = 1e-4

    block = BLOCK
    exact_size = False

    def __post_init__(self) -> None:
        doors.positive(self, "eb")

    @property
    def idempotent(self) -> bool:
        return True

    def nbytes(self, n: int) -> int:
        return -(-n // BLOCK) + 8 * n

    def bound(self, x: np.ndarray) -> np.ndarray:
        return np.full(x.shape, float(self.eb))

    def _encode(self, x: np.ndarray, out: np.ndarray | None, at: Context) -> np.ndarray:
        x = doors.values(x)
        message = doors.room(out, self.nbytes(x.size))
        encode: Any = bounded_kernels(CODES.index(x.dtype)).encode.call
        return message[: encode(message.ctypes.data, x.ctypes.data, 0, message.size, x.size, self.eb)]

    def _decode(self, message: np.ndarray, out: np.ndarray, add: bool) -> np.ndarray:
        message = doors.readable(self, message, out)
        kernels = bounded_kernels(CODES.index(out.dtype))
        decode: Any = kernels.add.call if add else kernels.decode.call
        source, target = message.ctypes.data, out.ctypes.data
        if decode(target, target if add else source, source, message.size, out.size, self.eb) != message.size:
            raise ValueError(f"a message of {message.size} bytes does not fit {out.size} of {out.dtype}")
        return out

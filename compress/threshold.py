"""Values above a threshold."""

from dataclasses import dataclass

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context

__all__ = ["Threshold"]


@dataclass(frozen=True)
class Threshold(Codec):
    """Values of at least a magnitude; all others decode to zero. NaN and infinity are sent.

    Message: the indices, ascending, in 4 bytes each, 8 from 2**31 elements on; then the values as float32. Its length
    tells how many there are.

    Parameters
    ----------
    least : float
        The smallest magnitude that is sent.

    See: Strom, Scalable distributed DNN training using commodity GPU cloud computing, Interspeech 2015.

    >>> x = np.array([0.5, -2.0, 1.0, 0.0], np.float32)
    >>> Threshold(least=1).decode(Threshold(least=1).encode(x), np.empty(4, np.float32))
    array([ 0., -2.,  1.,  0.], dtype=float32)
    """

    least: float = 1e-3

    chunkable = False
    exact_size = False

    def __post_init__(self) -> None:
        doors.positive(self, "least")

    @property
    def idempotent(self) -> bool:
        return True

    def nbytes(self, n: int) -> int:
        return n * (4 + _index(n).itemsize)

    def errors(self, x: np.ndarray) -> np.ndarray:
        return np.where(x < self.least, x, 0)

    def encode(self, x: np.ndarray, out: np.ndarray | None = None, at: Context = START) -> np.ndarray:
        with np.errstate(over="ignore"):
            x = doors.values(x).reshape(-1).astype(np.float32)
        chosen = np.flatnonzero(~(np.abs(x) < np.float32(self.least)))
        message = doors.room(out, chosen.size * (4 + _index(x.size).itemsize))
        at_values = chosen.size * _index(x.size).itemsize
        message[:at_values] = chosen.astype(_index(x.size)).view(np.uint8)
        message[at_values:] = x[chosen].view(np.uint8)
        return message

    def decode(self, message: np.ndarray, out: np.ndarray, add: bool = False) -> np.ndarray:
        message = doors.readable(self, message, out)
        if not add:
            out.fill(0)
        index = _index(out.size)
        count = message.size // (4 + index.itemsize)
        chosen = message[: count * index.itemsize].view(index)
        values = message[count * index.itemsize :].view(np.float32)
        # the indices differ from each other
        out.reshape(-1)[chosen] += values.astype(out.dtype)
        return out


def _index(n: int) -> np.dtype:
    return np.dtype(np.uint32 if n < 2**31 else np.uint64)

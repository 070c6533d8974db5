"""Values above a threshold."""

from dataclasses import dataclass

import numpy as np

from . import doors
from .selection import STRIP
from .sparse import Sparse, collect, count, index_of

__all__ = ["Threshold"]


@dataclass(frozen=True)
class Threshold(Sparse):
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

    def __post_init__(self) -> None:
        doors.positive(self, "least")

    def nbytes(self, n: int) -> int:
        return n * (4 + index_of(n).itemsize)

    def errors(self, x: np.ndarray) -> np.ndarray:
        return np.where(x < self.least, x, 0)

    def choose(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        least = np.float32(self.least).view(np.uint32)
        found = count(x, least)
        indices, values = np.empty(found + STRIP, np.int64), np.empty(found + STRIP, np.float32)
        collect(x, least, indices, values)
        return indices[:found], values[:found]

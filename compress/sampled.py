"""The largest values, nearly."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .arrays import FLOAT32
from .selection import STRIP, kept, select
from .sparse import Sparse, collect, index_of

__all__ = ["Sampled"]

#: Values of a sample that are to be above the threshold: so many are rarely off by more than a fifth.
ENOUGH = 200
FEWEST, MOST = 0.8, 1.3
TRIES = 10


@dataclass(frozen=True)
class Sampled(Sparse):
    """The values of largest magnitude, found by the threshold of a sample; all others decode to zero.

    Between 0.8 and 1.3 times the wished number is sent, and never a smaller instead of a larger one. A threshold that
    lets too few through is lowered by a fifth; where too many pass, or ten times too few, the exact choice of `TopK` is
    made. If so few values are not zero at all, they are sent. NaN and infinity are sent first. To be used with error
    feedback, and on a whole tensor.

    Message: the indices, ascending, in 4 bytes each, 8 from 2**31 elements on; then the values as float32. Its length
    tells how many there are.

    Parameters
    ----------
    ratio : float
        Share of the values that is to be sent.

    See: Lin et al., Deep gradient compression, ICLR 2018.

    >>> x = np.array([1, -5, 3, 5, 4, 0], np.float32)
    >>> Sampled(ratio=0.5).decode(Sampled(ratio=0.5).encode(x), np.empty(6, np.float32))
    array([ 0., -5.,  0.,  5.,  4.,  0.], dtype=float32)
    """

    ratio: float = 0.01

    def __post_init__(self) -> None:
        doors.share(self, "ratio")

    def most(self, n: int) -> int:
        """How many of n values are sent at most."""
        return min(n, int(MOST * kept(self.ratio, n)))

    def nbytes(self, n: int) -> int:
        return self.most(n) * (4 + index_of(n).itemsize)

    def errors(self, x: np.ndarray) -> np.ndarray:
        sure, chosen = ceil(FEWEST * kept(self.ratio, x.size)), x.astype(np.float32)
        least = np.partition(chosen, x.size - sure, axis=None)[x.size - sure] if sure else 0.0
        return np.where(chosen > least, 0, x)

    def choose(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        room = self.most(x.size) + STRIP
        indices, values = np.empty(room, np.int64), np.empty(room, np.float32)
        found = self.cut(
            x.size, lambda least: collect(x, least, indices, values), lambda apart, k: _largest(x[::apart], k)
        )
        number = _exact(x, kept(self.ratio, x.size), indices, values) if found is None else found[1]
        return indices[:number], values[:number]

    def cut(
        self, n: int, count: Callable[[np.uint32], int], largest: Callable[[int, int], np.uint32]
    ) -> tuple[np.uint32, int] | None:
        """The least magnitude that is sent, as bits, and how many are; None for the exact choice.

        Parameters
        ----------
        n : int
        count : function of a magnitude
            How many of the n values have at least this one; or more than `most`, where more have.
        largest : function of (apart, k)
            The k-th largest magnitude of values so far apart.
        """
        wished, most, least = kept(self.ratio, n), self.most(n), np.uint32(1)
        found = count(least)
        if found <= most:
            return least, found
        apart = int(n * self.ratio / ENOUGH) | 1
        least = max(largest(apart, kept(self.ratio, -(-n // apart))), least)
        for _ in range(TRIES):
            found = count(least)
            if found >= FEWEST * wished:
                break
            least = (least.view(np.float32) * np.float32(0.8)).view(np.uint32)
        return (least, found) if FEWEST * wished <= found <= most else None


def _largest(x: np.ndarray, k: int) -> np.uint32:
    """The k-th largest magnitude, as bits."""
    sizes = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    return np.partition(sizes, x.size - k)[x.size - k]


@keep
@njit(nogil=True, error_model="numpy")
def _exact(x: Any, k: int, indices: Any, values: Any) -> int:
    select(FLOAT32, x, k, indices, values)
    return k

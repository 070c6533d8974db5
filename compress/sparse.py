"""Codecs that send single values and where they are, as many as there happen to be."""

from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .codec import Codec
from .context import Context
from .values import magnitude

__all__ = ["Sparse", "collect", "count", "index_of"]


class Sparse(Codec):
    """A codec whose message is the indices, ascending, in 4 bytes each, 8 from 2**31 elements on; then the values.

    The length of the message tells how many there are. All other values decode to zero.
    """

    chunkable = False
    exact_size = False

    @property
    def idempotent(self) -> bool:
        return True

    def choose(self, x: np.ndarray) -> np.ndarray:
        """The indices of what is sent of float32 values, ascending, shape (count,)."""
        raise NotImplementedError

    def _encode(self, x: np.ndarray, out: np.ndarray | None, at: Context) -> np.ndarray:
        with np.errstate(over="ignore"):
            x = doors.values(x).reshape(-1).astype(np.float32, copy=False)
        chosen = self.choose(x)
        message = doors.room(out, chosen.size * (4 + chosen.itemsize))
        middle = chosen.size * chosen.itemsize
        message[:middle] = chosen.view(np.uint8)
        message[middle:] = x[chosen].view(np.uint8)
        return message

    def _decode(self, message: np.ndarray, out: np.ndarray, add: bool) -> np.ndarray:
        message = doors.readable(self, message, out)
        index = index_of(out.size)
        found, rest = divmod(message.size, 4 + index.itemsize)
        chosen = message[: found * index.itemsize].view(index)
        if rest or (found and chosen.max() >= out.size):
            raise ValueError(f"a message of {message.size} bytes does not fit {out.size} of {out.dtype}")
        values = message[found * index.itemsize :].view(np.float32)
        if not add:
            out.fill(0)
        # the indices differ from each other
        out.reshape(-1)[chosen] += values.astype(out.dtype)
        return out


def index_of(n: int) -> np.dtype:
    """What holds the indices of so many elements."""
    return np.dtype(np.uint32 if n < 2**31 else np.uint64)


@keep
@njit(nogil=True, error_model="numpy")
def count(x: Any, least: Any, enough: int) -> int:
    """How many float32 values have at least a magnitude, given as bits; where there are more than enough, some do."""
    found = first = 0
    while first < x.size and found <= enough:
        part = x[first : first + 4096]
        for i in range(part.size):
            found += magnitude(part[i]) >= least
        first += 4096
    return found


@keep
@njit(nogil=True, error_model="numpy")
def collect(x: Any, least: Any, chosen: Any) -> None:
    """Write the indices of what `count` counts; `chosen` has room for one more."""
    found = 0
    for i in range(x.size):  # without a branch, which would be guessed wrong
        chosen[found] = i
        found += magnitude(x[i]) >= least

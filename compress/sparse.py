"""Codecs that send single values and where they are, as many as there happen to be."""

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep
from allreduce.execute.elements import CODES, Kernel, compiled

from . import doors
from .arrays import FLOAT32, put, start
from .codec import Codec
from .context import Context
from .memory import at32, at64, floats, inline
from .selection import gather
from .values import magnitude

__all__ = ["WIDE", "Sparse", "collect", "count", "index_at", "index_of", "scatter", "values_at"]

#: From so many elements on an index takes eight bytes.
WIDE = 2**31


class Sparse(Codec):
    """A codec whose message is the indices, ascending, in 4 bytes each, 8 from 2**31 elements on; then the values.

    The length of the message tells how many there are. All other values decode to zero.
    """

    chunkable = False
    exact_size = False
    sparse = True

    @property
    def idempotent(self) -> bool:
        return True

    def choose(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The indices of what is sent of float32 values, ascending, and these values, both of shape (count,)."""
        raise NotImplementedError

    def _encode(self, x: np.ndarray, out: np.ndarray | None, at: Context) -> np.ndarray:
        with np.errstate(over="ignore"):
            x = doors.values(x).reshape(-1).astype(np.float32, copy=False)
        chosen, values = self.choose(x)
        index = index_of(x.size)
        message, middle = doors.room(out, chosen.size * (4 + index.itemsize)), chosen.size * index.itemsize
        message[:middle].view(index)[...] = chosen
        message[middle:].view(np.float32)[...] = values
        return message

    def _decode(self, message: np.ndarray, out: np.ndarray, add: bool) -> np.ndarray:
        message = doors.readable(self, message, out)
        index = index_of(out.size)
        found, rest = divmod(message.size, 4 + index.itemsize)
        chosen = message[: found * index.itemsize].view(index)
        if rest or (found and chosen.max() >= out.size):
            raise ValueError(f"a message of {message.size} bytes does not fit {out.size} of {out.dtype}")
        target = out.ctypes.data
        _decoder(CODES.index(out.dtype), int(add), WIDE).call(target, target, message.ctypes.data, out.size, found)
        return out


def index_of(n: int) -> np.dtype:
    """What holds the indices of so many elements."""
    return np.dtype(np.uint32 if n < WIDE else np.uint64)


@inline
def index_at(message: int, j: int, k: int, short: bool) -> Any:
    """Where value j of k belongs."""
    return np.int64(at32(message, k)[j]) if short else np.int64(at64(message, k)[j])


@inline
def values_at(message: int, k: int, short: bool) -> Any:
    """The k values, which come after the indices."""
    return floats(message + (4 if short else 8) * k, k)


@inline
def scatter(adding: int, code: int, out: int, a: int, message: int, count: int, k: int, short: bool) -> None:
    """Write the k values of a message and zeros, or add them to what is at `a`."""
    y, values = start(adding, code, out, a, count), values_at(message, k, short)
    for j in range(k):
        i = index_at(message, j, k, short)
        if 0 <= i < count:  # a message that was damaged writes nothing elsewhere
            put(code, y, i, values[j])


@cache
def _decoder(code: int, adding: int, wide_from: int) -> Kernel:
    def decode(out: int, a: int, b: int, count: int, found: int) -> None:
        scatter(adding, code, out, a, b, count, found, count < wide_from)

    return compiled(decode)


@keep
@njit(nogil=True, error_model="numpy")
def count(x: Any, least: Any) -> int:
    """How many float32 values have at least a magnitude, given as bits."""
    found = 0
    for i in range(x.size):
        found += magnitude(x[i]) >= least
    return found


@keep
@njit(nogil=True, error_model="numpy")
def collect(x: Any, least: Any, indices: Any, values: Any) -> int:
    """Of these, write indices and values; returns how many, or more than there is room for, less a STRIP."""
    return gather(FLOAT32, x, least, indices, values)

"""Values at places that all ranks know."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from allreduce.execute.elements import CODES, compiled, stored

from . import doors
from .arrays import put, start
from .codec import Codec
from .context import Kernels
from .memory import at32, floats, inline
from .noise import mix, noise_key
from .selection import kept, value
from .values import INFINITE, LARGEST, magnitude

__all__ = ["RandomK"]

RANKS = (1 << 40) - 1  # a stream without its rank


@dataclass(frozen=True)
class RandomK(Codec):
    """One value at random out of each of k nearly equal runs, the same on every rank; all others decode to zero.

    The places are a hash of seed, step and offset, and need not travel. Multiplied by the length of its run, a value
    is right in the mean. Infinity or NaN anywhere in a run makes the value of the run NaN.

    Message: the hash in 4 bytes, then the values as float32.

    Parameters
    ----------
    ratio : float
        Share of the values that is sent, rounded up.
    unbiased : bool
        Multiply; leave it out under error feedback.
    seed : int

    See: Stich et al., Sparsified SGD with memory, NeurIPS 2018.

    >>> x = np.arange(1, 9, dtype=np.float32)
    >>> RandomK(ratio=0.25).decode(RandomK(ratio=0.25).encode(x), np.empty(8, np.float32))
    array([ 4.,  0.,  0.,  0.,  0., 24.,  0.,  0.], dtype=float32)
    """

    ratio: float = 0.01
    unbiased: bool = True
    seed: int = 0

    chunkable = False
    sparse = True
    random = True

    def __post_init__(self) -> None:
        doors.share(self, "ratio")
        doors.choice(self, "unbiased", True, False)
        doors.whole(self, "seed")

    def nbytes(self, n: int) -> int:
        return 4 * (kept(self.ratio, n) + 1) if n else 0

    def errors(self, x: np.ndarray) -> np.ndarray:
        longest = -(-x.size // max(kept(self.ratio, x.size), 1))
        gain = max(longest - 1, 1) + longest * 2**-23 if self.unbiased else 1
        return x * gain + longest * 2.0**-149

    def kernels(self, dtype: Any) -> Kernels:
        params = (float(self.ratio), int(self.unbiased), self.seed)
        return _kernels(params, CODES.index(np.dtype(dtype)))


@inline
def _cut(k: int, count: int) -> Any:
    """The length of a run, rounded down, and what is over of all."""
    return count // max(k, 1), count % max(k, 1)


@inline
def _longer(owed: int, rest: int, k: int) -> Any:
    """Whether the next run is longer by one, for run j ends at (j + 1) * count // k, and what is then owed."""
    longer = np.int64(owed + rest >= k)
    return longer, owed + rest - k * longer


@inline
def _draw(key: Any, j: int, length: int) -> Any:
    """A place in run j."""
    return np.int64(np.uint64(mix(np.uint32(key + np.uint32(j)))) * np.uint64(length) >> np.uint64(32))


@cache
def _kernels(params: tuple[float, int, int], code: int) -> Kernels:
    def encode(out: int, a: int, b: int, count: int, step: int) -> None:
        x, k = stored(code, a, count), kept(params[0], count)
        key = noise_key(params[2], step & RANKS, b)
        if k:
            at32(out, 1)[0] = key
        values, first, owed = floats(out + 4, k), 0, 0
        short, rest = _cut(k, count)
        for j in range(k):
            longer, owed = _longer(owed, rest, k)
            run, worst = x[first : first + short + longer], np.uint32(0)
            for i in range(run.size):
                size = magnitude(value(code, run[i]))
                worst = size if size > worst else worst
            gain = np.float32(run.size) if params[1] else np.float32(1)
            sent = min(max(value(code, run[_draw(key, j, run.size)]) * gain, -LARGEST), LARGEST)
            values[j] = sent if worst < INFINITE else np.float32(np.nan)
            first += run.size

    return Kernels(compiled(encode), _decoder(params, code, 0), _decoder(params, code, 1))


def _decoder(params: tuple[float, int, int], code: int, adding: int) -> Any:
    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        y, k = start(adding, code, out, a, count), kept(params[0], count)
        message = b if adding else a
        values, first, owed = floats(message + 4, k), 0, 0
        key, (short, rest) = at32(message, 1)[0] if k else np.uint32(0), _cut(k, count)
        for j in range(k):
            longer, owed = _longer(owed, rest, k)
            put(code, y, first + _draw(key, j, short + longer), values[j])
            first += short + longer

    return compiled(decode)

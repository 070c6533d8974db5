"""The largest values, and nothing else."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from allreduce.execute.elements import CODES, compiled, narrow, stored, widen

from . import doors
from .arrays import rounded, start
from .codec import Codec
from .context import Kernels
from .memory import at32, at64
from .selection import kept, select
from .sparse import WIDE, index_at, scatter, values_at

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(Codec):
    """The values of largest magnitude, exactly; all others decode to zero.

    Of equal magnitudes the first are taken, so that every rank and device chooses the same. NaN counts as the
    largest and infinity comes next: they are sent. To be used with error feedback, and on a whole tensor: cut into
    parts, the largest of each part are other ones.

    Message: the indices, ascending, in 4 bytes each, 8 from 2**31 elements on; then the values as float32.

    Parameters
    ----------
    ratio : float
        Share of the values that is sent, rounded up.

    See: Aji and Heafield, Sparse communication for distributed gradient descent, EMNLP 2017.

    >>> x = np.array([1, -5, 3, 5, 4, 0], np.float32)
    >>> TopK(ratio=0.5).decode(TopK(ratio=0.5).encode(x), np.empty(6, np.float32))
    array([ 0., -5.,  0.,  5.,  4.,  0.], dtype=float32)
    """

    ratio: float = 0.01

    chunkable = False
    sparse = True

    def __post_init__(self) -> None:
        doors.share(self, "ratio")

    @property
    def idempotent(self) -> bool:
        return True

    def nbytes(self, n: int) -> int:
        return kept(self.ratio, n) * (12 if n >= WIDE else 8)

    def errors(self, x: np.ndarray) -> np.ndarray:
        k, chosen = kept(self.ratio, x.size), x.astype(np.float32)
        least = np.partition(chosen, x.size - k, axis=None)[x.size - k] if k else 0.0
        return np.where(chosen > least, 0, x)

    def kernels(self, dtype: Any) -> Kernels:
        return _kernels(float(self.ratio), WIDE, CODES.index(np.dtype(dtype)))


@cache
def _kernels(ratio: float, wide_from: int, code: int) -> Kernels:
    def encode(out: int, a: int, b: int, count: int, step: int) -> None:
        k, x = kept(ratio, count), stored(code, a, count)
        chosen, values = np.empty(k, np.int64), values_at(out, k, count < wide_from)
        select(code, x, k, chosen, values)
        for j in range(k):
            if count < wide_from:
                at32(out, k)[j] = chosen[j]
            else:
                at64(out, k)[j] = chosen[j]

    def rest(out: int, a: int, b: int, count: int, step: int) -> None:
        k, y = kept(ratio, count), start(1, code, out, a, count)
        values = values_at(b, k, count < wide_from)
        for j in range(k):
            i = index_at(b, j, k, count < wide_from)
            y[i] = narrow(code, widen(code, y[i]) - widen(code, rounded(code, values[j])))

    decoders = _decoder(ratio, wide_from, code, 0), _decoder(ratio, wide_from, code, 1)
    return Kernels(compiled(encode), *decoders, compiled(rest))


def _decoder(ratio: float, wide_from: int, code: int, adding: int) -> Any:
    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        scatter(adding, code, out, a, b if adding else a, count, kept(ratio, count), count < wide_from)

    return compiled(decode)

"""The blocks of largest norm."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from allreduce.execute.elements import CODES, compiled, stored

from . import doors
from .arrays import FLOAT32, put, start
from .codec import Codec
from .context import Kernels
from .memory import at32, floats
from .selection import kept, select, value
from .values import tree_sum

__all__ = ["BlockTopK"]


@dataclass(frozen=True)
class BlockTopK(Codec):
    """The blocks of largest Euclidean norm, whole; all others decode to zero.

    Cheaper than single values: one index for many, and memory is read in runs. Of equal norms the first are taken; a
    block that holds NaN or infinity is among the largest, and they are sent. To be used with error feedback.

    Message: the numbers of the blocks, ascending, in 4 bytes each; then their values as float32, zeros after the end.

    Parameters
    ----------
    ratio : float
        Share of the blocks that is sent, rounded up.
    block : int
        Elements of a block, a power of two.

    See: Fei et al., Efficient sparse collective communication (OmniReduce), SIGCOMM 2021.

    >>> x = np.repeat(np.array([1, 3, 2, 0], np.float32), 8)
    >>> codec = BlockTopK(ratio=0.5, block=8)
    >>> codec.decode(codec.encode(x), np.empty(32, np.float32))[::8]
    array([0., 3., 2., 0.], dtype=float32)
    """

    ratio: float = 0.01
    block: int = 256

    chunkable = False
    sparse = True

    def __post_init__(self) -> None:
        doors.share(self, "ratio")
        doors.power_of_two(self, "block")

    @property
    def idempotent(self) -> bool:
        return True

    def nbytes(self, n: int) -> int:
        return kept(self.ratio, -(-n // self.block)) * 4 * (1 + self.block)

    def errors(self, x: np.ndarray) -> np.ndarray:
        return x

    def kernels(self, dtype: Any) -> Kernels:
        return _kernels(float(self.ratio), self.block, CODES.index(np.dtype(dtype)))


@cache
def _kernels(ratio: float, block: int, code: int) -> Kernels:
    def encode(out: int, a: int, b: int, count: int, step: int) -> None:
        blocks = (count + block - 1) // block
        k = kept(ratio, blocks)
        x = stored(code, a, count)
        norms, squares, chosen = np.empty(blocks, np.float32), np.empty(block, np.float64), np.empty(k, np.int64)
        for number in range(blocks):
            first = number * block
            for i in range(min(block, count - first)):
                size = np.float64(value(code, x[first + i]))
                squares[i] = size * size
            for i in range(count - first, block):
                squares[i] = 0
            norm = np.float32(np.sqrt(tree_sum(squares, block)))
            norms[number] = norm if norm == norm else np.float32(np.nan)  # or the order of NaNs would depend on where
        select(FLOAT32, norms, k, chosen, np.empty(k, np.float32))
        numbers, values = at32(out, k), floats(out + 4 * k, k * block)
        for j in range(k):
            first = chosen[j] * block
            numbers[j] = chosen[j]
            for i in range(block):
                values[j * block + i] = value(code, x[first + i]) if first + i < count else np.float32(0)

    return Kernels(compiled(encode), _decoder(ratio, block, code, 0), _decoder(ratio, block, code, 1))


def _decoder(ratio: float, block: int, code: int, adding: int) -> Any:
    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        k = kept(ratio, (count + block - 1) // block)
        y, message = start(adding, code, out, a, count), b if adding else a
        numbers, values = at32(message, k), floats(message + 4 * k, k * block)
        for j in range(k):
            first = np.int64(numbers[j]) * block
            for i in range(min(block, count - first)):
                put(code, y, first + i, values[j * block + i])

    return compiled(decode)

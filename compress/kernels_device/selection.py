"""How a device finds the values of largest magnitude, and sends them."""

from collections.abc import Callable
from functools import cache

import numpy as np

from allreduce.execute.device_kernels import launcher

from ..selection import DIGITS
from ..topk import WIDE
from .coding import Read
from .text import text_of

__all__ = ["SCRATCH", "Selection", "source_of", "spread", "start"]

#: As in selection.cu.
THREADS, MOST_BLOCKS, BINS = 512, 1024, 2048
TILE = 8 * THREADS
#: Bytes of device memory that a search needs, aligned to 8, and where in them counts begin.
COUNTS = 8 * (2 + BINS)
SCRATCH = COUNTS + 16 * MOST_BLOCKS
#: More than are ever equal.
ALL = 2**62


class Selection:
    """The values of an array on a device that have the largest magnitudes.

    Parameters
    ----------
    dtype : dtype
    a, count : int
        Address and number of the values.
    scratch : int
        The address of SCRATCH bytes, for this search alone until all that it launched has run.
    """

    def __init__(self, dtype: np.dtype, a: int, count: int, scratch: int) -> None:
        self.a, self.count, self.scratch = a, count, scratch
        self.blocks = min(-(-count // TILE), MOST_BLOCKS)
        self.run = launches(dtype)

    @property
    def wide(self) -> bool:
        """An index takes eight bytes."""
        return self.count >= WIDE

    def largest(self, k: int, stride: int = 1) -> None:
        """Look for the least of the k largest magnitudes, of every stride-th value."""
        self.run("begin", 1, self.scratch, 0, k)
        shift = sum(DIGITS)
        for width in DIGITS:
            shift -= width
            self.run("tally", self.blocks, self.scratch, self.a, self.count, stride, shift, width)
            self.run("settle", 1, self.scratch, width)

    def mark_largest(self, k: int) -> None:
        """Look for the k largest magnitudes, and count them."""
        self.largest(k)
        self.mark()

    def at_least(self, bits: int) -> None:
        """Take magnitudes from these bits of a float32 on."""
        self.run("begin", 1, self.scratch, bits, ALL)

    def mark(self) -> None:
        """Count them, block by block."""
        self.run("mark", self.blocks, self.scratch, self.a, self.count)

    def found(self, read: Read) -> int:
        """How many have been marked."""
        return int(np.frombuffer(read(self.scratch + COUNTS, 16 * self.blocks), np.uint64).sum())

    def known(self, read: Read) -> np.uint32:
        """The bits of the least magnitude."""
        return np.uint32(np.frombuffer(read(self.scratch, 8), np.uint64)[0])

    def write(self, out: int, taken: int, wide: bool) -> None:
        """Write the message of so many values: indices, ascending, and values; of equal ones the first are taken."""
        self.run("gather", self.blocks, self.scratch, self.a, self.count, out, taken, int(wide))


@cache
def source_of(dtype: np.dtype) -> str:
    """The text of all kernels of a dtype."""
    return text_of(("arrays", "selection"), dtype, {})


def launches(dtype: np.dtype) -> Callable[..., None]:
    """A function (kernel, blocks, *arguments)."""
    text = source_of(dtype)
    return lambda name, *arguments: launcher(text, name, THREADS)(*arguments)


def start(dtype: np.dtype, out: int, a: int, count: int) -> None:
    """out = the values at a, or zeros if that is 0; nothing is done where out is a."""
    if count and out != a:
        launches(dtype)("start", min(-(-count // TILE), MOST_BLOCKS), out, a, count)


def spread(
    dtype: np.dtype, out: int, a: int, message: int, taken: int, count: int, how: str = "scatter"
) -> None:
    """out = the values at a, or zeros if that is 0, plus those of a message; "take" takes these away."""
    start(dtype, out, a, count)
    if taken:
        blocks = min(-(-taken // THREADS), MOST_BLOCKS)
        launches(dtype)(how, blocks, out, message, taken, count, int(count >= WIDE))

"""Codecs that send single values: how a device finds the largest ones, and writes them down."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from allreduce.execute.device_kernels import launcher
from allreduce.execute.elements import Kernel

from ..selection import DIGITS, kept
from ..topk import WIDE, TopK
from .text import text_of

__all__ = ["SCRATCH", "Selection", "TopKKernels", "source_of", "topk_kernels"]

#: As in selection.cu.
THREADS, MOST_BLOCKS, BINS = 512, 1024, 2048
TILE = 8 * THREADS
#: Bytes of device memory that a search needs, aligned to 8.
SCRATCH = 8 * (2 + BINS + 2 * MOST_BLOCKS)
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
        self.run = partial(_launch, source_of(dtype))

    def largest(self, k: int, stride: int = 1) -> None:
        """Look for the least of the k largest magnitudes, of every stride-th value."""
        self.run("begin", 1, self.scratch, 0, k)
        shift = sum(DIGITS)
        for width in DIGITS:
            shift -= width
            self.run("tally", self.blocks, self.scratch, self.a, self.count, stride, shift, width)
            self.run("settle", 1, self.scratch, width)

    def least(self, bits: int) -> None:
        """Take magnitudes from these bits of a float32 on."""
        self.run("begin", 1, self.scratch, bits, ALL)

    def mark(self) -> None:
        """Count them; `counts` then has, of every block, how many are above the least and how many equal to it."""
        self.run("mark", self.blocks, self.scratch, self.a, self.count)

    @property
    def counts(self) -> tuple[int, tuple[int, int]]:
        """The address and the shape of what `mark` counts, uint64."""
        return self.scratch + 8 * (2 + BINS), (self.blocks, 2)

    def write(self, out: int, taken: int) -> None:
        """Write the message of so many values: indices, ascending, and values; of equal ones the first are taken."""
        self.run("gather", self.blocks, self.scratch, self.a, self.count, out, taken, int(self.count >= WIDE))


class TopKKernels(NamedTuple):
    """The codec `topk` for arrays on a device.

    Attributes
    ----------
    encode : function (out, a, count, scratch)
        out = message of the values at a; scratch is the address of SCRATCH bytes.
    decode, add : Kernel
        As of `Kernels`.
    """

    encode: Any
    decode: Kernel
    add: Kernel


def topk_kernels(codec: TopK, dtype: Any) -> TopKKernels:
    """The kernels of `topk` for a dtype, compiled on first use; messages are aligned to 4 bytes, wide ones to 8."""
    dtype = np.dtype(dtype)
    run = partial(_launch, source_of(dtype))

    def encode(out: int, a: int, count: int, scratch: int) -> None:
        if count:
            selection, k = Selection(dtype, a, count, scratch), kept(codec.ratio, count)
            selection.largest(k)
            selection.mark()
            selection.write(out, k)

    def spread(out: int, a: int, message: int, count: int) -> None:
        if count:
            k = kept(codec.ratio, count)
            if out != a:
                run("start", min(-(-count // TILE), MOST_BLOCKS), out, a, count)
            run("scatter", min(-(-k // THREADS), MOST_BLOCKS), out, message, k, count, int(count >= WIDE))

    return TopKKernels(
        encode,
        Kernel(0, lambda out, a, b, count, step: spread(out, 0, a, count)),
        Kernel(0, lambda out, a, b, count, step: spread(out, a, b, count)),
    )


def source_of(dtype: np.dtype) -> str:
    """The text of all kernels of a dtype."""
    return text_of(("arrays", "selection"), dtype, {})


def _launch(text: str, name: str, blocks: int, *arguments: int) -> None:
    launcher(text, name, THREADS)(blocks, *arguments)

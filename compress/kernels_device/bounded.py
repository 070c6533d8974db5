"""The codec `bounded`, whose records differ in length.

A message that is too long or too short is not found out, as it is on the host: that would mean to wait for the device.
Nothing beside it is read, and nothing beside the values is written.
"""

import numpy as np

from allreduce.execute.device_kernels import launcher

from ..bounded import Bounded
from ..context import Context
from .coding import Coding, Read
from .selection import start
from .text import text_of

__all__ = ["bounded", "source_of"]

#: As in bounded.cu; TILE in values.
THREADS, TILE, PART = 256, 1024, 8192
MOST_BLOCKS = 1024


def bounded(codec: Bounded, dtype: np.dtype) -> Coding:
    """The codec for a dtype, compiled on first use."""
    text, bound = source_of(dtype), int(np.float64(codec.eb).view(np.int64))
    longest = 1 + codec.block * dtype.itemsize

    def run(name: str, blocks: int, *arguments: int) -> None:
        launcher(text, name, THREADS)(blocks, *arguments)

    def encode(out: int, a: int, count: int, at: Context, scratch: int, read: Read) -> int:
        if not count:
            return 0
        blocks = min(-(-count // TILE), MOST_BLOCKS)
        run("measure", blocks, scratch, a, count, bound)
        run("encode", blocks, out, scratch, a, count, bound)
        return int(np.frombuffer(read(scratch, 8 * blocks), np.uint64).sum())

    def decode(out: int, a: int, message: int, nbytes: int, count: int, scratch: int) -> None:
        start(dtype, out, a, count)
        parts = -(-nbytes // PART)
        if count and parts:
            ends = scratch + 16 * parts
            run("follow", parts, ends, message, nbytes)
            run("join", 1, scratch, ends, parts)
            run("spread", parts, out, message, scratch, nbytes, count, bound)

    def scratch(count: int) -> int:
        return max(8 * MOST_BLOCKS, (16 + 4 * longest) * -(-codec.nbytes(count) // PART))

    return Coding(encode, decode, scratch, 16)


def source_of(dtype: np.dtype) -> str:
    """The text of all kernels of a dtype."""
    return text_of(("arrays", "bounded"), dtype, {})

"""The codec `blocktopk`."""

import numpy as np

from allreduce.execute.device_kernels import launcher

from ..blocktopk import BlockTopK
from ..context import Context
from ..selection import kept
from .coding import Coding, Read
from .selection import SCRATCH, Selection, start
from .text import text_of

__all__ = ["blocktopk", "source_of"]

RUN, THREADS = 8, 256


def blocktopk(codec: BlockTopK, dtype: np.dtype) -> Coding:
    """The codec for a dtype, compiled on first use."""
    text, threads = source_of(codec, dtype), max(THREADS, codec.block // RUN)

    def run(name: str, blocks: int, *arguments: int) -> None:
        launcher(text, name, threads)(-(-blocks * codec.block // (RUN * threads)), *arguments)

    def encode(out: int, a: int, count: int, at: Context, scratch: int, read: Read) -> int:
        blocks = -(-count // codec.block)
        if count:
            k, norms = kept(codec.ratio, blocks), scratch + SCRATCH
            run("norms", blocks, norms, a, count)
            selection = Selection(np.dtype(np.float32), norms, blocks, scratch)
            selection.mark_largest(k)
            selection.write(out, k, wide=False)  # numbers, and norms where the values will be
            run("fill", k, out, a, count, k)
        return codec.nbytes(count)

    def decode(out: int, a: int, message: int, nbytes: int, count: int, scratch: int) -> None:
        start(dtype, out, a, count)
        if count:
            k = kept(codec.ratio, -(-count // codec.block))
            run("spread", k, out, message, count, k)

    return Coding(encode, decode, lambda count: SCRATCH + 4 * -(-count // codec.block), 4)


def source_of(codec: BlockTopK, dtype: np.dtype) -> str:
    """The text of all kernels of a codec for a dtype but those of the selection."""
    return text_of(("arrays", "blocktopk"), dtype, {"BLOCK": codec.block})

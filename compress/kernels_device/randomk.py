"""The codec `randomk`."""

import numpy as np

from allreduce.execute.device_kernels import launcher

from ..context import Context
from ..randomk import RandomK
from ..selection import kept
from .coding import Coding, Read
from .selection import start
from .text import text_of

__all__ = ["randomk", "source_of"]

THREADS = 256


def randomk(codec: RandomK, dtype: np.dtype) -> Coding:
    """The codec for a dtype, compiled on first use."""
    text = source_of(codec, dtype)

    def encode(out: int, a: int, count: int, at: Context, scratch: int, read: Read) -> int:
        if count:
            k = kept(codec.ratio, count)
            blocks = -(-k * _lanes(codec) // THREADS)
            launcher(text, "encode", THREADS)(blocks, out, a, at.offset, count, at.stream, k)
        return codec.nbytes(count)

    def decode(out: int, a: int, message: int, nbytes: int, count: int, scratch: int) -> None:
        start(dtype, out, a, count)
        if count:
            k = kept(codec.ratio, count)
            launcher(text, "spread", THREADS)(-(-k // THREADS), out, message, count, k)

    return Coding(encode, decode, lambda count: 0, 4)


def source_of(codec: RandomK, dtype: np.dtype) -> str:
    """The text of all kernels of a codec for a dtype."""
    constants = {"SEED": codec.seed, "CORRELATED": 0, "UNBIASED": int(codec.unbiased), "LANES": _lanes(codec)}
    return text_of(("arrays", "noise", "randomk"), dtype, constants)


def _lanes(codec: RandomK) -> int:
    """Threads that share a run, eight values each: a power of two, in one warp."""
    return min(32, 1 << int(1 / (8 * codec.ratio)).bit_length())

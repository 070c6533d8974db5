"""Codecs that send single values and where they are: topk, threshold and sampled."""

from functools import partial

import numpy as np

from ..context import Context
from ..sampled import Sampled
from ..selection import kept
from ..sparse import index_of
from ..threshold import Threshold
from ..topk import TopK
from .coding import Coding, Read
from .selection import SCRATCH, Selection, spread

__all__ = ["sparse"]


def sparse(codec: TopK | Sampled | Threshold, dtype: np.dtype) -> Coding:
    """A codec whose message is indices and values, compiled on first use."""

    def encode(out: int, a: int, count: int, at: Context, scratch: int, read: Read) -> int:
        if not count:
            return 0
        selection = Selection(dtype, a, count, scratch)
        taken = _mark(selection, codec, read)
        if taken:
            selection.write(out, taken, selection.wide)
        return taken * (4 + index_of(count).itemsize)

    def decode(
        out: int, a: int, message: int, nbytes: int, count: int, scratch: int, how: str = "scatter"
    ) -> None:
        taken, rest = divmod(nbytes, 4 + index_of(count).itemsize)
        if rest:
            raise ValueError(f"a message of {nbytes} bytes does not fit {count} of {dtype}")
        spread(dtype, out, a, message, taken, count, how)

    return Coding(encode, decode, lambda count: SCRATCH, 8, partial(decode, how="take"))


def _mark(selection: Selection, codec: TopK | Sampled | Threshold, read: Read) -> int:
    """Mark the values that a codec sends; how many there are."""

    def reach(least: np.uint32) -> int:
        selection.at_least(int(least))
        selection.mark()
        return selection.found(read)

    def largest(apart: int, k: int) -> np.uint32:
        selection.largest(k, apart)
        return selection.known(read)

    if isinstance(codec, Threshold):
        return reach(np.float32(codec.least).view(np.uint32))
    cut = codec.cut(selection.count, reach, largest) if isinstance(codec, Sampled) else None
    if cut:
        return cut[1]
    k = kept(codec.ratio, selection.count)
    selection.mark_largest(k)
    return k

"""Codecs that send single values and where they are: topk, threshold and sampled.

Messages are aligned to 4 bytes, those of 2**31 elements and more to 8. `scratch` is the address of SCRATCH bytes, for
one call at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from allreduce.execute.elements import Kernel

from ..sampled import Sampled
from ..selection import kept
from ..sparse import index_of
from ..threshold import Threshold
from ..topk import TopK
from .selection import Read, Selection, spread

__all__ = ["TopKKernels", "encode", "topk_kernels"]


class TopKKernels(NamedTuple):
    """The codec `topk` for arrays on a device.

    Attributes
    ----------
    encode : function (out, a, count, scratch)
        out = message of the values at a.
    decode, add : Kernel
        As of `Kernels`.
    """

    encode: Callable[[int, int, int, int], None]
    decode: Kernel
    add: Kernel


def topk_kernels(codec: TopK, dtype: Any) -> TopKKernels:
    """The kernels of `topk` for a dtype, compiled on first use."""
    dtype = np.dtype(dtype)

    def encode(out: int, a: int, count: int, scratch: int) -> None:
        if count:
            selection = Selection(dtype, a, count, scratch)
            selection.write(out, _mark_largest(selection, codec))

    def add(out: int, a: int, message: int, count: int, step: int) -> None:
        spread(dtype, out, a, message, kept(codec.ratio, count), count)

    return TopKKernels(encode, Kernel(0, lambda out, a, b, count, step: add(out, 0, a, count, step)), Kernel(0, add))


def encode(codec: Sampled | Threshold, dtype: Any, out: int, a: int, count: int, scratch: int, read: Read) -> int:
    """out = message of the values at a; its length in bytes. The device is waited for."""
    if not count:
        return 0
    selection = Selection(np.dtype(dtype), a, count, scratch)

    def reach(least: np.uint32) -> int:
        selection.at_least(int(least))
        selection.mark()
        return selection.found(read)

    def largest(apart: int, k: int) -> np.uint32:
        selection.largest(k, apart)
        return selection.known(read)

    if isinstance(codec, Threshold):
        taken = reach(np.float32(codec.least).view(np.uint32))
    else:
        cut = codec.cut(count, reach, largest)
        taken = cut[1] if cut else _mark_largest(selection, codec)
    if taken:
        selection.write(out, taken)
    return taken * (4 + index_of(count).itemsize)


def _mark_largest(selection: Selection, codec: TopK | Sampled) -> int:
    k = kept(codec.ratio, selection.count)
    selection.largest(k)
    selection.mark()
    return k

"""Error feedback on a device: residuals stay there, and what is sent is what the host would send."""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from allreduce.execute.cuda import cuda
from allreduce.execute.device_arrays import OnDevice
from allreduce.execute.device_kernels import launcher, name_of
from allreduce.execute.device_memory import lasting, rooms

from ..context import Context
from ..method import AllReduce, Method, working
from ..warmup import warmed
from .text import text_of

__all__ = ["error_feedback", "source_of"]

#: As in feedback.cu.
THREADS, TILE = 256, 2048
Arrays = dict[str, OnDevice]


def error_feedback(
    method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context, prefer: str = "auto"
) -> None:
    """As `feedback.reduce_with`, of one tensor, or of several as one vector.

    Nothing is waited for to learn what is finite: residuals are copied where it is, and need no second array each.
    """
    like, many = next(iter(tensors.values())), len(tensors)
    dtype, count = working(like), sum(x.size for x in tensors.values())
    facts = rows(tensors.values(), [residual(method, key, x, dtype) for key, x in tensors.items()], outs.values())
    tiles = sum(-(-x.size // TILE) for x in tensors.values())
    vector = (count,), dtype
    with rooms(vector, vector, (facts.shape, np.int64), ((many,), np.uint64)) as (values, total, table, odd):
        cuda().upload(table.ctypes.data, facts)
        odd.fill(0)

        def run(name: str, *arguments: Any) -> None:
            addresses = [x.ctypes.data if isinstance(x, OnDevice) else x for x in arguments]
            if tiles:
                launcher(source_of(like.dtype), name, THREADS)(tiles, *addresses)

        run("wanted", values, table, many)
        if many == 1 and like.dtype == dtype:
            total = next(iter(outs.values()))
        codec = warmed(method.codec, method.warmup, at.step)
        allreduce(values, codec=codec, out=total, lost=True, prefer=prefer)
        run("finish", total, values, odd, table, many, int(at.rank == 0))
        run("keep", values, odd, table, many)


def residual(method: Method, key: str, x: OnDevice, dtype: np.dtype) -> OnDevice:
    """What of a tensor was lost on this rank; it is brought to the device if it is not there."""
    kept = method.recall(key, "residual", x.shape)
    if not isinstance(kept, OnDevice) or kept.dtype != dtype:
        before = np.full(x.shape, -0.0) if kept is None else kept.copy()  # plus -0.0 all numbers are as they were
        kept = lasting(before.astype(dtype))
        method.memory.setdefault(key, {})["residual"] = kept
    return kept


def rows(tensors: Iterable[OnDevice], residuals: Iterable[OnDevice], outs: Iterable[OnDevice]) -> np.ndarray:
    """What kernels are told of tensors, shape (tensors, 6), int64."""
    sizes = [x.size for x in tensors]
    firsts = accumulate(sizes, initial=0)
    tiles = accumulate((-(-size // TILE) for size in sizes), initial=0)
    places = ([array.ctypes.data for array in arrays] for arrays in (tensors, residuals, outs))
    return np.array([*zip(*places, firsts, sizes, tiles)], np.int64)


def source_of(dtype: np.dtype) -> str:
    """The text of all kernels of a dtype."""
    return text_of(("arrays", "feedback"), dtype, {"W": name_of(working(np.empty(0, dtype)))})

"""What is remembered of tensors on a device, and how kernels are told of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from allreduce.execute.cuda import cuda
from allreduce.execute.device_arrays import OnDevice
from allreduce.execute.device_kernels import launcher, name_of
from allreduce.execute.device_memory import lasting, rooms

from ..method import Method, working
from .text import text_of

__all__ = ["Arrays", "kept", "remembering", "rows", "source_of", "tiles_of"]

#: As in memory.cu.
THREADS, TILE = 256, 2048
#: By the keys of tensors.
Arrays = dict[str, OnDevice]
Arrayed = Sequence[np.ndarray]


class Remembering(NamedTuple):
    """What runs on tensors.

    Attributes
    ----------
    run : function (kernel, *arguments)
        Arguments are arrays and numbers; the kernel is told of the tensors, and then of `last`.
    odd : OnDevice
        A number for each tensor, 0 if what is to be remembered is finite.
    """

    run: Callable[..., None]
    odd: OnDevice


@contextmanager
def remembering(family: str, tensors: Arrayed, memory: Arrayed, outs: Arrayed) -> Iterator[Remembering]:
    """The kernels of a family of methods, for tensors of one dtype, what is remembered of them, and their results."""
    facts, text, many = rows(tensors, memory, outs), source_of(family, tensors[0].dtype), len(tensors)
    tiles = tiles_of(facts)
    with rooms((facts.shape, np.int64), ((many,), np.uint64)) as (table, odd):
        cuda().upload(table.ctypes.data, facts)
        odd.fill(0)

        def run(kernel: str, *arguments: Any, last: tuple[int, ...] = ()) -> None:
            addresses = [x.ctypes.data if isinstance(x, OnDevice) else x for x in arguments]
            if tiles:
                launcher(text, kernel, THREADS)(tiles, *addresses, table.ctypes.data, many, *last)

        yield Remembering(run, odd)


def rows(tensors: Arrayed, memory: Arrayed, outs: Arrayed) -> np.ndarray:
    """What kernels are told of tensors, shape (tensors, 6), int64; as `Tensor` in memory.cu."""
    sizes = [x.size for x in tensors]
    tiles = accumulate((-(-size // TILE) for size in sizes), initial=0)
    places = [[array.ctypes.data for array in arrays] for arrays in (tensors, memory, outs)]
    return np.array([*zip(*places, accumulate(sizes, initial=0), sizes, tiles)], np.int64)


def tiles_of(facts: np.ndarray) -> int:
    """Of all tensors."""
    *_, count, tile = facts[-1].tolist()
    return tile + -(-count // TILE)


def kept(method: Method, key: str, part: str, x: OnDevice) -> OnDevice:
    """As `Method.kept`; it is brought to the device if it is not there."""
    found, dtype = method.recall(key, part, x.shape), working(x)
    if not isinstance(found, OnDevice) or found.dtype != dtype:
        before = np.full(x.shape, method.by_value[part]) if found is None else found.copy()
        found = lasting(before.astype(dtype))
        method.memory.setdefault(key, {})[part] = found
    return found


@cache
def source_of(family: str, dtype: np.dtype) -> str:
    """The text of all kernels of a family for a dtype."""
    return text_of(("arrays", "memory", family), dtype, {"W": name_of(working(np.empty(0, dtype)))})

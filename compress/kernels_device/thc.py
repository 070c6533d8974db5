"""The method `thc`: what is done before and after its all-reduces, with the same bits."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from allreduce.execute.device_arrays import OnDevice
from allreduce.execute.device_kernels import name_of
from allreduce.execute.device_memory import rooms

from ..context import Context
from ..method import AllReduce
from ..thc import THC, holding
from .blocks import RUN, THREADS, over_runs
from .text import text_of

__all__ = ["ThcKernels", "in_steps", "source_of", "thc_kernels"]


class ThcKernels(NamedTuple):
    """The method `thc` for arrays on a device; addresses are those of device memory.

    Attributes
    ----------
    codes : dtype
        Whole numbers that hold the largest sum.
    peaks : function (out, a, count)
        out = the largest magnitudes of the blocks of the values at a, float32; to be maximised over the ranks.
    quantise : function (out, a, peaks, index, count, stream)
        out = codes of the values at a, whose first has this global index; to be summed over the ranks.
    restore : function (out, sums, peaks, count)
        out = the values of sums of codes.
    """

    codes: np.dtype
    peaks: Callable[..., None]
    quantise: Callable[..., None]
    restore: Callable[..., None]


def in_steps(
    method: THC, tensors: dict[str, OnDevice], outs: dict[str, OnDevice], allreduce: AllReduce, at: Context
) -> None:
    """As `THC.reduce`, of one tensor after the other."""
    for key, x in tensors.items():
        kernels, place = thc_kernels(method, x.dtype, at.size), (x.ctypes.data, outs[key].ctypes.data)
        blocks = -(-x.size // method.block)
        with rooms(((blocks,), np.float32), ((x.size,), kernels.codes)) as (peaks, codes):
            steps, sums = peaks.ctypes.data, codes.ctypes.data
            kernels.peaks(steps, place[0], x.size)
            allreduce(peaks, op="max")
            kernels.quantise(sums, place[0], steps, at.offset, x.size, at.stream)
            allreduce(codes)
            kernels.restore(place[1], sums, steps, x.size)


def thc_kernels(method: THC, dtype: Any, size: int) -> ThcKernels:
    """The kernels of `thc` for a dtype and a number of ranks, compiled on first use."""
    codes = holding(method.levels * size)
    text, threads = source_of(method, np.dtype(dtype), codes), max(THREADS, method.block // RUN)

    run = partial(over_runs, text, threads)
    return ThcKernels(codes, run("peaks", -1), run("quantise", -2), run("restore", -1))


def source_of(method: THC, dtype: np.dtype, codes: np.dtype) -> str:
    """The text of all kernels of a method for a dtype."""
    constants = {
        "BLOCK": method.block, "SEED": method.seed, "CORRELATED": int(method.rounding == "correlated"),
        "LEVELS": method.levels, "Code": name_of(codes),
    }  # fmt: skip
    return text_of(("arrays", "noise", "values", "thc"), dtype, constants)

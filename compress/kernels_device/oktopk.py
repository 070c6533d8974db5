"""Ok-Topk on a device: error feedback of what is dealt out to regions."""

from typing import Any

import numpy as np

from allreduce.execute.device_arrays import OnDevice
from allreduce.execute.device_kernels import launcher
from allreduce.execute.device_memory import rooms

from ..context import Context
from ..method import AllReduce
from ..oktopk import regions_of
from .feedback import error_feedback
from .memory import Arrays
from .text import text_of

__all__ = ["in_regions", "source_of"]

THREADS = 256


def in_regions(method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """As `OkTopK.reduce`."""

    def dealt(x: Any, *, out: Any = None, lost: Any = None, **wishes: Any) -> Any:
        shape = regions_of(x.size, at.size)[:2]
        with rooms((shape, x.dtype), (shape, x.dtype)) as (regions, total):
            run("deal", regions, x, x.size)
            allreduce(regions, out=total, lost=regions, **wishes)
            run("collect", lost, regions, x.size)
            run("collect", out, total, x.size)
        return out

    def run(kernel: str, to: OnDevice, from_: OnDevice, count: int) -> None:
        size, length, near = regions_of(count, at.size)
        if count:
            launch = launcher(source_of(to.dtype), kernel, THREADS)
            launch(-(-length * size // THREADS), to.ctypes.data, from_.ctypes.data, count, size, length, near)

    error_feedback(method, tensors, outs, dealt, at, "direct")


def source_of(dtype: np.dtype) -> str:
    """The text of all kernels of a dtype."""
    return text_of(("noise", "oktopk"), dtype, {"SEED": 0, "CORRELATED": 0})

"""DGC on a device: velocities and what is not sent yet stay there."""

from typing import Any

import numpy as np

from allreduce.execute.device_memory import rooms

from ..context import Context
from ..method import AllReduce, working
from ..warmup import warmed
from .memory import Arrays, kept, remembering
from .once import once

__all__ = ["in_momentum"]


def in_momentum(method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """As `DGC.reduce`, of one tensor after the other."""
    codec, momentum = warmed(method.codec, method.warmup, at.step), int(np.float64(method.momentum).view(np.int64))
    for key, x in tensors.items():
        states, result = [kept(method, key, part, x, 0.0) for part in ("velocity", "residual")], outs[key]
        with (
            rooms(((2, x.size), working(x))) as (vector,),
            remembering("dgc", [x, x], states, [result, result]) as on,
        ):
            on.run("push", vector, last=(momentum,))
            once(codec, vector[1], result, at)
            on.run("stop", vector, on.odd)
            allreduce(result, codec=codec)
            on.run("keep", vector, on.odd)

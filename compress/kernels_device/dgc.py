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
    """As `DGC.reduce`, of several tensors as one."""
    codec, momentum = warmed(method.codec, method.warmup, at.step), int(np.float64(method.momentum).view(np.int64))
    xs, results, count = 2 * list(tensors.values()), 2 * list(outs.values()), sum(x.size for x in tensors.values())
    states = [kept(method, key, part, x) for part in method.by_value for key, x in tensors.items()]
    with (
        rooms(((2, count), working(xs[0])), ((count,), xs[0].dtype)) as (vector, sent),
        remembering("dgc", xs, states, results) as on,
    ):
        on.run("push", vector, last=(momentum,))
        once(codec, vector[1], sent, at)
        on.run("stop", vector, sent, on.odd)
        allreduce(sent, codec=codec)
        on.run("share", sent)
        on.run("keep", vector, on.odd)

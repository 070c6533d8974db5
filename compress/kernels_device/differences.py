"""EF21 and DIANA on a device: states stay there."""

from typing import Any

import numpy as np

from allreduce.execute.device_memory import rooms

from ..context import Context
from ..method import AllReduce, working
from .memory import Arrays, kept, remembering

__all__ = ["differences"]


def differences(method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """As `Differences.reduce`, of several tensors as one."""
    alpha, count = int(np.float64(method.alpha).view(np.int64)), sum(x.size for x in tensors.values())
    xs, results = 2 * list(tensors.values()), 2 * list(outs.values())
    states = [kept(method, key, part, x) for part in method.by_value for key, x in tensors.items()]
    with (
        rooms(((2, count), working(xs[0]))) as (vector,),
        remembering("differences", xs, states, results) as on,
    ):
        on.run("apart", vector)
        allreduce(vector[0], codec=method.codec, out=vector[1], lost=vector[0])
        on.run("go_on", vector, on.odd, last=(alpha,))
        on.run("keep", vector, on.odd)

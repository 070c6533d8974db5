"""EF21 and DIANA on a device: states stay there."""

from typing import Any

import numpy as np

from allreduce.execute.device_memory import rooms

from ..context import Context
from ..method import AllReduce, working
from .memory import Arrays, kept, remembering

__all__ = ["differences"]


def differences(method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """As `Differences.reduce`, of one tensor after the other."""
    alpha = int(np.float64(method.alpha).view(np.int64))
    for key, x in tensors.items():
        states, result = [kept(method, key, part, x, 0.0) for part in ("own", "total")], outs[key]
        with (
            rooms(((2, x.size), working(x))) as (vector,),
            remembering("differences", [x, x], states, [result, result]) as on,
        ):
            on.run("apart", vector)
            allreduce(vector[0], codec=method.codec, out=vector[1], lost=vector[0])
            on.run("go_on", vector, on.odd, last=(alpha,))
            on.run("keep", vector, on.odd)

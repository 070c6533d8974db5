"""Error feedback on a device: residuals stay there, and what is sent is what the host would send."""

from typing import Any

from allreduce.execute.device_memory import rooms

from ..context import Context
from ..method import AllReduce, working
from ..warmup import warmed
from .memory import Arrays, kept, remembering

__all__ = ["error_feedback", "up_a_tree"]


def error_feedback(
    method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context, prefer: str = "auto"
) -> None:
    """As `feedback.reduce_with`, of several tensors as one.

    Nothing is waited for to learn what is finite: residuals are copied where it is, and need no second array each.
    """
    xs, results = list(tensors.values()), list(outs.values())
    vector = (sum(x.size for x in xs),), working(xs[0])
    residuals = [kept(method, key, "residual", x) for key, x in tensors.items()]
    codec = warmed(method.codec, method.warmup, at.step)
    with rooms(vector, vector) as (values, total), remembering("feedback", xs, residuals, results) as on:
        on.run("wanted", values)
        if len(results) == 1 and xs[0].dtype == values.dtype:
            total = results[0]
        allreduce(values, codec=codec, out=total, lost=values, prefer=prefer)
        on.run("finish", total, values, on.odd, last=(int(at.rank == 0),))
        on.run("keep", values, on.odd)


def up_a_tree(method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """As `GTopK.reduce`."""
    error_feedback(method, tensors, outs, allreduce, at, "binomial_tree")

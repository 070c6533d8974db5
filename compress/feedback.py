"""Error feedback: what a codec loses is added to the next gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, working
from .vectors import fitting
from .warmup import check, warmed

__all__ = ["ErrorFeedback", "reduce_with"]


@dataclass
class ErrorFeedback(Method):
    """Sum gradients plus residuals; what any hop loses is the next residual of the rank that encodes there.

    Over time nothing is lost: all results, plus the residuals of all ranks, are the sum of all gradients, whatever the
    schedule. The losses of later hops, on partial and finished sums, count as much as those of the first, and some
    ranks have no others: without them `topk` on a ring does not converge. A step in which what this rank loses is not
    finite leaves its residual as it was.

    Parameters
    ----------
    codec : Codec
    warmup : int
        Steps in which a codec with a ratio sends more, see `warmup.warmed`.

    See: Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Stich et al., NeurIPS 2018.

    >>> from compress import get
    >>> from compress.simulate import run
    >>> ranks = np.array([[4, 3, 2, 1], [0, 0, 0, 9]], np.float32)
    >>> def work(rank, allreduce):
    ...     method = get("feedback(topk:ratio=0.25)")
    ...     return [(method.reduce(ranks[rank], allreduce, "weight"), method.residual("weight")) for step in range(3)]
    >>> for result, residual in run(2, work)[0]:
    ...     print(result, residual)
    [4. 0. 0. 9.] [0. 3. 2. 1.]
    [0. 6. 0. 9.] [4. 0. 4. 2.]
    [8. 0. 0. 9.] [0. 3. 6. 3.]
    """

    codec: Codec
    warmup: int = 0
    by_value: ClassVar = {"residual": -0.0}  # which no sum feels

    def __post_init__(self) -> None:
        doors.whole(self, "warmup")
        check_codec(self)
        check(self.codec, self.warmup)
        doors.shrinking(self.codec)

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        return reduce_with(self, warmed(self.codec, self.warmup, at.step), x, allreduce, key, at, out)

    def residual(self, key: str) -> np.ndarray:
        """What of a tensor was lost on this rank, and is still to be sent."""
        return self.memory[key]["residual"].copy()


def reduce_with(
    method: Any,
    codec: Codec,
    x: np.ndarray,
    allreduce: Callable[..., np.ndarray],
    key: str,
    at: Context,
    out: np.ndarray | None = None,
    prefer: str = "auto",
) -> np.ndarray:
    """The sum of x plus the residual of a tensor; what this rank loses at any hop is the next residual.

    If the sum is rounded to half precision, rank 0 answers for that.
    """
    before, lost = method.kept(key, "residual", x), method.room(key, "residual", x.shape, working(x))
    values = x if x.dtype == lost.dtype and x.flags.c_contiguous else lost
    if values is lost:
        np.copyto(lost, x)
    out = fitting(out, x.shape, lost.dtype)
    total = allreduce(values, codec=codec, out=out, lost=lost, residual=before, prefer=prefer)
    result = total.astype(x.dtype, copy=False)
    if result.dtype != total.dtype and at.rank == 0:
        lost += total - result
    method.turn(key, residual=lost)
    return result

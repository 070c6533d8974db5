"""Error feedback: what a codec loses is added to the next gradient."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, parts_of, working
from .rooms import Rooms
from .warmup import check, warmed

__all__ = ["ErrorFeedback", "reduce_with", "wanted"]


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
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)
    spare: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)
    rooms: Rooms = field(default_factory=Rooms, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        doors.whole(self, "warmup")
        check_codec(self)
        check(self.codec, self.warmup)
        doors.shrinking(self.codec)

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        return reduce_with(self, warmed(self.codec, self.warmup, at.step), x, allreduce, key, at, out)

    def reduce_together(
        self, tensors: dict[str, np.ndarray], allreduce: AllReduce, at: Context = START
    ) -> dict[str, np.ndarray]:
        """As one tensor: in one all-reduce, with one choice of the largest."""
        codec = warmed(self.codec, self.warmup, at.step)
        values, spare, out = self.rooms.take(tensors)
        parts = parts_of(values, tensors)
        for key, x in tensors.items():
            wanted(self, x, key, parts[key])
        total = parts_of(allreduce(values, codec=codec, out=out, lost=values), tensors)
        results = {key: total[key].astype(x.dtype, copy=False) for key, x in tensors.items()}
        for key, part in parts.items():
            if results[key].dtype != part.dtype and at.rank == 0:
                part += total[key] - results[key]
        if all([self.remember(key, residual=part) for key, part in parts.items()]):
            self.rooms.put(tensors, spare, values, out)
        return results

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

    The residual before and that after lie in two arrays, used in turn: `method.spare` has the other one, by key.
    If the sum is rounded to half precision, rank 0 answers for that.
    """
    before, lost = method.recall(key, "residual", x.shape), room(method.spare.pop(key, None), x.shape, working(x))
    before = np.full_like(lost, -0.0) if before is None else before.astype(lost.dtype, "C", copy=False)
    values = x if x.dtype == lost.dtype and x.flags.c_contiguous else lost
    if values is lost:
        np.copyto(lost, x)
    out = room(out, x.shape, lost.dtype)
    total = allreduce(values, codec=codec, out=out, lost=lost, residual=before, prefer=prefer)
    result = total.astype(x.dtype, copy=False)
    if result.dtype != total.dtype and at.rank == 0:
        lost += total - result
    method.spare[key] = before if method.remember(key, residual=lost) else lost
    return result


def wanted(method: Method, x: np.ndarray, key: str, out: np.ndarray | None = None) -> np.ndarray:
    """x plus the residual of a tensor."""
    residual = method.recall(key, "residual", x.shape)
    return np.add(x, -0.0 if residual is None else residual, out=room(out, x.shape, working(x)))


def room(array: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that is in order, or else a new one."""
    good = array is not None and array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
    return array if array is not None and good else np.empty(shape, dtype)

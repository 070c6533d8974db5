"""The largest values of regions that all ranks share out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from .codec import START
from .context import Context
from .feedback import reduce_with
from .method import AllReduce
from .noise import mix
from .sparsified import Sparsified
from .warmup import warmed

__all__ = ["OkTopK", "deal", "regions_of"]

#: Values that stay together, where each region gets so many such runs.
RUN, MANY = 16, 64


@dataclass
class OkTopK(Sparsified):
    """A sparse reduce-scatter and a sparse all-gather over regions of equal weight: 2 k (p - 1) / p values are sent.

    A region belongs to a rank, as in Ok-Topk. But it is no part of the tensor whose ends must follow where the large
    values are: every p neighbours (of a large tensor, runs of 16 values) are dealt out at random, the same on all
    ranks, one to each region. So regions are balanced, and in each the k / p largest values go to its owner, and the
    k / p largest of the sums to all, without thresholds that must be estimated, or messages to agree. The number of
    values sent is a constant, a third below Ok-Topk's bound of 3 k (p - 1) / p (6 with their indices); rounded up in
    each region. What is left out, of values or of sums, is the next residual of the rank that leaves it out. A step
    that is not finite leaves it as it was.

    Parameters
    ----------
    ratio : float
        Share of the values that is sent, rounded up.
    warmup : int
        Steps in which more is sent, see `warmup.warmed`.

    See: Li and Hoefler, Near-optimal sparse allreduce for distributed deep learning, PPoPP 2022.

    >>> from compress.simulate import run
    >>> ranks = np.array([[4, 1, 5, 3], [1, 9, -5, 3]], np.float32)
    >>> def work(rank, allreduce):
    ...     return OkTopK(ratio=0.5).reduce(ranks[rank], allreduce, "weight", Context(rank=rank, size=2))
    >>> run(2, work)[0]
    array([4., 9., 0., 0.], dtype=float32)
    """

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        def in_regions(
            x: np.ndarray, out: np.ndarray, lost: np.ndarray, residual: np.ndarray, **wishes: Any
        ) -> np.ndarray:
            *shape, run = regions_of(x.size, at.size)
            regions, total = (self.room(key, part, tuple(shape), x.dtype) for part in ("regions", "totals"))
            regions[:, -run:] = 0  # some of which may stay empty
            deal(np.add(x, residual, out=lost).reshape(-1), regions, run, back=False)
            total = allreduce(regions, out=total, lost=regions, **wishes)
            deal(lost.reshape(-1), regions, run, back=True)
            deal(out.reshape(-1), total, run, back=True)
            self.spare.setdefault(key, {}).update(regions=regions, totals=total)
            return out

        codec = warmed(self.codec, self.warmup, at.step)
        return reduce_with(self, codec, x, in_regions, key, at, out, prefer="direct")


def regions_of(count: int, size: int) -> tuple[int, int, int]:
    """How many regions there are; how long each is; and how long a run of neighbours that stay together."""
    run = RUN if count >= MANY * RUN * size else 1
    return size, -(-count // (run * size)) * run, run


@keep
@njit(nogil=True, error_model="numpy")
def deal(x: Any, regions: Any, run: int, back: bool) -> None:
    """Give each p neighbouring runs, turned by a random number, to p regions; or take them back."""
    size, length = regions.shape
    for i in range(length // run):
        region = np.int64(mix(np.uint32(i)) % np.uint32(size))
        for j in range(size):
            mine, theirs = x[(i * size + j) * run :][:run], regions[region, i * run :]
            for k in range(mine.size):
                if back:
                    mine[k] = theirs[k]
                else:
                    theirs[k] = mine[k]
            region = region + 1 if region < size - 1 else 0

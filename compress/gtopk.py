"""The largest values of the sum, chosen again at every merge."""

from dataclasses import dataclass

import numpy as np

from .codec import START
from .context import Context
from .feedback import reduce_with
from .method import AllReduce
from .sparsified import Sparsified
from .warmup import warmed

__all__ = ["GTopK"]


@dataclass
class GTopK(Sparsified):
    """The top-k of the sum, nearly: sums go up a tree, and k values of each go on.

    A message has k values, however many ranks are below: k log2(p) of them on the way up and as many down. What is
    left out at a merge is the next residual of the rank that merges, so no mass is lost, as it is where each rank
    looks which of its own values are in the result: a value may be there from others only. A rank that merges adds
    all its own values, not only its own k largest. A step that is not finite leaves the residual as it was.

    Any algorithm but a tree will do, too: then every message has its share of each block that is in it.

    Parameters
    ----------
    ratio : float
        Share of the values that is sent, rounded up.
    warmup : int
        Steps in which more is sent, see `warmup.warmed`.

    See: Shi et al., A distributed synchronous SGD algorithm with global top-k sparsification, ICDCS 2019.

    >>> from compress.simulate import run
    >>> ranks = np.array([[4, 1, 5, 3], [1, 9, -5, 3]], np.float32)
    >>> def work(rank, allreduce):
    ...     method = GTopK(ratio=0.5)
    ...     return method.reduce(ranks[rank], allreduce, "weight"), method.memory["weight"]["residual"]
    >>> for result, residual in run(2, work):
    ...     print(result, residual)
    [ 4. 10.  0.  0.] [0. 0. 0. 3.]
    [ 4. 10.  0.  0.] [1. 0. 0. 3.]
    """

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        codec = warmed(self.codec, self.warmup, at.step)
        return reduce_with(self, codec, x, allreduce, key, at, out, prefer="binomial_tree")

"""Low rank: two thin matrices instead of a wide one."""

from dataclasses import dataclass, field

import numpy as np

from . import doors
from .codec import START
from .context import Context
from .method import AllReduce, Method, working

__all__ = ["PowerSGD"]


@dataclass
class PowerSGD(Method):
    """One step of power iteration, from where the last one ended, with error feedback.

    With M the gradient plus residual, as a matrix: P = sum of M Q, orthonormalised; Q = sum of M^T P; the result is
    P Q^T. Both sums are linear, so any all-reduce will do; a sum of at most that rank is exact. All ranks get the same
    bits if their processors are of one kind, for LAPACK's results depend on it. Each rank keeps what its own projection
    lost, M - P (M^T P)^T. A tensor that is not larger than both factors is summed as it is.

    Parameters
    ----------
    rank : int
        Columns of the factors.
    seed : int
        Of the first Q, the same on all ranks.

    See: Vogels et al., PowerSGD, NeurIPS 2019.

    >>> method = PowerSGD(rank=1)
    >>> alone = lambda x, op="sum", codec=None: x
    >>> print(method.reduce(np.outer([1, 2, 3], [1, 0, -1, 2]).astype(np.float32), alone, "weight").round(3))
    [[ 1.  0. -1.  2.]
     [ 2.  0. -2.  4.]
     [ 3.  0. -3.  6.]]
    """

    rank: int = 2
    seed: int = 0
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        doors.whole(self, "rank", 1)
        doors.whole(self, "seed")

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        rows = x.shape[0] if x.ndim else 1
        columns = x.size // max(rows, 1)
        rank = min(self.rank, rows, columns)
        if rank * (rows + columns) >= rows * columns:
            return allreduce(x.copy())
        residual = self.recall(key, "residual", x.shape)
        wanted = x.astype(working(x)) if residual is None else x + residual
        m = wanted.reshape(rows, columns)
        q = self.recall(key, "q", (columns, rank))
        if q is None:
            q = np.random.default_rng(self.seed).standard_normal((columns, rank)).astype(m.dtype)
        p, _ = np.linalg.qr(allreduce(m @ q))
        own = m.T @ p
        lost = (m - p @ own.T).reshape(x.shape)
        q = allreduce(own.copy())
        self.remember(key, residual=lost, q=q)
        return (p @ q.T).reshape(x.shape).astype(x.dtype)

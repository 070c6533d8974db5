"""Low rank: two thin matrices instead of a wide one."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .codec import START
from .context import Context
from .method import AllReduce, Method, working
from .vectors import together

__all__ = ["PowerSGD"]


@dataclass
class PowerSGD(Method):
    """One step of power iteration, from where the last one ended, with error feedback.

    With M the gradient plus residual, as a matrix: P = sum of M Q, orthonormalised; Q = sum of M^T P; the result is
    P Q^T. Both sums are linear, so any all-reduce will do; a sum of at most that rank is exact. All ranks get the same
    bits if their processors are of one kind, for LAPACK's results depend on it; on CUDA devices, of any kind, but not
    those of host memory. Each rank keeps what its own projection
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
    by_value: ClassVar = {"residual": -0.0}

    def __post_init__(self) -> None:
        doors.whole(self, "rank", 1)
        doors.whole(self, "seed")

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        return self.reduce_together({key: x}, allreduce, at)[key]

    def reduce_together(
        self, tensors: dict[str, np.ndarray], allreduce: AllReduce, at: Context = START
    ) -> dict[str, np.ndarray]:
        """In two all-reduces: of every P, with what is summed as it is, and of every Q."""
        wanted = {key: self.wanted(key, x) for key, x in tensors.items() if self.columns(x)}
        first = {key: x.astype(working(x)) for key, x in tensors.items() if key not in wanted}
        first |= {key: m @ self.start(key, m) for key, m in wanted.items()}
        sums = together(first, allreduce)
        bases = {key: np.linalg.qr(sums[key])[0] for key in wanted}
        own = {key: m.T @ bases[key] for key, m in wanted.items()}
        factors = together(own, allreduce)
        for key, m in wanted.items():
            take_away(m, bases[key], own[key])
            shape = tensors[key].shape
            self.turn(key, residual=m.reshape(shape), q=factors[key])
            sums[key] = bases[key] @ factors[key].T
        return {key: sums[key].reshape(x.shape).astype(x.dtype, copy=False) for key, x in tensors.items()}

    def columns(self, x: np.ndarray) -> int:
        """Of the factors of a tensor; 0 if that is not larger than both."""
        rows = x.shape[0] if x.ndim else 1
        columns = x.size // max(rows, 1)
        rank = min(self.rank, rows, columns)
        return rank if rank * (rows + columns) < rows * columns else 0

    def wanted(self, key: str, x: np.ndarray) -> np.ndarray:
        """The tensor plus its residual, as a matrix."""
        values = self.room(key, "residual", x.shape, working(x))
        np.add(x, self.kept(key, "residual", x), out=values)
        return values.reshape(len(x), -1)

    def start(self, key: str, m: np.ndarray) -> np.ndarray:
        """The Q to begin with."""
        shape = m.shape[1], self.columns(m)
        q = self.recall(key, "q", shape)
        return np.random.default_rng(self.seed).standard_normal(shape).astype(m.dtype) if q is None else q


@keep
@njit(nogil=True)
def take_away(m: np.ndarray, p: np.ndarray, q: np.ndarray) -> None:
    """Subtract P Q^T, in one pass."""
    turned = q.T.copy()
    for i in range(m.shape[0]):
        for k in range(p.shape[1]):
            factor = p[i, k]
            for j in range(m.shape[1]):
                m[i, j] -= factor * turned[k, j]

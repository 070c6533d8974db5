"""Sums of sparse vectors that stay exact."""

from dataclasses import dataclass

import numpy as np

from .codec import START
from .context import Context
from .feedback import ErrorFeedback
from .method import AllReduce, working
from .nonzero import Nonzero
from .vectors import fitting
from .warmup import warmed

__all__ = ["SparCML"]

#: Above this share of values that any rank may have chosen, sums fill up, and are to be made in parts.
FEW = 0.5


@dataclass
class SparCML(ErrorFeedback):
    """Error feedback, and an all-reduce that loses nothing of what the codec kept.

    Messages hold what is not zero (`Nonzero`), and grow from hop to hop with the union of what the ranks chose, until
    all values are the shorter message. On `recursive_doubling`, which is preferred while the choices of all ranks are
    at most half of the values, this is SparCML's algorithm for few values, on `direct` that by split and all-gather;
    any other will do. The result plus the residuals of all ranks is the sum of all gradients and residuals, but for the
    rounding of sums. A step that is not finite leaves the residual as it was.

    Parameters
    ----------
    codec : Codec
        Such as `TopK`, `Sampled` or `Threshold`: it chooses once, on each rank.
    warmup : int
        Steps in which more is sent, see `warmup.warmed`.

    See: Renggli et al., SparCML: high-performance sparse communication for machine learning, SC 2019.

    >>> from compress import get
    >>> from compress.simulate import run
    >>> ranks = np.array([[4, 1, 0, 3], [1, 9, 8, 0]], np.float32)
    >>> run(2, lambda rank, allreduce: get("sparcml(topk:ratio=0.5)").reduce(ranks[rank], allreduce, "weight"))[0]
    array([4., 9., 8., 3.], dtype=float32)
    """

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        codec, left = warmed(self.codec, self.warmup, at.step), self.room(key, "residual", x.shape, working(x))
        np.add(x, self.kept(key, "residual", x), out=left)
        sent = codec.decode(codec.encode(left, at=at), fitting(out, x.shape, x.dtype))
        np.subtract(left, sent, out=left)
        share = min(1.0, at.size * getattr(codec, "ratio", 1.0))
        total = allreduce(sent, codec=Nonzero(share), prefer="recursive_doubling" if share <= FEW else "auto")
        self.turn(key, residual=left)
        return total

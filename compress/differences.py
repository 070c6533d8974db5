"""What changes is sent."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, working
from .vectors import fitting, flat

__all__ = ["Differences"]


@dataclass
class Differences(Method):
    """Encode how a tensor differs from a state that all ranks can follow; nothing where it does not.

    Every rank has a state h (kept is -h, to be added), and the sum H of all states. With m = x - h less all that this
    rank's encodings lose, on any hop, the result is H plus the sum of m; then alpha m is added to h, and alpha times
    the sum to H, which so remains the sum of all h. With alpha = 1 that is EF21, for any codec whose error is less than
    its input: of a tensor that stays the same the error falls geometrically. With an unbiased codec and alpha up to
    1 / (1 + its variance over the square of its input) it is DIANA, which stays unbiased. A step that is not finite on
    any rank leaves all states as they were.

    Parameters
    ----------
    codec : Codec
    alpha : float
        How far the state follows, above 0 up to 1.

    See: Richtarik et al., EF21, NeurIPS 2021; Mishchenko et al., DIANA, 2019.

    >>> from compress import get
    >>> from compress.simulate import run
    >>> gradient = np.array([4, 3, 2, 1], np.float32)
    >>> def work(rank, allreduce):
    ...     method = get("ef21(topk:ratio=0.25)")
    ...     return [method.reduce(gradient, allreduce, "weight") for step in range(3)]
    >>> print(*run(2, work)[0])
    [8. 0. 0. 0.] [8. 6. 0. 0.] [8. 6. 4. 0.]
    """

    codec: Codec
    alpha: float = 0.5
    by_value: ClassVar = {"less": -0.0, "total": 0.0}

    def __post_init__(self) -> None:
        check_codec(self)
        doors.share(self, "alpha")

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        less, total = (self.kept(key, part, x) for part in self.by_value)
        lost, moved = (self.room(key, part, x.shape, working(x)) for part in self.by_value)
        values, result = x.astype(lost.dtype, "C", copy=False), fitting(out, x.shape, lost.dtype)
        moved[...] = allreduce(values, codec=self.codec, out=moved, lost=lost, residual=less)
        good = _follow(self.alpha, *map(flat, (values, less, total, lost, moved, result)))
        self.turn(key, good, less=lost, total=moved)
        return result.astype(x.dtype, copy=False)


@keep
@njit(nogil=True, error_model="numpy")
def _follow(alpha, x, less, total, lost, change, result):
    """The result, and over what is lost and the change the next states; whether these are finite."""
    share, good = lost.dtype.type(alpha), True
    for i in range(x.size):
        step = x[i] + less[i] - lost[i]
        result[i] = total[i] + change[i]
        lost[i] = less[i] - share * step
        change[i] = total[i] + share * change[i]
        good &= (lost[i] - lost[i] == 0) & (change[i] - change[i] == 0)
    return good

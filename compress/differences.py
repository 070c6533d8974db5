"""What changes is sent."""

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, parts_of, working
from .rooms import Rooms

__all__ = ["Differences"]


@dataclass
class Differences(Method):
    """Encode how a tensor differs from a state that all ranks can follow; nothing where it does not.

    Every rank has a state h, and the sum H of all states. With m = x - h less all that this rank's encodings lose, on
    any hop, the result is H plus the sum of m; then alpha m is added to h, and alpha times the sum to H, which so
    remains the sum of all h. With alpha = 1 that is EF21, for any codec whose error is less than its input: of a tensor
    that stays the same the error falls geometrically. With an unbiased codec and alpha up to 1 / (1 + its variance over
    the square of its input) it is DIANA, which stays unbiased. A step that is not finite on any rank leaves all states
    as they were.

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
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)
    rooms: Rooms = field(default_factory=Rooms, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_codec(self)
        doors.share(self, "alpha")

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        return self.reduce_together({key: x}, allreduce, at)[key].copy()

    def reduce_together(
        self, tensors: dict[str, np.ndarray], allreduce: AllReduce, at: Context = START
    ) -> dict[str, np.ndarray]:
        """As one tensor: in one all-reduce."""
        states = {key: self.states(x, key) for key, x in tensors.items()}
        after, before, out = self.rooms.take(tensors, rows=2)
        owns, totals = (parts_of(row, tensors) for row in after)
        for key, x in tensors.items():
            np.subtract(x, states[key][0], out=owns[key])
        after[1][...] = allreduce(after[0], codec=self.codec, out=after[1], lost=after[0])
        results, alpha = parts_of(out, tensors), out.dtype.type(self.alpha)
        for key, x in tensors.items():
            arrays = x.astype(out.dtype, "C", copy=False), *states[key], owns[key], totals[key], results[key]
            if _follow(alpha, *(array.reshape(-1) for array in arrays)):
                self.memory[key] = {"own": owns[key], "total": totals[key]}
        if all(self.memory.get(key, {}).get("own") is owns[key] for key in tensors):
            self.rooms.put(tensors, before, after, out)
        return {key: results[key].astype(x.dtype, copy=False) for key, x in tensors.items()}

    def states(self, x: np.ndarray, key: str) -> list[np.ndarray]:
        """Of this rank, and the sum of those of all; at first 0."""
        kept = [self.recall(key, part, x.shape) for part in ("own", "total")]
        return [np.zeros(x.shape, working(x)) if h is None else h.astype(working(x), "C", copy=False) for h in kept]


@keep
@njit(nogil=True, error_model="numpy")
def _follow(alpha, x, own, total, lost, change, result):
    """The result, and over what is lost and the change the next states; whether these are finite."""
    good = True
    for i in range(x.size):
        step = x[i] - own[i] - lost[i]
        result[i] = total[i] + change[i]
        lost[i] = own[i] + alpha * step
        change[i] = total[i] + alpha * change[i]
        good &= (lost[i] - lost[i] == 0) & (change[i] - change[i] == 0)
    return good

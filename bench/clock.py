"""A clock that all ranks share."""

import time
from collections import deque

import numpy as np
from mpi4py import MPI

__all__ = ["Clock"]

PINGS = 20
#: A line through the offsets is used once they span this many seconds: before, its slope is all noise.
BASELINE = 1.0


class Clock:
    """Rank 0's clock, as every rank has measured it from its own; drift is the slope of a line through the offsets.

    Ranks learn the time in a tree, each from one that knows it (Hunold and Carpen-Amarie, CLUSTER 2018). All methods
    but `now` and `local` are collective.

    Attributes
    ----------
    error : float
        Seconds that the last offset may be wrong by: half of the shortest round trip, summed along the tree.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.error = comm, 0.0
        self.offset, self.drift, self.origin = 0.0, 0.0, time.perf_counter()
        self.points: deque[tuple[float, float, float]] = deque(maxlen=64)

    def now(self) -> float:
        """The common time in seconds."""
        mine = time.perf_counter()
        return mine + self.offset + self.drift * (mine - self.origin)

    def local(self, common: float) -> float:
        """When it will be that time, by our own `time.perf_counter`."""
        mine = common - self.offset
        return mine - self.drift * (mine - self.origin)

    def sync(self) -> None:
        """Measure the offsets anew."""
        rank, size = self.comm.rank, self.comm.size
        width = 1
        while width < size:
            if rank < width and rank + width < size:
                self._teach(rank + width)
            elif width <= rank < 2 * width:
                self._learn(rank - width)
            width *= 2

    def _teach(self, pupil: int) -> None:
        nothing, answer = np.empty(1), np.empty(2)
        for _ in range(PINGS):
            self.comm.Recv(nothing, pupil)
            answer[:] = self.now(), self.error
            self.comm.Send(answer, pupil)

    def _learn(self, teacher: int) -> None:
        answer, pings = np.empty(2), []
        for _ in range(PINGS):
            begin = time.perf_counter()
            self.comm.Send(answer[:1], teacher)
            self.comm.Recv(answer, teacher)
            end = time.perf_counter()
            pings.append((end - begin, begin, answer[0] - (begin + end) / 2))
        trip, when, offset = min(pings)
        self.error = float(answer[1]) + trip / 2
        self.points.append((when, offset, 1 / trip))
        self.offset, self.drift, self.origin = line(np.array(self.points))


def line(points: np.ndarray) -> tuple[float, float, float]:
    """Offset, drift and the time of that offset, from columns of times, offsets and weights.

    >>> points = np.array([[0.0, 5.0, 1], [1, 5.25, 1], [2, 5.5, 1]])
    >>> [round(x, 6) for x in line(points)]
    [5.5, 0.25, 2.0]
    """
    when, offsets, weights = points.T
    last = float(when[-1])
    if last - when[0] < BASELINE or len(points) < 3:
        return float(offsets[-1]), 0.0, last
    drift, offset = np.polyfit(when - last, offsets, 1, w=weights)
    return float(offset), float(drift), last

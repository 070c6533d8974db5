"""What all ranks measure, round by round, gathered on rank 0, which says when it is enough."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from mpi4py import MPI

from .statistics import half_width

__all__ = ["ACROSS", "Limits", "Rounds", "Stop"]

#: A repetition's time from those of its ranks, shape (ranks, cells).
ACROSS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "max": lambda times: times.max(0),
    "min": lambda times: times.min(0),
    "mean": lambda times: times.mean(0),
    "rank0": lambda times: times[0],
}
FEWEST, MOST = 11, 1000
#: A user, a batch system, and a job script (MPICH takes USR1 for itself).
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
#: So many times as many rounds are made where starts are late.
PATIENT = 3
#: Seconds between two writings of what is not finished.
WRITING = 0.5


class Stop:
    """Notes that the user, or the batch system, wants the program to end: it does so after the present round.

    Attributes
    ----------
    asked, agreed : bool
        This rank was told; any rank was told, as all of them know since the last round.
    """

    def __init__(self) -> None:
        self.asked = self.agreed = False

    def __enter__(self) -> "Stop":
        self.before = {number: signal.signal(number, self._note) for number in ENDING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the second time they mean it
            raise KeyboardInterrupt
        self.asked = True


class Limits:
    """How long to measure a cell.

    Parameters
    ----------
    seconds : float
        Of measured time per cell, on average.
    precision : float
        Enough, if half of the confidence interval of every median is no longer than this part of it.
    """

    def __init__(self, seconds: float, precision: float) -> None:
        self.seconds, self.precision = seconds, precision

    def reached(self, times: np.ndarray, batch: int) -> bool:
        """Whether repetitions, shape (rounds, cells) with NaN for late ones, are enough."""
        rounds, cells = times.shape
        counted = int(np.count_nonzero(~np.isnan(times), axis=0).min())
        if counted < FEWEST and rounds < PATIENT * FEWEST:
            return False
        spent = batch * float(np.nansum(times))
        if rounds >= MOST or spent >= self.seconds * cells:
            return True
        return rounds % FEWEST == 0 and bool((half_width(times) <= self.precision).all())


class Rounds:
    """Repetitions of the cells of one size.

    Parameters
    ----------
    across : str
        In ACROSS.
    watch : callable
        Called on rank 0 from time to time, to write down what there is.

    Attributes
    ----------
    batch : int
        Calls in a repetition.
    late : float
        The part of the last round's repetitions that started late; on rank 0 only.
    times, slowest : list of numpy.ndarray
        Per round, shape (cells,); on rank 0 only. Times are in seconds, NaN where a rank was late.
    wrong : numpy.ndarray
        Shape (cells,): wrong elements so far, on all ranks; on rank 0 only.
    """

    def __init__(
        self, comm: MPI.Intracomm, cells: int, across: str, limits: Limits, stop: Stop, watch: Callable[["Rounds"], Any]
    ) -> None:
        self.comm, self.across, self.limits, self.stop, self.watch = comm, ACROSS[across], limits, stop, watch
        self.times: list[np.ndarray] = []
        self.slowest: list[np.ndarray] = []
        self.wrong = np.zeros(cells, np.int64)
        self.batch, self.late, self.written = 1, 0.0, time.monotonic()

    def go_on(self, seconds: np.ndarray, wrong: np.ndarray) -> bool:
        """Add a round: this rank's seconds per call (infinite if late) and wrong elements, per cell. Collective."""
        mine = np.stack([np.append(seconds, self.stop.asked), np.append(wrong, 0)])
        everyone = np.empty((self.comm.size, *mine.shape)) if self.comm.rank == 0 else None
        self.comm.Gather(mine, everyone)
        verdict = np.zeros(2)  # go on, stop it all
        if everyone is not None:
            stopped = bool(everyone[:, 0, -1].any())
            self._add(everyone[:, 0, :-1], everyone[:, 1, :-1])
            verdict[:] = not stopped and not self.limits.reached(np.array(self.times), self.batch), stopped
            if time.monotonic() - self.written > WRITING:
                self.watch(self)
                self.written = time.monotonic()
        self.comm.Bcast(verdict)
        self.stop.agreed |= bool(verdict[1])
        return bool(verdict[0])

    def forget(self) -> None:
        """Begin anew, but for what was wrong."""
        self.times.clear()
        self.slowest.clear()

    def _add(self, seconds: np.ndarray, wrong: np.ndarray) -> None:
        late = np.isinf(seconds).any(0)
        self.late = float(late.mean())
        self.times.append(np.where(late, np.nan, self.across(seconds)))
        self.slowest.append(seconds.argmax(0))
        self.wrong += wrong.sum(0).astype(np.int64)

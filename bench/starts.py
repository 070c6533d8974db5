"""Ways to start a repetition on all ranks at once."""

import os
import time

import numpy as np
from mpi4py import MPI

from .clock import PINGS, Clock

__all__ = ["STARTS", "Barrier", "Window"]

#: Seconds before a start from which on a rank keeps its core.
YIELDING = 2e-5


class Barrier:
    """Repetitions start when MPI's barrier lets a rank go, which it does at different times."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm

    def prepare(self) -> None:
        """Before every cell of a sweep."""

    def wait(self) -> float:
        """Returns the time to count from, by `time.perf_counter`."""
        self.comm.Barrier()
        return time.perf_counter()

    def judge(self, late: float) -> None:
        """Hear which part of the repetitions started late."""


class Window:
    """Repetitions start at a time that rank 0 chooses; a rank that comes later makes the repetition void.

    So does ReproMPI's round-time. The room between choosing and starting adapts to how many come late.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.clock = comm, Clock(comm)
        self.start, self.room = np.empty(1), 0.0

    def prepare(self) -> None:
        """Measure clocks, and how long the message with the time takes to reach everybody."""
        self.clock.sync()
        delays = np.empty(PINGS)
        for i in range(PINGS):
            self.comm.Barrier()
            self.start[0] = self.clock.now()
            self.comm.Bcast(self.start)
            delays[i] = self.clock.now() - self.start[0]
        self.comm.Allreduce(MPI.IN_PLACE, delays, MPI.MAX)
        self.room = 2 * float(np.median(delays)) + 2 * self.clock.error

    def wait(self) -> float:
        """Returns the time to count from, by `time.perf_counter`: minus infinity for a late rank."""
        self.comm.Barrier()
        self.start[0] = self.clock.now() + self.room
        self.comm.Bcast(self.start)
        begin = self.clock.local(float(self.start[0]))
        if time.perf_counter() > begin:
            return -np.inf
        while time.perf_counter() < begin:
            if begin - time.perf_counter() > YIELDING:
                os.sched_yield()  # ranks that share our core may not have the time yet
        return begin

    def judge(self, late: float) -> None:
        """Only rank 0's room counts."""
        if late > 0.1:
            self.room = min(2 * self.room, 0.01)


STARTS: dict[str, type[Barrier] | type[Window]] = {"barrier": Barrier, "window": Window}

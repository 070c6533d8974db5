"""Repetitions: interleaved, in shuffled order, each checked."""

import gc
import time
from collections.abc import Callable
from itertools import repeat

import numpy as np
from mpi4py import MPI

from .inputs import Case

__all__ = ["Cell", "measure"]

#: Up to this many bytes a repetition is a batch of calls back to back, for the clock and the barrier are coarser
#: than one call; above, every call follows a barrier.
BATCHED, BATCH = 1 << 10, 200
BATCH_SECONDS = 0.02
FEWEST, MOST = 11, 200


class Cell:
    """One call to be timed, on two variants of the input in turn, so that an old result is no right one.

    Parameters
    ----------
    call : callable of (send, recv)
    cases, inputs : pairs
        The right answers, and the buffers that hold the inputs.
    result : numpy.ndarray
        Nobody else's.
    rewrite : bool
        Write the input anew before every repetition: what others have of it in their caches is void.
    checked : bool
        False for what is no all-reduce.

    Attributes
    ----------
    samples : list of float
        Seconds per call on this rank.
    wrong : int
        Elements that were not as they must be, over all repetitions on this rank.
    """

    def __init__(
        self,
        call: Callable[[np.ndarray, np.ndarray], object],
        cases: tuple[Case, Case],
        inputs: tuple[np.ndarray, np.ndarray],
        result: np.ndarray,
        rewrite: bool = False,
        checked: bool = True,
    ) -> None:
        self.call, self.cases, self.inputs, self.result = call, cases, inputs, result
        self.rewrite, self.checked = rewrite, checked
        self.samples: list[float] = []
        self.wrong = 0

    def repetition(self, comm: MPI.Intracomm, variant: int, batch: int) -> float:
        """Time one batch of calls and check its result."""
        call, send, recv = self.call, self.inputs[variant], self.result
        if self.rewrite:
            np.copyto(send, self.cases[variant].send)
        comm.Barrier()
        begin = time.perf_counter()
        for _ in repeat(None, batch):
            call(send, recv)
        elapsed = (time.perf_counter() - begin) / batch
        if self.checked:
            self.wrong += self.cases[variant].wrong(recv)
        return elapsed


def measure(cells: list[Cell], nbytes: int, comm: MPI.Intracomm, seconds: float, rng: np.random.Generator) -> int:
    """Fill the cells' samples; returns how many calls a repetition is.

    Parameters
    ----------
    cells : list of Cell
        Of the same algorithms in the same order on all ranks.
    seconds : float
        For each cell, within FEWEST and MOST repetitions.
    rng : numpy.random.Generator
        In the same state on all ranks: all go through the cells in the same shuffled order.
    """
    first = np.array([[cell.repetition(comm, variant, 1) for variant in (0, 1, 0)][-1] for cell in cells])
    comm.Allreduce(MPI.IN_PLACE, first, MPI.MAX)
    batch = int(np.clip(BATCH_SECONDS / np.median(first), 1, BATCH)) if nbytes <= BATCHED else 1
    rounds = int(np.clip(seconds / (batch * np.mean(first)), FEWEST, MOST))
    gc.disable()
    try:
        for number in range(rounds):
            for index in rng.permutation(len(cells)):
                cell = cells[index]
                cell.samples.append(cell.repetition(comm, number % 2, batch))
    finally:
        gc.enable()
    return batch

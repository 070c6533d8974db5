"""Repetitions: interleaved, in shuffled order, each checked."""

import gc
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
from mpi4py import MPI

from .bare import Bare
from .inputs import Case
from .memory import HostMemory
from .rounds import Rounds
from .starts import Barrier, Window
from .work import Work

__all__ = ["Cell", "measure"]

#: A repetition of short calls is a batch of them back to back, for the clock and the barrier are coarser than one
#: call; it takes so many seconds at most.
BATCH_SECONDS = 0.02


class Cell:
    """One call to be timed, on two variants of the input in turn, so that an old result is no right one.

    Parameters
    ----------
    call : callable
        Of the pairs in `arguments`.
    cases : pair of Case
        What is given and what must come out.
    arguments : pair of lists
        For each variant, the arguments of as many calls as are made back to back.
    results : list of arrays
        Where each of these calls leaves its result.
    prepare : callable of (variant)
        Called before every repetition, outside of its time.
    memory : HostMemory
        Where these arrays lie.
    checked : bool
        False for what is no all-reduce.
    work : Work, optional
        What the call computes while it is under way: none at first, then as long as the call took without.
    """

    def __init__(
        self,
        call: Callable[[Any, Any], object],
        cases: tuple[Case, Case],
        arguments: tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]],
        results: list[Any],
        prepare: Callable[[int], object],
        memory: HostMemory,
        checked: bool = True,
        work: Work | None = None,
    ) -> None:
        self.call, self.cases, self.arguments, self.results = call, cases, arguments, results
        self.prepare, self.memory, self.checked, self.work = prepare, memory, checked, work or Work()
        self.variant = self.batch = 0

    def repetition(self, start: Barrier | Window, variant: int, batch: int) -> tuple[float, int]:
        """Time one batch of calls: seconds per call, infinite if this rank started late, and wrong elements."""
        self.variant, self.batch = variant, batch
        call: Any = self.call
        many, timer, end = isinstance(call, Bare), self.memory.timer, self.memory.timer.end
        self.prepare(variant)
        calls = islice(self.arguments[variant], batch)
        begin = timer.begin(start)
        if many:
            call(*self.arguments[variant][0], batch)
        else:
            for send, recv in calls:
                call(send, recv)
        elapsed = timer.seconds(begin, end()) / batch
        return elapsed, self.case.wrong(self.result) if self.checked else 0

    @property
    def case(self) -> Case:
        """Of the last repetition."""
        return self.cases[self.variant]

    @property
    def result(self) -> np.ndarray:
        """Of the last call."""
        return self.memory.read(self.results[self.batch - 1])


def measure(
    cells: list[Cell],
    most: int,
    warm_up: int,
    comm: MPI.Intracomm,
    start: Barrier | Window,
    rounds: Rounds,
    rng: np.random.Generator,
) -> None:
    """Measure rounds of all cells until it is enough.

    Parameters
    ----------
    cells : list of Cell
        Of the same algorithms in the same order on all ranks.
    most : int
        Calls in a repetition.
    warm_up : int
        Rounds at first that do not count.
    rng : numpy.random.Generator
        In the same state on all ranks: all go through the cells in the same shuffled order.
    """
    barrier = Barrier(comm)
    calls = np.array([[cell.repetition(barrier, variant, 1) for variant in (0, 1, 0)] for cell in cells])
    first, early = calls[:, -1, 0].copy(), calls[:, :, 1].sum(1)
    comm.Allreduce(MPI.IN_PLACE, first, MPI.MAX)
    batch = rounds.batch = int(np.clip(BATCH_SECONDS / np.median(first), 1, most))
    for cell, seconds in zip(cells, first.tolist(), strict=True):
        cell.work.seconds = seconds
    start.prepare()
    gc.disable()
    try:
        number, more = 0, True
        while more:
            seconds, wrong = np.empty(len(cells)), np.empty(len(cells))
            for index in rng.permutation(len(cells)):
                seconds[index], wrong[index] = cells[index].repetition(start, number % 2, batch)
            more, number = rounds.go_on(seconds, wrong if number else wrong + early), number + 1
            start.judge(rounds.late)
            if more and number <= warm_up:
                rounds.forget()
    finally:
        gc.enable()

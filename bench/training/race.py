"""All ways in turns: a few steps of one, the same steps of the next, so that a slow minute is everybody's."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from mpi4py import MPI

from .data import Task
from .sockets import sent
from .watch import Watch
from .ways import Step, Way

__all__ = ["START", "Entry", "probe", "race"]

#: First steps that count for nothing: buckets are put together anew, code is compiled, links are measured.
START = 2
#: Steps in a turn when kinds of steps are compared.
TURN = 5


class Entry:
    """A way, and what became of it; a step ends with that of the last rank.

    Attributes
    ----------
    seconds, losses : list of float
        Of every step; losses are means over the batch.
    sent : float or None
        Bytes over TCP, of this rank, in the steps after the first ones.
    judged : list of (int, float, float)
        After so many steps: loss and accuracy in the test.
    probes : dict of str to list of float
        Seconds of the steps of every kind that the way has.
    same : bool
        Whether all ranks have the same parameters at the end.
    """

    def __init__(self, way: Way) -> None:
        self.way = way
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.sent: float | None = 0.0
        self.judged: list[tuple[int, float, float]] = []
        self.probes: dict[str, list[float]] = {kind: [] for kind in way.steps}
        self.same = False

    def train(self, task: Task, batches: np.ndarray) -> None:
        """Some steps, and a test that is not timed; collective."""
        begun = max(START - len(self.seconds), 0)
        for some, counts in ((batches[:begun], False), (batches[begun:], True)):
            before = sent()
            ends, losses = timed(self.way.step, self.way.part, task, some)
            after = sent()
            self.seconds += slowest(ends)
            self.losses += mean(losses)
            if counts:
                self.sent = None if self.sent is None or before is None or after is None else self.sent + after - before
        self.judged.append((len(self.seconds), *self.way.judge(task.test_inputs, task.test_targets)))

    def most(self) -> float | None:
        """Bytes over TCP per step after the first ones, of the rank that sends most; collective."""
        steps = len(self.seconds) - START
        most = MPI.COMM_WORLD.allreduce(-1.0 if self.sent is None else self.sent, MPI.MAX)
        return most / steps if most >= 0 and steps > 0 else None


def timed(step: Step, part: slice, task: Task, batches: np.ndarray) -> tuple[list[float], list[float]]:
    """When steps ended, in seconds after all ranks began the first, and their losses."""
    ends, losses = [], []
    MPI.COMM_WORLD.Barrier()
    begin = time.perf_counter()
    for chosen in batches:
        losses.append(step(task.inputs[chosen[part]], task.targets[chosen[part]]))
        ends.append(time.perf_counter() - begin)
    return ends, losses


def mean(losses: list[float]) -> list[float]:
    """Over all ranks; collective."""
    total = np.empty(len(losses))
    MPI.COMM_WORLD.Allreduce(np.array(losses), total)
    return (total / MPI.COMM_WORLD.size).tolist()


def slowest(ends: list[float]) -> list[float]:
    """Seconds of every step, from end to end of whichever rank ended last; their sum is what all took. Collective.

    The longest of the ranks' own steps would be more: who ended the last step early is early in this one, and waits.
    """
    last = np.empty(len(ends))
    MPI.COMM_WORLD.Allreduce(np.array(ends), last, MPI.MAX)
    return np.diff(last, prepend=0.0).tolist()


def race(
    entries: Sequence[Entry], task: Task, batches: np.ndarray, every: int, watch: Watch, keep: Callable[[], object]
) -> None:
    """Train all; another one begins in each round, after which what there is is kept. Collective."""
    for number, start in enumerate(range(0, len(batches), every)):
        first = number % len(entries)
        for entry in (*entries[first:], *entries[:first]):
            entry.train(task, batches[start : start + every])
        watch.at(len(entries[0].seconds))
        each = ", ".join(f"{e.way.name} {e.judged[-1][1]:.3f} {e.judged[-1][2]:.1%}" for e in entries)
        watch.say(f"# after {len(entries[0].seconds)} steps: {each}")
        keep()
    for entry in entries:
        entry.same = entry.way.same()


def probe(
    entries: Sequence[Entry], task: Task, batches: np.ndarray, watch: Watch, keep: Callable[[], object]
) -> None:
    """Time the kinds of steps that each way has, after it was trained. Collective."""
    for start in range(0, len(batches), TURN):
        for entry in entries:
            for kind, step in entry.way.steps.items():
                ends, _ = timed(step, entry.way.part, task, batches[start : start + TURN])
                entry.probes[kind] += slowest(ends)
        watch.at(len(entries[0].seconds) + len(entry.probes["together"]))
        keep()

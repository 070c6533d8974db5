"""The sweep: every algorithm at every message size, beside MPI's own, in one run."""

from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

import compress

from .cells import Label, Maker, alike
from .clock import STARTS
from .console import Console
from .environment import environment
from .inputs import Case
from .journal import Journal, opened
from .model import Constants, constants_of, predict
from .plan import OTHERS, Group, Sweep
from .records import Row, key, ratios
from .rounds import Limits, Rounds, Stop
from .timing import Cell, measure

__all__ = ["Bench", "run"]


def run(sweep: Sweep) -> int:
    """Measure, print, write; returns 1 if any result was wrong, 130 if interrupted, else 0. Collective."""
    groups = sweep.groups()
    bench = Bench(sweep, MPI.COMM_WORLD)
    journal = opened(sweep.json, sweep.resume, bench.comm)
    rng = np.random.default_rng(sweep.seed)
    with Console(bench.facts, sweep.style, journal.rows if journal else [], bench.comm.rank == 0) as console:
        left = bench.left(groups, journal)
        console.begin(len(left))
        with Stop() as stop:
            bench.begin(rng, stop, console, journal)
            for group in (groups[index] for index in rng.permutation(len(groups))):
                if group in left and not stop.agreed:
                    console.rows(bench.measure(group, rng, stop, journal))
    if journal:
        journal.close()
    code = np.array([1 if console.wrong else 130 if stop.agreed else 0])
    bench.comm.Bcast(code)
    return int(code[0])


class Bench:
    """What all groups of a sweep share."""

    def __init__(self, sweep: Sweep, comm: MPI.Intracomm) -> None:
        self.sweep, self.comm = sweep, comm
        self.facts = environment(comm)
        flush = 2 * max(self.facts["caches"].values(), default=1 << 25) if sweep.cold else 0
        self.maker = Maker(sweep, comm, np.zeros(flush, np.uint8))
        self.start = STARTS[sweep.start](comm)
        self.limits = Limits(sweep.seconds, sweep.precision)
        self.constants: Constants = (0.0, 0.0, 0.0)

    def left(self, groups: list[Group], journal: Journal | None) -> set[Group]:
        """Those of which the file does not hold all; collective."""
        done = {key(row) for row in journal.rows if row.complete} if journal else set()
        missing = np.array([any(key(self.row(g, label)) not in done for label in self.maker.labels(g)) for g in groups])
        self.comm.Bcast(missing)
        return {group for group, wanted in zip(groups, missing, strict=True) if wanted}

    def begin(self, rng: np.random.Generator, stop: Stop, console: Console, journal: Journal | None) -> None:
        """Fit the model, and write down where we are; collective."""
        self.constants = constants_of(self.comm, rng, stop)
        alpha, beta, gamma = self.constants
        words = f"alpha {alpha * 1e6:.2f} us, beta {beta * 1e9:.3f} ns/B, gamma {gamma * 1e9:.3f} ns/B added"
        console.say(f"# model: {words}")
        if journal:
            habits = {"buffers": self.sweep.buffers, "rewrite": self.sweep.rewrite}
            constants = {"alpha": alpha, "beta": beta, "gamma": gamma}
            journal.write([{"record": "environment", **self.facts, **habits, **constants}])

    def row(self, group: Group, label: Label) -> Row:
        """Of a cell that is not measured yet."""
        sweep, facts = self.sweep, self.facts
        codec = compress.get(label.codec) if label.codec else None
        modelled = label.algorithm not in OTHERS and not codec
        nbytes = group.elements * group.dtype.itemsize
        return Row(
            mpi=facts["mpi"], ranks=self.comm.size, nodes=len(facts["hosts"]), dtype=group.dtype.name, op=group.op,
            accumulate=sweep.accumulate, nbytes=nbytes, count=group.elements, algorithm=label.algorithm,
            codec=label.codec, place=label.place, buffers=sweep.buffers,
            cache="rewritten" if label.place == "in" and sweep.cache == "warm" else sweep.cache,
            start=sweep.start, across=sweep.across, batch=1, marks=facts["marks"],
            predicted=predict(label.algorithm, self.comm.size, nbytes, self.constants) if modelled else None,
            wire=codec.nbytes(group.elements) if codec else nbytes, error=None, wrong=0, complete=False,
        )  # fmt: skip

    def measure(self, group: Group, rng: np.random.Generator, stop: Stop, journal: Journal | None) -> list[Row]:
        """All cells of a group; the rows are on rank 0. Collective."""
        cells = self.maker.cells(group)
        blanks = [self.row(group, label) for label in cells]

        def watch(rounds: Rounds) -> None:
            if journal and rounds.times:
                journal.write((row.record() for row in filled(blanks, rounds)), final=False)

        rounds = Rounds(self.comm, len(cells), self.sweep.across, self.limits, stop, watch)
        try:
            measure(list(cells.values()), self.maker.most(group), self.comm, self.start, rounds, rng)
        finally:
            watch(rounds)
        same = [not cell.checked or alike(cell.result) for cell in cells.values()]
        if self.comm.rank:
            return []
        rows = [
            replace(
                row,
                complete=not stop.agreed,
                wrong=row.wrong + (0 if alike else row.count),
                error=inexactness(cell) if row.codec else None,
            )
            for row, cell, alike in zip(filled(blanks, rounds), cells.values(), same, strict=True)
        ]
        if journal:
            journal.write([row.record() for row in rows])
        return rows


def filled(blanks: list[Row], rounds: Rounds) -> list[Row]:
    """Rows of what has been measured."""
    times, slowest = np.array(rounds.times).T, np.array(rounds.slowest).T
    lists: list[list[Any]] = [[None if np.isnan(t) else float(t) for t in cell] for cell in times]
    rows = [
        replace(row, batch=rounds.batch, wrong=int(wrong), samples=[cell], slowest=[ranks.tolist()])
        for row, wrong, cell, ranks in zip(blanks, rounds.wrong, lists, slowest, strict=True)
    ]
    return ratios(rows)


def inexactness(cell: Cell) -> float:
    """Squared error of the last sum over its squares."""
    case: Case = cell.case
    exact = case.expected.astype(np.float64)
    squares = float(np.sum(exact**2))
    return float(np.sum((cell.result.astype(np.float64) - exact) ** 2)) / squares if squares else 0.0

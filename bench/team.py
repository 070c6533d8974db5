"""The ranks that measure together."""

from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

import compress
from allreduce.engine import engine_of

from .cells import Label, Maker, alike
from .environment import environment
from .inputs import Case
from .journal import Journal
from .links import prices_of
from .model import Prices, predict
from .places import place_of
from .plan import OTHERS, Group, Sweep
from .records import Row, family, key
from .relations import ratios
from .rounds import Limits, Rounds, Stop
from .starts import STARTS
from .timing import Cell, measure

__all__ = ["Team"]

NO_PRICES = Prices()


class Team:
    """What all groups that the same ranks measure share."""

    def __init__(self, sweep: Sweep, comm: MPI.Intracomm) -> None:
        self.sweep, self.comm = sweep, comm
        self.facts, self.nodes = environment(comm), engine_of(comm).nodes
        self.place = place_of(sweep, comm, self.facts)
        self.maker = Maker(sweep, comm, self.place.names, self.place.memory)
        self.start = STARTS[sweep.start](comm)
        self.limits = Limits(sweep.seconds, sweep.precision)

    def keys(self, group: Group) -> list[tuple[Any, ...]]:
        """What its cells are."""
        return [key(self.row(group, label)) for label in self.maker.labels(group)]

    def fit(self, group: Group, cells: dict[Label, Cell], journal: Journal | None) -> Prices:
        """Find the prices of the model for vectors of this length, in the arrays of the cells; collective."""
        if not any(self.modelled(label) for label in cells):
            return Prices()
        pool = self.maker.pool(group, cells)
        prices = prices_of(self.comm, self.nodes, pool)
        if journal:
            facts = {"ranks": self.comm.size, "nbytes": pool.expected.nbytes, **prices._asdict()}
            journal.write([{"record": "prices", **facts}])
        return prices

    def modelled(self, label: Label) -> bool:
        """Whether it goes by messages that the model knows."""
        if self.sweep.device != "host":
            return False
        return family(label.algorithm) not in OTHERS and not label.codec and label.call == "blocking"

    def row(self, group: Group, label: Label, prices: Prices = NO_PRICES) -> Row:
        """Of a cell that is not measured yet."""
        sweep, facts = self.sweep, self.facts
        codec = compress.get(label.codec) if label.codec else None
        nbytes = group.elements * group.dtype.itemsize
        return Row(
            mpi=facts["mpi"], ranks=self.comm.size, nodes=len(facts["hosts"]), dtype=group.dtype.name, op=group.op,
            accumulate=sweep.accumulate, nbytes=nbytes, count=group.elements, algorithm=label.algorithm,
            codec=label.codec, place=label.place, call=label.call, buffers=sweep.memory,
            cache="rewritten" if label.place == "in" and sweep.cache == "warm" else sweep.cache,
            start=sweep.start, across=sweep.across, batch=1, marks=[*facts["marks"], *self.place.marks],
            predicted=predict(label.algorithm, self.nodes, nbytes, prices) if self.modelled(label) else None,
            wire=codec.nbytes(group.elements) if codec else nbytes, error=None, wrong=0, complete=False,
        )  # fmt: skip

    def measure(self, group: Group, rng: np.random.Generator, stop: Stop, journal: Journal | None) -> list[Row]:
        """All cells of a group; the rows are on rank 0. Collective."""
        cells = self.maker.cells(group)
        prices = self.fit(group, cells, journal)
        empty = [self.row(group, label, prices) for label in cells]

        def watch(rounds: Rounds) -> None:
            if journal and rounds.times:
                journal.write((row.record() for row in filled(blanks(), rounds)), final=False)

        def blanks() -> list[Row]:
            works = [cell.work.seconds if label.call == "overlapped" else 0.0 for label, cell in cells.items()]
            return [replace(row, work=work) for row, work in zip(empty, works, strict=True)]

        rounds = Rounds(self.comm, len(cells), self.sweep.across, self.limits, stop, watch)
        try:
            maker = self.maker
            measure([*cells.values()], maker.most(group), maker.warm_up(group), self.comm, self.start, rounds, rng)
        finally:
            watch(rounds)
        same = [not cell.checked or alike(cell.result, self.comm) for cell in cells.values()]
        self.maker.free()
        if self.comm.rank:
            return []
        rows = [
            replace(
                row,
                complete=not stop.agreed,
                wrong=row.wrong + (0 if alike else row.count),
                error=inexactness(cell) if row.codec else None,
            )
            for row, cell, alike in zip(filled(blanks(), rounds), cells.values(), same, strict=True)
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

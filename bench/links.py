"""What messages cost here, from point to point: the prices of the cost model.

What a message takes depends on where its bytes are: in the sender's cache, for it has just computed them, in the
receiver's, or in memory, for a sweep goes through many arrays. So prices are measured on the arrays of the sweep, in
turn, and for each size of the vector anew.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from allreduce.choice import Nodes
from allreduce.engine import engine_of
from allreduce.execute.bound import Plan
from allreduce.execute.lowering import BETWEEN, Vector
from allreduce.execute.operation import Operation
from allreduce.execute.plan import Order
from allreduce.execute.reductions import reduction
from allreduce.execute.requests import finish
from allreduce.execute.table import RECVBUF, SENDBUF, Region, Table
from allreduce.schedules import Recv, Schedule, Send

from .model import Price, Prices

__all__ = ["Pool", "bandwidth", "prices_of"]

#: Into how many parts the vector is cut, each a message; and into one for each rank, as rings do.
PARTS = (1, 2, 4, 8, 16, 128)
#: So many of the parts are sent, one after the other, in a repetition: as in the steps of a schedule.
MOST = 16
#: Of one probe, the first for nothing; at least so many, if it took so many seconds.
REPETITIONS, FEWEST, ENOUGH = 9, 5, 0.5

#: Bytes of a message by which a bandwidth is told.
STREAMED = 1 << 22

#: To whom each rank sends.
Shift = dict[int, int]


class Pool(NamedTuple):
    """The arrays of a sweep: inputs, and results that must come to be what is expected; and the operation."""

    inputs: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    expected: np.ndarray
    op: str


def prices_of(comm: MPI.Intracomm, nodes: Nodes, pool: Pool) -> Prices:
    """Of messages that all ranks send at once; collective."""
    whole = pool.inputs[0]
    parts = sorted({min(part, whole.size) for part in (*PARTS, comm.size)}, reverse=True)
    probe, price = Probe(comm, pool), partial(Price, tuple(whole.nbytes / part for part in parts))
    idle = np.array([min(probe.times({}, part)) for part in parts])  # what Python takes

    def ladder(shift: Shift, **how: bool) -> np.ndarray:
        found = np.array([np.median(probe.times(shift, part, **how)) for part in parts])
        return steady(np.maximum(found - idle, 0.1 * found))

    near, far, answer, line = (shifts(nodes)[name] for name in ("inside", "between", "pairs", "line"))
    found = {"given": ladder(near)}
    if near:
        found |= {"lone": ladder(every_other(nodes), made=True), "made": ladder(near, made=True)}
    found["added"] = steady(np.maximum(ladder(near, adding=True) - found["given"], 0))
    if far:
        found |= {"together": ladder(far), "alone": ladder(line)}
        found["answered"] = ladder(answer) if len(nodes) > 2 else found["together"]
    return Prices(**{name: price(tuple(seconds.tolist())) for name, seconds in found.items()})


def bandwidth(comm: MPI.Intracomm) -> tuple[int | None, float | None]:
    """The first rank on another node than rank 0's, and bits a second from rank 0 to it; collective."""
    nodes = engine_of(comm).nodes
    if len(nodes) == 1:
        return None, None
    peer, given = nodes[1][0], np.ones(STREAMED // 4, np.float32)
    pool = Pool([given], [np.empty_like(given) for _ in range(2)], given, "sum")
    return peer, 8 * STREAMED / float(np.median(Probe(comm, pool).times({0: peer}, 1)))


class Probe:
    """Times messages from rank to rank on a sweep's arrays, sent by the loop that runs schedules."""

    def __init__(self, comm: MPI.Intracomm, pool: Pool) -> None:
        self.comm, self.pool, self.turn = comm, pool, 0
        self.channel = engine_of(comm).channel

    def times(self, shift: Shift, parts: int, made: bool = False, adding: bool = False) -> list[float]:
        """Seconds of a message, on the slowest rank, of each repetition; collective.

        Ranks send parts of what they were given, or `made` themselves; what comes is stored or, `adding`, added.
        """
        messages, operation = min(parts, MOST), self.operation(shift, parts, adding)
        publishing = self.operation(shift, 1, False)
        found: list[float] = []
        while len(found) < REPETITIONS and (len(found) < FEWEST or sum(found) * messages < ENOUGH):
            sent, result, spare = self.arrays()
            if made:
                np.copyto(spare, sent)
                sent = spare
            self.comm.Barrier()
            begin = time.perf_counter()
            operation.start((sent, result))
            finish(operation)
            elapsed = (time.perf_counter() - begin) / messages
            found.append(self.comm.allreduce(elapsed, MPI.MAX))
            np.count_nonzero(result != self.pool.expected)  # as a sweep does
            if adding:  # then others have sums in their caches, which the next write must take from them
                publishing.start((result, spare))
                finish(publishing)
        return found[1:]

    def operation(self, shift: Shift, parts: int, adding: bool) -> Operation:
        """Sends the first parts, each in a step of its own."""
        rank, array = self.comm.rank, self.pool.inputs[0]
        each = [range(part, part + 1) for part in range(min(parts, MOST))]
        leaving = [tuple(Send(to, part) for source, to in shift.items() if source == rank) for part in each]
        coming = [tuple(Recv(source, part, adding) for source, to in shift.items() if to == rank) for part in each]
        steps = tuple(sends + recvs for sends, recvs in zip(leaving, coming, strict=True))
        table, places = Table(0 if self.channel.together else BETWEEN), (Region(SENDBUF, 0), Region(RECVBUF, 0))
        kernel = reduction(array.dtype, self.pool.op)
        Vector(table, rank, array.size, array.itemsize, parts, *places, *kernel).run(Schedule(parts, steps))
        return Plan(Order("allreduce", "ring", array.size, array.dtype), self.channel, table).operation()

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The next input and two results: those of a sweep come in turn, too."""
        self.turn += 1
        inputs, results = self.pool.inputs, self.pool.results
        result, spare = (results[(self.turn + i) % len(results)] for i in (0, len(results) // 2))
        return inputs[self.turn % len(inputs)], result, spare


def steady(seconds: np.ndarray) -> np.ndarray:
    """What takes longer than something longer was disturbed."""
    return np.minimum.accumulate(seconds[::-1])[::-1]


def shifts(nodes: Nodes) -> dict[str, Shift]:
    """Who sends to whom, each by name; none where there are no such messages.

    Around every node; around the nodes from place to place; with pairs of nodes instead, each to whom it receives from;
    and around all ranks, so that only one of each node sends to another.
    """
    several = len(nodes) > 1
    places = [node[j] for j in range(max(map(len, nodes))) for node in nodes if j < len(node)]
    pairs = [(a, b) for i in range(0, len(nodes) - 1, 2) for a, b in zip(nodes[i], nodes[i + 1], strict=False)]
    return {
        "inside": {rank: peer for node in nodes if len(node) > 1 for rank, peer in around(node).items()},
        "between": around(tuple(places)) if several else {},
        "pairs": dict(pairs) | {b: a for a, b in pairs},
        "line": around(tuple(rank for node in nodes for rank in node)) if several else {},
    }


def every_other(nodes: Nodes) -> Shift:
    """Inside nodes, from every other rank to the next."""
    return {a: b for node in nodes for a, b in zip(node[::2], node[1::2], strict=False)}


def around(ranks: tuple[int, ...]) -> Shift:
    """From each to the next, and from the last to the first."""
    return dict(zip(ranks, ranks[1:] + ranks[:1], strict=True))

"""What messages cost here, from point to point: the prices of the cost model."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from allreduce.choice import Nodes
from allreduce.schedules import Recv, Send

from .model import Price, Prices, tally

__all__ = ["prices_of"]

#: Bytes of messages, and how many are sent one after the other in a repetition, as in the steps of a schedule.
PROBES = ((8, 50), (1 << 13, 16), (1 << 15, 8), (1 << 16, 8), (1 << 19, 4), (1 << 21, 1))
#: Of one probe, the first for nothing.
REPETITIONS = 8
#: Values that are added up.
ADDED = 1 << 16

#: To whom each rank sends.
Shift = dict[int, int]


def prices_of(comm: MPI.Intracomm, nodes: Nodes) -> Prices:
    """Of messages that all ranks send at once, and of sums that all make at once; collective."""
    found = {"inside": Price(), "between": Price()}
    nobody = (MPI.PROC_NULL, MPI.PROC_NULL)
    idle = exchange(comm, *nobody, *PROBES[0])  # what Python takes
    for where, to in shifts(nodes).items():
        source = {peer: rank for rank, peer in to.items()}
        step = {rank: (Send(to[rank], range(1)), Recv(source[rank], range(1), add=False)) for rank in to}
        sharing = tally(step, nodes)[{"inside": 1, "between": 3}[where]]
        seconds = [exchange(comm, to[comm.rank], source[comm.rank], *probe) for probe in PROBES]
        lengths = tuple(float(sharing * nbytes) for nbytes, _ in PROBES)
        sent = np.maximum(np.array(seconds) - idle, 0.1 * np.array(seconds))
        least = np.minimum.accumulate(sent[::-1])[::-1]  # what takes longer than something longer was disturbed
        found[where] = Price(lengths, tuple(least.tolist()))
    both = 0.0
    if len(nodes) > 2:  # of two, each sends to the one that it receives from anyhow
        peer, probe = partners(nodes).get(comm.rank, MPI.PROC_NULL), PROBES[-2]
        one_way = found["between"].seconds[-2]
        both = float(np.clip((exchange(comm, peer, peer, *probe) - idle) / one_way - 1, 0, 1))
    values = np.ones(ADDED, np.float32)
    return Prices(**found, both=both, added=slowest(comm, partial(np.add, values, 1, out=values), 10) / values.nbytes)


def shifts(nodes: Nodes) -> dict[str, Shift]:
    """Around every node, and around the nodes from place to place; each only where there are several."""
    inside = {rank: peer for node in nodes for rank, peer in around(node).items()}
    places = [node[j] for j in range(max(map(len, nodes))) for node in nodes if j < len(node)]
    found = {"inside": inside} if max(map(len, nodes)) > 1 else {}
    return found | ({"between": around(tuple(places))} if len(nodes) > 1 else {})


def partners(nodes: Nodes) -> Shift:
    """Every other node and the next one: rank by rank, each is the other's."""
    pairs = [(a, b) for i in range(0, len(nodes) - 1, 2) for a, b in zip(nodes[i], nodes[i + 1], strict=False)]
    return dict(pairs) | {b: a for a, b in pairs}


def around(ranks: tuple[int, ...]) -> Shift:
    """From each to the next, and from the last to the first."""
    return dict(zip(ranks, ranks[1:] + ranks[:1], strict=True))


def exchange(comm: MPI.Intracomm, to: int, source: int, nbytes: int, many: int) -> float:
    """Seconds in which a message is sent and one received."""
    data, room = np.zeros(nbytes, np.uint8), np.empty(nbytes, np.uint8)
    return slowest(comm, partial(comm.Sendrecv, data, to, 0, room, source), many)


def slowest(comm: MPI.Intracomm, call: Callable[[], object], many: int) -> float:
    """Seconds of a call: the median over repetitions of that of the slowest rank; collective."""
    seconds = np.empty(REPETITIONS)
    for repetition in range(REPETITIONS):
        comm.Barrier()
        begin = time.perf_counter()
        for _ in range(many):
            call()
        seconds[repetition] = (time.perf_counter() - begin) / many
    comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return float(np.median(seconds[1:]))

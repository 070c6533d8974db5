"""The tables of ranks that share memory, run by the compiled loop on all ranks in one process, in unkind orders.

Each rank goes on until it must wait for another, so that one may be as far ahead as flags allow, and another as late.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from allreduce.execute.bound import NODE, Plan
from allreduce.execute.layout import AREA, AREAS, LONG, area_bytes
from allreduce.execute.loop import DONE
from allreduce.execute.mpi_abi import library
from allreduce.execute.operation import Scratch
from allreduce.execute.plan import Order
from allreduce.execute.shared import ONE_SHOT, ONE_SLOT

I32 = np.dtype(np.int32)
#: Bytes on every path, among them two and four areas in a row.
SIZES = (4, 60, 3000, ONE_SHOT + 4, ONE_SLOT, ONE_SLOT + 4, AREA + 4, 2 * AREA, 3 * AREA + 4)
pytestmark = pytest.mark.skipif(library() is None, reason="no MPI that can be called by address")


class Rank:
    """One rank: a channel without messages, and what it has still to do."""

    def __init__(self, rank, size, parts, orders, mode):
        from mpi4py import MPI

        self.rank, self.size, self.comm, self.timeout, self.spin = rank, size, MPI.COMM_SELF, None, 0
        self.together = True
        self.counters, self.scratch = np.array([0, 0, 0, 0, mode]), Scratch()
        self.window = SimpleNamespace(parts=parts, shared=np.zeros(1, np.int64))
        self.todo = [Plan(order, self).operation() for order in orders]
        self.pairs = [buffers(order, rank, size, number) for number, order in enumerate(orders)]
        self.done = 0
        self.running = False

    def inside(self, members):
        assert len(members) == self.size
        return self

    def check(self):
        pass

    def advance(self):
        """Go on until something must be waited for; whether anything was done."""
        operation, before = self.todo[self.done], (self.done, self.todo[self.done].row())
        if not self.running:
            operation.start(self.pairs[self.done])
            self.running = True
        if operation.advance(False) == DONE:
            self.done, self.running = self.done + 1, False
            return True
        return before != (self.done, operation.row())


def buffers(order, rank, size, number):
    """Input and output of a rank."""
    sends, recvs = order.count, order.count
    if order.collective == "allgather":
        sends //= size
    if order.collective == "reduce_scatter":
        recvs //= size
    send = ((np.arange(sends) + 7 * number) % 1000 + 1000 * rank).astype(I32)
    return (send, send) if order.collective == "bcast" else (send, np.full(recvs, -1, I32))


def wanted(order, rank, size, number):
    """The right output of a rank."""
    sends = [buffers(order, r, size, number)[0] for r in range(size)]
    total, part = sum(sends), order.count // size
    if order.collective == "reduce" and rank:
        return np.full(order.count, -1, I32)
    return {
        "allreduce": lambda: total,
        "reduce": lambda: total,
        "bcast": lambda: sends[0],
        "allgather": lambda: np.concatenate(sends),
        "reduce_scatter": lambda: total[rank * part : (rank + 1) * part],
    }[order.collective]()


def play(orders, size, rng):
    """Run all operations on all ranks; who goes on is drawn, and stays at the front for a while."""
    each = LONG + AREAS * area_bytes(size)
    memory = np.zeros(size * each + 64, np.uint8)
    start = -(-memory.ctypes.data // 64) * 64
    mode = int(rng.integers(4))
    ranks = [Rank(r, size, [start + r * each for r in range(size)], orders, mode) for r in range(size)]
    while left := [rank for rank in ranks if rank.done < len(orders)]:
        # the first that can go on does: ranks at the front are far ahead, those at the end late
        if rng.random() < 0.2:
            rng.shuffle(ranks)
        assert any(rank.advance() for rank in sorted(left, key=ranks.index)), "all wait for each other"
    for rank in ranks:
        for number, (order, pair) in enumerate(zip(orders, rank.pairs)):
            assert np.array_equal(pair[1], wanted(order, rank.rank, size, number)), (rank.rank, number, order)


def hierarchical(size, nbytes):
    nodes = (("nodes", (tuple(range(size)),)),)
    return Order("allreduce", "hierarchical", nbytes // 4, I32, params=nodes, inside=nodes[0][1])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_any_sequence_in_any_order(size):
    rng = np.random.default_rng(size)
    for _ in range(10):
        orders = []
        for _ in range(12):
            count = int(rng.choice(SIZES)) // 4 // size * size
            collective = str(rng.choice(["allreduce", "reduce_scatter", "allgather", "reduce", "bcast"]))
            orders.append(Order(collective, NODE, max(count, size), I32))
        play(orders, size, rng)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("nbytes", SIZES)
def test_inside_a_node_again_and_again(size, nbytes):
    rng = np.random.default_rng(nbytes)
    for _ in range(8):
        play([hierarchical(size, nbytes)] * 3, size, rng)
    play([hierarchical(size, int(n)) for n in rng.permutation(SIZES)], size, rng)

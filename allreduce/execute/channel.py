"""Channels: what all collectives on one communicator share."""

import os
import time
from hashlib import sha256

import numpy as np
from mpi4py import MPI

from . import loop
from .bound import NODE, Plan
from .cuda import cuda
from .device import Device
from .once import once
from .operation import Compiled, Scratch
from .plan import Order
from .requests import breaking_off, finish, run
from .table import FAR, NEAR, TRIAL
from .window import Window, one_node

__all__ = ["Channel"]

#: What is run to find out how to publish.
PROBE = Order("allreduce", NODE, 1 << 16, np.dtype(np.float32))
TURNS, CALLS = 8, 3
#: The way for far cores takes 2.3 times as long where they are near, and 0.6 to 0.9 of the time where they are far.
BETWEEN = 1.3
#: Processors of a node are numbered below it.
MOST_CORES = 4096
#: Plans kept by one channel.
MOST_PLANS = 512
#: Things that ranks agreed on; forgotten, on all ranks at once, when there are more.
MOST_AGREED = 4096


class Channel:
    """A private duplicate of a communicator, the next tag, and the plans. `together`: known to be on one node.

    Operations begin in the same order on all ranks, as MPI demands of collectives; each takes the next number as
    its tag, so that several in flight do not take each other's messages.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: float | None = None, together: bool = False) -> None:
        self.comm = MPI.Intracomm(comm).Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = comm.rank, comm.size
        self.timeout = timeout
        #: the next tag, the numbers that flags have reached, the next slot, bytes published since `calibrate`, and
        #: how to publish: the same on all ranks
        self.counters = np.array([0, 0, 0, loop.STALE, 0])
        self.together = together or one_node(self.comm)
        #: processors of a node that its ranks may use
        self.cores = cores(self.comm)
        #: fruitless polls before others may have the processor
        self.spin = 20000 if not self.together or self.size <= self.cores else 0
        #: whether who waits for messages naps meanwhile, as where another thread computes
        self.rests = False
        self.scratch = Scratch()
        self.plans: dict[Order, Plan] = {}
        #: channels of some of the ranks, by their ranks here
        self.nodes: dict[tuple[int, ...], Channel] = {}
        #: addresses of operations' states by the arguments of the call, for the shortest way in
        self.fast: dict[tuple, int] = {}
        #: hashes of what all ranks are known to ask for alike
        self.agreed: set[int] = set()
        self.broken = ""  # why no more operations can run

    def plan(self, order: Order) -> "Plan":
        """The plan for an order, made on first use; the oldest go when there are too many."""
        if order not in self.plans:
            self.plans[order] = Plan(order, self)
            if len(self.plans) > MOST_PLANS:
                gone = self.plans.pop(next(iter(self.plans)))
                gone.operations[0].scratch.users.remove(gone.operations[0])
                for key in [key for key, state in self.fast.items() if state == gone.state]:
                    del self.fast[key]
        plan = self.plans[order]
        if plan.published and plan.node.counters[3] >= loop.STALE:
            plan.node.calibrate()
        return plan

    def inside(self, members: tuple[int, ...]) -> "Channel":
        """A channel of these ranks, ourselves among them, which share memory; collective over them on first use."""
        if members not in self.nodes:
            group = self.comm.Get_group()
            some = group.Incl(members)
            comm = self.comm.Create_group(some)
            self.nodes[members] = Channel(comm, self.timeout, together=True)
            comm.Free()
            some.Free()
            group.Free()
        return self.nodes[members]

    def running(self, state: int) -> Compiled:
        """The operation whose state is at an address."""
        for plan in self.plans.values():
            if plan.state == state and isinstance(plan.operations[0], Compiled):
                return plan.operations[0]
        raise RuntimeError(f"no operation has its state at {state:#x}")

    @once
    def window(self) -> Window:
        """The memory shared by all ranks; collective on first use."""
        return Window(self.comm, self.bcast, self.all_true)

    @once
    def device(self) -> Device:
        """What runs on our CUDA device; collective on first use."""
        return Device(self, cuda())

    def bcast(self, array: np.ndarray) -> None:
        """Copy rank 0's numbers to all ranks, by messages, within the deadline."""
        self.run(Order("bcast", "star", array.size, array.dtype), array)

    def all_true(self, mine: bool) -> bool:
        """Whether it is true on all ranks, found out by messages, within the deadline."""
        answer = np.array([mine])
        self.run(Order("allreduce", "one_shot", 1, answer.dtype, "land"), answer)
        return bool(answer[0])

    def agree(self, *facts: object) -> None:
        """Refuse what the ranks do not all ask for alike; collective when the facts are new here.

        Another codec can make messages of the same length, which then decode to something else on every rank.
        It takes no numbers of its own: random numbers are those of the operation that follows.

        Raises
        ------
        ValueError
            On all ranks, naming what this one asks for.
        """
        asked = ", ".join(map(str, facts))
        number = int.from_bytes(sha256(asked.encode()).digest()[:7], "little")
        if self.size == 1 or number in self.agreed:
            return
        begun, first = int(self.counters[0]), np.array([number])
        self.bcast(first)
        alike = self.all_true(first[0] == number)
        self.counters[0] = begun
        if not alike:
            raise ValueError(f"ranks ask for different things; rank {self.rank} for {asked}")
        if len(self.agreed) == MOST_AGREED:
            self.agreed.clear()
        self.agreed.add(number)

    @once
    def probe(self) -> Compiled:
        """What `calibrate` runs: an operation of its own, that no other can keep busy."""
        operation = Plan(PROBE, self).new()
        assert isinstance(operation, Compiled)
        return operation

    def calibrate(self) -> None:
        """Find out how to publish: cores are near or far, and on virtual machines that changes.

        Every rank runs the same all-reduces of 256 KB in both ways; what rank 0 finds is taken for all sizes. It takes
        half a millisecond, and is due again after so many bytes that it is not felt.
        """
        self.counters[3] = 0
        data, result = np.zeros((2, PROBE.count), PROBE.dtype)
        operation = self.probe
        best = dict.fromkeys((NEAR, TRIAL), float("inf"))
        with breaking_off(operation):
            for turn in range(TURNS):
                mode = self.counters[4] = (NEAR, TRIAL)[turn % 2]
                begin = time.perf_counter()
                for _ in range(CALLS):
                    if loop.run(operation.address, id(data), id(result)) == loop.AGAIN:
                        operation.watch((data, result))
                        finish(operation)
                best[mode] = min(best[mode], time.perf_counter() - begin)
        self.counters[4] = FAR if best[TRIAL] < BETWEEN * best[NEAR] else NEAR
        self.bcast(self.counters[4:])

    def run(self, order: Order, array: np.ndarray) -> None:
        """Run a collective in place."""
        run(self.plan(order), (array, array))

    def check(self) -> None:
        """Raise if no more operations can run."""
        if self.broken:
            raise RuntimeError(self.broken)

    def fail(self, reason: str) -> None:
        """Let no more operations run."""
        self.broken = self.broken or reason
        self.fast.clear()

    def close(self) -> None:
        """Free the duplicate; collective."""
        orderly = not self.broken
        self.fail("the Communicator is closed")
        self.plans.clear()
        if "device" in self.__dict__:
            self.device.close(orderly)
        for node in self.nodes.values():
            node.close()
        if "window" in self.__dict__:
            self.window.free()
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()


def cores(comm: MPI.Intracomm) -> int:
    """Processors of a node that the ranks may use together, each perhaps bound to its own; collective."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    usable = np.zeros(1 + MOST_CORES, np.uint8)
    usable[[min(core, MOST_CORES) for core in mine]] = 1
    comm.Allreduce(MPI.IN_PLACE, usable, MPI.MAX)
    return int(usable.sum())

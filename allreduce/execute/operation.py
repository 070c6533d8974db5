"""Operations: one run of a plan's table, by the compiled loop or by the Python interpreter."""

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from . import loop, state
from .interpreter import HostMemory, Interpreter
from .loop import DONE, ERROR
from .mpi_abi import handle, library, tag_limit, threads_need_lock
from .table import LINE, MOST_OPERATIONS, OPERATION, PEERS, RECV, RESIDUAL, SCRATCH, SEND, WAIT

if TYPE_CHECKING:
    from .bound import Plan

__all__ = ["CollectiveTimeout", "Compiled", "Interpreted", "Operation", "Scratch"]


class CollectiveTimeout(TimeoutError):
    """A collective did not end within the Communicator's timeout; names algorithm, step, peer and bytes."""


class Scratch:
    """Memory for messages that are still to be added, and whether an operation is using it.

    All plans of a channel share one, for blocking calls follow each other; an operation in flight beside another
    has its own. It only grows, and those who use it are told where it went.
    """

    def __init__(self) -> None:
        self.nbytes = self.address = 0
        self.busy = np.zeros(1, np.int64)
        self.users: list[Operation] = []

    def allocate(self, nbytes: int) -> None:
        """Be of another size, somewhere else."""
        self.memory = np.empty(nbytes + LINE, np.uint8)
        self.address = -(-self.memory.ctypes.data // LINE) * LINE

    def can_serve(self, nbytes: int) -> bool:
        """Whether there is room, or room can be made: not while messages come in."""
        return nbytes <= self.nbytes or not self.busy[0]

    def serve(self, user: "Operation", nbytes: int) -> None:
        """Have room for one more user."""
        self.users.append(user)
        if nbytes > self.nbytes:
            self.allocate(nbytes)
            self.nbytes = nbytes
            for other in self.users:
                other.moved()


_one_at_a_time = threading.RLock()


def lock() -> AbstractContextManager:
    """Around every entry into MPI where the library was not built or asked for threads."""
    return _one_at_a_time if threads_need_lock() else nullcontext()


class Operation:
    """One collective under way: `start` it, and `advance` it until it is DONE."""

    def __init__(self, plan: "Plan", scratch: Scratch) -> None:
        self.plan, self.scratch = plan, scratch
        self.buffers: tuple[Any, ...] = ()  # what must live as long as messages may touch it
        self.deadline = 0.0

    @property
    def busy(self) -> bool:
        """Whether it, or one that shares its memory, is running."""
        return bool(self.scratch.busy[0])

    def start(self, arrays: tuple[np.ndarray, ...]) -> None:
        """Begin, reading one array and writing the other; of an order that is `fed`, also the residual and losses."""
        self.plan.channel.check()
        self.watch(arrays)
        self._start(*(array.ctypes.data for array in arrays))

    def watch(self, buffers: tuple[Any, ...]) -> None:
        """Keep these alive until the end, and set the deadline."""
        self.buffers = buffers
        self.deadline = time.monotonic() + (self.plan.channel.timeout or 0)

    def _start(self, sendbuf: int, recvbuf: int, *fed: int) -> None:
        raise NotImplementedError

    def advance(self, patient: bool) -> int:
        """DONE or AGAIN, a tenth of a second later at most; raises what MPI reports."""
        raise NotImplementedError

    def row(self) -> int:
        """The row that is waited at."""
        raise NotImplementedError

    def moved(self) -> None:
        """The scratch memory is somewhere else."""

    def expire(self) -> None:
        """Raise if the deadline has passed."""
        channel, order = self.plan.channel, self.plan.order
        if channel.timeout is None or time.monotonic() < self.deadline:
            return
        here = self.row()
        kind, step, first, last, *_ = self.plan.rows[here]
        awaited = [
            f"{r[5]} bytes {'from' if r[0] == RECV else 'to'} rank {r[2]}"
            for r in self.plan.rows[:here]
            if r[0] in (SEND, RECV) and r[1] == step and kind == WAIT and first <= r[6] < last
        ] or [f"the other ranks of this node, with {order.count * order.dtype.itemsize} bytes"]
        steps = self.plan.rows[:, 1].max() + 1
        channel.fail(
            f"{order.collective} by {order.algorithm} on rank {channel.rank} of {channel.size}: no end after "
            f"{channel.timeout} s, waiting in step {step + 1} of {steps} for {', '.join(awaited)}"
        )
        raise CollectiveTimeout(channel.broken)


class Compiled(Operation):
    """Run by the compiled loop; its state is an array of words."""

    def __init__(self, plan: "Plan", scratch: Scratch) -> None:
        super().__init__(plan, scratch)
        mpi, table, channel, node = library(), plan.table, plan.channel, plan.node
        assert mpi is not None
        self.state = np.zeros(state.WORDS, np.int64)
        self.requests = np.zeros((table.requests + 1) * mpi.request_size, np.uint8)
        self.status = np.zeros(16, np.int64)
        self.bases, self.parts = np.zeros(PEERS + 4 * node.size, np.int64), np.zeros(node.size, np.int64)
        sends, recvs = plan.counts
        words = {
            state.ROWS: len(plan.rows), state.TABLE: plan.rows.ctypes.data, state.KERNELS: plan.addresses.ctypes.data,
            state.BUSY: scratch.busy.ctypes.data, state.BASES: self.bases.ctypes.data,
            state.REQUESTS: self.requests.ctypes.data, state.REQUEST_SIZE: mpi.request_size,
            state.COMM: handle(channel.comm), state.BYTE: mpi.byte, state.STATUS: self.status.ctypes.data,
            state.ISEND: mpi.isend, state.IRECV: mpi.irecv, state.TEST: mpi.test, state.WTIME: mpi.wtime,
            state.MEMCPY: mpi.memcpy, state.YIELD: mpi.sched_yield,
            state.REST: mpi.sched_yield if channel.together else mpi.usleep,
            state.TAG_LIMIT: mpi.tag_limit, state.COUNTERS: channel.counters.ctypes.data, state.SPIN: channel.spin,
            state.RANK: node.rank, state.SIZE: node.size, state.SIGNALS: table.signals,
            state.FLAGS: node.counters.ctypes.data,
            state.PARTS: self.parts.ctypes.data, state.PUBLISHED: plan.published,
            state.SEND_COUNT: sends, state.RECV_COUNT: recvs, state.ITEMSIZE: plan.order.dtype.itemsize,
            state.DTYPE: id(plan.order.dtype), state.NDARRAY: id(np.ndarray),
        }  # fmt: skip
        for word, value in words.items():
            self.state[word] = value
        self.address = self.state.ctypes.data
        self.moved()
        if table.signals:
            self.state[state.SHARED] = node.window.shared.ctypes.data
            self.state[state.MODE] = node.counters[4:].ctypes.data
            self.bases[PEERS + node.size : PEERS + 2 * node.size] = node.window.parts
        scratch.serve(self, table.scratch)

    def _start(self, sendbuf: int, recvbuf: int, *fed: int) -> None:
        self.bases[RESIDUAL : RESIDUAL + len(fed)] = fed
        loop.arm(self.address, sendbuf, recvbuf)

    def moved(self) -> None:
        self.bases[SCRATCH] = self.scratch.address

    def advance(self, patient: bool) -> int:
        with lock():
            return self.check(loop.advance(self.address, int(patient)))

    def check(self, code: int) -> int:
        """Raise what MPI reported."""
        if code == ERROR:
            self.plan.channel.fail("an earlier collective failed in MPI")
            raise MPI.Exception(int(self.state[state.CODE]))
        return code

    def row(self) -> int:
        return int(self.state[state.PC])


class Interpreted(Operation):
    """Run by the Python interpreter."""

    def __init__(self, plan: "Plan", scratch: Scratch) -> None:
        super().__init__(plan, scratch)
        self.interpreter: Interpreter | None = None
        scratch.serve(self, plan.table.scratch)

    def _start(self, sendbuf: int, recvbuf: int, *fed: int) -> None:
        channel = self.plan.channel
        begun = int(channel.counters[0])
        channel.counters[0] += 1
        self.scratch.busy[0] = 1
        bases = sendbuf, recvbuf, self.scratch.address, 0, *(fed or (0, 0))
        memory = self.memory(bases, begun % tag_limit(), begun % MOST_OPERATIONS * OPERATION)
        self.interpreter = Interpreter(self.plan.rows, memory)

    def memory(self, bases: tuple[int, ...], tag: int, number: int) -> Any:
        """What the interpreter works on."""
        return HostMemory(bases, self.plan.table.kernels, self.plan.channel.comm, tag, number)

    def advance(self, patient: bool) -> int:
        assert self.interpreter is not None
        with lock():
            code = self.interpreter.advance(patient)
        if code == DONE:
            self.scratch.busy[0] = 0
        return code

    def row(self) -> int:
        return self.interpreter.pc if self.interpreter else 0

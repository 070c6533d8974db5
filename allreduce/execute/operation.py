"""Operations: running instances of a plan, and the progress of all that are in flight."""

import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from mpi4py import MPI

from . import loop
from .interpreter import Interpreter
from .loop import DONE, ERROR
from .mpi_abi import handle, library, tag_limit, threads_need_lock
from .plan import Order, lower
from .table import RECV, SEND, Table

__all__ = ["Channel", "CollectiveTimeout", "Operation", "Plan", "Request", "finish", "in_flight", "waitall"]


#: Plans kept by one channel, and bytes of their own buffers.
MOST_PLANS, MOST_SCRATCH = 512, 1 << 28


class CollectiveTimeout(TimeoutError):
    """A collective did not end within the Communicator's timeout; names algorithm, step, peer and bytes."""


class Channel:
    """What all operations on one communicator share: a private duplicate of it, and the next tag.

    Operations must begin in the same order on all ranks, as MPI demands of collectives; each takes the next number
    as its tag, so that several in flight do not take each other's messages.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: float | None = None) -> None:
        self.comm = MPI.Intracomm(comm).Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = comm.rank, comm.size
        self.timeout = timeout
        self.sequence = np.zeros(1, np.int64)
        self.plans: dict[Order, Plan] = {}
        self.fast: dict[tuple, Plan] = {}  # by the arguments of the call, for the shortest way in
        self.broken = ""  # why no more operations can run

    def plan(self, order: Order) -> "Plan":
        """The plan for an order, made on first use; the oldest go when there are too many or too large ones."""
        plan = self.plans.get(order)
        if plan is None:
            plan = self.plans[order] = Plan(order, self)
            while len(self.plans) > MOST_PLANS or sum(p.table.scratch for p in self.plans.values()) > MOST_SCRATCH:
                oldest = next(iter(self.plans))
                if oldest == order:
                    break
                gone = self.plans.pop(oldest)
                self.fast = {key: kept for key, kept in self.fast.items() if kept is not gone}
        return plan

    def fail(self, reason: str) -> None:
        """Let no more operations run."""
        self.broken = self.broken or reason
        self.fast.clear()

    def close(self) -> None:
        """Free the duplicate; collective."""
        self.fail("the Communicator is closed")
        self.plans.clear()
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()


class Plan:
    """A table bound to a channel, with the operations that run it; more than one only if several are in flight."""

    def __init__(self, order: Order, channel: Channel) -> None:
        self.order, self.channel = order, channel
        self.table: Table = lower(order, channel.rank, channel.size)
        self.rows = self.table.array()
        self.compiled = library() is not None and all(k.address for k in self.table.kernels)
        self.addresses = np.array([k.address for k in self.table.kernels] or [0], np.int64)
        self.operations: list[Operation] = [self.new()]
        #: the address of the first operation's state for `loop.run`, or 0
        self.state = self.operations[0].state.ctypes.data if isinstance(self.operations[0], Compiled) else 0

    def new(self) -> "Operation":
        """One more operation."""
        return Compiled(self) if self.compiled else Interpreted(self)

    def operation(self) -> "Operation":
        """One that is not running."""
        for operation in self.operations:
            if not operation.busy:
                return operation
        self.operations.append(self.new())
        return self.operations[-1]

    @property
    def counts(self) -> tuple[int, int]:
        """Elements of the send and of the receive buffer."""
        count, size = self.order.count, self.channel.size
        part = count // size
        return {"reduce_scatter": (count, part), "allgather": (part, count)}.get(self.order.collective, (count, count))


class Operation:
    """One collective under way; `start` it, and `advance` it until it is DONE."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.scratch = np.empty(plan.table.scratch + 64, np.uint8)
        self.buffers: tuple[Any, ...] = ()  # what must live as long as messages may touch it
        self.deadline = 0.0

    @property
    def busy(self) -> bool:
        raise NotImplementedError

    def start(self, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        """Begin, reading one array and writing the other."""
        if self.plan.channel.broken:
            raise RuntimeError(self.plan.channel.broken)
        self.watch(arrays)
        self._start(arrays[0].ctypes.data, arrays[1].ctypes.data)

    def watch(self, buffers: tuple[Any, ...]) -> None:
        """Keep these alive until the end, and set the deadline."""
        self.buffers = buffers
        self.deadline = time.monotonic() + (self.plan.channel.timeout or 0)

    def _start(self, sendbuf: int, recvbuf: int) -> None:
        raise NotImplementedError

    def advance(self, patient: bool) -> int:
        """DONE or AGAIN, a tenth of a second later at most; raises what MPI reports."""
        raise NotImplementedError

    def row(self) -> int:
        """The row that is waited at."""
        raise NotImplementedError

    def expire(self) -> None:
        """Raise if the deadline has passed."""
        channel, order = self.plan.channel, self.plan.order
        if channel.timeout is None or time.monotonic() < self.deadline:
            return
        here = self.row()
        _, step, first, last, *_ = self.plan.rows[here]
        awaited = [
            f"{r[5]} bytes {'from' if r[0] == RECV else 'to'} rank {r[2]}"
            for r in self.plan.rows[:here]
            if r[0] in (SEND, RECV) and r[1] == step and first <= r[6] < last
        ]
        steps = self.plan.rows[-1][1] + 1
        channel.fail(
            f"{order.collective} by {order.algorithm} on rank {channel.rank} of {channel.size}: no end after "
            f"{channel.timeout} s, waiting in step {step + 1} of {steps} for {', '.join(awaited)}"
        )
        raise CollectiveTimeout(channel.broken)


class Compiled(Operation):
    """Run by the compiled loop; its state is an array of words."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        mpi, table, channel = library(), plan.table, plan.channel
        assert mpi is not None
        self.state = np.zeros(loop.WORDS, np.int64)
        self.requests = np.zeros((table.requests + 1) * mpi.request_size, np.uint8)
        self.status = np.zeros(16, np.int64)
        sends, recvs = plan.counts
        words = {
            loop.ROWS: len(plan.rows), loop.TABLE: plan.rows.ctypes.data, loop.KERNELS: plan.addresses.ctypes.data,
            loop.SCRATCH: -(-self.scratch.ctypes.data // 64) * 64,
            loop.REQUESTS: self.requests.ctypes.data, loop.REQUEST_SIZE: mpi.request_size,
            loop.COMM: handle(channel.comm), loop.BYTE: mpi.byte, loop.STATUS: self.status.ctypes.data,
            loop.ISEND: mpi.isend, loop.IRECV: mpi.irecv, loop.TEST: mpi.test, loop.WTIME: mpi.wtime,
            loop.MEMCPY: mpi.memcpy, loop.YIELD: mpi.sched_yield,
            loop.TAG_LIMIT: mpi.tag_limit, loop.SEQUENCE: channel.sequence.ctypes.data,
            loop.SEND_COUNT: sends, loop.RECV_COUNT: recvs, loop.ITEMSIZE: plan.order.dtype.itemsize,
            loop.DTYPE: id(plan.order.dtype), loop.NDARRAY: id(np.ndarray),
        }  # fmt: skip
        for word, value in words.items():
            self.state[word] = value
        self.address = self.state.ctypes.data

    @property
    def busy(self) -> bool:
        return bool(self.state[loop.BUSY])

    def _start(self, sendbuf: int, recvbuf: int) -> None:
        loop.arm(self.address, sendbuf, recvbuf)

    def advance(self, patient: bool) -> int:
        with lock():
            code = loop.advance(self.address, int(patient))
        return self.check(code)

    def check(self, code: int) -> int:
        """Raise what MPI reported."""
        if code == ERROR:
            self.plan.channel.fail("an earlier collective failed")
            raise MPI.Exception(int(self.state[loop.CODE]))
        return code

    def row(self) -> int:
        return int(self.state[loop.PC])


class Interpreted(Operation):
    """Run by the Python interpreter."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.interpreter: Interpreter | None = None

    @property
    def busy(self) -> bool:
        return self.interpreter is not None

    def _start(self, sendbuf: int, recvbuf: int) -> None:
        channel = self.plan.channel
        tag = int(channel.sequence[0]) % tag_limit()
        channel.sequence[0] += 1
        scratch = -(-self.scratch.ctypes.data // 64) * 64
        self.interpreter = Interpreter(
            self.plan.rows, self.plan.table.kernels, (sendbuf, recvbuf, scratch), channel.comm, tag
        )

    def advance(self, patient: bool) -> int:
        assert self.interpreter is not None
        with lock():
            code = self.interpreter.advance(patient)
        if code == DONE:
            self.interpreter = None
        return code

    def row(self) -> int:
        return self.interpreter.pc if self.interpreter else 0


class Request:
    """A collective in flight, as `MPI.Request`: Test it, or Wait for it.

    Attributes
    ----------
    result : object
        The receive buffer.
    """

    def __init__(self, operation: Operation, result: Any) -> None:
        self.operation, self.result, self.done = operation, result, False
        in_flight.append(self)

    def Wait(self, status: Any = None) -> bool:
        """Wait until the result is there, keeping all other requests moving."""
        if not self.done:
            finish(self.operation, self)
        return True

    def Test(self, status: Any = None) -> bool:
        """Move on without waiting; True if the result is there."""
        if not self.done:
            for request in list(in_flight):
                request.progress()
        return self.done

    def wait(self) -> Any:
        """Wait, and return the result."""
        self.Wait()
        return self.result

    def progress(self) -> None:
        if self.operation.advance(patient=False) == DONE:
            self.complete()

    def complete(self) -> None:
        self.operation.buffers = ()
        self.done = True
        in_flight.remove(self)


#: Begun and not ended, oldest first: whoever waits for one helps all.
in_flight: list[Request] = []

_one_at_a_time = threading.RLock()


def lock() -> AbstractContextManager:
    """Around every entry into MPI where the library was not built or asked for threads."""
    return _one_at_a_time if threads_need_lock() else nullcontext()


def finish(operation: Operation, request: Request | None = None) -> None:
    """Wait for an operation, keeping all others moving.

    Raises
    ------
    CollectiveTimeout, mpi4py.MPI.Exception
    """
    while True:
        others = [r for r in in_flight if r is not request]
        if operation.advance(patient=not others) == DONE:
            break
        for other in others:
            other.progress()
        operation.expire()
    if request:
        request.complete()
    operation.buffers = ()


def waitall(requests: Iterable[Any]) -> list[Any]:
    """Wait for requests, ours or MPI's, in any order; returns their results, None for MPI's."""
    requests = list(requests)
    for request in requests:
        request.Wait()
    return [getattr(request, "result", None) for request in requests]

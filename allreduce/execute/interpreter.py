"""The Python interpreter of a plan's table: for MPIs whose handles we do not know, and for kernels in Python.

It does what the compiled loop does, through a Memory that knows how to post, copy and apply; another kind of
memory, such as a device's, needs no third loop.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from .elements import Kernel
from .loop import AGAIN, DONE
from .state import SLICE
from .table import AWAIT, CALL, COPY, FUSE, HEAD, POLL, PUT, RECV, SEND, SIGNAL, WAIT

__all__ = ["HostMemory", "Interpreter"]

#: A buffer and an offset in it.
Place = tuple[int, int]


class HostMemory:
    """Ordinary memory: addresses are numbers, messages go through mpi4py.

    Parameters
    ----------
    bases : sequence of int
        Addresses of the buffers, see `table`.
    kernels : sequence of Kernel
    comm : MPI.Comm
    tag : int
    number : int
        Of the operation, for kernels that draw random numbers.
    """

    def __init__(self, bases: Sequence[int], kernels: Sequence[Kernel], comm: MPI.Comm, tag: int, number: int) -> None:
        self.bases, self.kernels, self.comm, self.tag = bases, kernels, comm, tag
        self.number = number

    def at(self, buffer: int, offset: int) -> int:
        """The address of a place; of a PLAIN number, the number."""
        return self.bases[buffer] + offset

    def post(self, kind: int, peer: int, buffer: int, offset: int, nbytes: int, varies: int) -> MPI.Request:
        memory = MPI.memory.fromaddress(self.at(buffer, offset), nbytes)
        if varies and kind == SEND:
            memory = memory[: varies + int.from_bytes(memory[:HEAD].tobytes(), "little")]
        message = [memory, MPI.BYTE]
        return (self.comm.Isend if kind == SEND else self.comm.Irecv)(message, peer, self.tag)

    def copy(self, to: Place, from_: Place, nbytes: int) -> None:
        target, origin = self.at(*to), self.at(*from_)
        if target != origin:
            MPI.memory.fromaddress(target, nbytes)[:] = MPI.memory.fromaddress(origin, nbytes)

    def apply(self, kernel: int, out: Place, a: Place, b: Place, count: int, number: int) -> None:
        self.kernels[kernel].call(self.at(*out), self.at(*a), self.at(*b), count, self.number + number)

    def arrived(self, requests: list[MPI.Request]) -> bool:
        """Whether these messages have been sent or received."""
        return MPI.Request.Testall(requests)


class Interpreter:
    """One run of a table.

    Parameters
    ----------
    rows : numpy.ndarray
        The table, shape (rows, COLUMNS).
    memory : HostMemory
        Or another with the same methods; for ranks that reach each other's memory also signal, met and fuse.
    """

    def __init__(self, rows: np.ndarray, memory: Any) -> None:
        self.rows, self.memory, self.pc = rows, memory, 0
        self.requests: dict[int, Any] = {}

    def advance(self, patient: bool) -> int:
        """Go on until DONE, or until something is not there yet: at once, or after a tenth of a second."""
        while self.pc < len(self.rows):
            kind, _, *r = self.rows[self.pc].tolist()
            if kind == WAIT:
                posted = [self.requests[i] for i in range(r[0], r[1])]
                there = lasting(partial(self.memory.arrived, posted), patient)
            elif kind == AWAIT:
                there = lasting(self.memory.met, patient)
            else:
                there = True
                self.do(kind, r)
            if not there:
                return AGAIN
            self.pc += 1
        return DONE

    def do(self, kind: int, r: list[int]) -> None:
        """A row that waits for nobody."""
        if kind in (SEND, RECV):
            self.requests[r[4]] = self.memory.post(kind, r[0], r[1], r[2], r[3], r[5])
        elif kind == POLL:
            self.memory.arrived([self.requests[r[0]]])
        elif kind in (COPY, PUT):
            self.memory.copy((r[0], r[1]), (r[2], r[3]), r[4])
        elif kind == CALL:
            self.memory.apply(r[0], (r[1], r[2]), (r[3], r[4]), (r[5], r[6]), r[7], r[8])
        elif kind == SIGNAL:
            self.memory.signal()
        elif kind == FUSE:
            self.memory.fuse(r[0], (r[1], r[2]), (r[3], r[4]), (r[5], r[6]), r[7], (r[8], r[9]))


def lasting(there: Callable[[], bool], patient: bool) -> bool:
    """Whether something is there: now, or within a tenth of a second."""
    since = time.monotonic_ns()
    while not there():
        if not patient or time.monotonic_ns() - since > SLICE:
            return False
        time.sleep(0)
    return True

"""Ranks of one node that map each other's device memory by CUDA-IPC, as host ranks do with a window.

A flag is raised by recording an event that the others have opened, and by an empty message that says so; whoever gets
it lets its own stream wait for the event. No kernel spins: ranks that share a device would wait for each other.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .layout import AREAS, area_bytes

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["Neighbours", "neighbours"]

#: An event is recorded again after so many flags. Two suffice: before a rank raises a flag, the others have raised the
#: last one, so they have asked their streams to wait for the last but one.
EVENTS = 2
#: Bytes of a handle, of memory or of an event.
HANDLE = 64
#: CUDA takes memory from pieces of so many bytes; others map whole ones, and are to see nothing else in them.
PIECE = 1 << 21


class Neighbours:
    """The memory and the events of all ranks of a node.

    Attributes
    ----------
    parts : list of int
        Where every rank's memory begins, as we see it.
    """

    def __init__(self, cuda: Any, work: Any, channel: "Channel") -> None:
        self.cuda, self.work, self.comm = cuda, work, channel.comm
        self.others = [q for q in range(channel.size) if q != channel.rank]
        self.rank, self.size = channel.rank, channel.size
        self.mine = 0
        self.events: list[list[Any]] = [[] for _ in range(channel.size)]
        self.parts: list[int] = []
        self.raised = 0
        self.requests: list[MPI.Request] = []

    def export(self, nbytes: int) -> np.ndarray:
        """The handles that the others open; shape (1 + EVENTS, HANDLE), uint8."""
        self.mine = self.cuda.malloc(-(-nbytes // PIECE) * PIECE)
        own = self.events[self.rank] = [self.cuda.shared_event() for _ in range(EVENTS)]
        handles = [self.cuda.export(self.mine), *(self.cuda.export_event(event) for event in own)]
        return np.frombuffer(b"".join(handles), np.uint8).reshape(1 + EVENTS, HANDLE)

    def open(self, handles: np.ndarray) -> None:
        """Map what all ranks have exported."""
        for q in range(self.size):
            if q == self.rank:
                self.parts.append(self.mine)
            else:
                memory, *events = (bytes(handle) for handle in handles[q])
                self.parts.append(self.cuda.open(memory))
                self.events[q] = [self.cuda.open_event(event) for event in events]

    def signal(self) -> None:
        """Tell the others that what was asked of our stream so far is what they wait for."""
        self.cuda.record(self.work, self.events[self.rank][self.raised % EVENTS])
        nothing = [bytearray(0), MPI.BYTE]
        self.requests = [self.comm.Irecv(nothing, q) for q in self.others]
        self.requests += [self.comm.Isend(nothing, q) for q in self.others]
        self.raised += 1

    def met(self) -> bool:
        """Whether all others have raised the flag too; then our stream waits for what they mean by it."""
        if not MPI.Request.Testall(self.requests):
            return False
        for q in self.others:
            self.cuda.wait(self.work, self.events[q][(self.raised - 1) % EVENTS])
        return True

    def close(self) -> None:
        """Give the memory back; collective."""
        for q, part in enumerate(self.parts):
            if q != self.rank:
                self.cuda.shut(part)
                for event in self.events[q]:
                    self.cuda.shut_event(event)
        self.comm.Barrier()  # memory must not go while another rank maps it
        if self.mine:
            self.cuda.free(self.mine)


def neighbours(cuda: Any, work: Any, channel: "Channel", nbytes: int) -> Neighbours | None:
    """Those of a channel whose ranks are on one node, or None, on all ranks, where one cannot; collective."""
    found = Neighbours(cuda, work, channel)
    handles = np.zeros((channel.size, 1 + EVENTS, HANDLE), np.uint8)
    with suppress(RuntimeError):  # of CUDA: in a container, say, or between devices without a way to each other
        handles[channel.rank] = found.export(AREAS * area_bytes(channel.size, nbytes))
    exported = channel.all_true(bool(found.mine))
    if exported:
        channel.comm.Allgather(MPI.IN_PLACE, handles)
        with suppress(RuntimeError):
            found.open(handles)
    if exported and channel.all_true(len(found.parts) == channel.size):
        return found
    found.close()
    return None

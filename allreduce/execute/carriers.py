"""How messages travel between devices: by an MPI that knows their memory, or through pinned memory of the host.

MPI does not wait for CUDA's streams. So nothing is handed to it before an event says that what was asked of the device
before is done: what is to be sent is written by then, and where is to be received nobody reads any more.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from mpi4py import MPI

from .table import RECV, SEND

__all__ = ["Aware", "Staged"]


class Message:
    """A message of which MPI may not know yet.

    Parameters
    ----------
    comm : MPI.Comm
    kind, peer, address, nbytes, tag : int
    ready : event
        After which MPI may have the memory.
    """

    def __init__(self, comm: MPI.Comm, kind: int, peer: int, address: int, nbytes: int, tag: int, ready: Any) -> None:
        self.comm, self.kind, self.peer, self.tag, self.ready = comm, kind, peer, tag, ready
        self.address, self.nbytes = address, nbytes
        self.request: Any = None
        self.status, self.ended = MPI.Status(), False

    def begin(self, address: int) -> None:
        """Hand it to MPI, in memory at an address."""
        post = self.comm.Isend if self.kind == SEND else self.comm.Irecv
        self.request = post([MPI.memory.fromaddress(address, self.nbytes), MPI.BYTE], self.peer, self.tag)

    def over(self) -> bool:
        """Whether it has been sent, or received: it may be shorter than the room for it."""
        if not self.ended and self.request is not None and self.request.Test(self.status):
            self.ended = True
            if self.kind == RECV:
                self.nbytes = self.status.Get_count(MPI.BYTE)
        return self.ended


class Aware:
    """Addresses of the device go to MPI itself, which hands them to the network where it can (GPUDirect RDMA)."""

    def __init__(self, cuda: Any, work: Any, comm: MPI.Comm) -> None:
        self.cuda, self.work, self.comm = cuda, work, comm
        self.waiting: deque[Message] = deque()

    def post(self, kind: int, peer: int, address: int, nbytes: int, tag: int) -> Message:
        message = Message(self.comm, kind, peer, address, nbytes, tag, self.cuda.record(self.work))
        self.waiting.append(message)
        return message

    def arrived(self, messages: list[Message]) -> bool:
        """Whether these have been sent or received; moves all on. MPI matches messages in posting order."""
        while self.waiting and self.cuda.done(self.waiting[0].ready):
            first = self.waiting.popleft()
            first.begin(first.address)
        return all(message.over() for message in messages)

    def free(self) -> None:
        pass


class Piece:
    """A message on its way through the host: `there` if MPI and the copies are done with the device's memory."""

    def __init__(self) -> None:
        self.there = False
        self.copied: Any = None  # after what the device is to wait for


class Staged:
    """Two pinned buffers for each peer and direction: one is copied while the other travels."""

    def __init__(self, cuda: Any, work: Any, comm: MPI.Comm) -> None:
        self.cuda, self.work, self.comm = cuda, work, comm
        self.out, self.into = cuda.stream(), cuda.stream()
        self.lanes: dict[tuple[int, int], Lane] = {}

    def post(self, kind: int, peer: int, address: int, nbytes: int, tag: int) -> Piece:
        if (kind, peer) not in self.lanes:
            self.lanes[kind, peer] = Lane(self)
        message = Message(self.comm, kind, peer, address, nbytes, tag, self.cuda.record(self.work))
        return self.lanes[kind, peer].append(message)

    def arrived(self, pieces: list[Piece]) -> bool:
        """Whether these have been sent, or received, so that the work that follows comes after them; moves all on."""
        for lane in self.lanes.values():
            lane.progress()
        if not all(piece.there for piece in pieces):
            return False
        for piece in pieces:
            if piece.copied:
                self.cuda.wait(self.work, piece.copied)
        return True

    def free(self) -> None:
        for lane in self.lanes.values():
            lane.free()


class Lane:
    """What goes to one peer, or comes from it: a piece has the buffer of the last but one, in posting order."""

    def __init__(self, carrier: Staged) -> None:
        self.carrier, self.cuda = carrier, carrier.cuda
        self.buffers, self.rooms = [0, 0], [0, 0]
        self.tasks: list[Iterator[None]] = []
        self.begun = self.posted = self.ended = 0

    def append(self, message: Message) -> Piece:
        piece = Piece()
        self.tasks.append((self.send if message.kind == SEND else self.receive)(self.begun, message, piece))
        self.begun += 1
        return piece

    def progress(self) -> None:
        """Move all pieces on as far as they get without waiting."""
        self.tasks = [task for task in self.tasks if next(task, self) is None]

    def send(self, number: int, message: Message, piece: Piece) -> Iterator[None]:
        cuda, out = self.cuda, self.carrier.out
        while number >= self.ended + 2:
            yield
        buffer = self.buffer(number, message.nbytes)
        cuda.wait(out, message.ready)
        cuda.copy(buffer, message.address, message.nbytes, out)
        copied = cuda.record(out)
        while number > self.posted or not cuda.done(copied):
            yield
        message.begin(buffer)
        self.posted += 1
        while number > self.ended or not message.over():
            yield
        self.ended += 1
        piece.there = True

    def receive(self, number: int, message: Message, piece: Piece) -> Iterator[None]:
        cuda, into = self.cuda, self.carrier.into
        while number >= self.ended + 2 or number > self.posted:
            yield
        buffer = self.buffer(number, message.nbytes)
        message.begin(buffer)
        self.posted += 1
        while not message.over():
            yield
        cuda.wait(into, message.ready)
        cuda.copy(message.address, buffer, message.nbytes, into)
        piece.copied = cuda.record(into)
        piece.there = True
        while number > self.ended or not cuda.done(piece.copied):
            yield
        self.ended += 1

    def buffer(self, number: int, nbytes: int) -> int:
        """One of the two, which nobody uses."""
        which = number % 2
        if nbytes > self.rooms[which]:
            self.release(which)
            self.buffers[which], self.rooms[which] = self.cuda.pinned(nbytes), nbytes
        return self.buffers[which]

    def release(self, which: int) -> None:
        if self.rooms[which]:
            self.cuda.free_pinned(self.buffers[which])
            self.rooms[which] = 0

    def free(self) -> None:
        for which in range(2):
            self.release(which)

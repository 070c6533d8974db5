"""The table both interpreters read: rows that name addresses, counts and requests, and nothing else."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..schedules import ranges
from .elements import Kernel

__all__ = [
    "AGREE",
    "AWAIT",
    "CALL",
    "COLUMNS",
    "COPY",
    "END",
    "FAR",
    "FUSE",
    "HEAD",
    "HELLO",
    "LINE",
    "LOSSES",
    "MOST_OPERATIONS",
    "NEAR",
    "NOWHERE",
    "ONCE",
    "OPERATION",
    "PAST",
    "PEERS",
    "PLAIN",
    "POLL",
    "PUBLISHING",
    "PUT",
    "RECV",
    "RECVBUF",
    "RESIDUAL",
    "SCRATCH",
    "SEND",
    "SENDBUF",
    "SIGNAL",
    "STRIP",
    "TRIAL",
    "USUALLY",
    "WAIT",
    "Posted",
    "Region",
    "Table",
    "aligned",
]  # fmt: skip

#: Kinds of rows. The columns are kind, step, and then
#:   SEND, RECV  peer, buffer, offset, bytes, request; how many begin it, with the length of the rest, if that varies
#:   WAIT        first request, one past the last
#:   POLL        request: look at it, so that MPI moves on with all messages
#:   COPY        to buffer, offset, from buffer, offset, bytes
#:   CALL        kernel, out buffer, offset, a buffer, offset, b buffer, offset, count, number: the operation's, as
#:               many OPERATIONs, is added to it
#: and, among ranks that share memory,
#:   SIGNAL      buffer, offset, number: raise our flag there to the number
#:   AWAIT       first buffer, offset, number: until the flags of all others have reached it
#:   HELLO       bytes sent, bytes received, number: say where our arrays lie, and SIGNAL in the control area
#:   AGREE       row to go to if all inputs are shared, row if outputs too
#:   FUSE        kernel, out buffer, offset, own buffer, offset, first buffer of the others', offset, count,
#:               second out buffer, offset, bytes of one of the count, how to write the first, the second
#:   PUT         as COPY, and how to write
#:   ONCE        row to go to if cores are far apart, and so one shot the faster way
#:   END         stop here
SEND, RECV, WAIT, COPY, CALL, SIGNAL, AWAIT, HELLO, AGREE, FUSE, PUT, ONCE, END, POLL = range(14)
COLUMNS = 15

#: A message of a length that depends on the data begins with that length, in so many bytes.
HEAD = 8

#: Operations are told apart by a multiple of this, steps by less; beyond MOST_OPERATIONS they begin again.
OPERATION, MOST_OPERATIONS = 1 << 12, 1 << 28

#: Buffers: the caller's two, and our own. An operand in PLAIN is no address but the number in its offset. What is to be
#: added to the send buffer, and where that is done, and in the end what codecs lose. From PEERS on come groups of one
#: buffer per rank: see `window`.
SENDBUF, RECVBUF, SCRATCH, PLAIN, RESIDUAL, LOSSES, PEERS = range(7)

#: How cores are to each other: near, in one cache, or far apart, where it is better to publish past the caches and,
#: of two ranks, to do it in one shot; the first of these alone is what is tried out.
NEAR, TRIAL, FAR = range(3)

#: How to write: as usual; to where other ranks will read, as is best there; past the caches.
USUALLY, PUBLISHING, PAST = range(3)
#: So many bytes of a sum that is written past the caches are made at a time, in the first-level cache.
STRIP = 4096

LINE = 64


def aligned(nbytes: int) -> int:
    """Rounded up to whole cache lines."""
    return -(-nbytes // LINE) * LINE


class Region(NamedTuple):
    """A place in a buffer, so many bytes from its beginning."""

    buffer: int
    offset: int

    def after(self, nbytes: int) -> "Region":
        return Region(self.buffer, self.offset + nbytes)


NOWHERE = Region(PLAIN, 0)


class Posted(NamedTuple):
    """A message, or a piece of one, on its way: the region it uses, and its request."""

    region: Region
    nbytes: int
    request: int

    def touches(self, region: Region, nbytes: int) -> bool:
        """Whether it overlaps a region; the caller's two buffers may be one."""
        mine, other = self.region, region
        same = mine.buffer == other.buffer or {mine.buffer, other.buffer} == {SENDBUF, RECVBUF}
        return same and mine.offset < other.offset + nbytes and other.offset < mine.offset + self.nbytes


class Table:
    """The rows of one rank's plan, as they come to be.

    Attributes
    ----------
    rows : list of tuple
    kernels : list of Kernel
        What CALL rows call.
    scratch : int
        Bytes of our own buffer that the rows use.
    requests : int
        Most requests in flight at once.
    segment : int
        Bytes of the pieces of a long message, if not as many as is best on the host.
    """

    def __init__(self, segment: int = 0) -> None:
        self.segment = segment
        self.rows: list[tuple[int, ...]] = []
        self.kernels: list[Kernel] = []
        self.scratch = self.requests = 0
        self.step = 0
        self._kept = self._used = 0  # bytes of our own buffer reserved for good, and until the step ends
        self._posted = 0
        self._waited: set[int] = set()
        self.signals = 0  # numbers that the flags of shared memory advance by

    def array(self) -> np.ndarray:
        """The rows as an array of shape (rows, COLUMNS), int64."""
        table = np.zeros((len(self.rows), COLUMNS), np.int64)
        for i, row in enumerate(self.rows):
            table[i, : len(row)] = row
        return table

    def keep(self, nbytes: int) -> Region:
        """Room in our own buffer until the plan ends."""
        region = self.box(nbytes)
        self._kept = self._used
        return region

    def box(self, nbytes: int) -> Region:
        """Room in our own buffer until the step ends."""
        region = Region(SCRATCH, self._used)
        self._used += aligned(nbytes)
        self.scratch = max(self.scratch, self._used)
        return region

    def copy(self, to: Region, from_: Region, nbytes: int) -> None:
        if nbytes and to != from_:
            self.rows.append((COPY, self.step, *to, *from_, nbytes))

    def put(self, to: Region, from_: Region, nbytes: int, how: int = PUBLISHING) -> None:
        if nbytes and to != from_:
            self.rows.append((PUT, self.step, *to, *from_, nbytes, how))

    def apply(self, kernel: Kernel, out: Region, a: Region, b: Region, count: int, number: int = 0) -> None:
        if count:
            self.rows.append((CALL, self.step, self.number(kernel), *out, *a, *b, count, number))

    def fuse(
        self,
        kernel: Kernel,
        outs: Sequence[tuple[Region, int]],
        own: Region,
        others: Region,
        count: int,
        nbytes: int,
    ) -> None:
        """Add up all ranks' parts: our own, and at `others`, a place in the first of a group of buffers, the rest.

        The sum, of `nbytes`, goes to one or two places, each with how to write it.
        """
        if count:
            (out, how), (also, how_also) = (*outs, (NOWHERE, USUALLY))[:2]
            places = (*out, *own, *others, count, *also, nbytes // count, how, how_also)
            self.rows.append((FUSE, self.step, self.number(kernel), *places))
            if how != USUALLY or how_also != USUALLY:
                self.scratch = max(self.scratch, STRIP)

    def meet(self, flags: int, rank: int, number: int) -> None:
        """Raise our flag, at the beginning of our buffer of a group, to a number and wait for the others to do so."""
        self.rows.append((SIGNAL, self.step, flags + rank, 0, number))
        self.rows.append((AWAIT, self.step, flags, 0, number))
        self.signals = max(self.signals, number)

    def number(self, kernel: Kernel) -> int:
        """The place of a kernel among ours."""
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        return self.kernels.index(kernel)

    def post(self, kind: int, peer: int, region: Region, nbytes: int, piece: int, varies: int = 0) -> list[Posted]:
        """Send or receive, in pieces of at most `piece` bytes."""
        pieces = []
        for start in range(0, nbytes, piece):
            part = Posted(region.after(start), min(piece, nbytes - start), self._posted)
            self.rows.append((kind, self.step, peer, *part.region, part.nbytes, part.request, varies))
            self._posted += 1
            pieces.append(part)
        return pieces

    def poll(self) -> None:
        """Before what takes a while: let MPI move on with what was just sent; few do so by themselves."""
        if self.rows and self.rows[-1][0] == SEND:
            self.rows.append((POLL, self.step, self.rows[-1][-2]))

    def wait(self, posted: Iterable[Posted]) -> None:
        """Wait for those of these messages that have not been waited for."""
        for run in ranges(sorted({p.request for p in posted} - self._waited)):
            self._waited.update(run)
            last = self.rows[-1]
            if last[0] == WAIT and last[3] == run.start:
                self.rows[-1] = (WAIT, self.step, last[2], run.stop)
            else:
                self.rows.append((WAIT, self.step, run.start, run.stop))

    def end_step(self, posted: Iterable[Posted]) -> None:
        """Wait for all that is still on its way, and let the next step use the same room and requests."""
        self.wait(posted)
        self.requests = max(self.requests, self._posted)
        self._used, self._posted, self._waited = self._kept, 0, set()
        self.step += 1

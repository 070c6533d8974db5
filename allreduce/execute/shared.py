"""Lowering for ranks that share memory: they read each other's values instead of sending messages.

The schedules are the same. A Send becomes a copy into one's own part of the window, and a raised flag; a Recv waits
for the sender's flag and reads from the sender's part. Long vectors go in segments, as `pipelined` arranges them:
while one is added the next is published, in areas of the window that are used in turn. What comes from all ranks is
added in one pass, rounded once. A place is reused only after all others have raised a flag that they raise after
their last look at it.

Arrays from `empty_shared` lie where all ranks can read and write them: then inputs are not copied, and results are
written where they are wanted.
"""

from typing import NamedTuple

from ..algorithms import halves
from ..schedules import Recv, Schedule, Send, pipelined, relabel, share, sums, then
from . import reductions
from .elements import Kernel
from .layout import AREA, AREAS, CACHE, LONG, SLOT, area_bytes
from .lowering import Vector
from .plan import Order
from .table import (
    AGREE,
    AWAIT,
    END,
    HELLO,
    LINE,
    ONCE,
    PAST,
    PEERS,
    PUBLISHING,
    RECVBUF,
    SENDBUF,
    USUALLY,
    Region,
    Table,
    aligned,
)

__all__ = ["ONE_SHOT", "ONE_SLOT", "SMALL", "lower_shared"]

#: Up to this many bytes everyone adds everything; of two ranks, who so move no more bytes than in two shots, to this.
ONE_SHOT, ONE_SHOT_OF_TWO = 1 << 14, 1 << 16
#: Two whose cores are far apart, up to this.
ONE_SHOT_OF_FAR = 1 << 22
#: Up to this many bytes ordinary stores are the fastest, wherever the other core is.
SMALL = 1 << 11
#: Up to this many bytes, and ranks, the whole vector goes through one slot a rank.
ONE_SLOT, MOST_RANKS = 1 << 18, 256
assert ONE_SLOT + 2 * LINE * MOST_RANKS <= SLOT


def lower_shared(order: Order, rank: int, size: int) -> Table:
    """The table of one rank, all of whose peers share its memory."""
    table, nbytes = Table(), order.count * order.dtype.itemsize
    if order.collective == "allreduce" and nbytes <= (ONE_SHOT_OF_TWO if size == 2 else ONE_SHOT):
        lower_short(table, order, rank, size)
    elif nbytes <= ONE_SLOT and size <= MOST_RANKS:
        through_slots(table, order, rank, size)
    else:
        through_areas(table, order, rank, size)
    return table


def through_slots(table: Table, order: Order, rank: int, size: int) -> None:
    """All of it at once."""
    two = of_two(order, size)
    if two:
        table.rows.append(())
    schedule = then(*halves(schedule_of(order), rank, size, order.collective, order.root))
    Shared(table, order, rank, size, schedule, Place(PEERS, LINE, 0)).run(schedule, 1)
    if two:
        table.rows[0] = (ONCE, 0, len(table.rows))
        lower_short(table, order, rank, size)


def through_areas(table: Table, order: Order, rank: int, size: int) -> None:
    """In segments, and with shared arrays where they lie, if all have them."""
    segments = -(-order.count * order.dtype.itemsize // AREA)
    schedule = in_segments(schedule_of(order), order, rank, size, segments)
    areas = Place(PEERS + size, LONG, area_bytes(size))
    table.rows += [(HELLO, 0, *buffer_bytes(order, size), 1), (AWAIT, 0, PEERS + size, 0, 1), (), (ONCE, 0, 4)]
    table.signals = 1
    Shared(table, order, rank, size, schedule, areas, segments).run(schedule, 2)
    if of_two(order, size):
        table.rows[3] = (ONCE, 0, len(table.rows))
        one_shot = in_segments("one_shot", order, rank, size, segments)
        Shared(table, order, rank, size, one_shot, areas, segments).run(one_shot, 2)
    with_inputs = len(table.rows)
    Shared(table, order, rank, size, schedule, areas, segments, inputs=True).run(schedule, 2)
    with_both = with_inputs
    if order.collective == "allreduce":
        with_both = len(table.rows)
        write_everywhere(table, order, rank, size)
    table.rows[2] = (AGREE, 0, with_inputs, with_both)


def schedule_of(order: Order) -> str:
    return "star" if order.collective in ("reduce", "bcast") else "direct"


def of_two(order: Order, size: int) -> bool:
    """Whether `one_shot` is worth a try."""
    return size == 2 and order.collective == "allreduce" and order.count * order.dtype.itemsize <= ONE_SHOT_OF_FAR


def in_segments(name: str, order: Order, rank: int, size: int, segments: int) -> Schedule:
    """A schedule, pipelined; a segment holds a piece of every rank's share, so that shares stay whole."""
    whole = then(*halves(name, rank, size, order.collective, order.root))
    names = [i * segments + g for g in range(segments) for i in range(whole.blocks)]
    return relabel(pipelined(whole, segments), names)


def buffer_bytes(order: Order, size: int) -> tuple[int, int]:
    """Bytes of the caller's two buffers."""
    whole, part = order.count * order.dtype.itemsize, order.count // size * order.dtype.itemsize
    return {"reduce_scatter": (whole, part), "allgather": (part, whole)}.get(order.collective, (whole, whole))


def results(order: Order, size: int) -> int:
    """How to write results: past the caches where these cannot hold them until they are read."""
    return PAST if 2 * size * order.count * order.dtype.itemsize > CACHE else USUALLY


def kernel_of(order: Order) -> tuple[Kernel, int]:
    """What adds the parts of all ranks."""
    assert isinstance(order.op, str)
    return reductions.fused(order.dtype, order.op)


def lower_short(table: Table, order: Order, rank: int, size: int) -> None:
    """`one_shot` out of one slot a rank: a few bytes travel in the cache line of the flag."""
    kernel, elements = kernel_of(order)
    nbytes = order.count * order.dtype.itemsize
    beside = 8 if nbytes <= LINE - 8 else LINE
    publish = table.copy if nbytes <= SMALL or size == 2 else table.put
    publish(Region(PEERS + rank, beside), Region(SENDBUF, 0), nbytes)
    table.meet(PEERS, rank, 1)
    outs = [(Region(RECVBUF, 0), USUALLY)]
    table.fuse(kernel, outs, Region(SENDBUF, 0), Region(PEERS, beside), order.count * elements, nbytes)


def write_everywhere(table: Table, order: Order, rank: int, size: int) -> None:
    """All arrays are shared: add up one's own share of them, and write it to everyone's result."""
    kernel, elements = kernel_of(order)
    itemsize, mine = order.dtype.itemsize, share(order.count, size, rank)
    others = [q for q in range(size) if q != rank]
    for start in range(mine.start, mine.stop, AREA // itemsize):
        count = min(AREA // itemsize, mine.stop - start)
        here = Region(RECVBUF, start * itemsize)
        there = [Region(PEERS + 3 * size + q, start * itemsize) for q in others]
        inputs = Region(PEERS + 2 * size, start * itemsize)
        own, how = Region(SENDBUF, start * itemsize), results(order, size)
        outs = [(region, how) for region in (here, *there[:1])]
        table.fuse(kernel, outs, own, inputs, count * elements, count * itemsize)
        for region in there[1:]:
            table.put(region, here, count * itemsize, how)
    table.meet(PEERS + size, rank, 2)
    table.rows.append((END, 0))


class Place(NamedTuple):
    """Where ranks publish: a group of buffers that begin with a flag, where in them, and how far areas are apart."""

    group: int
    start: int
    apart: int


class Shared(Vector):
    """A vector whose schedule runs through the window.

    Parameters are those of the order, and
    place : Place
    segments : int
        That the schedule is pipelined in.
    inputs : bool
        Whether all ranks' inputs are shared arrays, to be read where they are.
    """

    def __init__(
        self,
        table: Table,
        order: Order,
        rank: int,
        size: int,
        schedule: Schedule,
        place: Place,
        segments: int = 1,
        inputs: bool = False,
    ) -> None:
        itemsize, part = order.dtype.itemsize, order.count // size * order.dtype.itemsize
        source, work = Region(SENDBUF, 0), Region(RECVBUF, 0)
        self.input_start = [0] * size  # where block 0 would be in a rank's input, seen from its beginning
        if order.collective == "reduce_scatter":
            work = Region(RECVBUF, -rank * part)  # only our own share is ever written
        elif order.collective == "allgather":
            self.input_start = [-q * part for q in range(size)]
            source = Region(SENDBUF, -rank * part)
        elif order.collective == "bcast":
            source = work
        super().__init__(table, rank, order.count, itemsize, schedule.blocks, source, work)
        self.order, self.size, self.place, self.segments, self.inputs = order, size, place, segments, inputs
        self.from_inputs = inputs and order.collective in ("allgather", "bcast")
        #: whether sums are wanted by others
        self.spreads = any(isinstance(m, Recv) and not m.add for step in schedule.steps for m in step)
        #: one shot of two ranks is the fastest with ordinary stores
        self.once = order.collective == "allreduce" and size == 2 and not self.spreads
        self.published: set[int] = set()
        self.results = results(order, size)

    def area(self, rank: int, block: int) -> Region:
        """Where a rank publishes a block: a place in the area of the block's segment."""
        owner, segment = divmod(block, self.segments)
        stride = aligned(-(-self.count // self.blocks) * self.itemsize)
        start = self.place.start + segment % AREAS * self.place.apart + owner * stride
        return Region(self.place.group + rank, start)

    def input(self, rank: int, block: int) -> Region:
        """Where a block is in a rank's shared input."""
        return Region(PEERS + 2 * self.size + rank, self.input_start[rank] + self.offset(block))

    def run(self, schedule: Schedule, number: int = 1) -> None:
        """Append the steps of a schedule, the first of which raises the flags to a number."""
        for step in schedule.steps:
            self.publish({b for m in step if isinstance(m, Send) for b in m.blocks} - self.published)
            self.table.meet(self.place.group, self.rank, number)
            number += 1
            self.take([m for m in step if isinstance(m, Recv) and not m.add])
            self.add([m for m in step if isinstance(m, Recv) and m.add])
            self.table.step += 1
        if self.inputs:  # the others may still be reading ours
            self.table.meet(self.place.group, self.rank, number)
        if self.order.collective in ("allreduce", "allgather") or self.size == 1:
            self.settle(range(self.blocks))
        self.table.rows.append((END, self.table.step))
        self.table.signals = max(self.table.signals, 1)

    def publish(self, blocks: set[int]) -> None:
        """Copy blocks to our area, but for those that can be read where they are."""
        for b in sorted(blocks):
            if not (self.inputs and (self.untouched[b] or self.from_inputs)):
                block = range(b, b + 1)
                put = self.table.copy if self.once else self.table.put
                put(self.area(self.rank, b), self.at(block), self.nbytes(block))

    def take(self, copies: list[Recv]) -> None:
        """Copy what others have published to where we work."""
        for m in copies:
            for b in m.blocks:
                block = range(b, b + 1)
                from_ = self.input(m.peer, b) if self.from_inputs else self.area(m.peer, b)
                self.table.put(self.home(block), from_, self.nbytes(block), self.results)
                self.written(block)

    def add(self, adds: list[Recv]) -> None:  # type: ignore[override]
        """Add up blocks over all ranks at once, and publish the sum if others want it."""
        kernel, elements = kernel_of(self.order)
        for blocks, which in sums(adds).items():
            assert len(which) == self.size - 1, "the window adds up what comes from all ranks at once"
            b = blocks.start
            others = self.input(0, b) if self.inputs else self.area(0, b)
            outs, nbytes = [(self.home(blocks), self.results)], self.nbytes(blocks)
            if self.spreads:
                outs.append((self.area(self.rank, b), PUBLISHING))
                self.published.update(blocks)
            self.table.fuse(kernel, outs, self.at(blocks), others, nbytes // self.itemsize * elements, nbytes)
            self.written(blocks)

"""Lowering with a codec: every hop is encoded, and still all ranks end with the same bits.

Three rules see to that. What arrives is added in ascending rank order. A rank that sends a block and adds to it in
one step adds what its own message decodes to, as the others do. And before a finished block is copied to other ranks
every rank that holds it replaces it by what its code decodes to; that code is forwarded unchanged, and decoded once
on each rank.

What an encoding loses is known where it is made. Where ranks hold the same sum, one of them answers for it: so the
result and the losses of all ranks add up to the inputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..schedules import Recv, Schedule, Send, Step, ranges
from . import reductions
from .elements import Kernel
from .inside import Node
from .lowering import Term
from .store import Store
from .table import LOSSES, OPERATION, PLAIN, RESIDUAL, SEND, SENDBUF, Posted, Region, Table
from .travelling import Travelling
from .wire import STREAM, Strip, Wire

__all__ = ["Coded", "speakers", "stream"]

NOTHING = Region(PLAIN, 0)


class Coded(Travelling):
    """The vector of the reduce half: values, which are encoded to be sent and added when they are decoded.

    Parameters are those of a `Vector`, and
    wire : Wire
    speakers : sequence of int
        The rank in whose name we encode, per step; and which of those that hold a finished block answers for it.
    keeps : bool
        What encodings lose that are ours to answer for is left in the source, which is else zero in the end.
    kernels : module
        With reduction, difference and zeros.
    """

    def __init__(
        self,
        table: Table,
        rank: int,
        count: int,
        itemsize: int,
        source: Region,
        work: Region,
        kernel: Kernel,
        wire: Wire,
        speakers: Sequence[int],
        keeps: bool = False,
        kernels: Any = reductions,
    ) -> None:
        super().__init__(table, rank, count, itemsize, len(wire.firsts) - 1, source, work, kernel)
        self.wire, self.speakers, self.keeps = wire, speakers, keeps
        self.zeros = kernels.zeros(wire.dtype)
        if keeps:
            self.difference = kernels.difference(wire.dtype)
            longest = max((strip.length for strip in wire.strips(range(self.blocks))), default=0)
            self.again = table.keep(longest * itemsize)
        self.absent = [(0, count)] if source.buffer == LOSSES else []
        self.boxes: dict[tuple[range, ...], Region] = {}  # what is encoded in this step, and where
        self.sent: list[tuple[range, Region]] = []

    def offset(self, block: int) -> int:
        return self.wire.firsts[block] * self.itemsize

    def length(self, blocks: range) -> int:
        return self.wire.length(blocks)

    def before(self, strip: Strip, blocks: range) -> int:
        """Bytes of the values of these blocks that come before a strip."""
        return strip.first * self.itemsize - self.offset(blocks.start)

    def run_step(self, step: Step) -> None:
        self.boxes, self.sent = {}, []
        super().run_step(step)

    def sending(self, group: list[Send], places: dict[range, Region]) -> Iterator[list[Posted]]:
        """Encode, unless that was done for another peer, and post strip by strip, or all at once if it is packed."""
        peer, total, names = group[0].peer, self.packs(group), tuple(m.blocks for m in group)
        fresh = names not in self.boxes
        if fresh:
            self.boxes[names] = self.table.box(sum(map(self.length, names)))
        box = self.boxes[names]
        for blocks in names:
            for strip in self.wire.strips(blocks):
                if fresh:
                    values = places[blocks].after(self.before(strip, blocks))
                    self.encode(box, values, strip, self.speakers[self.table.step], self.table.step)
                if not total:
                    yield self.post_strip(SEND, peer, box, strip)
            self.sent.append((blocks, box))
            box = box.after(self.length(blocks))
        if total:
            yield self.table.post(SEND, peer, self.boxes[names], total, self.piece)

    def encode(self, message: Region, values: Region, strip: Strip, rank: int, step: int) -> None:
        """With the random numbers of a rank and step, which are independent of those behind the values."""
        self.table.poll()
        self.fetch(values, strip.length)
        first, mine = Region(PLAIN, strip.first), self.keeps and self.speakers[step] == self.rank
        losing = self.wire.kernels.losing if mine and values == self.left(strip) else None
        kernel = losing or self.wire.kernels.encode
        self.table.apply(kernel, message.after(strip.start), values, first, strip.length, stream(rank, step))
        if self.keeps and not losing:
            self.lose(values, message.after(strip.start), strip, mine)

    def fetch(self, values: Region, count: int) -> None:
        """Before values are read in the source, make there those that were not made yet: sendbuf plus the residual."""
        if values.buffer != LOSSES:
            return
        absent, self.absent, first = self.absent, [], values.offset // self.itemsize
        for begin, end in absent:
            start, stop = max(begin, first), min(end, first + count)
            if start < stop:
                assert self.kernel is not None
                out, x, residual = (Region(buffer, start * self.itemsize) for buffer in (LOSSES, SENDBUF, RESIDUAL))
                self.table.apply(self.kernel, out, x, residual, stop - start)
            others = [(begin, min(end, start)), (max(begin, stop), end)] if start < stop else [(begin, end)]
            self.absent += [(a, b) for a, b in others if a < b]

    def lose(self, values: Region, message: Region, strip: Strip, mine: bool) -> None:
        """Leave in the source what a message lacks of its values, which are no longer needed if they are there."""
        assert self.kernel is not None
        left = self.left(strip)
        if not mine:
            if values == left:
                self.clear(left, strip.length)
        elif values == left:
            self.rest(left, left, message, strip.length)
        else:
            self.rest(self.again, values, message, strip.length)
            self.table.apply(self.kernel, left, left, self.again, strip.length)

    def left(self, strip: Strip) -> Region:
        """Where what is lost of these values is left."""
        return self.source.after(strip.first * self.itemsize)

    def rest(self, out: Region, values: Region, message: Region, count: int) -> None:
        """Write what a message lacks of its values."""
        kernels = self.wire.kernels
        if kernels.rest is not None:
            self.table.apply(kernels.rest, out, values, message, count)
        else:
            self.table.apply(kernels.decode, self.again, message, NOTHING, count)
            self.table.apply(self.difference, out, values, self.again, count)

    def clear(self, region: Region, count: int) -> None:
        """Write zeros: what was here has gone into a sum."""
        if self.keeps:
            self.table.apply(self.zeros, region, NOTHING, NOTHING, count)

    def settle(self, blocks: Iterable[int]) -> None:
        moved = [b for b in blocks if self.untouched[b]]
        for run in ranges(moved):
            self.fetch(self.at(run), self.nbytes(run) // self.itemsize)
        super().settle(moved)
        for run in ranges(moved):
            self.clear(self.source.after(self.offset(run.start)), self.nbytes(run) // self.itemsize)

    def decode(self, out: Region, message: Region, strip: Strip, to: Region | None = None) -> None:
        """Write what a message decodes to, or the sum of it and other values."""
        message = message.after(strip.start)
        if to is None:
            self.table.apply(self.wire.kernels.decode, out, message, NOTHING, strip.length)
        else:
            self.table.apply(self.wire.kernels.add, out, to, message, strip.length)

    def blank(self, region: Region, count: int) -> Region | None:
        """Of a sparse codec, make the zeros that it adds to while it is still on its way."""
        if not self.wire.codec.sparse:
            return None
        self.table.apply(self.zeros, region, NOTHING, NOTHING, count)
        return region

    def own(self, blocks: range) -> Region | None:
        """The message that we send of these blocks in this step, if we do."""
        return self.within(self.sent, blocks)

    def within(self, messages: list[tuple[range, Region]], blocks: range) -> Region | None:
        """The message of these blocks, as a part of one of more."""
        for whole, message in messages:
            if whole.start <= blocks.start and blocks.stop <= whole.stop:
                return message.after(self.length(range(whole.start, blocks.start)))
            assert whole.stop <= blocks.start or blocks.stop <= whole.start, f"{blocks} is sent in part"
        return None

    def add_up(self, blocks: range, terms: list[Term], leaving: list[Posted]) -> None:
        """Add terms in their order, strip by strip as they come; what precedes our own value is added beside it."""
        ours, coded = [term.peer for term in terms].index(self.rank), self.own(blocks)
        if coded is not None:
            terms[ours], ours = Term(self.rank, coded, []), -1
        elif ours == 1:  # the first two commute, bit for bit
            terms, ours = [terms[1], terms[0], *terms[2:]], 0
        strips = self.wire.strips(blocks)
        beside = self.table.box(max(s.length for s in strips) * self.itemsize) if ours > 0 else NOTHING
        for strip in strips:
            here = self.before(strip, blocks)
            home = self.home(blocks).after(here)
            total = self.blank(beside if ours > 0 else home, strip.length) if ours != 0 else None
            for i, term in enumerate(terms):
                if i == ours:
                    total = self.add_own(home, total, term.region.after(here), strip.length)
                    continue
                out, message = beside if i < ours else home, term.region.after(strip.start)
                self.table.wait(p for p in term.posted if p.touches(message, strip.nbytes))
                self.decode(out, term.region, strip, total)
                total = out
            if ours >= 0 and terms[ours].region != self.home(blocks):
                self.clear(terms[ours].region.after(here), strip.length)

    def add_own(self, home: Region, total: Region | None, value: Region, count: int) -> Region:
        """The sum of what precedes our own value, and it."""
        self.fetch(value, count)
        if total is None:
            return value
        assert self.kernel is not None
        self.table.apply(self.kernel, home, total, value, count)
        return home

    def spread(self, node: Node, copies: Sequence[Schedule], held: list[range]) -> None:
        """Run the copy half of a node's members, if there is one, from those who hold the finished blocks."""
        if copies[node.me].steps:
            store = Store(self, held)
            node.run(store, copies)
            store.finish(store.work, store.count)
            self.written(range(self.blocks))


def stream(rank: int, step: int) -> int:
    """The random numbers of a rank in a step."""
    return rank * STREAM + step % OPERATION


def speakers(schedules: Sequence[Schedule], rank: int) -> list[int]:
    """In whose name a rank encodes the whole vector, per step: of the lowest rank that contributed to what it holds.

    In an exchange several ranks hold the same sum, and must send it with the same random numbers. The last one is that
    of the result.
    """
    lowest, names = list(range(len(schedules))), []
    for steps in zip(*(schedule.steps for schedule in schedules)):
        names.append(lowest[rank])
        heard = [[lowest[m.peer] for m in step if isinstance(m, Recv)] for step in steps]
        lowest = [min(own, *others) if others else own for own, others in zip(lowest, heard)]
    return [*names, lowest[rank]]

"""Lowering: the steps of a schedule become rows of a table.

It avoids copying the input, for a block is read from where it lies until it is first written; idle waiting, for a
long message travels in pieces, each added while the next is on its way; and short messages in twos, for what goes
to one peer in one step is packed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..schedules import Recv, Schedule, Send, Step, cut, ranges, sums
from .elements import Kernel
from .table import RECV, SEND, Posted, Region, Table

__all__ = ["BETWEEN", "PACK", "SEGMENT", "Vector", "by_peer"]

#: Longer messages travel in pieces of so many bytes: a piece stays in the second-level cache until it is added.
SEGMENT = 1 << 18
#: The same between nodes: before it sends more than 64 KB Open MPI over TCP asks the receiver, whose answer comes
#: behind all that it has sent. On four hosts at 1 Gbit/s 0.9 MB to the next took 8.0 ms, in pieces of 256 KB 11.4.
BETWEEN = 60 << 10
#: Messages to one peer that are shorter together are packed into one.
PACK = 1 << 12


class Term(NamedTuple):
    """A value to be added: whose it is, where it lies, and the messages that bring it."""

    peer: int
    region: Region
    posted: list[Posted]


class Vector:
    """The vector that schedules move: cut into blocks, each in one of two places.

    Parameters
    ----------
    table : Table
        Receives the rows.
    rank : int
    count, itemsize : int
        Elements of the whole vector, and bytes of one.
    blocks : int
        Into how many blocks the schedules cut it.
    source, work : Region
        Where a block is read from until it is first written, and where it is written.
    kernel, elements : Kernel, int
        What adds, and how many of its elements one of ours is.
    """

    def __init__(
        self,
        table: Table,
        rank: int,
        count: int,
        itemsize: int,
        blocks: int,
        source: Region,
        work: Region,
        kernel: Kernel | None = None,
        elements: int = 1,
    ) -> None:
        self.table, self.rank, self.count, self.itemsize = table, rank, count, itemsize
        self.source, self.work, self.kernel, self.elements = source, work, kernel, elements
        self.blocks = blocks
        segment = table.segment or SEGMENT
        self.piece = max(itemsize, segment - segment % itemsize)
        self.untouched = [source != work] * blocks

    def offset(self, block: int) -> int:
        return cut(self.count, self.blocks, block) * self.itemsize

    def nbytes(self, blocks: range) -> int:
        return self.offset(blocks.stop) - self.offset(blocks.start)

    def length(self, blocks: range) -> int:
        """Bytes of the message that brings these blocks."""
        return self.nbytes(blocks)

    def elements_of(self, nbytes: int) -> int:
        """For the kernel."""
        return nbytes // self.itemsize * self.elements

    def home(self, blocks: range) -> Region:
        """Where these blocks are written."""
        return self.work.after(self.offset(blocks.start))

    def at(self, blocks: range) -> Region:
        """Where these blocks are now; brings them together if need be."""
        if all(self.untouched[b] for b in blocks):
            return self.source.after(self.offset(blocks.start))
        self.settle(blocks)
        return self.home(blocks)

    def settle(self, blocks: Iterable[int]) -> None:
        """Copy what lies in the source to where we work."""
        for run in ranges(b for b in blocks if self.untouched[b]):
            self.table.copy(self.home(run), self.source.after(self.offset(run.start)), self.nbytes(run))
            self.written(run)

    def written(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.untouched[block] = False

    def ready(self, blocks: range) -> Region:
        """Where these blocks can be read to be sent."""
        return self.at(blocks)

    def received(self, blocks: range) -> None:
        """They have come, and lie where we work."""
        self.written(blocks)

    def run(self, schedule: Schedule) -> None:
        """Append the steps of a schedule."""
        for step in schedule.steps:
            self.run_step(tuple(m for m in step if self.nbytes(m.blocks)))

    def run_step(self, step: Step) -> None:
        sends = [m for m in step if isinstance(m, Send)]
        recvs = [m for m in step if isinstance(m, Recv)]
        places = {m.blocks: self.at(m.blocks) for m in sends}
        places = {blocks: self.at(blocks) for blocks in places}  # the first pass may have moved some
        arriving = [arrival for group in by_peer(recvs) for arrival in self.post_recvs(group)]
        leaving = self.post_all(by_peer(sends), places)
        self.overwrite([(m, term) for m, term in arriving if not m.add])
        self.add([(m, term) for m, term in arriving if m.add], leaving)
        self.table.end_step([p for _, term in arriving for p in term.posted] + leaving)

    def packs(self, group: list) -> int:
        """The bytes of messages that travel as one, or 0."""
        total = sum(self.length(m.blocks) for m in group)
        return total if len(group) > 1 and total <= PACK else 0

    def post(self, kind: int, peer: int, region: Region, blocks: range) -> list[Posted]:
        """Send or receive what brings these blocks."""
        return self.table.post(kind, peer, region, self.length(blocks), self.piece)

    def post_recvs(self, group: list[Recv]) -> list[tuple[Recv, Term]]:
        """Post what comes from one peer, into boxes if it is to be added or comes packed."""
        peer, total, start, arriving = group[0].peer, self.packs(group), 0, []
        if total:
            box = self.table.box(total)
            posted = self.table.post(RECV, peer, box, total, self.piece)
        for m in group:
            nbytes = self.length(m.blocks)
            if total:
                region, start = box.after(start), start + nbytes
            else:
                region = self.table.box(nbytes) if m.add else self.home(m.blocks)
                posted = self.post(RECV, peer, region, m.blocks)
            arriving.append((m, Term(peer, region, posted)))
        return arriving

    def post_all(self, groups: list[list[Send]], places: dict[range, Region]) -> list[Posted]:
        """Post what goes to all peers."""
        return [p for group in groups for p in self.post_sends(group, places)]

    def post_sends(self, group: list[Send], places: dict[range, Region]) -> list[Posted]:
        """Post what goes to one peer."""
        peer, total = group[0].peer, self.packs(group)
        if not total:
            return [piece for m in group for piece in self.post(SEND, peer, places[m.blocks], m.blocks)]
        box, start = self.table.box(total), 0
        for m in group:
            self.table.copy(box.after(start), places[m.blocks], self.nbytes(m.blocks))
            start += self.nbytes(m.blocks)
        return self.table.post(SEND, peer, box, total, self.piece)

    def overwrite(self, arriving: list[tuple[Recv, Term]]) -> None:
        for m, term in arriving:
            if term.region != self.home(m.blocks):
                self.table.wait(term.posted)
                self.table.copy(self.home(m.blocks), term.region, self.nbytes(m.blocks))
            self.written(m.blocks)

    def add(self, arriving: list[tuple[Recv, Term]], leaving: list[Posted]) -> None:
        """Add what arrives to what we hold, in ascending rank order."""
        for blocks, which in sums([m for m, _ in arriving]).items():
            terms = [Term(self.rank, self.at(blocks), [])]
            for i in which:
                m, term = arriving[i]
                before = self.length(range(m.blocks.start, blocks.start))
                terms.append(term._replace(region=term.region.after(before)))
            self.add_up(blocks, sorted(terms), leaving)
            self.written(blocks)

    def add_up(self, blocks: range, terms: list[Term], leaving: list[Posted]) -> None:
        """Add terms in their order, piece by piece as they come; what precedes our own value is added in its box."""
        assert self.kernel is not None
        for start in range(0, self.nbytes(blocks), self.piece):
            length = min(self.piece, self.nbytes(blocks) - start)
            home = self.home(blocks).after(start)
            total, ours = terms[0].region.after(start), terms[0].peer == self.rank
            self.table.wait(p for p in terms[0].posted if p.touches(total, length))
            for term in terms[1:]:
                region = term.region.after(start)
                ours = ours or term.peer == self.rank
                out = home if ours else region
                self.table.wait(p for p in term.posted if p.touches(region, length))
                # a send reads the values from before the step
                self.table.wait(p for p in leaving if p.touches(out, length))
                self.table.apply(self.kernel, out, total, region, self.elements_of(length))
                total = out


def by_peer(messages: list) -> list[list]:
    """Messages grouped by peer, in posting order within a group."""
    groups: dict[int, list] = {}
    for m in messages:
        groups.setdefault(m.peer, []).append(m)
    return list(groups.values())

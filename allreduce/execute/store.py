"""Lowering of the copy half with a codec: finished blocks are encoded once, and their codes forwarded."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..schedules import Recv, Send
from .lowering import Term
from .table import SEND, Posted, Region
from .travelling import Travelling
from .wire import Strip

if TYPE_CHECKING:
    from .coded import Coded

__all__ = ["Store"]


class Store(Travelling):
    """The vector of the copy half: codes, forwarded as they are, and decoded as they come.

    Parameters
    ----------
    values : Coded
    held : list of range
        The finished blocks that are here. They are encoded when they are first sent, strip by strip.
    """

    def __init__(self, values: "Coded", held: list[range]) -> None:
        self.values, self.wire, nbytes = values, values.wire, values.wire.starts[-1]
        place = values.table.keep(nbytes)
        super().__init__(values.table, values.rank, nbytes, 1, values.blocks, place, place)
        self.step = values.table.step
        self.unfinished = [(run, strip) for run in held for strip in self.wire.strips(run)]

    def offset(self, block: int) -> int:
        return self.wire.starts[block]

    def finish(self, region: Region, nbytes: int) -> None:
        """Encode what is to be read here, by the same random numbers on all ranks, and decode it."""
        part, waiting = Posted(region, nbytes, 0), []
        for run, strip in self.unfinished:
            code, values = self.home(run), self.values.at(run).after(self.values.before(strip, run))
            if part.touches(code.after(strip.start), strip.nbytes):
                self.values.encode(code, values, strip, 0, self.step)
                self.decode(run, code, strip)
            else:
                waiting.append((run, strip))
        self.unfinished = waiting

    def decode(self, blocks: range, code: Region, strip: Strip, to: Region | None = None) -> None:
        self.values.decode(self.target(blocks, strip), code, strip, to)

    def target(self, blocks: range, strip: Strip) -> Region:
        """Where the values of a strip belong."""
        return self.values.home(blocks).after(self.values.before(strip, blocks))

    def post_strip(self, kind: int, peer: int, message: Region, strip: Strip) -> list[Posted]:
        if kind == SEND:
            self.finish(message.after(strip.start), strip.nbytes)
        return super().post_strip(kind, peer, message, strip)

    def sending(self, group: list[Send], places: dict[range, Region]) -> Iterator[list[Posted]]:
        if self.packs(group):
            for blocks, place in places.items():
                self.finish(place, self.nbytes(blocks))
            yield self.post_sends(group, places)
        else:
            for m in group:
                for strip in self.wire.strips(m.blocks):
                    yield self.post_strip(SEND, m.peer, places[m.blocks], strip)

    def ready(self, blocks: range) -> Region:
        self.finish(self.home(blocks), self.nbytes(blocks))
        return self.home(blocks)

    def received(self, blocks: range) -> None:
        for strip in self.wire.strips(blocks):
            self.decode(blocks, self.home(blocks), strip)

    def overwrite(self, arriving: list[tuple[Recv, Term]]) -> None:
        super().overwrite(arriving)
        coming = [[(m, term, strip) for strip in self.wire.strips(m.blocks)] for m, term in arriving]
        blank = {
            (m.blocks, strip): self.values.blank(self.target(m.blocks, strip), strip.length)
            for strips in coming
            for m, _, strip in strips
        }
        for turn in zip_longest(*coming):
            for m, term, strip in filter(None, turn):
                code = self.home(m.blocks)
                self.table.wait(p for p in term.posted if p.touches(code.after(strip.start), strip.nbytes))
                self.decode(m.blocks, code, strip, blank[m.blocks, strip])

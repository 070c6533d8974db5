"""Lowering with a codec that one kernel can decode, add and encode, as on a device: what is relayed is nowhere written.

Of what comes to be added, and of our own values, the message of the next step is made at once, if nothing else is made
of the sum.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from ..schedules import Recv, Send, Step
from .coded import Coded, stream
from .lowering import Term, by_peer
from .table import Posted, Region, aligned

__all__ = ["Relaying", "relayed"]


class Relaying(Coded):
    """A vector whose codec has a hop.

    Parameters
    ----------
    relayed : sequence of list of range
        Blocks of whose sum nothing but a message is made, per step.
    *arguments
        Those of `Coded`.
    """

    def __init__(self, relayed: Sequence[list[range]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.relayed = relayed
        self.ahead: list[tuple[range, Region]] = []  # messages of the next step
        nbytes = max((sum(aligned(self.length(blocks)) for blocks in each) for each in relayed), default=0)
        self.rooms = [self.table.keep(nbytes), self.table.keep(nbytes)]  # one is sent while the other is filled

    def post_all(self, groups: list[list[Send]], places: dict[range, Region]) -> list[Posted]:
        self.boxes, self.ahead = {(blocks,): message for blocks, message in self.ahead}, []
        return super().post_all(groups, places)

    def add(self, arriving: list[tuple[Recv, Term]], leaving: list[Posted]) -> None:
        self.rooms.reverse()
        room = self.rooms[0]
        for blocks in self.relayed[self.table.step]:
            if self.hops(blocks, [m.peer for m, _ in arriving if blocks.start in m.blocks]):
                self.ahead.append((blocks, room))
                room = room.after(aligned(self.length(blocks)))
        super().add([part for m, term in arriving for part in self.parts(m, term)], leaving)

    def hops(self, blocks: range, peers: list[int]) -> bool:
        """Whether what comes last is a message, and what is lost of the sum can take the place of our own values."""
        if not self.keeps:
            return len(peers) == 1 or max(peers, default=-1) > self.rank
        mine = self.speakers[self.table.step + 1] == self.rank
        return mine and len(peers) == 1 and self.own(blocks) is None and all(self.untouched[b] for b in blocks)

    def parts(self, m: Recv, term: Term) -> Iterator[tuple[Recv, Term]]:
        """What comes of these blocks, cut where messages of the next step begin and end."""
        inner = [edge for blocks, _ in self.ahead for edge in (blocks.start, blocks.stop) if edge in m.blocks]
        for start, stop in pairwise(sorted({m.blocks.start, *inner, m.blocks.stop})):
            if self.nbytes(range(start, stop)):
                before = self.length(range(m.blocks.start, start))
                yield m._replace(blocks=range(start, stop)), term._replace(region=term.region.after(before))

    def add_up(self, blocks: range, terms: list[Term], leaving: list[Posted]) -> None:
        out = self.within(self.ahead, blocks)
        if out is None:
            super().add_up(blocks, terms, leaving)
            return
        *first, last = terms if terms[-1].peer != self.rank else terms[::-1]  # of two, which commute
        values = first[0].region
        if len(first) > 1 or self.own(blocks) is not None:
            super().add_up(blocks, first, leaving)
            values = self.home(blocks)
        for strip in self.wire.strips(blocks):
            message, here = last.region.after(strip.start), values.after(self.before(strip, blocks))
            self.table.wait(p for p in last.posted if p.touches(message, strip.nbytes))
            self.fetch(here, strip.length)
            assert self.wire.kernels.hop is not None
            kernel, step = self.wire.kernels.hop(strip.first, self.keeps), self.table.step + 1
            number = stream(self.speakers[step], step)
            self.table.apply(kernel, out.after(strip.start), here, message, strip.length, number)


def relayed(steps: Sequence[Step]) -> list[list[range]]:
    """What is added to in a step of a reduce half only to be sent in the next, per step.

    Its values are needed no more if they are sent for good, for who holds a block in the end never gave it away; or if
    the step that sends them adds to what their message decodes to, as `Coded` says.
    """
    last = {block: t for t, step in enumerate(steps) for m in step for block in m.blocks}
    found = []
    for t, (step, following) in enumerate(pairwise([*steps, ()])):
        replaced = {block for m in following if isinstance(m, Recv) for block in m.blocks}
        done = {block for block in last if last[block] == t + 1} | replaced
        found.append([blocks for blocks in messages(following) if done.issuperset(blocks) and added(blocks, step)])
    return found


def messages(step: Step) -> list[range]:
    """What a step sends in messages of its own, and nothing of it in others."""
    groups = {tuple(m.blocks for m in group) for group in by_peer([m for m in step if isinstance(m, Send)])}
    times = Counter(block for group in groups for blocks in group for block in blocks)
    return [group[0] for group in groups if len(group) == 1 and all(times[block] == 1 for block in group[0])]


def added(blocks: range, step: Step) -> bool:
    """Whether a step adds to all of these blocks alike."""
    touching = [m for m in step if m.blocks.start < blocks.stop and blocks.start < m.blocks.stop]
    whole = all(m.blocks.start <= blocks.start and blocks.stop <= m.blocks.stop for m in touching)
    return whole and any(isinstance(m, Recv) for m in touching)

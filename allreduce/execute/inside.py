"""Lowering for ranks on several nodes: steps among the ranks of one node go through the memory they share.

All other steps go by messages. A step through memory is cut into segments: publish one's own, raise a flag, wait for
the others' flags, read. The areas of the window are used in turn, so that none is written again before all have
raised a flag that they raise after they have read it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..schedules import Recv, Schedule, Send, Step, share, sums
from . import reductions
from .elements import Kernel
from .layout import AREA, AREAS, OF_HOST, Areas
from .lowering import Vector
from .table import LINE, PEERS, USUALLY, Region, Table, aligned

__all__ = ["MOST_BLOCKS", "Node"]

#: That an area has room for, each on cache lines of its own.
MOST_BLOCKS = AREA // LINE


class Node:
    """The ranks of our node, and how the vector of an operation goes through their memory.

    Parameters
    ----------
    members : sequence of int
    rank : int
        One of them.
    dtype, op : numpy.dtype, str
        What is added up, and how; an average is divided later, by the ranks of all nodes.
    fused : function (dtype, op)
        The kernels.
    areas : Areas
        Where in the memory that they share.
    """

    def __init__(
        self,
        members: Sequence[int],
        rank: int,
        dtype: np.dtype,
        op: str | Kernel,
        fused: Callable[[np.dtype, str], tuple[Kernel, int]] = reductions.fused,
        areas: Areas = OF_HOST,
    ) -> None:
        self.members, self.size, self.me = members, len(members), members.index(rank)
        self.parts = PEERS + self.size  # the buffers that are the members' parts of the window
        self.dtype, self.op = dtype, "sum" if op == "avg" else op
        self.fused, self.areas = fused, areas
        self.used = 0  # areas so far, in turn

    def run(self, vector: Vector, schedules: Sequence[Schedule]) -> None:
        """Append the steps of a half, given for every member, to the vector's table."""
        for steps in zip(*(schedule.steps for schedule in schedules), strict=True):
            if self.suits(steps):
                self.run_step(vector, steps[self.me])
            else:
                vector.run(Schedule(vector.blocks, (steps[self.me],)))

    def suits(self, steps: Sequence[Step]) -> bool:
        """Whether a step of all members stays among them, adds only what comes from all, and mixes no blocks."""
        return any(steps) and all(
            all(m.peer in self.members for m in step)
            and all(len(which) == self.size - 1 for which in sums(adds(step)).values())
            and all(a.stop <= b.start for a, b in pairwise(sorted({m.blocks for m in step}, key=lambda b: b.start)))
            for step in steps
        )

    def run_step(self, vector: Vector, step: Step) -> None:
        """Append a step through the window."""
        assert isinstance(self.op, str)
        table, (kernel, elements) = vector.table, self.fused(self.dtype, self.op)
        gives = {m.blocks: vector.ready(m.blocks) for m in step if isinstance(m, Send)}
        totals = {m.blocks: vector.at(m.blocks) for m in adds(step)}
        copies = {m.blocks: self.members.index(m.peer) for m in step if isinstance(m, Recv) and not m.add}
        for segment in self.segments(vector):
            for blocks, own in gives.items():
                table.put(Region(self.parts + self.me, segment.place(blocks)), *segment.part(blocks, own))
            self.meet(table)
            for blocks, own in totals.items():
                out, nbytes = segment.part(blocks, vector.home(blocks))
                others, own = Region(self.parts, segment.place(blocks)), segment.part(blocks, own)[0]
                table.fuse(kernel, [(out, USUALLY)], own, others, nbytes // vector.itemsize * elements, nbytes)
            for blocks, peer in copies.items():
                out, nbytes = segment.part(blocks, vector.home(blocks))
                table.copy(out, Region(self.parts + peer, segment.place(blocks)), nbytes)
        for m in step:
            if isinstance(m, Recv):
                vector.received(m.blocks)
        table.step += 1

    def segments(self, vector: Vector) -> "list[Segment]":
        """So many that one fits into an area."""
        longest, several = max(vector.nbytes(range(b, b + 1)) for b in range(vector.blocks)), 1
        most = self.areas.nbytes // vector.blocks
        while (stride := aligned(-(-longest // (vector.itemsize * several)) * vector.itemsize)) > most:
            several += 1
        areas = [self.areas.at(self.used + i, self.size) for i in range(several)]
        self.used += several
        return [Segment(vector, i, several, area, stride) for i, area in enumerate(areas)]

    def meet(self, table: Table) -> None:
        table.signals += 1
        table.meet(self.parts, self.me, table.signals)

    def close(self, table: Table) -> None:
        """If the next operation would begin with the area that was used last, let all have read it."""
        if self.used % AREAS == 1:
            self.meet(table)


class Segment(NamedTuple):
    """The number-th of several segments of a vector, where its area begins, and how far blocks are apart there."""

    vector: Vector
    number: int
    several: int
    area: int
    stride: int

    def part(self, blocks: range, region: Region) -> tuple[Region, int]:
        """Where it is in these blocks, which begin at a region, and its bytes."""
        itemsize = self.vector.itemsize
        items = share(self.vector.nbytes(blocks) // itemsize, self.several, self.number)
        return region.after(items.start * itemsize), len(items) * itemsize

    def place(self, blocks: range) -> int:
        """Where members publish it, from the beginning of their parts."""
        return self.area + blocks.start * self.stride


def adds(step: Step) -> list[Recv]:
    return [m for m in step if isinstance(m, Recv) and m.add]

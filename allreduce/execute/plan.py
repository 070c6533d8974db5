"""Plans: what a collective of one shape needs to run again and again, made once.

A plan strings together phases: a reduce half on one element type, perhaps a division or a rounding at the owners,
a copy half on another. `recipe` says which, per collective; the rest is the same for all.
"""

from dataclasses import dataclass

import numpy as np

from compress.codec import Codec

from ..algorithms import TABLE, halves
from ..schedules import Schedule, mirror, owned, share
from . import reductions
from .coded import Coded, speakers
from .elements import Kernel
from .inside import Node
from .lowering import Vector
from .table import PLAIN, RECVBUF, SENDBUF, Region, Table
from .wire import Wire

__all__ = ["Order", "lower"]


@dataclass(frozen=True)
class Order:
    """What is asked for, in values that are equal on all ranks.

    Attributes
    ----------
    collective : str
    algorithm : str
        A name with its parameters, resolved: no "auto".
    count : int
        Elements of the whole vector: of sendbuf, but of recvbuf for an allgather.
    dtype : numpy.dtype
    op : str, or a Kernel for one made by the user
    accumulate : numpy.dtype or None
        The type that sums are made and travel in, if not the dtype.
    root : int
    params : tuple of (name, value)
        Of the algorithm.
    codec : Codec or None
        What travels is encoded with; of an all-reduce or a reduce, for a sum or an average.
    lost : bool
        Leave what the codec loses on the way in sendbuf.
    inside : bool
        Steps inside one of the algorithm's `nodes` go through memory that its ranks share.
    """

    collective: str
    algorithm: str
    count: int
    dtype: np.dtype
    op: str | Kernel = "sum"
    accumulate: np.dtype | None = None
    root: int = 0
    params: tuple = ()
    codec: Codec | None = None
    lost: bool = False
    inside: bool = False

    def members(self, rank: int) -> tuple[int, ...]:
        """The ranks that a rank shares memory with in this operation."""
        if not self.inside:
            return (rank,)
        return next(tuple(node) for node in dict(self.params)["nodes"] if rank in node)


def lower(order: Order, rank: int, size: int) -> Table:
    """The table of one rank."""
    table, node = Table(), Node(order.members(rank), rank, order.accumulate or order.dtype, order.op)
    both = [_halves(order, member, size) for member in node.members]
    reduce_half, copy_half = both[node.me]
    copies = [half for _, half in both]
    blocks, itemsize = reduce_half.blocks, order.dtype.itemsize
    source, final, kept = Region(SENDBUF, 0), Region(RECVBUF, 0), range(blocks)
    if order.collective == "reduce_scatter":
        final, kept = table.keep(order.count * itemsize), share(blocks, size, rank)
    elif order.collective == "reduce" and rank != order.root:
        final, kept = table.keep(order.count * itemsize), range(0)
    elif order.collective == "allgather":
        mine = order.count // size * itemsize
        table.copy(final.after(rank * mine), source, mine)
        source = final
    elif order.collective == "bcast":
        source = final

    if order.collective in ("allgather", "bcast"):
        result = Vector(table, rank, order.count, itemsize, blocks, source, final)
    else:
        summed = _start(order, table, rank, size, reduce_half, source, final)
        node.run(summed, [half for half, _ in both])
        held = owned(mirror(copy_half) if TABLE[order.algorithm].owner == "all" else reduce_half)
        _average(order, summed, held, size)
        if isinstance(summed, Coded):
            summed.spread(node, copies, held)
            copies, held = [Schedule(blocks, ())] * node.size, [kept]
        result = _rounded(order, summed, held, final)
    node.run(result, copies)
    node.close(table)
    if order.collective == "reduce_scatter":
        table.copy(Region(RECVBUF, 0), result.at(kept), result.nbytes(kept))
    else:
        result.settle(kept)
    return table


def _halves(order: Order, rank: int, size: int) -> tuple[Schedule, Schedule]:
    return halves(order.algorithm, rank, size, order.collective, order.root, **dict(order.params))


def _start(
    order: Order, table: Table, rank: int, size: int, half: Schedule, source: Region, final: Region
) -> Vector:
    """The vector to be summed up, in the type that sums are made in."""
    wide = order.accumulate or order.dtype
    kernel, elements = (reductions.reduction(wide, order.op)) if isinstance(order.op, str) else (order.op, 1)
    if wide != order.dtype:
        room = table.keep(order.count * wide.itemsize)
        table.apply(reductions.cast(wide, order.dtype), room, source, Region(PLAIN, 0), order.count)
        source = final = room
    if order.codec is not None:
        wire = Wire(order.codec, wide, order.count, half.blocks, size)
        names = [rank] * (len(half.steps) + 1)
        if (order.codec.random or order.lost) and TABLE[order.algorithm].owner == "all":
            names = speakers([_halves(order, r, size)[0] for r in range(size)], rank)
        return Coded(table, rank, order.count, wide.itemsize, source, final, kernel, wire, names, order.lost)
    return Vector(table, rank, order.count, wide.itemsize, half.blocks, source, final, kernel, elements)


def _average(order: Order, summed: Vector, held: list[range], size: int) -> None:
    """Divide, where a block is finished; from then on bits are only copied."""
    if order.op != "avg" or size == 1:
        return
    kernel, elements = reductions.divide(order.accumulate or order.dtype)
    for run in held:
        count = summed.nbytes(run) // summed.itemsize * elements
        summed.table.apply(kernel, summed.home(run), summed.at(run), Region(PLAIN, size), count)
        summed.written(run)


def _rounded(order: Order, summed: Vector, held: list[range], final: Region) -> Vector:
    """The vector in the type asked for."""
    wide = order.accumulate or order.dtype
    if wide == order.dtype:
        return summed
    result = Vector(summed.table, summed.rank, order.count, order.dtype.itemsize, summed.blocks, final, final)
    for run in held:
        count = summed.nbytes(run) // summed.itemsize
        kernel = reductions.cast(order.dtype, wide)
        summed.table.apply(kernel, result.home(run), summed.home(run), Region(PLAIN, 0), count)
    return result

"""Plans: what a collective of one shape needs to run again and again, made once.

A plan strings together phases: a reduce half on one element type, perhaps a division or a rounding at the owners,
a copy half on another. `recipe` says which, per collective; the rest is the same for all.
"""

from dataclasses import dataclass

import numpy as np

from ..algorithms import TABLE, halves
from ..schedules import Schedule, owned, share
from . import reductions
from .inside import Node
from .lowering import Vector
from .reductions import Kernel
from .table import PLAIN, RECVBUF, SENDBUF, Region, Table

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
    inside: bool = False

    def members(self, rank: int) -> tuple[int, ...]:
        """The ranks that a rank shares memory with in this operation."""
        if not self.inside:
            return (rank,)
        return next(tuple(node) for node in dict(self.params)["nodes"] if rank in node)


def lower(order: Order, rank: int, size: int) -> Table:
    """The table of one rank."""
    table, node = Table(), Node(order.members(rank), rank, order.accumulate or order.dtype, order.op)
    both = [
        halves(order.algorithm, member, size, order.collective, order.root, **dict(order.params))
        for member in node.members
    ]
    reduce_half = both[node.me][0]
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
        summed = _start(order, table, rank, blocks, source, final)
        node.run(summed, [half for half, _ in both])
        result = _finish(order, summed, reduce_half, final, size)
    node.run(result, [half for _, half in both])
    node.close(table)
    if order.collective == "reduce_scatter":
        table.copy(Region(RECVBUF, 0), result.at(kept), result.nbytes(kept))
    else:
        result.settle(kept)
    return table


def _start(order: Order, table: Table, rank: int, blocks: int, source: Region, final: Region) -> Vector:
    """The vector to be summed up, in the type that sums are made in."""
    wide = order.accumulate or order.dtype
    kernel, elements = (reductions.reduction(wide, order.op)) if isinstance(order.op, str) else (order.op, 1)
    if wide != order.dtype:
        room = table.keep(order.count * wide.itemsize)
        table.apply(reductions.cast(wide, order.dtype), room, source, Region(PLAIN, 0), order.count)
        source = final = room
    return Vector(table, rank, order.count, wide.itemsize, blocks, source, final, kernel, elements)


def _finish(order: Order, summed: Vector, half: Schedule, final: Region, size: int) -> Vector:
    """At the owners: divide an average, round to the type asked for; from then on bits are only copied."""
    table, dtype = summed.table, order.accumulate or order.dtype
    mine = [range(half.blocks)] if TABLE[order.algorithm].owner == "all" else owned(half)
    if order.op == "avg" and size > 1:
        kernel, elements = reductions.divide(dtype)
        for run in mine:
            count = summed.nbytes(run) // summed.itemsize * elements
            table.apply(kernel, summed.home(run), summed.at(run), Region(PLAIN, size), count)
            summed.written(run)
    if dtype == order.dtype:
        return summed
    result = Vector(table, summed.rank, order.count, order.dtype.itemsize, summed.blocks, final, final)
    for run in mine:
        count = summed.nbytes(run) // summed.itemsize
        table.apply(reductions.cast(order.dtype, dtype), result.home(run), summed.home(run), Region(PLAIN, 0), count)
    return result

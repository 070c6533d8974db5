"""Plans: what a collective of one shape needs to run again and again, made once.

A plan strings together phases: a reduce half on one element type, perhaps a division or a rounding at the owners,
a copy half on another. `recipe` says which, per collective; the rest is the same for all.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from compress.codec import Codec

from ..algorithms import TABLE, halves
from ..schedules import Schedule, mirror, owned, share
from . import device_codes, device_reductions, reductions
from .coded import Coded, speakers
from .elements import Kernel
from .inside import Node
from .layout import OF_HOST, Areas
from .lowering import Vector
from .relaying import Relaying, relayed
from .table import LOSSES, PLAIN, RECVBUF, SENDBUF, Region, Table
from .wire import Wire, of_host

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
    fed : bool
        Sum sendbuf plus a residual, which are left as they are, and leave what is lost in a buffer of its own.
    inside : tuple of tuple of int
        Groups of ranks: steps inside one go through memory that they share.
    route : str
        How messages go between devices, where the arrays lie on such; on the host none.
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
    fed: bool = False
    inside: tuple[tuple[int, ...], ...] = ()
    route: str = ""

    @property
    def place(self) -> "Place":
        """Where the arrays lie."""
        return DEVICE if self.route else HOST

    def members(self, rank: int) -> tuple[int, ...]:
        """The ranks that a rank shares memory with in this operation."""
        return next((tuple(node) for node in self.inside if rank in node), (rank,))


class Place(NamedTuple):
    """What differs between the host and a device.

    Attributes
    ----------
    kernels : module
        With reduction, divide, fused, cast, difference and zeros.
    codes : function (codec, dtype, size)
        The `Codes` of a codec.
    areas : Areas
        Of the memory that ranks share.
    segment : int
        Bytes of the pieces of a long message; 0: those of the host.
    """

    kernels: Any
    codes: Any
    areas: Areas
    segment: int = 0


HOST = Place(reductions, of_host, OF_HOST)
#: A launch takes as long as 10 MB of device memory, so pieces and areas are large.
DEVICE = Place(device_reductions, device_codes.of_device, Areas(0, 1 << 25), 1 << 22)


def lower(order: Order, rank: int, size: int, segment: int = 0) -> Table:
    """The table of one rank; long messages between hosts go in pieces of `segment` bytes, or of as many as is usual."""
    place, wide = order.place, order.accumulate or order.dtype
    table = Table(place.segment or segment)
    node = Node(order.members(rank), rank, wide, order.op, place.kernels.fused, place.areas)
    both = [_halves(order, member, size) for member in node.members]
    reduce_half, copy_half = both[node.me]
    copies = [half for _, half in both]
    blocks, itemsize = reduce_half.blocks, order.dtype.itemsize
    source, final, kept = Region(LOSSES if order.fed else SENDBUF, 0), Region(RECVBUF, 0), range(blocks)
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
    kernels = order.place.kernels
    kernel, elements = (kernels.reduction(wide, order.op)) if isinstance(order.op, str) else (order.op, 1)
    if wide != order.dtype:
        room = table.keep(order.count * wide.itemsize)
        table.apply(kernels.cast(wide, order.dtype), room, source, Region(PLAIN, 0), order.count)
        source = final = room
    if order.codec is not None:
        wire = Wire(order.codec, wide, order.count, half.blocks, size, order.place.codes, table.segment)
        names = [rank] * (len(half.steps) + 1)
        if (order.codec.random or order.lost) and TABLE[order.algorithm].owner == "all":
            names = speakers([_halves(order, r, size)[0] for r in range(size)], rank)
        vector = partial(Relaying, relayed(half.steps)) if wire.kernels.hop else Coded
        return vector(
            table, rank, order.count, wide.itemsize, source, final, kernel, wire, names, order.lost, kernels
        )
    return Vector(table, rank, order.count, wide.itemsize, half.blocks, source, final, kernel, elements)


def _average(order: Order, summed: Vector, held: list[range], size: int) -> None:
    """Divide, where a block is finished; from then on bits are only copied."""
    if order.op != "avg" or size == 1:
        return
    kernel, elements = order.place.kernels.divide(order.accumulate or order.dtype)
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
        kernel = order.place.kernels.cast(order.dtype, wide)
        summed.table.apply(kernel, result.home(run), summed.home(run), Region(PLAIN, 0), count)
    return result

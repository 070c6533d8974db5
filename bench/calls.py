"""What is called in a cell: ours, MPI's own, and what else ours are held against."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import allreduce
from allreduce.native import OPS

from . import nccl
from .bare import Bare
from .memory import HostMemory
from .plan import Group, Sweep
from .records import BARE, COMPOSED, NATIVE, family

__all__ = ["COMPOSED", "OUT_OF_PLACE", "UNCODED", "Function", "Label", "call_of", "wishes"]

#: Of an input and a buffer for the result; these may be the same, or the input MPI.IN_PLACE.
Function = Callable[[Any, Any], object]
#: No codec can be used with these.
UNCODED = ("node", "gloo", "nccl", "copy", NATIVE, *COMPOSED)
#: And these need a buffer for the result.
OUT_OF_PLACE = ("copy", BARE, *COMPOSED)


class Label(NamedTuple):
    """Which call of a group: an algorithm, a codec if any, "out" of place or "in" place, and which kind of call."""

    algorithm: str
    codec: str | None
    place: str
    call: str


def call_of(label: Label, group: Group, sweep: Sweep, comm: MPI.Intracomm, memory: HostMemory) -> Function:
    """The blocking call that a label means."""
    others: dict[str, Callable[[], Function]] = {
        "copy": lambda: memory.copy,
        "gloo": lambda: gloo(comm, group.op),
        "nccl": lambda: nccl.start(comm, group),
        "native": lambda: partial(comm.Allreduce, op=OPS[group.op]),
        "reduce+bcast": lambda: reduce_bcast(comm, OPS[group.op]),
        "reduce_scatter+allgather": lambda: reduce_scatter_allgather(comm, OPS[group.op], group),
    }
    if label.algorithm == BARE:
        return Bare(comm, group.op, group.dtype, group.elements)
    if family(label.algorithm) in others:
        return others[family(label.algorithm)]()
    ours = allreduce.allreduce if comm == MPI.COMM_WORLD else partial(allreduce.allreduce, comm=comm)
    return partial(ours, **wishes(label, group, sweep))


def wishes(label: Label, group: Group, sweep: Sweep) -> dict[str, Any]:
    """What is asked of ours; what is not asked is left out, as a user would."""
    name, _, route = label.algorithm.partition("@")
    found: dict[str, Any] = {"algorithm": name}
    found |= {"route": route} if route else {}
    found |= {"op": group.op} if group.op != "sum" else {}
    found |= {"accumulate": sweep.accumulate} if sweep.accumulate else {}
    return found | ({"codec": label.codec} if label.codec else {})


def gloo(comm: MPI.Intracomm, op: str) -> Function:
    """The all-reduce of PyTorch, which not everyone has."""
    from .gloo import start

    return start(comm, op)


def reduce_bcast(comm: MPI.Intracomm, op: MPI.Op) -> Function:
    """MPI's own in two parts, which its all-reduce should not be slower than."""

    def call(send: np.ndarray, recv: np.ndarray) -> None:
        comm.Reduce(send, recv, op)
        comm.Bcast(recv)

    return call


def reduce_scatter_allgather(comm: MPI.Intracomm, op: MPI.Op, group: Group) -> Function:
    """The same by shares, the first of them one longer where they cannot be equal."""
    least, more = divmod(group.elements, comm.size)
    counts = [least + (rank < more) for rank in range(comm.size)]
    share = np.empty(counts[comm.rank], group.dtype)

    def call(send: np.ndarray, recv: np.ndarray) -> None:
        comm.Reduce_scatter(send, share, counts, op)
        comm.Allgatherv(share, [recv, counts])

    return call

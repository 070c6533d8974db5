"""The public functions: collectives on arrays, by name of algorithm."""

from typing import Any

import numpy as np
from mpi4py import MPI

from .buffers import OP_NAMES
from .engine import engine_of
from .execute.loop import DONE, REFUSED, run
from .execute.requests import in_flight

__all__ = ["allgather", "allreduce", "bcast", "reduce", "reduce_scatter"]


def allreduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: Any = "sum",
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str = "auto",
    accumulate: Any = None,
) -> Any:
    """Reduce an array over all ranks; every rank gets the result, with the same bits.

    Parameters
    ----------
    sendbuf : array, buffer, or MPI.IN_PLACE
        This rank's contribution: contiguous, any shape, of the same dtype and size on all ranks. Not changed.
    recvbuf : array or buffer, optional
        Receives the result; made if not given. The same array as `sendbuf` works in place.
    op : str, MPI.Op, or callable
        "sum", "prod", "min", "max", "avg" (of integers: rounded down), "land", "lor", "lxor", "band", "bor",
        "bxor"; MPI.SUM and the like, your own `MPI.Op.Create`; or a function of two arrays, which keeps rank order
        unless it has an attribute `commutative = True`. Sums of booleans are "any", products "all"; integers wrap.
    comm : MPI.Intracomm, optional
        MPI.COMM_WORLD by default. The first call on a communicator is collective in more than its messages.
    algorithm : str
        A name from `algorithms()`, with parameters such as "torus:grid=2x4"; "native" for MPI's own; "auto" for
        the one that costs least.
    accumulate : dtype, optional
        A wider type to make sums in, such as "float32" for float16: the reduce half of the messages carries it,
        and the result is rounded once.

    Returns
    -------
    array
        `recvbuf`, or the array made for it.

    Raises
    ------
    TypeError, ValueError
        Before anything is sent, naming what was given and what is allowed.
    CollectiveTimeout
        If the communicator has a timeout.
    """
    if sendbuf is MPI.IN_PLACE:
        sendbuf = recvbuf
    if type(op) is MPI.Op:
        op = OP_NAMES.get(op.handle, op)
    engine = engine_of(comm)
    key: tuple = ()
    try:
        key = (sendbuf.dtype, sendbuf.size, op, algorithm, accumulate)
        plan = None if in_flight else engine.channel.fast.get(key)
    except (AttributeError, TypeError):
        key, plan = (), None
    if plan is not None:
        recvbuf = np.empty_like(sendbuf) if recvbuf is None else recvbuf
        code = run(plan.state, id(sendbuf), id(recvbuf))
        if code == DONE:
            return recvbuf
        if code != REFUSED:
            engine.resume(plan, code, sendbuf, recvbuf)
            return recvbuf
    return engine.blocking("allreduce", sendbuf, recvbuf, key, op=op, algorithm=algorithm, accumulate=accumulate)


def reduce_scatter(
    sendbuf: Any,
    recvbuf: Any = None,
    op: Any = "sum",
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str = "auto",
    accumulate: Any = None,
) -> Any:
    """Reduce an array over all ranks; rank r gets the r-th of equal shares of the result.

    Parameters are those of `allreduce`; `sendbuf` has a number of elements that the ranks can share equally,
    `recvbuf` one share of them. With MPI.IN_PLACE, `recvbuf` is the whole and receives the share at its beginning.
    """
    wishes = {"op": op, "algorithm": algorithm, "accumulate": accumulate}
    return engine_of(comm).blocking("reduce_scatter", sendbuf, recvbuf, **wishes)


def allgather(
    sendbuf: Any, recvbuf: Any = None, *, comm: MPI.Intracomm | None = None, algorithm: str = "auto"
) -> Any:
    """Gather arrays of equal size from all ranks on every rank, in rank order.

    Parameters are those of `allreduce`; `recvbuf` has room for the buffers of all ranks, and a new first dimension
    of so many if it is made here. With MPI.IN_PLACE this rank's share is already in its place in `recvbuf`.
    """
    return engine_of(comm).blocking("allgather", sendbuf, recvbuf, algorithm=algorithm)


def reduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: Any = "sum",
    root: int = 0,
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str = "auto",
    accumulate: Any = None,
) -> Any:
    """Reduce an array over all ranks; the root gets the result, the others None.

    Parameters are those of `allreduce`; `recvbuf` only matters at the root. Operations that do not commute need
    root 0.
    """
    wishes = {"op": op, "algorithm": algorithm, "accumulate": accumulate, "root": root}
    return engine_of(comm).blocking("reduce", sendbuf, recvbuf, **wishes)


def bcast(buf: Any, root: int = 0, *, comm: MPI.Intracomm | None = None, algorithm: str = "auto") -> Any:
    """Copy the root's array into the other ranks' arrays of the same dtype and size; returns it.

    Parameters are those of `allreduce`.
    """
    return engine_of(comm).blocking("bcast", buf, None, algorithm=algorithm, root=root)

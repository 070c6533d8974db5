"""The public functions: collectives on arrays, by name of algorithm."""

from collections.abc import Hashable
from typing import Any

import numpy as np
from mpi4py import MPI

from . import explained
from .buffers import OP_NAMES
from .engine import engine_of
from .execute import loop
from .execute.loop import DONE, REFUSED
from .execute.requests import in_flight
from .methods import as_method, reduce_by

__all__ = ["allgather", "allreduce", "barrier", "bcast", "empty_shared", "explain", "reduce", "reduce_scatter"]


def allreduce(
    sendbuf: Any,
    recvbuf: Any = None,
    op: Any = "sum",
    *,
    comm: MPI.Intracomm | None = None,
    algorithm: str = "auto",
    accumulate: Any = None,
    codec: Any = None,
    key: str | None = None,
    route: str = "auto",
    stream: Any = None,
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
    codec : str, Codec or Method, optional
        What travels is encoded: "int8", "int4:block=32", "topk:ratio=0.01" and all others of `compress.TABLE`; of
        floating-point numbers, for "sum" and "avg". With "auto" it is taken where it pays, by the algorithm that loses
        least of those that are as fast, see `explain`; what drops values, such as "topk", goes by "one_shot" or alike,
        for on every further hop it would drop most of a partial sum; with feedback, by any. A method, such as
        "feedback(topk:ratio=0.01)", has a memory per tensor; named by text, it is kept with the communicator.
    key : str, optional
        The name of the tensor, for a method: the same on all ranks and in all steps. Without a method it is not
        looked at, so that a call need not change with its codec.
    route : str
        Of arrays on a CUDA device: "aware", messages that MPI takes from the device; "staged", messages through pinned
        memory of the host; "ipc", device memory that ranks of one node map; "auto", the fastest of those that work
        here, or what ALLREDUCE_ROUTE says.
    stream : int or object with a CUDA stream, optional
        That the array is made on and the result is used on; by default the current one of CuPy or PyTorch. What an
        array's own interface names is minded as well.

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
    # The shortest way: one look-up, and one call that checks both arrays itself and refuses what is not as before.
    try:
        fast = _world if comm is None else engine_of(comm).channel.fast
        state = fast[sendbuf.dtype, sendbuf.size, op, algorithm, accumulate, codec]
    except (KeyError, AttributeError, TypeError):
        state = 0
    if state and recvbuf is not None and not in_flight and route == "auto" and stream is None:
        try:
            code = loop.run(state, id(sendbuf), id(recvbuf))
            if code == DONE:
                return recvbuf
            if code != REFUSED:
                engine_of(comm).resume(state, code, sendbuf, recvbuf)
                return recvbuf
        except BaseException as error:
            engine_of(comm).interrupted(state, error)
            raise
    return _allreduce(sendbuf, recvbuf, op, comm, algorithm, accumulate, codec, key, route, stream)


#: The plans of MPI.COMM_WORLD by the arguments of the call, once there are some.
_world: dict[tuple, int] = {}


def _allreduce(
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    comm: Any,
    algorithm: Any,
    accumulate: Any,
    codec: Any,
    key: str | None,
    route: str,
    stream: Any,
) -> Any:
    """Bring the arguments into the form that the shortest way knows, or take the long one."""
    global _world
    asked = {"algorithm": algorithm, "accumulate": accumulate, "codec": codec}
    asked |= {name: wish for name, wish in (("route", route), ("stream", stream)) if wish not in ("auto", None)}
    wishes = {"comm": comm, "key": key, **asked}
    if sendbuf is MPI.IN_PLACE and recvbuf is not None:
        return allreduce(recvbuf, recvbuf, op, **wishes)
    if type(op) is MPI.Op and op.handle in OP_NAMES:
        return allreduce(sendbuf, recvbuf, OP_NAMES[op.handle], **wishes)
    if recvbuf is None and type(sendbuf) is np.ndarray:
        return allreduce(sendbuf, np.empty_like(sendbuf), op, **wishes)
    engine = engine_of(comm)
    if comm is None:
        _world = engine.channel.fast
    method = as_method(engine, codec)
    if method is not None:
        return reduce_by(method, engine, sendbuf, recvbuf, op, algorithm, accumulate, key, route, stream)
    call: tuple = ()
    if isinstance(sendbuf, np.ndarray) and all(isinstance(wish, Hashable) for wish in (op, accumulate, codec)):
        call = (sendbuf.dtype, sendbuf.size, op, algorithm, accumulate, codec)
    return engine.blocking("allreduce", sendbuf, recvbuf, call, op=op, **asked)


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
    codec: Any = None,
) -> Any:
    """Reduce an array over all ranks; the root gets the result, the others None.

    Parameters are those of `allreduce`; `recvbuf` only matters at the root. Operations that do not commute need
    root 0. No codec has a memory here.
    """
    wishes = {"op": op, "algorithm": algorithm, "accumulate": accumulate, "root": root, "codec": codec}
    return engine_of(comm).blocking("reduce", sendbuf, recvbuf, **wishes)


def empty_shared(shape: Any, dtype: Any = float, comm: MPI.Intracomm | None = None) -> np.ndarray:
    """Make an array that all ranks of the node can reach, so that collectives need not copy it.

    Collective: every rank gets its own array, of the same shape and dtype. When the inputs of all ranks are such
    arrays they are read where they are, when inputs and outputs are, results are written where they are wanted. In
    all else it is an ordinary array. The memory is given back when the communicator is closed and the array gone.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    comm : MPI.Intracomm, optional
        MPI.COMM_WORLD by default; all its ranks must be on one node.

    Raises
    ------
    ValueError
        Ranks on different nodes; a negative length.
    """
    return engine_of(comm).empty_shared(shape, dtype)


def bcast(buf: Any, root: int = 0, *, comm: MPI.Intracomm | None = None, algorithm: str = "auto") -> Any:
    """Copy the root's array into the other ranks' arrays of the same dtype and size; returns it.

    Parameters are those of `allreduce`.
    """
    return engine_of(comm).blocking("bcast", buf, None, algorithm=algorithm, root=root)


def explain(sendbuf: Any, *, codec: Any = None, comm: MPI.Intracomm | None = None) -> str:
    """Say which algorithm ``algorithm="auto"`` takes for an array and, with a codec, why; collective.

    It takes a codec if that saves more than a tenth of the time, by what messages and the codec cost here, both
    measured once per communicator, and none where all ranks share memory. Of algorithms that are as fast, but for a
    tenth, it takes the one whose result is nearest to the sum, see `losses.loss_of`; none by which more than a tenth of
    the squares of the sum are lost, if another loses less, unless they are sent later. An algorithm that is named takes
    the codec in any case.

    Parameters are those of `allreduce`.

    Returns
    -------
    str
        Lines; the last says what is taken. With a codec: the link and the codec; the time and the loss of every
        algorithm. Of a method, these for each all-reduce of a first step.
    """
    return explained.explain(engine_of(comm), sendbuf, codec)


def barrier(comm: MPI.Intracomm | None = None, *, algorithm: str = "auto") -> None:
    """Return when all ranks have come: an all-reduce of one byte.

    Parameters are those of `allreduce`.
    """
    allreduce(_TOKEN, _TOKEN, "bor", comm=comm, algorithm=algorithm)


_TOKEN = np.zeros(1, np.uint8)

"""A drop-in for mpi4py's communicators: `comm = allreduce.Communicator(MPI.COMM_WORLD)`."""

from typing import Any

from mpi4py import MPI

from .algorithms import parse
from .buffers import OP_NAMES, Unsupported
from .collectives import barrier
from .engine import Engine
from .execute import loop
from .execute.bound import NODE
from .execute.device_arrays import is_on_device
from .execute.loop import DONE, REFUSED
from .execute.once import once
from .execute.requests import in_flight

__all__ = ["Communicator"]


class Communicator(MPI.Intracomm):
    """An `MPI.Intracomm` whose Allreduce, Iallreduce, Allreduce_init, Reduce_scatter_block, Allgather and Barrier
    are ours.

    Everything else is inherited, and what we cannot do (MPI.MINLOC, derived datatypes, ...) goes to MPI as before,
    unless it is to be encoded, or lies on a device. The first three take a `codec`, as in `allreduce.allreduce`, but
    no method. Dup, Split and the like return our class.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        Shares its handle; MPI.COMM_WORLD by default. A private duplicate for our messages is made: collective.
    timeout : float, optional
        Seconds after which a wait raises `CollectiveTimeout`, naming algorithm, step, peer and bytes.
    algorithm : str
        For the methods named as MPI's, which have no such argument.

    Raises
    ------
    TypeError, ValueError
        An algorithm, with its parameters, that is not for so many ranks; a timeout that is none.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> import numpy as np, allreduce
    >>> with allreduce.Communicator(MPI.COMM_SELF) as comm:
    ...     comm.Allreduce(np.ones(3), total := np.empty(3), op=MPI.SUM)
    >>> total
    array([1., 1., 1.])
    """

    #: What communicators have that mpi4py makes without calling `__init__`, as in Idup.
    algorithm = "auto"
    _owned = False

    def __new__(cls, comm: MPI.Intracomm | None = None, **_: Any) -> "Communicator":
        if not isinstance(comm, (MPI.Intracomm, type(None))):
            raise TypeError(f"comm must be an intracommunicator, not {comm!r}")
        return super().__new__(cls, MPI.COMM_WORLD if comm is None else comm)

    def __init__(
        self,
        comm: MPI.Intracomm | None = None,
        *,
        timeout: float | None = None,
        algorithm: str = "auto",
        _together: bool = False,
    ) -> None:
        if algorithm not in ("auto", "native", NODE):
            parse(algorithm, self.size)
        self.__dict__["engine"] = Engine(self, timeout, _together)
        self.algorithm = algorithm

    @once
    def engine(self) -> Engine:
        """What runs our collectives; made on first use, which is collective, if not before."""
        self._owned = True
        return Engine(self)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Free the private duplicate, and the communicator itself if it came from Dup, Split, ...; collective."""
        self.engine.channel.close()
        if self._owned and self != MPI.COMM_NULL:
            self._owned = False
            super().Free()

    def Free(self) -> None:
        """Free the communicator and the private duplicate; collective."""
        self._owned = False
        self.engine.channel.close()
        super().Free()

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, *, codec: Any = None) -> None:
        """Reduce over all ranks, the result on each; as `MPI.Comm.Allreduce`, with a codec as `allreduce`."""
        key: tuple = ()
        try:
            key = (recvbuf.dtype, recvbuf.size, OP_NAMES[op.handle], self.algorithm, None, codec)
            state = self.engine.channel.fast.get(key)
        except (AttributeError, KeyError, TypeError):
            key, state = (), None
        if state and not in_flight:
            try:
                code = loop.run(state, id(recvbuf if sendbuf is MPI.IN_PLACE else sendbuf), id(recvbuf))
                if code == DONE:
                    return
                if code != REFUSED:
                    self.engine.resume(state, code, sendbuf, recvbuf)
                    return
            except BaseException as error:
                self.engine.interrupted(state, error)
                raise
        try:
            self.engine.blocking("allreduce", sendbuf, recvbuf, key, op=op, algorithm=self.algorithm, codec=codec)
        except Unsupported:
            if codec is not None or is_on_device(recvbuf):
                raise
            super().Allreduce(sendbuf, recvbuf, op)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, *, codec: Any = None) -> Any:
        """Begin an Allreduce; several may be in flight, and be waited for in any order."""
        try:
            return self.engine.request("allreduce", sendbuf, recvbuf, op=op, algorithm=self.algorithm, codec=codec)
        except Unsupported:
            if codec is not None or is_on_device(recvbuf):
                raise
            return super().Iallreduce(sendbuf, recvbuf, op)

    def Allreduce_init(
        self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, info: MPI.Info = MPI.INFO_NULL, *, codec: Any = None
    ) -> Any:
        """Prepare an Allreduce on these buffers, to be started many times."""
        try:
            return self.engine.persistent("allreduce", sendbuf, recvbuf, op=op, algorithm=self.algorithm, codec=codec)
        except Unsupported:
            if codec is not None or is_on_device(recvbuf):
                raise
            return super().Allreduce_init(sendbuf, recvbuf, op, info)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> None:
        """Reduce over all ranks, one share of the result on each."""
        try:
            self.engine.blocking("reduce_scatter", sendbuf, recvbuf, op=op)
        except Unsupported:
            if is_on_device(recvbuf):
                raise
            super().Reduce_scatter_block(sendbuf, recvbuf, op)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather the ranks' buffers on each."""
        try:
            self.engine.blocking("allgather", sendbuf, recvbuf)
        except Unsupported:
            if is_on_device(recvbuf):
                raise
            super().Allgather(sendbuf, recvbuf)

    def Barrier(self) -> None:
        """Return when all ranks have come."""
        barrier(self, algorithm=self.algorithm)

    barrier = Barrier

    def _ours(self, comm: MPI.Comm) -> "Communicator | MPI.Comm":
        """A communicator that MPI made from us, as our class; MPI.COMM_NULL stays what it is."""
        if comm == MPI.COMM_NULL:
            return comm
        here = self.engine.channel
        intra = MPI.Intracomm(comm)  # type: ignore[arg-type]
        ours = type(self)(intra, timeout=here.timeout, _together=here.together)
        ours._owned, ours.algorithm = True, self.algorithm  # whose parameters may not fit: then the first call says so
        return ours

    def Dup(self, info: MPI.Info | None = None) -> Any:
        """Duplicate."""
        return self._ours(MPI.Intracomm(self).Dup(info))

    Clone = Dup

    def Dup_with_info(self, info: MPI.Info) -> Any:
        """Duplicate, with hints."""
        return self.Dup(info)

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Split by colour, ordered by key."""
        return self._ours(MPI.Intracomm(self).Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Split by what ranks share, such as MPI.COMM_TYPE_SHARED memory."""
        return self._ours(MPI.Intracomm(self).Split_type(split_type, key, info))

    def Create(self, group: MPI.Group) -> Any:
        """A communicator of the ranks in a group; collective over all."""
        return self._ours(MPI.Intracomm(self).Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Any:
        """A communicator of the ranks in a group; collective over these."""
        return self._ours(MPI.Intracomm(self).Create_group(group, tag))

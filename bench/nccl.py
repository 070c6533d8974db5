"""NCCL's all-reduce, to compare with on devices: by CuPy, or else by PyTorch."""

import atexit
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from allreduce.engine import engine_of

from .memory import Placed
from .plan import Group

__all__ = ["OPS", "TYPES", "everywhere", "start", "whose"]

#: The numbers of nccl.h; CuPy has no name for the last of either.
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}

#: CuPy's communicators, by the handle of MPI's.
_made: dict[int, Any] = {}


def whose(comm: MPI.Intracomm) -> str | None:
    """Which package has NCCL on all ranks; PyTorch's groups are of all ranks of a program. Collective."""
    if everywhere(comm, _cupys() is not None):
        return "cupy"
    return "torch" if comm.size == MPI.COMM_WORLD.size and everywhere(comm, _pytorchs()) else None


def everywhere(comm: MPI.Intracomm, mine: bool) -> bool:
    """Whether it is so on all ranks; collective."""
    everyone = np.array([mine])
    comm.Allreduce(MPI.IN_PLACE, everyone, MPI.LAND)
    return bool(everyone[0])


def start(comm: MPI.Intracomm, group: Group) -> Callable[[Placed, Placed], None]:
    """An all-reduce over the same ranks, on the current stream; collective."""
    return (_by_cupy if whose(comm) == "cupy" else _by_torch)(comm, group)


def _cupys() -> Any:
    try:
        from cupy.cuda import nccl
    except ImportError:
        return None
    return nccl if getattr(nccl, "available", True) else None


def _pytorchs() -> bool:
    try:
        import torch.distributed as dist
    except ImportError:
        return False
    return dist.is_available() and dist.is_nccl_available()


def _cuda(comm: MPI.Intracomm) -> Any:
    return engine_of(comm).channel.device.cuda


def _by_cupy(comm: MPI.Intracomm, group: Group) -> Callable[[Placed, Placed], None]:
    if comm.handle not in _made:
        _made[comm.handle] = _communicator(comm)
        atexit.register(_made[comm.handle].destroy)
    ranks, stream = _made[comm.handle], _cuda(comm).current().ptr
    facts = group.elements, TYPES[group.dtype.name], OPS[group.op], stream
    return lambda send, recv: ranks.allReduce(send.address, recv.address, *facts)


def _communicator(comm: MPI.Intracomm) -> Any:
    """Rank 0's unique id, 128 numbers as C's char has them, makes one of all ranks."""
    nccl, unique = _cupys(), np.zeros(128, np.int16)
    if comm.rank == 0:
        unique[:] = nccl.get_unique_id()
    comm.Bcast(unique)
    return nccl.NcclCommunicator(comm.size, tuple(unique.tolist()), comm.rank)


def _by_torch(comm: MPI.Intracomm, group: Group) -> Callable[[Placed, Placed], None]:
    """It works in place, so that copying the input is part of its time."""
    import torch
    import torch.distributed as dist

    from .gloo import begin

    torch.cuda.set_device(_cuda(comm).number)
    begin(comm, "nccl")
    op = getattr(dist.ReduceOp, {"prod": "PRODUCT"}.get(group.op, group.op.upper()))

    def tensor(array: Placed) -> Any:
        whole = torch.as_tensor(array.bytes, device="cuda")  # which has names for other types than NumPy
        return whole.view(getattr(torch, group.dtype.name))

    def call(send: Placed, recv: Placed) -> None:
        result = tensor(recv)
        if send is not recv:
            result.copy_(tensor(send))
        dist.all_reduce(result, op)

    return call

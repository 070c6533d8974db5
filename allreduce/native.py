"""MPI's own collectives behind our arguments: the baseline, and a choice like any other."""

from typing import Any

import numpy as np
from mpi4py import MPI

from .buffers import OP_NAMES

__all__ = ["OPS", "mpi_has", "native"]

OPS = {name: getattr(MPI, name.upper()) for name in OP_NAMES.values()}


def mpi_has(dtype: np.dtype) -> bool:
    """Whether this MPI has a name for a dtype; half precision often has none."""
    return dtype.char in MPI._typedict


def native(comm: MPI.Intracomm, collective: str, send: np.ndarray, recv: np.ndarray, op: Any, root: int) -> None:
    """Run MPI's own collective on checked arrays.

    Raises
    ------
    TypeError
        A dtype that this MPI has no name for, or an operation that it does not know.
    """
    if not mpi_has(send.dtype):
        raise TypeError(f"this MPI has no datatype for {send.dtype}; use another algorithm than 'native'")
    mpi_op = OPS.get("sum" if op == "avg" else op, op) if isinstance(op, str) else op
    if not isinstance(mpi_op, MPI.Op):
        raise TypeError(f"native collectives take op names and MPI.Op, not {op!r}")
    send_or_in_place = MPI.IN_PLACE if send.ctypes.data == recv.ctypes.data and send.size else send
    {
        "allreduce": lambda: comm.Allreduce(send_or_in_place, recv, mpi_op),
        "reduce_scatter": lambda: comm.Reduce_scatter_block(send_or_in_place, recv, mpi_op),
        "allgather": lambda: comm.Allgather(MPI.IN_PLACE if np.may_share_memory(send, recv) else send, recv),
        "reduce": lambda: comm.Reduce(send_or_in_place if comm.rank == root else send, recv, mpi_op, root),
        "bcast": lambda: comm.Bcast(recv, root),
    }[collective]()
    if op == "avg" and (collective != "reduce" or comm.rank == root):
        share = recv.size // comm.size if send is recv and collective == "reduce_scatter" else recv.size
        part = recv.reshape(-1, order="A")[:share]  # never a copy
        if recv.dtype.kind in "iu":
            part //= comm.size
        else:
            part /= comm.size

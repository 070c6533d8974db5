"""MPI's own all-reduce as a C program calls it: in a compiled loop, with nothing of Python in its time."""

import ctypes

import numpy as np
from mpi4py import MPI
from numba import njit

from allreduce.execute.cache import keep
from allreduce.execute.machine import call
from allreduce.execute.mpi_abi import handle, library
from allreduce.native import OPS

__all__ = ["Bare", "repeated"]


class Bare:
    """Calls of MPI_Allreduce by its address.

    Parameters
    ----------
    comm : MPI.Intracomm
    op : str
    dtype : numpy.dtype
    count : int

    Raises
    ------
    ValueError
        In an MPI whose handles are unknown.
    """

    def __init__(self, comm: MPI.Intracomm, op: str, dtype: np.dtype, count: int) -> None:
        if library() is None:
            raise ValueError("algorithm 'native:bare' calls MPI directly, which is not possible here; have native")
        self.function = ctypes.cast(ctypes.CDLL(MPI.__file__).MPI_Allreduce, ctypes.c_void_p).value
        self.others = count, handle(MPI._typedict[dtype.char]), handle(OPS[op]), handle(comm)

    def __call__(self, send: int, recv: int, times: int = 1) -> None:
        """So many calls with arrays at these addresses, back to back; RuntimeError if MPI says that one has failed."""
        if code := repeated(self.function, send, recv, *self.others, times):
            raise RuntimeError(f"MPI_Allreduce returned {code}")


@keep
@njit(nogil=True)
def repeated(function, send, recv, count, datatype, op, comm, times):  # type: ignore[no-untyped-def]
    """MPI's error code, 0 if there was none."""
    code = 0
    for _ in range(times):
        code |= call(function, (send, recv, count, datatype, op, comm))
    return code

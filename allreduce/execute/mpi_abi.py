"""The one file that knows MPI handles: their sizes and values, and the addresses of the functions we call.

Open MPI's handles are pointers, MPICH's and Intel MPI's are 32-bit integers. Both are read from where mpi4py
keeps them, and a message to oneself shows whether that went well before anything depends on it.
"""

import ctypes
import os
import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numba import njit

from .cache import keep
from .machine import call, load32

__all__ = ["Library", "handle", "library", "threads_need_lock"]


class Library(NamedTuple):
    """Addresses of C functions, and what else a caller of them needs."""

    isend: int
    irecv: int
    test: int
    wtime: int
    memcpy: int
    sched_yield: int
    usleep: int
    request_size: int  # bytes of a handle
    byte: int  # the handle of MPI_BYTE
    tag_limit: int  # tags are below it


def handle(obj: Any) -> int:
    """The value of an MPI handle as C sees it."""
    return int.from_bytes(ctypes.string_at(MPI._addressof(obj), MPI._sizeof(type(obj))), "little")


def threads_need_lock() -> bool:
    """Below MPI_THREAD_MULTIPLE only one thread at a time may be inside MPI."""
    return MPI.Query_thread() < MPI.THREAD_MULTIPLE


def tag_limit() -> int:
    """Tags are below it; never less than 32768."""
    return (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) + 1


@cache
def library() -> Library | None:
    """The functions of the MPI in use, or None where only mpi4py itself can be relied on.

    Set ALLREDUCE_LOOP=python to do without them.
    """
    wish = os.environ.get("ALLREDUCE_LOOP", "compiled")
    if wish not in ("compiled", "python"):
        raise ValueError(f"ALLREDUCE_LOOP={wish!r}; have compiled, python")
    if wish == "python":
        return None
    try:
        mpi, c = ctypes.CDLL(MPI.__file__), ctypes.CDLL(None)
        names = (mpi.MPI_Isend, mpi.MPI_Irecv, mpi.MPI_Test, mpi.MPI_Wtime, c.memcpy, c.sched_yield, c.usleep)
        addresses = [ctypes.cast(name, ctypes.c_void_p).value or 0 for name in names]
        found = Library(*addresses, MPI._sizeof(MPI.Request), handle(MPI.BYTE), tag_limit())  # type: ignore[call-arg]
        if found.request_size in (4, 8) and _reaches_itself(found):
            return found
        reason = "a message to oneself did not arrive"
    except (AttributeError, OSError) as error:
        reason = str(error)
    if MPI.COMM_WORLD.rank == 0:
        vendor = MPI.Get_library_version().split("\n")[0]
        warnings.warn(
            f"allreduce cannot call this MPI directly ({vendor}: {reason}), and runs its slower Python loop; "
            "Open MPI, MPICH and Intel MPI are known to work",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _reaches_itself(found: Library) -> bool:
    """Send eight bytes on COMM_SELF in the way the loop does."""
    out, into = np.array([0x5EED], np.int64), np.zeros(1, np.int64)
    requests, scratch = np.zeros(2 * found.request_size, np.uint8), np.zeros(32, np.int64)
    _exchange(
        found.isend, found.irecv, found.test, out.ctypes.data, into.ctypes.data, found.byte, handle(MPI.COMM_SELF),
        requests.ctypes.data, found.request_size, scratch.ctypes.data,
    )  # fmt: skip
    return bool(into[0] == out[0])


@keep
@njit
def _exchange(  # type: ignore[no-untyped-def]
    isend, irecv, test, out, into, byte, comm, requests, size, scratch
):
    call(irecv, (into, 8, byte, 0, 0, comm, requests))
    call(isend, (out, 8, byte, 0, 0, comm, requests + size))
    for request in (requests, requests + size):
        for _ in range(1000000):
            call(test, (request, scratch, scratch + 8))
            if load32(scratch):
                break

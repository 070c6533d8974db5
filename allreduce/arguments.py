"""The buffers of a call: from what was passed to two arrays and what to hand back."""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from .buffers import as_array, check_pair
from .checks import whole
from .execute.device_arrays import OnDevice
from .execute.elements import type_named

__all__ = ["arrays", "room"]

#: Bytes that a process can have.
ADDRESSES = 1 << 47


def room(shape: Any, dtype: Any, size: int) -> tuple[tuple[int, ...], np.dtype, int]:
    """The shape and dtype of an array that each of the ranks has, and its bytes.

    Raises
    ------
    TypeError, ValueError
        Naming what was given and what is allowed.
    """
    dtype = type_named("dtype", dtype)
    if dtype.hasobject or not dtype.itemsize:
        raise TypeError(f"dtype must be of numbers, not {dtype}")
    shape = tuple(whole("a length", n, 0) for n in (shape if isinstance(shape, Iterable) else (shape,)))
    nbytes = prod(shape) * dtype.itemsize
    if nbytes * size >= ADDRESSES:
        raise ValueError(f"shape {shape} of {dtype} is {nbytes} bytes a rank, which no machine can address")
    return shape, dtype, nbytes


def arrays(
    collective: str, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int = 0
) -> tuple[np.ndarray, np.ndarray, Any]:
    """What is read, what is written, and the result to return.

    Raises
    ------
    TypeError, ValueError
        Naming what was given and what is allowed.
    """
    return ARRAYS[collective](sendbuf, recvbuf, rank, size, whole("root", root, 0, size))


def _same(sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """All-reduce: two buffers of one length, or one; the result is made if there is none."""
    if sendbuf is MPI.IN_PLACE:
        recv = _array(recvbuf, "recvbuf", writeable=True)
        return recv, recv, recvbuf
    send = _array(sendbuf, "sendbuf")
    recvbuf = _another(send, send.shape) if recvbuf is None else recvbuf
    recv = _array(recvbuf, "recvbuf", writeable=True)
    check_pair(send, recv)
    return send, recv, recvbuf


def _scattered(sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Reduce-scatter: recvbuf is one share; in place it is the first share of the buffer, as in MPI."""
    if sendbuf is MPI.IN_PLACE:
        whole = _array(recvbuf, "recvbuf", writeable=True)
        _check_shares(whole, "recvbuf", size)
        return whole, whole, recvbuf
    send = _array(sendbuf, "sendbuf")
    _check_shares(send, "sendbuf", size)
    recvbuf = _another(send, (send.size // size,)) if recvbuf is None else recvbuf
    recv = _array(recvbuf, "recvbuf", writeable=True)
    check_pair(send, recv, size, 1)
    return send, recv, recvbuf


def _gathered(sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """All-gather: recvbuf has room for all shares; in place ours is already there."""
    if sendbuf is MPI.IN_PLACE:
        whole = _array(recvbuf, "recvbuf", writeable=True)
        _check_shares(whole, "recvbuf", size)
        part = whole.size // size
        return whole.reshape(-1, order="A")[rank * part : (rank + 1) * part], whole, recvbuf
    send = _array(sendbuf, "sendbuf")
    if recvbuf is None and isinstance(send, OnDevice):
        if not send.flags.c_contiguous:
            raise ValueError("sendbuf is in Fortran order; pass a recvbuf")
        recvbuf = _another(send, (size, *send.shape))
    if recvbuf is None:  # the shares keep their memory order, Fortran's included
        turned = not send.flags.c_contiguous
        recv = np.empty((size, *(send.shape[::-1] if turned else send.shape)), send.dtype)
        return send, recv, recv.transpose(0, *range(send.ndim, 0, -1)) if turned else recv
    recv = _array(recvbuf, "recvbuf", writeable=True)
    check_pair(send, recv, 1, size)
    return send, recv, recvbuf


def _rooted(sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Reduce: only the root's recvbuf counts; elsewhere the result is None."""
    if rank == root:
        return _same(sendbuf, recvbuf, rank, size, root)
    if sendbuf is MPI.IN_PLACE:
        raise ValueError(f"MPI.IN_PLACE is for the root of a reduce, rank {root}; rank {rank} must pass its sendbuf")
    send = _array(sendbuf, "sendbuf")
    return send, send, None


def _single(sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Broadcast: one buffer."""
    buffer = _array(sendbuf, "buf", writeable=rank != root)
    return buffer, buffer, sendbuf


def _array(buffer: Any, name: str, writeable: bool = False) -> np.ndarray:
    """A view of a buffer, wherever it lies."""
    return as_array(buffer, name, writeable, anywhere=True)


def _another(send: np.ndarray, shape: tuple[int, ...]) -> Any:
    """A new array where this one lies, of its dtype; in its memory order if it has its shape."""
    if isinstance(send, OnDevice):
        return send.another(shape)
    return np.empty_like(send) if shape == send.shape else np.empty(shape, send.dtype)


def _check_shares(array: np.ndarray, name: str, size: int) -> None:
    if array.size % size:
        raise ValueError(f"{name} has {array.size} elements, which {size} ranks cannot share equally")


ARRAYS = {"allreduce": _same, "reduce_scatter": _scattered, "allgather": _gathered, "reduce": _rooted, "bcast": _single}

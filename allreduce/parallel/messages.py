"""Tensors as messages between stages, waited for as long as the communicator's timeout allows. Needs PyTorch."""

import time
from math import prod

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor

from ..buffers import as_array
from ..communicator import Communicator

__all__ = ["fill", "receive", "send", "send_any", "wait"]

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
#: int64 numbers before a tensor: dtype, number of dimensions, lengths.
HEAD = 10
#: Given up after a timeout, and kept, as their messages may still arrive in their buffers.
abandoned: list[MPI.Request] = []


def send(comm: Communicator, tensor: Tensor, peer: int, tag: int) -> MPI.Request:
    """Begin to send the numbers of a contiguous tensor, which must stay as it is until the request is done."""
    return comm.Isend([_raw(tensor), MPI.BYTE], peer, tag)


def send_any(comm: Communicator, tensor: Tensor, peer: int, tag: int) -> MPI.Request:
    """The same for a peer who does not know the shape and the dtype.

    Raises
    ------
    TypeError, ValueError
        Other dtypes than floating-point ones; too many dimensions.
    """
    if tensor.dtype not in DTYPES:
        raise TypeError(f"stages exchange {', '.join(map(str, DTYPES))}, not {tensor.dtype}")
    if tensor.ndim > HEAD - 2:
        raise ValueError(f"stages exchange {HEAD - 2} dimensions at most, not shape {tuple(tensor.shape)}")
    head = np.zeros(HEAD, np.int64)
    head[: 2 + tensor.ndim] = DTYPES.index(tensor.dtype), tensor.ndim, *tensor.shape
    comm.Send(head, peer, tag)
    return send(comm, tensor, peer, tag)


def receive(comm: Communicator, peer: int, tag: int) -> Tensor:
    """A tensor of whatever shape and dtype the peer sends.

    Raises
    ------
    ValueError
        A message that does not say what it holds, found out before room is made for it.
    """
    head, status = np.zeros(HEAD, np.int64), MPI.Status()
    wait(comm, comm.Irecv(head, peer, tag))
    kind, dimensions, *lengths = head.tolist()
    comm.Probe(peer, tag, status)
    nbytes = status.Get_count(MPI.BYTE)
    good = 0 <= kind < len(DTYPES) and 0 <= dimensions <= len(lengths) and min(lengths) >= 0
    if not good or prod(lengths[:dimensions]) * DTYPES[kind].itemsize != nbytes:
        raise ValueError(f"{nbytes} bytes from rank {peer} are no tensor as announced, {head.tolist()}")
    return fill(comm, torch.empty(lengths[:dimensions], dtype=DTYPES[kind]), peer, tag)


def fill(comm: Communicator, tensor: Tensor, peer: int, tag: int) -> Tensor:
    """Receive numbers into a contiguous tensor, and return it.

    Raises
    ------
    ValueError
        Fewer numbers than it has; MPI itself refuses more.
    """
    raw = _raw(tensor)
    nbytes = wait(comm, comm.Irecv([raw, MPI.BYTE], peer, tag)).Get_count(MPI.BYTE)
    if nbytes != raw.size:
        raise ValueError(f"{nbytes} bytes from rank {peer}, not {raw.size}")
    return tensor


def wait(comm: Communicator, request: MPI.Request) -> MPI.Status:
    """Wait for a message that was begun.

    Raises
    ------
    TimeoutError
        It took longer than the communicator's timeout. Nothing may follow on the communicator.
    """
    status, timeout = MPI.Status(), comm.engine.channel.timeout
    if timeout is None:
        request.Wait(status)
        return status
    end = time.monotonic() + timeout
    while not request.Test(status):
        if time.monotonic() > end:
            abandoned.append(request)
            raise TimeoutError(f"rank {comm.rank} has waited {timeout} s for another rank")
        time.sleep(0)
    return status


def _raw(tensor: Tensor) -> np.ndarray:
    return as_array(tensor, "tensor").reshape(-1).view(np.uint8)

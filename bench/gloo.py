"""torch.distributed's gloo, to compare with: what PyTorch uses on CPUs where there is no MPI."""

import atexit
import socket
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

__all__ = ["OPS", "TYPES", "begin", "end_group", "start"]

OPS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
#: Those of NumPy that it takes.
TYPES = {"float16", "float32", "float64", "int8", "uint8", "int32", "int64"}


def start(comm: MPI.Intracomm, op: str) -> Callable[[np.ndarray, np.ndarray], None]:
    """An all-reduce like ours over the same ranks; collective.

    It works in place, so that copying the input is part of its time.
    """
    begin(comm, "gloo")

    def call(send: np.ndarray, recv: np.ndarray) -> None:
        np.copyto(recv, send)
        dist.all_reduce(torch.from_numpy(recv), OPS[op])

    return call


def begin(comm: MPI.Intracomm, backend: str) -> None:
    """Make PyTorch's default group of these ranks, if there is none yet; collective."""
    if dist.is_initialized():
        return
    torch.set_num_threads(1)
    host = comm.bcast(socket.gethostname())
    store = dist.TCPStore(host, 0, None, True, wait_for_workers=False) if comm.rank == 0 else None
    port = comm.bcast(store.port if store else 0)
    store = store or dist.TCPStore(host, port, None, False, wait_for_workers=False)
    dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)
    atexit.register(end_group)  # its threads must not outlive the interpreter


def end_group() -> None:
    """End PyTorch's default group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()

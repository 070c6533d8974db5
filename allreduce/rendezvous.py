"""How PyTorch's ranks find each other through MPI, and how they end."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import cache
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.rendezvous import _rendezvous_handlers as handlers

__all__ = ["end_together", "install"]

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: Bytes of a host's name and a port.
LONGEST = 300


def by_mpi(url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
    """A store on rank 0, at a port that the kernel chose; its address goes by MPI. Collective."""
    comm = MPI.COMM_WORLD
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    host = "127.0.0.1" if node.size == comm.size else socket.gethostname()
    node.Free()
    store = dist.TCPStore(host, 0, None, True, wait_for_workers=False) if comm.rank == 0 else None
    address = bytearray(f"{host} {store.port if store else 0}".encode().ljust(LONGEST))
    comm.Bcast(address)
    host, port = address.decode().split()
    yield store or dist.TCPStore(host, int(port), None, False, wait_for_workers=False), comm.rank, comm.size


@cache
def install() -> None:
    """Let `init_process_group` without an address ask MPI, where no launcher has set up the environment."""
    by_environment = handlers["env"]  # the public way to register refuses to replace one

    def handler(url: str, **wishes: Any) -> Iterator[tuple[dist.Store, int, int]]:
        launched = all(name in os.environ for name in NEEDED)
        return by_environment(url, **wishes) if launched or "?" in url else by_mpi(url)

    handlers["env"] = handler


@cache
def end_together() -> None:
    """Let an exception that nobody catches end all ranks, for the others would wait for this one."""
    report = sys.excepthook

    def hook(*error: Any) -> None:
        with redirect_stderr(sys.__stderr__):  # PyTorch's own hook, around this one, would print what we print later
            report(*error)
            sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)

    sys.excepthook = hook

"""One rank's model and optimizer for all ranks."""

import io
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from mpi4py import MPI

from .collectives import bcast
from .tensors import bytes_of, memory

__all__ = ["broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(
    params: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    root_rank: int = 0,
    comm: MPI.Intracomm | None = None,
) -> None:
    """Copy the root's tensors into those of all ranks, in place.

    Parameters
    ----------
    params : mapping of str to torch.Tensor, or iterable of pairs
        Such as ``model.state_dict()`` or ``model.named_parameters()``, of one shape and dtype on all ranks.
    root_rank : int
    comm : MPI.Intracomm, optional
        MPI.COMM_WORLD by default.
    """
    for _, tensor in sorted(dict(params).items()):
        with memory(tensor, bytes_of) as array:
            bcast(array, root_rank, comm=comm)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int = 0, comm: MPI.Intracomm | None = None
) -> None:
    """Give all ranks the state of the root's optimizer, whatever they have; parameters as `broadcast_parameters`."""
    packed = io.BytesIO()
    torch.save(optimizer.state_dict(), packed)
    length = np.array([packed.tell()])
    bcast(length, root_rank, comm=comm)
    message = np.resize(np.frombuffer(packed.getbuffer(), np.uint8), length[0])
    bcast(message, root_rank, comm=comm)
    # weights_only: whatever the bytes say, nothing but tensors and plain values comes of them.
    optimizer.load_state_dict(torch.load(io.BytesIO(message.data), weights_only=True))

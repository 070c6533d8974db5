"""Tensors from every rank to every other, each another one: by MPI's own, waited for no longer than ours.

Those on a device go through host memory.
"""

from collections.abc import Sequence

import torch
from mpi4py import MPI

from .communicator import Communicator
from .parallel.messages import wait
from .tensors import bytes_of

__all__ = ["exchange", "flat", "parts_of"]


def exchange(comm: Communicator, outs: Sequence[torch.Tensor], mine: Sequence[torch.Tensor]) -> None:
    """Send the i-th tensor to rank i, and receive the i-th of the others from there.

    Parameters
    ----------
    comm : Communicator
    outs, mine : sequence of torch.Tensor
        One for each rank, of any size, none included; their shapes need not be those of the other end. Or none at
        all, for nothing.

    Raises
    ------
    ValueError
        Not as many as there are ranks.
    TimeoutError
        Of the communicator.
    """
    for tensors in (outs, mine):
        if len(tensors) not in (0, comm.size):
            raise ValueError(f"an exchange takes {comm.size} tensors, one for each rank, not {tensors}")
    sent, received = flat(mine).cpu(), room(outs)
    ends = [[bytes_of(whole), counts(part, comm.size), MPI.BYTE] for whole, part in ((sent, mine), (received, outs))]
    wait(comm, comm.Ialltoallv(*ends))
    for out, part in zip(outs, received.split([out.numel() for out in outs])):
        out.detach().copy_(part.view(out.shape))


def room(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """For all their elements, in host memory."""
    return torch.empty(sum(x.numel() for x in tensors), dtype=tensors[0].dtype) if tensors else torch.empty(0)


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor of all elements."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]) if tensors else torch.empty(0)


def counts(tensors: Sequence[torch.Tensor], size: int) -> list[int]:
    """Bytes for each rank."""
    return [tensor.nbytes for tensor in tensors] or [0] * size


def parts_of(tensor: torch.Tensor, rows: Sequence[int], size: int) -> Sequence[torch.Tensor]:
    """A tensor cut along its first dimension, into equal parts if it is not said how many rows each has."""
    length = len(tensor)
    rows = rows or [length // size] * size
    if len(rows) != size or sum(rows) != length or min(rows) < 0:
        raise ValueError(f"{length} rows cannot be cut into {list(rows)} for {size} ranks")
    return tensor.detach().split(list(rows))

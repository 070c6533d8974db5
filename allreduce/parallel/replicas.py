"""Data parallel, on the outside of the other axes: replicas average their gradients. Needs PyTorch."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ..collectives import allreduce
from ..communicator import Communicator
from .tensor import Part

__all__ = ["average_gradients"]


def average_gradients(
    parameters: Iterable[Tensor], comm: Communicator, codec: Any = None, algorithm: str = "auto"
) -> None:
    """Replace the gradients by their mean over the replicas, in one all-reduce per dtype.

    Nothing is hidden behind the backward pass: this is for when a pipeline has been emptied. A codec takes parts of
    cut layers by themselves: what all ranks of a tensor axis have must not depend on what lies beside it.

    Parameters
    ----------
    parameters : iterable of Tensor
        The same, in the same order, on all ranks; one without a gradient here counts as zero, and gets one.
    comm : Communicator
        Such as `Mesh.data`.
    codec : str, Codec or Method, optional
    algorithm : str
        As in `allreduce`; "auto" takes a codec only where that pays.
    """

    def kind(p: Tensor) -> str:
        return f"{'parts' if codec is not None and isinstance(p, Part) else 'gradients'} of {p.dtype}"

    for key, group in groupby(sorted((p for p in parameters if p.requires_grad), key=kind), kind):
        alike = list(group)
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in alike])
        allreduce(flat, flat, "avg", comm=comm, algorithm=algorithm, codec=codec, key=key)
        for p, mean in zip(alike, flat.split([p.numel() for p in alike])):
            p.grad = mean.view_as(p)

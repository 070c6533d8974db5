"""Tensor parallel: linear layers cut by columns and by rows, over the ranks that share them.

    x -> column-parallel -> any function of single elements -> row-parallel -> y

takes one all-reduce forward, of y, and one backward, of the gradient of x. Needs PyTorch.

See: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..collectives import allreduce
from ..communicator import Communicator
from ..schedules import share

__all__ = ["ColumnParallelLinear", "Copied", "Part", "RowParallelLinear", "Summed"]


class Part(nn.Parameter):
    """This rank's share of a parameter, of which the other ranks of a tensor axis have theirs."""


class Copied(torch.autograd.Function):
    """What all ranks hold goes into each one's part: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return Summed.apply(gradient, ctx.comm), None


class Summed(torch.autograd.Function):
    """What the ranks hold parts of is added up: each part has the gradient of the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        x = x.contiguous()
        return allreduce(x, torch.empty_like(x), comm=comm)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return Copied.apply(gradient, ctx.comm), None


class ColumnParallelLinear(nn.Module):
    """A linear layer of which every rank computes some of the outputs, from all inputs.

    Parameters
    ----------
    layer : nn.Linear
        The whole, the same on all ranks; our share of its outputs is copied from it.
    comm : Communicator
        Of the ranks that share it, such as `Mesh.tensor`.
    """

    def __init__(self, layer: nn.Linear, comm: Communicator) -> None:
        super().__init__()
        ours = share(layer.out_features, comm.size, comm.rank)
        self.comm = comm
        self.weight = _part(layer.weight, 0, ours)
        self.bias = None if layer.bias is None else _part(layer.bias, 0, ours)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(Copied.apply(x, self.comm), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """A linear layer of which every rank has some of the inputs, and gets all outputs.

    Parameters are those of `ColumnParallelLinear`, whose outputs are its inputs; the bias is added once, after the sum.
    """

    def __init__(self, layer: nn.Linear, comm: Communicator) -> None:
        super().__init__()
        self.comm = comm
        self.weight = _part(layer.weight, 1, share(layer.in_features, comm.size, comm.rank))
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        y = Summed.apply(nn.functional.linear(x, self.weight), self.comm)
        return y if self.bias is None else y + self.bias


def _part(whole: Tensor, dimension: int, ours: range) -> Part:
    return Part(whole.detach().narrow(dimension, ours.start, len(ours)).clone())

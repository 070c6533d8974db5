"""Stages cut by measured time. Needs PyTorch."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..collectives import bcast
from ..mesh import Mesh
from .balance import balance, told

__all__ = ["layer_seconds", "my_layers"]


def layer_seconds(layers: Sequence[nn.Module], x: Tensor, repeats: int = 3) -> np.ndarray:
    """Seconds that each layer takes forward and backward, the best of some tries; leaves gradients as they are."""
    seconds = np.full(len(layers), np.inf)
    for i, layer in enumerate(layers):
        wanted = [p for p in (x, *layer.parameters()) if p.requires_grad]
        for _ in range(repeats):
            begin = time.perf_counter()
            y = layer(x)
            if y.requires_grad:
                torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
            seconds[i] = min(seconds[i], time.perf_counter() - begin)
        x = y.detach().requires_grad_()
    return seconds


def my_layers(layers: Sequence[nn.Module], mesh: Mesh, x: Tensor) -> nn.Sequential:
    """The layers of this rank's stage, cut by the time that rank 0 of the mesh measures; it prints how well that went.

    Parameters
    ----------
    layers : sequence of nn.Module
        All of them, not yet cut between ranks, as these would wait for each other.
    mesh : Mesh
    x : Tensor
        A microbatch of inputs.
    """
    seconds = layer_seconds(layers, x) if mesh.comm.rank == 0 else np.zeros(len(layers))
    bcast(seconds, comm=mesh.comm)
    stages = balance(seconds.tolist(), mesh.pipeline.size)
    if mesh.comm.rank == 0:
        print(told("stages", [1e3 * seconds[stage.start : stage.stop].sum() for stage in stages], "ms"), flush=True)
    ours = stages[mesh.pipeline.rank]
    return nn.Sequential(*layers[ours.start : ours.stop])

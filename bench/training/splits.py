"""Models split over a mesh: tensor parallel layers, pipeline stages, replicas of all that."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI
from torch import Tensor, nn

from allreduce import Communicator, Mesh, allreduce
from allreduce.parallel.cutting import my_layers
from allreduce.parallel.pipeline import Pipeline
from allreduce.parallel.replicas import average_gradients
from allreduce.parallel.tensor import ColumnParallelLinear, Part, RowParallelLinear

from ..cells import alike
from .models import cut, loss_of
from .ways import Way

__all__ = ["Split"]


class Split(Way):
    """This rank's part of the model; nothing of its communication hides behind a backward pass.

    Parameters
    ----------
    name : str
    layers : list of nn.Module
        All of them, on every rank.
    mesh : Mesh
    sample : Tensor
        Inputs of a microbatch, to cut stages by.
    descent : callable
        Of parameters, makes the optimizer.
    microbatches : int
    codec : str, optional
    algorithm : str
        Of the gradients that replicas average.
    """

    def __init__(
        self, name: str, layers: list[nn.Module], mesh: Mesh, sample: Tensor, descent: Any, microbatches: int,
        codec: str | None, algorithm: str,
    ) -> None:  # fmt: skip
        stage = my_layers(layers, mesh, sample)
        cut(stage, mesh.tensor)
        super().__init__(name, stage, descent(stage), slice(mesh.data.rank, None, mesh.data.size))
        self.mesh, self.codec, self.algorithm = mesh, codec, algorithm
        self.pipeline = Pipeline(stage, mesh.pipeline, self.loss, microbatches)
        self.right, self.itself = 0.0, Communicator(MPI.COMM_SELF)
        self.seen: Tensor | None = None
        self.noted = stage.register_forward_pre_hook(self.note)
        self.steps["alone"] = self.alone

    def note(self, _: nn.Module, args: tuple[Tensor]) -> None:
        """Keep the first input of this stage, for `alone`."""
        self.seen = args[0].detach().clone().requires_grad_(args[0].is_floating_point())
        self.noted.remove()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.right += (outputs.argmax(-1) == targets).sum().item()
        return loss_of(outputs, targets)

    def backward(self, inputs: Tensor, targets: Tensor) -> float:
        loss = self.pipeline.step(inputs, targets)
        if self.mesh.data.size > 1:
            average_gradients(self.net.parameters(), self.mesh.data, self.codec, self.algorithm)
        return loss

    def alone(self, inputs: Tensor, targets: Tensor) -> float:
        """The same computation on this rank, on one and the same input, without a message."""
        assert self.seen is not None
        self.descent.optimizer.zero_grad()
        with self.unconnected():
            for _ in range(self.pipeline.microbatches):
                outputs = self.net(self.seen)
                loss = self.loss(outputs, targets[: len(outputs)]) if self.pipeline.last else outputs.mean()
                loss.backward()
        self.descent.step()
        return loss.item()

    @contextmanager
    def unconnected(self) -> Iterator[None]:
        """Inside, cut layers communicate with nobody."""
        parts = [m for m in self.net.modules() if isinstance(m, (ColumnParallelLinear, RowParallelLinear))]
        for module in parts:
            module.comm = self.itself
        yield
        for module in parts:
            module.comm = self.mesh.tensor

    def judge(self, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Forward and backward, as a pipeline goes; the gradients are thrown away."""
        self.right = 0.0
        loss = self.pipeline.step(inputs, targets)
        self.descent.optimizer.zero_grad()
        right = allreduce(np.array([self.right * self.pipeline.last]), comm=self.mesh.pipeline)
        return loss, float(right[0]) / targets.numel()

    def same(self) -> bool:
        """Replicas have the same bits, and so have tensor ranks of what is not cut."""
        whole = [p.detach().numpy().ravel() for p in self.net.parameters() if not isinstance(p, Part)]
        replicas = alike(self.bits(), self.mesh.data)
        tensors = alike(np.concatenate(whole), self.mesh.tensor)
        return bool(MPI.COMM_WORLD.allreduce(replicas and tensors, MPI.LAND))

    def close(self) -> None:
        self.itself.close()

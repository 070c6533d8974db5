"""Pipeline parallel: each rank has some of the layers; activations go to the next, their gradients back. Needs PyTorch.

Which microbatch is worked on when is said by `orders`; here it is done.
"""

from collections.abc import Callable

import numpy as np
import torch
from mpi4py import MPI
from torch import Tensor, nn

from ..collectives import allreduce
from ..communicator import Communicator
from ..schedules import share
from .messages import fill, receive, send, send_any, wait
from .orders import ORDERS

__all__ = ["Pipeline"]


class Pipeline:
    """One stage of a model, run with the others.

    Parameters
    ----------
    stage : nn.Module
        From one floating-point tensor to one; the first takes the inputs, of any dtype.
    comm : Communicator
        Of the stages in their order, such as `Mesh.pipeline`. Messages go over it, tagged by microbatch.
    loss : callable
        (outputs, targets) -> the mean over the samples; called on the last stage.
    microbatches : int
        Into how many nearly equal parts a batch is cut.
    order : str
        A name in `orders.ORDERS`.

    Raises
    ------
    ValueError
        An unknown order.
    """

    def __init__(
        self,
        stage: nn.Module,
        comm: Communicator,
        loss: Callable[[Tensor, Tensor], Tensor],
        microbatches: int,
        order: str = "1f1b",
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"unknown order {order!r}; have {', '.join(ORDERS)}")
        self.stage, self.comm, self.loss, self.microbatches = stage, comm, loss, microbatches
        self.order = ORDERS[order](comm.rank, comm.size, microbatches)
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        #: by microbatch: what came in, what went out, and the request that sent it
        self.held: dict[int, tuple[Tensor, Tensor, MPI.Request]] = {}
        #: gradients on their way back, and their requests
        self.sent: list[tuple[Tensor, MPI.Request]] = []
        self.most = 0  # microbatches held at once so far

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Take a batch forward and backward; adds to the gradients, as `backward` does.

        Parameters
        ----------
        inputs, targets : Tensor
            Of the whole batch, samples first, the same on all stages; used on the first and on the last.

        Returns
        -------
        float
            The loss, on every stage.

        Raises
        ------
        ValueError
            A batch with fewer samples than there are microbatches.
        TimeoutError
            Another stage does not answer within the communicator's timeout.
        """
        samples = len(inputs)
        if not 1 <= self.microbatches <= samples:
            raise ValueError(f"cannot cut {samples} samples into {self.microbatches} microbatches")
        loss = np.zeros(1)
        for forward, m in self.order:
            part = share(samples, self.microbatches, m)
            weight = len(part) / samples
            if forward:
                y = self.forward(m, inputs[part.start : part.stop], targets[part.start : part.stop])
                loss += y.item() * weight if self.last else 0
            else:
                self.backward(m, weight)
        for _, request in self.sent:
            wait(self.comm, request)
        self.sent.clear()
        return float(allreduce(loss, comm=self.comm)[0])

    def forward(self, m: int, inputs: Tensor, targets: Tensor) -> Tensor:
        """Take a microbatch through this stage, and on to the next."""
        x = inputs if self.first else receive(self.comm, self.comm.rank - 1, m).requires_grad_()
        y = self.stage(x)
        if self.last:
            y, request = self.loss(y, targets), MPI.REQUEST_NULL
        else:
            y = y.contiguous()
            request = send_any(self.comm, y.detach(), self.comm.rank + 1, m)
        self.held[m] = x, y, request
        self.most = max(self.most, len(self.held))
        return y

    def backward(self, m: int, weight: float) -> None:
        """Take the gradient of a microbatch through this stage, and back to the one before; forget its activations."""
        x, y, request = self.held.pop(m)
        gradient = torch.full_like(y, weight)
        if not self.last:
            fill(self.comm, gradient, self.comm.rank + 1, m)
        wait(self.comm, request)
        if y.requires_grad:  # not so if all layers so far have no parameters
            y.backward(gradient)
        if not self.first:
            back = torch.zeros_like(x) if x.grad is None else x.grad.contiguous()
            self.sent.append((back, send(self.comm, back, self.comm.rank - 1, m)))

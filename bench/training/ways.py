"""What every way of training has: a model, an optimizer, and a step."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from .models import loss_of

__all__ = ["MOMENTUM", "Descent", "Step", "Way"]

Step = Callable[[Tensor, Tensor], float]
MOMENTUM = 0.9


class Descent:
    """Nesterov's, in steps that shrink to nothing: whoever goes on after the last one stays where it is."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, steps: int) -> None:
        self.optimizer = torch.optim.SGD(parameters, lr, MOMENTUM, nesterov=True)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, steps)

    def step(self) -> None:
        self.optimizer.step()
        self.schedule.step()


class Way:
    """One rank's model, trained by itself.

    Parameters
    ----------
    name : str
    net : nn.Module
    descent : Descent
    part : slice
        Which samples of the whole batch this rank takes.

    Attributes
    ----------
    codec : str or None
    steps : dict of str to Step
        "together", as it trains; "apart", if communication can also wait for the end of the backward pass; "alone",
        with no communication at all.
    """

    codec: str | None = None

    def __init__(self, name: str, net: nn.Module, descent: Descent, part: slice) -> None:
        self.name, self.net, self.descent, self.part = name, net, descent, part
        self.model = net  # what is called in training
        self.steps: dict[str, Step] = {"together": self.step}

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Of this rank's samples; their loss."""
        self.descent.optimizer.zero_grad()
        loss = self.backward(inputs, targets)
        self.descent.step()
        return loss

    def backward(self, inputs: Tensor, targets: Tensor) -> float:
        loss = loss_of(self.model(inputs), targets)
        loss.backward()
        return loss.item()

    def judge(self, inputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """Mean loss, and accuracy from 0 to 1."""
        with torch.no_grad():
            outputs = self.net(inputs)
            right = (outputs.argmax(-1) == targets).double().mean()
            return loss_of(outputs, targets).item(), right.item()

    def same(self) -> bool:
        """Whether all ranks that should have the same bits do; collective."""
        return True

    def close(self) -> None:
        """Collective."""

    def bits(self) -> np.ndarray:
        """All parameters of this rank, in one array."""
        return torch.cat([p.detach().reshape(-1) for p in self.net.parameters()]).numpy()

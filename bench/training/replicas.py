"""Data parallel: our hook for DistributedDataParallel, and what PyTorch has, on gloo."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from allreduce.ddp import State, ddp_hook
from compress.method import Method

from ..cells import alike
from .ways import Descent, Step, Way

__all__ = ["BASELINES", "Replica", "baseline", "ours"]

#: PyTorch's own.
BASELINES = ("gloo", "gloo fp16", "gloo powersgd")
Hook = Callable[[Any, dist.GradBucket], torch.futures.Future]
Made = tuple[nn.Module, Descent]
#: Of several buckets PyTorch's PowerSGD waits on gloo for itself, for ever; methods of ours take longer.
ONE_BUCKET = 1 << 40


class Replica(Way):
    """DistributedDataParallel.

    Parameters
    ----------
    name : str
    made : (nn.Module, Descent)
    alone : Step
        Without communication.
    group : torch.distributed.ProcessGroup, optional
    bucket : int
        Bytes.
    hook : (state, callable), optional
        Of communication.
    """

    waits = False

    def __init__(self, name: str, made: Made, alone: Step, group: Any, bucket: int, hook: Any = None) -> None:
        super().__init__(name, *made, slice(MPI.COMM_WORLD.rank, None, MPI.COMM_WORLD.size))
        self.group, self.hook = group, hook
        self.model: DistributedDataParallel = DistributedDataParallel(
            self.net, process_group=group, bucket_cap_mb=bucket / 2**20, gradient_as_bucket_view=True
        )
        if hook:
            self.model.register_comm_hook(hook[0], self.communicate)
        self.steps |= {"apart": self.waited if hook else self.afterwards, "alone": alone}

    def communicate(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The hook, whose result can be waited for at once."""
        future = self.hook[1](state, bucket)
        if self.waits:
            future.wait()
        return future

    def waited(self, inputs: Tensor, targets: Tensor) -> float:
        """A step in which the backward pass waits for every bucket."""
        self.waits = True
        loss = self.step(inputs, targets)
        self.waits = False
        return loss

    def afterwards(self, inputs: Tensor, targets: Tensor) -> float:
        """A step in which all gradients are averaged at once, when the backward pass is over."""
        self.descent.optimizer.zero_grad()
        with self.model.no_sync():
            loss = self.backward(inputs, targets)
        gradients = [p.grad for p in self.net.parameters() if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients]).div_(dist.get_world_size(self.group))
        dist.all_reduce(flat, group=self.group)
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients])):
            gradient.copy_(mean.view_as(gradient))
        self.descent.step()
        return loss

    def same(self) -> bool:
        return alike(self.bits(), MPI.COMM_WORLD)

    def close(self) -> None:
        if self.hook and isinstance(self.hook[0], State):
            self.hook[0].close()


def baseline(name: str, made: Made, alone: Step, group: Any, bucket: int) -> Replica:
    """A way in BASELINES; collective."""
    if name == "gloo":
        return Replica(name, made, alone, group, bucket)
    if name == "gloo fp16":
        way = Replica(name, made, alone, group, bucket, (group, fp16_compress_hook))
    else:
        state = PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
        way = Replica(name, made, alone, group, ONE_BUCKET, (state, powerSGD_hook))
    way.codec = name.removeprefix("gloo ")
    return way


def ours(codec: str | None, made: Made, alone: Step, bucket: int, **wishes: Any) -> Replica:
    """Our hook, with wishes for its state; collective."""
    state = State(codec, **wishes)
    if isinstance(state.codec, Method):
        bucket = ONE_BUCKET
    way = Replica(f"allreduce {codec}" if codec else "allreduce", made, alone, None, bucket, (state, ddp_hook))
    way.codec = codec
    return way

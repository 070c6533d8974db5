"""A communication hook for DistributedDataParallel: `model.register_comm_hook(ddp_state(codec="int8"), ddp_hook)`."""

from typing import Any

import torch
import torch.distributed as dist

from .averaging import Averager

__all__ = ["State", "ddp_hook", "ddp_state"]


class State(Averager):
    """What `ddp_hook` keeps between steps; parameters and methods are those of `Averager`.

    A parameter is named by when it was first seen, which is the same on all ranks, and in every run with the same
    model. So its memory survives that DDP puts other buckets together after the first step, and after a restart.
    """

    def __init__(self, *args: Any, **wishes: Any) -> None:
        super().__init__(*args, **wishes)
        self.names: dict[torch.Tensor, str] = {}

    def name(self, parameter: torch.Tensor) -> str:
        return self.names.setdefault(parameter, str(len(self.names)))


def ddp_state(codec: Any = None, comm: Any = None, **wishes: Any) -> State:
    """The state of `ddp_hook`, one for each model; collective.

    Save `state_dict()` with the model's in each rank's checkpoint, if the codec remembers something.

    Parameters
    ----------
    codec : str, Codec or Method, optional
        Such as "int8", "feedback(topk:ratio=0.01)" or "powersgd:rank=2". A bucket goes at
        once; a method, which remembers, does so for every parameter by itself, however DDP puts buckets together.
    comm : MPI.Intracomm, optional
        Of the ranks of DDP's process group, in its order; MPI.COMM_WORLD by default.
    **wishes
        `algorithm`, `overlap` and `timeout`, as of `allreduce.averaging.Averager`.

    Examples
    --------
    In a process group, of any backend:

    >>> import torch, allreduce
    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    >>> state = allreduce.ddp_state(codec="feedback(topk:ratio=0.5)", algorithm="direct")
    >>> model.register_comm_hook(state, allreduce.ddp_hook)
    >>> model(torch.ones(3, 4)).sum().backward()
    >>> sorted(state.state_dict()["memory"])
    ['0', '1']
    """
    return State(codec, comm, **wishes)


def ddp_hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket where it lies; the Future is of its buffer."""
    parts = {state.name(parameter): part for parameter, part in zip(bucket.parameters(), bucket.gradients())}
    return state.mean(bucket.buffer(), parts)

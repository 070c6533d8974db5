"""Data parallelism around an optimizer, with Horovod's names: no process group, no wrapper around the model."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from mpi4py import MPI

from .averaging import Averager
from .fusion import Bucket, fuse

__all__ = ["DistributedOptimizer", "Gradients"]


class Gradients(Averager):
    """The gradients of an optimizer: averaged bucket by bucket, in one order, as backward passes complete them."""

    def __init__(
        self, parameters: dict[str, torch.Tensor], limit: int, factors: tuple[float, float], passes: int, **wishes: Any
    ) -> None:
        super().__init__(**wishes)
        self.factors, self.passes = factors, passes
        self.buckets = fuse(parameters, limit)
        self.seen = dict.fromkeys(parameters, 0)
        self.futures: list[torch.futures.Future] = []
        self.synchronized = self.skipping = False
        for bucket in self.buckets:
            for name, parameter in bucket.parameters.items():
                parameter.register_post_accumulate_grad_hook(partial(self._ready, name, bucket))

    def _ready(self, name: str, bucket: Bucket, _: torch.Tensor) -> None:
        """A backward pass has come to a parameter."""
        self.synchronized = False
        self.seen[name] += 1
        if self.seen[name] > self.passes:
            raise RuntimeError(
                f"{self.seen[name]} backward passes came to {name} without a step; DistributedOptimizer was made for "
                f"backward_passes_per_step={self.passes}"
            )
        if self.seen[name] == self.passes:
            bucket.collect(name)
            self._launch()

    def _launch(self) -> None:
        """Begin with the buckets that are full, in their order, which is that of all ranks."""
        for bucket in self.buckets[len(self.futures) :]:
            if any(self.seen[name] < self.passes for name in bucket.parameters):
                break
            self.futures.append(self.mean(bucket.flat, bucket.views, *self.factors))

    def synchronize(self) -> None:
        """Wait until every gradient is the mean over all ranks, and lies in `grad`; a missing one counts as zero."""
        if self.synchronized:
            return
        for bucket in self.buckets[len(self.futures) :]:
            for name in bucket.parameters:
                bucket.collect(name)
                self.seen[name] = self.passes
        self._launch()
        futures, self.futures = self.futures, []
        self.seen = dict.fromkeys(self.seen, 0)
        for future in futures:
            future.wait()
        self.synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, `step` does not wait, for `synchronize` was called."""
        self.skipping = True
        try:
            yield
        finally:
            self.skipping = False

    def before_step(self, optimizer: Any, args: tuple, wishes: dict[str, Any]) -> None:
        if any(argument is not None for argument in (*args[1:], *wishes.values())):
            raise ValueError("step() of a DistributedOptimizer takes no closure: call backward() first")
        if not self.skipping:
            self.synchronize()

    def after_step(self, *_: Any) -> None:
        self.synchronized = False


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    codec: Any = None,
    *,
    comm: MPI.Intracomm | None = None,
    fusion_bytes: int = 4 << 20,
    prescale: float = 1.0,
    postscale: float = 1.0,
    backward_passes_per_step: int = 1,
    **wishes: Any,
) -> Any:
    """Let an optimizer step by the mean of all ranks' gradients; collective.

    Returns
    -------
    torch.optim.Optimizer
        The optimizer itself, whose `step` waits for the gradients now, with three attributes more:
        ``synchronize()`` waits for them earlier, so that they can be clipped: ``optimizer.synchronize()``,
        ``clip_grad_norm_(...)``, ``with optimizer.skip_synchronize(): optimizer.step()``; `gradients` has the
        `state_dict` and `load_state_dict` of a codec that remembers, for each rank's checkpoint, and `close`.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    named_parameters : iterable of (str, torch.Tensor), optional
        All that the optimizer has, such as ``model.named_parameters()``; without names they are numbered.
    codec : str, Codec or Method, optional
        As in `allreduce`. It takes a fusion buffer at once; a method remembers every parameter for itself.
    comm : MPI.Intracomm, optional
        MPI.COMM_WORLD by default.
    fusion_bytes : int
        Size limit of a fusion buffer.
    prescale, postscale : float
        Factors before and after the mean is made.
    backward_passes_per_step : int
        So many passes add up their gradients, and the last one has them averaged.
    **wishes
        `algorithm`, `overlap` and `timeout`, as of `allreduce.averaging.Averager`.

    Raises
    ------
    ValueError
        Parameters that the optimizer does not have, or more that it has.
    """
    own = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    named = dict(named_parameters if named_parameters is not None else ((str(i), p) for i, p in enumerate(own)))
    named = {name: p for name, p in named.items() if p.requires_grad}
    if set(map(id, named.values())) != set(map(id, own)):
        raise ValueError(f"named_parameters has {len(named)} that need gradients, the optimizer has {len(own)} others")
    factors = prescale, postscale
    gradients = Gradients(named, fusion_bytes, factors, backward_passes_per_step, codec=codec, comm=comm, **wishes)
    optimizer.register_step_pre_hook(gradients.before_step)
    optimizer.register_step_post_hook(gradients.after_step)
    optimizer.gradients, optimizer.synchronize = gradients, gradients.synchronize  # type: ignore[attr-defined]
    optimizer.skip_synchronize = gradients.skip_synchronize  # type: ignore[attr-defined]
    return optimizer

"""Means of gradients over ranks, made behind the back of the backward pass."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from mpi4py import MPI

import compress
from compress.method import Method

from .communicator import Communicator
from .execute.requests import Request
from .methods import average_together
from .progress import Progress
from .tensors import begin, memory, stream_of

__all__ = ["Averager"]


class Averager:
    """What a training loop keeps for its gradients: a communicator, a thread, a codec and the memory of that.

    Parameters
    ----------
    codec : str, Codec or Method, optional
        As in `allreduce`.
    comm : MPI.Intracomm, optional
        MPI.COMM_WORLD by default; gets a duplicate of its own. Collective.
    algorithm : str
        As in `allreduce`; "auto" takes a codec only where that pays.
    overlap : bool
        Communicate in a thread, which needs MPI_THREAD_MULTIPLE and pays where a core or the network has time left;
        else, or below that level, in the thread that asks.
    timeout : float, optional
        Seconds after which a rank that waits for another raises `CollectiveTimeout`.
    """

    def __init__(
        self,
        codec: Any = None,
        comm: MPI.Intracomm | None = None,
        *,
        algorithm: str = "auto",
        overlap: bool = True,
        timeout: float | None = None,
    ) -> None:
        self.codec = None if codec is None else compress.get(codec)
        self.comm = Communicator(comm, timeout=timeout)
        self.algorithm = algorithm
        self.progress = Progress(overlap)
        self.comm.engine.channel.rests = self.progress.threaded
        #: by its name, the names of those that a tensor was last averaged with, itself included, by a method
        self.together: dict[str, tuple[str, ...]] = {}

    def mean(
        self, whole: torch.Tensor, parts: dict[str, torch.Tensor], before: float = 1.0, after: float = 1.0
    ) -> torch.futures.Future:
        """Replace a tensor by its mean over the ranks; begins in the order of the calls.

        Parameters
        ----------
        whole : torch.Tensor
            In host memory or on the device of this process; there the current stream is followed.
        parts : dict of str to torch.Tensor
            Its parts by their names, for a method, which remembers each of them, however they are put together, and
            averages them in as few all-reduces as it can.
        before, after : float
            Factors.

        Returns
        -------
        torch.futures.Future
            Of `whole`.
        """
        def job() -> Iterator[Request]:
            scale(whole, before)
            if isinstance(self.codec, Method):
                for group in self.groups(tuple(parts)):
                    self._by_method(self.codec, {name: parts[name] for name in group})
            else:
                with memory(whole) as array:
                    yield from begin(array, "avg", self.comm, self.algorithm, self.codec)
            scale(whole, after)

        return self.progress.later(job, whole, stream_of(whole))

    def groups(self, names: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Which of these tensors are averaged together: those that were in the step before, and all the rest.

        After a restart DDP begins with one bucket of all parameters: its results are those of the buckets before.
        """
        before = dict.fromkeys(group for name in names if (group := self.together.get(name)))
        whole = [g for g in before if all(name in names and self.together[name] == g for name in g)]
        rest = tuple(name for name in names if not any(name in group for group in whole))
        groups = [*whole, rest] if rest else whole
        self.together |= {name: group for group in groups for name in group}
        return groups

    def _by_method(self, method: Method, tensors: dict[str, torch.Tensor]) -> None:
        with ExitStack() as stack:
            arrays = {name: stack.enter_context(memory(tensor)) for name, tensor in tensors.items()}
            average_together(method, self.comm.engine, arrays, self.algorithm)

    def state_dict(self) -> dict[str, Any]:
        """What this rank's method remembers, as tensors, for this rank's checkpoint; {} if nothing does."""
        if not isinstance(self.codec, Method):
            return {}
        state = self.codec.state_dict()
        memory = {key: {name: torch.from_numpy(part) for name, part in m.items()} for key, m in state["memory"].items()}
        together = [list(group) for group in dict.fromkeys(self.together.values())]
        return {"config": state["config"], "memory": memory, "together": together}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned; refuses that of another codec."""
        if not isinstance(self.codec, Method):
            if state:
                raise ValueError(f"the state is one of {state['config']}, but codec {self.codec} remembers nothing")
            return
        memory = {key: {name: part.numpy() for name, part in m.items()} for key, m in state["memory"].items()}
        groups = state.get("together", [])
        if not all(isinstance(name, str) for group in groups for name in group):
            raise ValueError(f"a state has lists of names of tensors that go together, not {groups!r:.80}")
        self.codec.load_state_dict({"config": state["config"], "memory": memory})
        self.together = {name: tuple(group) for group in groups for name in group}

    def close(self) -> None:
        """End the thread and free the communicator; collective."""
        self.progress.close()
        self.comm.close()


def scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply in place, if there is anything to do."""
    if factor != 1:
        tensor.mul_(factor)

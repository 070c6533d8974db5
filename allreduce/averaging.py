"""Means of gradients over ranks, made behind the back of the backward pass."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from mpi4py import MPI

import compress
from compress.method import Method

from .collectives import allreduce
from .communicator import Communicator
from .progress import Progress
from .tensors import through

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

    def mean(
        self, whole: torch.Tensor, parts: dict[str, torch.Tensor], before: float = 1.0, after: float = 1.0
    ) -> torch.futures.Future:
        """Replace a tensor by its mean over the ranks; begins in the order of the calls.

        Parameters
        ----------
        whole : torch.Tensor
            In host memory or on the device of this process; there the current stream is followed.
        parts : dict of str to torch.Tensor
            Its parts by their names, for a method, which remembers each of them, however they are put together.
        before, after : float
            Factors.

        Returns
        -------
        torch.futures.Future
            Of `whole`.

        Raises
        ------
        TypeError
            A method, and gradients on a device.
        """
        named = parts if isinstance(self.codec, Method) else {"": whole}

        if whole.is_cuda and isinstance(self.codec, Method):
            raise TypeError(f"{self.codec} is for gradients in host memory, not on {whole.device}; a codec is for both")
        stream = torch.cuda.current_stream(whole.device) if whole.is_cuda else None

        def job() -> None:
            with torch.cuda.stream(stream) if stream else nullcontext():  # of whoever asks, not of this thread
                scale(whole, before)
                for key, tensor in named.items():
                    through(tensor, partial(self._mean, key), anywhere=True)
                scale(whole, after)

        return self.progress.later(job, whole)

    def _mean(self, key: str, array: Any) -> None:
        allreduce(array, array, "avg", comm=self.comm, algorithm=self.algorithm, codec=self.codec, key=key)

    def state_dict(self) -> dict[str, Any]:
        """What this rank's method remembers, as tensors, for this rank's checkpoint; {} if nothing does."""
        if not isinstance(self.codec, Method):
            return {}
        state = self.codec.state_dict()
        memory = {key: {name: torch.from_numpy(part) for name, part in m.items()} for key, m in state["memory"].items()}
        return {"config": state["config"], "memory": memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned; refuses that of another codec."""
        if not isinstance(self.codec, Method):
            if state:
                raise ValueError(f"the state is one of {state['config']}, but codec {self.codec} remembers nothing")
            return
        memory = {key: {name: part.numpy() for name, part in m.items()} for key, m in state["memory"].items()}
        self.codec.load_state_dict({"config": state["config"], "memory": memory})

    def close(self) -> None:
        """End the thread and free the communicator; collective."""
        self.progress.close()
        self.comm.close()


def scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiply in place, if there is anything to do."""
    if factor != 1:
        tensor.mul_(factor)

"""Tensors as arrays that are the same memory, and the works that PyTorch waits for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI

from compress.codec import Codec

from .buffers import of_tensor
from .collectives import allreduce
from .communicator import Communicator
from .execute.device_arrays import on_device
from .execute.requests import Request
from .parallel.messages import wait
from .progress import future_on

__all__ = ["Messages", "Work", "begin", "bytes_of", "memory", "stream_of", "values_of"]


def values_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor, wherever it lies; on a device it is used on the current stream."""
    return on_device(tensor, "tensor") if tensor.is_cuda else of_tensor(tensor)


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor of any dtype."""
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))  # of one element or none, any stride is contiguous
    return values_of(flat.view(torch.uint8))


@contextmanager
def memory(tensor: torch.Tensor, view: Callable[[torch.Tensor], np.ndarray] = values_of) -> Iterator[np.ndarray]:
    """A tensor's memory as an array; if that has gaps, a copy, which is copied back in the end."""
    if not (tensor.is_cpu or tensor.is_cuda) or tensor.layout is not torch.strided:
        found = f"{tensor.layout} on {tensor.device}"
        raise ValueError(f"backend 'allreduce' is for dense tensors in host memory or on a CUDA device, not {found}")
    whole = tensor.detach().contiguous()
    yield view(whole)
    if whole.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(whole)


def stream_of(*tensors: Any) -> Any:
    """PyTorch's current stream of the device where tensors, or lists of them, lie; none on the host."""
    for some in tensors:
        stream = stream_of(*some) if isinstance(some, (list, tuple)) else current_stream(some)
        if stream is not None:
            return stream
    return None


def current_stream(tensor: torch.Tensor) -> Any:
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


def begin(
    array: Any, op: str, comm: Communicator, algorithm: str = "auto", codec: Codec | None = None
) -> list[Request]:
    """Begin an all-reduce in place, and wait for what is returned; on one node do it at once, without messages."""
    engine = comm.engine
    wishes: dict[str, Any] = {"algorithm": algorithm, "codec": codec}
    if engine.channel.together or algorithm == "native":
        allreduce(array, array, op, comm=comm, **wishes)
        return []
    return [engine.request("allreduce", array, array, op=op, **wishes)]


PyWork: Any = dist.Work  # whose stubs know of no subclasses


class Work(PyWork):
    """A collective that ends with a Future, or has ended; `wait` raises what went wrong.

    Parameters
    ----------
    result : object
        Tensors, as the caller passed them.
    future : torch.futures.Future, optional
        Of the result; none if that is there, on a device in the order of the current stream.
    """

    def __init__(self, result: Any, future: torch.futures.Future | None = None) -> None:
        super().__init__()
        self.tensors, self.future = result, future

    def wait(self, timeout: Any = None) -> bool:
        if self.future is not None:
            self.future.wait()
        return True

    synchronize = wait

    def get_future(self) -> torch.futures.Future:
        if self.future is None:
            self.future = future_on(stream_of(self.tensors))
            self.future.set_result(self.tensors)
        return self.future

    def is_completed(self) -> bool:
        return self.future is None or self.future.done()

    def result(self) -> Any:
        return self.tensors


class Messages(Work):
    """Messages under way, from or into tensors; what has gaps or lies on a device travels as a copy on the host."""

    def __init__(
        self, comm: Communicator, tensors: Sequence[torch.Tensor], begin: Callable[[np.ndarray], MPI.Request]
    ) -> None:
        super().__init__(tensors)
        self.comm, self.source = comm, -1
        self.wholes = [tensor.detach().contiguous().cpu() for tensor in tensors]
        self.requests = [begin(bytes_of(whole)) for whole in self.wholes]

    def wait(self, timeout: Any = None) -> bool:
        requests, self.requests = self.requests, []
        for request, whole, tensor in zip(requests, self.wholes, self.tensors):
            self.source = wait(self.comm, request).source
            if whole.device != tensor.device or whole.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(whole)
        return True

    synchronize = wait

    def get_future(self) -> torch.futures.Future:
        self.wait()
        return super().get_future()

    def is_completed(self) -> bool:
        return all(request.Get_status() for request in self.requests)

    def source_rank(self) -> int:
        return self.source

    _source_rank = source_rank

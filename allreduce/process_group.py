"""A group of PyTorch's ranks whose collectives are ours, on tensors of the host or of a CUDA device."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from .collectives import allgather, allreduce, barrier, bcast, reduce, reduce_scatter
from .communicator import Communicator
from .exchanges import exchange, flat, parts_of
from .execute.requests import Request
from .progress import Job, Progress
from .tensors import Messages, Work, begin, bytes_of, memory, stream_of, values_of

__all__ = ["ProcessGroup"]

OPS = {
    dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg", dist.ReduceOp.PRODUCT: "prod", dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max", dist.ReduceOp.BAND: "band", dist.ReduceOp.BOR: "bor", dist.ReduceOp.BXOR: "bxor",
}  # fmt: skip
Tensors = list[torch.Tensor]
Parts = Sequence[torch.Tensor]
PyGroup: Any = dist.ProcessGroup  # whose stubs know of no subclasses


def op_of(opts: Any) -> str:
    """Our name of an operation."""
    op = opts.reduceOp.op if opts else dist.ReduceOp.SUM
    name = OPS.get(op)
    if name is None:
        raise ValueError(f"backend 'allreduce' has no {op}; it has {', '.join(str(known) for known in OPS)}")
    return name


def deferred(opts: Any) -> bool:
    """Whether the caller goes on before it is done."""
    return opts is None or opts.asyncOp


def uneven(parts: Tensors) -> bool:
    """Whether ranks have parts of different shapes."""
    return any(part.shape != parts[0].shape for part in parts)


class ProcessGroup(PyGroup):
    """A group of ranks; its methods are those that `torch.distributed` calls, with the arguments that it passes.

    Parameters
    ----------
    comm : Communicator
        Of these ranks, and for nothing else.
    """

    def __init__(self, comm: Communicator) -> None:
        super().__init__(comm.rank, comm.size)
        self.comm, self.progress = comm, Progress()
        self.name_ = self.description = ""

    def run(self, job: Job, result: Any, opts: Any, *others: Any) -> Work:
        """Do a job, now or later, after what the current stream has done to tensors on a device."""
        if deferred(opts):
            return Work(result, self.progress.later(job, result, stream_of(result, *others)))
        self.progress.now(job)
        return Work(result)

    def in_place(self, call: Callable, tensors: Tensors, opts: Any, view: Callable = values_of) -> Work:
        """Call with the memory of each tensor."""

        def job() -> None:
            for tensor in tensors:
                with memory(tensor, view) as array:
                    call(array)

        return self.run(job, tensors, opts)

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        op, comm = op_of(opts), self.comm
        if not deferred(opts):
            return self.in_place(lambda array: allreduce(array, array, op, comm=comm), tensors, opts)

        def job() -> Iterator[Request]:
            for tensor in tensors:
                with memory(tensor) as array:
                    yield from begin(array, op, comm)

        return self.run(job, tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        op, root, comm = op_of(opts), opts.rootRank, self.comm
        return self.in_place(lambda array: reduce(array, array, op, root, comm=comm), tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        root, comm = opts.rootRank, self.comm
        return self.in_place(lambda array: bcast(array, root, comm=comm), tensors, opts, bytes_of)

    def barrier(self, opts: Any = None) -> Work:
        return self.run(partial(barrier, self.comm), [], opts)

    def in_its_place(self, own: torch.Tensor, out: torch.Tensor) -> bool:
        """Whether this rank's share lies where an all-gather would put it, as fully_shard has it."""
        fits = out.is_contiguous() and own.is_contiguous() and own.nbytes * self.comm.size == out.nbytes
        return fits and own.data_ptr() == out.data_ptr() + self.comm.rank * own.nbytes

    def all_gather_single_coalesced(self, outs: Tensors, mine: Tensors, opts: Any = None) -> Work:
        def job() -> None:
            for out, own in zip(outs, mine):
                sent: Any = MPI.IN_PLACE if self.in_its_place(own, out) else bytes_of(own.contiguous())
                with memory(out, bytes_of) as array:
                    allgather(sent, array, comm=self.comm)

        return self.run(job, outs, opts)

    def reduce_scatter_single_coalesced(self, outs: Tensors, mine: Tensors, opts: Any = None) -> Work:
        op = op_of(opts)

        def job() -> None:
            for out, own in zip(outs, mine):
                with memory(out) as array:
                    reduce_scatter(values_of(own.contiguous()).reshape(-1), array, op, comm=self.comm)

        return self.run(job, outs, opts)

    def exchange(self, outs: Parts, mine: Parts, result: Any, opts: Any) -> Work:
        """Receive the first and send the second, one tensor for each rank, or none."""
        return self.run(partial(exchange, self.comm, outs, mine), result, opts, outs, mine)

    def at_root(self, tensors: Tensors, opts: Any) -> Tensors:
        """For the root of a call one tensor, for the other ranks none."""
        return [tensors[0] if rank == opts.rootRank else tensors[0].new_empty(0) for rank in range(self.comm.size)]

    def gather(self, outs: list[Tensors], mine: Tensors, opts: Any) -> Work:
        return self.exchange(outs[0] if outs else [], self.at_root(mine, opts), outs, opts)

    def scatter(self, outs: Tensors, mine: list[Tensors], opts: Any) -> Work:
        return self.exchange(self.at_root(outs, opts), mine[0] if mine else [], outs, opts)

    def alltoall(self, outs: Tensors, mine: Tensors, opts: Any = None) -> Work:
        return self.exchange(outs, mine, outs, opts)

    def all_to_all_single(
        self, out: torch.Tensor, own: torch.Tensor, rows: list[int], own_rows: list[int], opts: Any = None
    ) -> Work:
        size = self.comm.size
        return self.exchange(parts_of(out, rows, size), parts_of(own, own_rows, size), [out], opts)

    def allgather(self, outs: list[Tensors], mine: Tensors, opts: Any = None) -> Work:
        for parts, own in zip(outs, mine):
            if parts[self.comm.rank].shape != own.shape:
                raise ValueError(f"shape {tuple(own.shape)} is sent, room is for {tuple(parts[self.comm.rank].shape)}")

        def job() -> None:
            for parts, own in zip(outs, mine):
                if uneven(parts):
                    exchange(self.comm, parts, [own] * self.comm.size)
                    continue
                whole = own.new_empty((self.comm.size, *own.shape))
                allgather(bytes_of(own.contiguous()), bytes_of(whole), comm=self.comm)
                for part, row in zip(parts, whole):
                    part.detach().copy_(row)

        return self.run(job, outs, opts)

    def allgather_coalesced(self, outs: list[Tensors], mine: Tensors, opts: Any = None) -> Work:
        return self.allgather([list(parts) for parts in zip(*outs)], mine, opts)

    def reduce_scatter(self, outs: Tensors, mine: list[Tensors], opts: Any = None) -> Work:
        if not any(map(uneven, mine)):
            return self.reduce_scatter_single_coalesced(outs, [torch.stack(parts) for parts in mine], opts)
        op = op_of(opts)

        def job() -> None:
            for out, parts in zip(outs, mine):
                total = flat(parts)
                with memory(total) as array:
                    allreduce(array, array, op, comm=self.comm)
                share = total.split([part.numel() for part in parts])[self.comm.rank]
                out.detach().copy_(share.view(out.shape))

        return self.run(job, outs, opts)

    def all_gather_single(self, out: torch.Tensor, own: torch.Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([out], [own], opts)

    def reduce_scatter_single(self, out: torch.Tensor, own: torch.Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([out], [own], opts)

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        return Messages(self.comm, [x.contiguous() for x in tensors], lambda array: self.comm.Isend(array, rank, tag))

    def recv(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        return Messages(self.comm, tensors, lambda array: self.comm.Irecv(array, rank, tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self.recv(tensors, MPI.ANY_SOURCE, tag)

    # The names before PyTorch 2.13, and those of single tensors.
    allreduce_coalesced = allreduce
    _allgather_base, allgather_into_tensor_coalesced = all_gather_single, all_gather_single_coalesced
    alltoall_base = all_to_all_single
    _reduce_scatter_base, reduce_scatter_tensor_coalesced = reduce_scatter_single, reduce_scatter_single_coalesced

    def getBackendName(self) -> str:
        return "allreduce"

    def setGroupName(self, name: str) -> None:
        self.name_ = name

    def getGroupName(self) -> str:
        return self.name_

    def setGroupDesc(self, description: str) -> None:
        self.description = description

    def getGroupDesc(self) -> str:
        return self.description

    def _get_backend(self, device: torch.device) -> Any:  # whose abilities PyTorch 2.14 asks for
        return self

    def shutdown(self) -> None:
        """End the thread; the communicator stays, for freeing it would wait for ranks that may have failed."""
        self.progress.close()

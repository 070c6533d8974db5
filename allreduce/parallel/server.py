"""Parameter servers, to compare with an all-reduce: synchronous and sharded, or asynchronous with bounded staleness.

Parameters and gradients are contiguous NumPy arrays; an update changes a parameter in place.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..collectives import bcast
from ..communicator import Communicator
from ..engine import engine_of
from ..execute.requests import waitall
from .balance import shards

__all__ = ["ShardedServer", "asynchronous"]

Update = Callable[[Any, Any], Any]
#: Tags of messages to the server: a gradient; no more of them.
PUSH, DONE = 1, 2


class ShardedServer:
    """Every rank works, and serves some of the parameters: it averages their gradients, updates them, hands them out.

    The bytes are those of an all-reduce by the algorithm `direct`; what the update remembers is kept once.

    Parameters
    ----------
    parameters : sequence of arrays
        The same on all ranks.
    update : callable
        (parameter, mean gradient); changes the parameter. Called by the rank that serves it.
    comm : Communicator

    Attributes
    ----------
    owners : list of int
        The rank that serves each parameter, balanced by bytes.
    """

    def __init__(self, parameters: Sequence[Any], update: Update, comm: Communicator) -> None:
        self.parameters, self.update, self.comm = parameters, update, comm
        self.owners = shards([parameter.nbytes for parameter in parameters], comm.size)

    def step(self, gradients: Sequence[Any]) -> None:
        """Push this rank's gradients, and pull the parameters."""
        engine = engine_of(self.comm)
        pushed = [engine.request("reduce", g, None, op="avg", root=owner) for g, owner in zip(gradients, self.owners)]
        for parameter, mean in zip(self.parameters, waitall(pushed)):
            if mean is not None:
                self.update(parameter, mean)
        waitall(engine.request("bcast", p, None, root=owner) for p, owner in zip(self.parameters, self.owners))


def asynchronous(
    weights: np.ndarray,
    gradient: Callable[[np.ndarray, int], np.ndarray],
    update: Update,
    comm: Communicator,
    *,
    steps: int,
    staleness: int,
) -> list[int]:
    """Train with rank 0 as the server, who updates as soon as any worker's gradient comes; collective.

    A worker may go on while it has done at most `staleness` steps more than the slowest that is not at its end. So
    between its reading of the weights and its gradient each other worker gets in at most 2 * staleness + 1 updates;
    with 0, all wait for all.

    Parameters
    ----------
    weights : ndarray
        Contiguous; the server's are handed out, and everybody has the last ones at the end.
    gradient : callable
        (weights, step) -> array like weights; called on the workers.
    update : callable
        (weights, gradient); changes the weights. Called on the server.
    comm : Communicator
    steps : int
        Of each worker.
    staleness : int

    Returns
    -------
    list of int
        On the server, for each update: how many others came since its worker had read the weights.

    Raises
    ------
    ValueError
        No worker; a negative staleness.

    See: Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NeurIPS 2013.
    """
    if comm.size < 2 or staleness < 0:
        raise ValueError(f"needs a server and a worker, and staleness 0 or more, not {comm.size} ranks and {staleness}")
    bcast(weights, comm=comm)
    delays = []
    if comm.rank == 0:
        delays = _serve(weights, update, comm, staleness)
    else:
        for step in range(steps):
            comm.Send(np.ascontiguousarray(gradient(weights, step), weights.dtype), 0, PUSH)
            comm.Recv(weights, 0, PUSH)
        comm.Send(np.empty(0, weights.dtype), 0, DONE)
    bcast(weights, comm=comm)
    return delays


def _serve(weights: np.ndarray, update: Update, comm: MPI.Intracomm, staleness: int) -> list[int]:
    clocks = dict.fromkeys(range(1, comm.size), 0)  # steps done, of workers that are not at their end
    read = dict.fromkeys(clocks, 0)  # how many updates the weights had seen
    waiting: set[int] = set()
    delays: list[int] = []
    gradient, status = np.empty_like(weights), MPI.Status()
    while clocks:
        comm.Recv(gradient, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        worker = status.source
        if status.tag == DONE:
            del clocks[worker]
        else:
            if status.Get_count(MPI.BYTE) != weights.nbytes:
                raise ValueError(f"{status.Get_count(MPI.BYTE)} bytes from rank {worker}, not {weights.nbytes}")
            delays.append(len(delays) - read[worker])
            update(weights, gradient)
            clocks[worker] += 1
            waiting.add(worker)
        slowest = min(clocks.values(), default=0)
        for worker in [each for each in waiting if clocks[each] - slowest <= staleness]:
            comm.Send(weights, worker, PUSH)
            read[worker] = len(delays)
            waiting.remove(worker)
    return delays

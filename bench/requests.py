"""Calls that return before the result is there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from allreduce.engine import engine_of
from allreduce.native import OPS

from .calls import Function, Label, call_of, wishes
from .memory import HostMemory
from .plan import Group, Sweep
from .records import BARE, NATIVE, family
from .work import Work

__all__ = ["Call", "can_persist"]


class Call:
    """The call that a label means, whatever its kind.

    Attributes
    ----------
    work : Work
        What an overlapped call computes.
    requests : list
        Persistent ones that were made, to be freed.
    """

    def __init__(self, label: Label, group: Group, sweep: Sweep, comm: MPI.Intracomm, memory: HostMemory) -> None:
        self.label, self.group, self.sweep, self.comm, self.memory = label, group, sweep, comm, memory
        self.work = Work()
        self.requests: list[Any] = []

    def function(self) -> Function:
        """Takes a pair that `arguments` made."""
        if self.label.call == "blocking":
            return call_of(self.label, self.group, self.sweep, self.comm, self.memory)
        if self.label.call == "persistent":
            return restart
        begin = self._ours("request") or partial(self.comm.Iallreduce, op=OPS[self.group.op])
        if self.label.call == "nonblocking":
            return lambda send, recv: begin(send, recv).Wait()
        return partial(overlapped, begin, self.work)

    def arguments(self, send: Any, recv: Any) -> tuple[Any, Any]:
        """What the call takes: the buffers, or a request that holds them."""
        if self.label.algorithm == BARE:
            return send.ctypes.data, recv.ctypes.data
        if self.label.call != "persistent":
            return send, recv
        init = self._ours("persistent") or partial(self.comm.Allreduce_init, op=OPS[self.group.op])
        self.requests.append(init(send, recv))
        return self.requests[-1], recv

    def _ours(self, method: str) -> Callable[[Any, Any], Any] | None:
        if family(self.label.algorithm) == NATIVE:
            return None
        asked = wishes(self.label, self.group, self.sweep)
        return partial(getattr(engine_of(self.comm), method), "allreduce", **asked)


def restart(request: Any, recv: Any) -> None:
    """One use of a persistent request."""
    request.Start()
    request.Wait()


def overlapped(begin: Callable[[Any, Any], Any], work: Work, send: Any, recv: Any) -> None:
    """Compute between beginning and waiting."""
    request = begin(send, recv)
    work.do()
    request.Wait()


def can_persist(comm: MPI.Intracomm) -> bool:
    """Whether MPI itself has persistent collectives, which came with MPI 4; collective."""
    try:
        comm.Allreduce_init(np.zeros(1), np.zeros(1)).Free()
    except NotImplementedError:
        return False
    return True

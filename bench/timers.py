"""What tells how long a repetition took: the host's clock, or the device's."""

import time
from typing import Any

import numpy as np

from .starts import Barrier, Window

__all__ = ["DeviceTimer", "HostTimer"]


class HostTimer:
    """From where ranks start to where calls return.

    Attributes
    ----------
    clock : str
        Whose time it is, in words.
    """

    clock = "the host's"
    end: Any = staticmethod(time.perf_counter)

    def begin(self, start: Barrier | Window) -> Any:
        """Start with all ranks, and return the moment to count from; what was asked for before is done."""
        return start.wait()

    def seconds(self, begin: Any, end: Any) -> float:
        """Between the moments that `begin` and `end` returned; infinite if this rank started late."""
        return end - begin


class DeviceTimer(HostTimer):
    """Between two events on the caller's stream: after ranks have started, and after the last call.

    A call that returns with its result, as MPI's own does, takes as long by the host's clock, for an event on a stream
    that has nothing to do happens when it is recorded. One that leaves work behind takes until that is done, and not
    until the host has noticed. So one clock does for both kinds.

    Parameters
    ----------
    cuda : Cuda
    """

    clock = "the device's: events on the caller's stream, before the first call and after the last"

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.events = cuda, [cuda.timed_event() for _ in range(2)]

    def begin(self, start: Barrier | Window) -> Any:
        self.cuda.synchronize()
        late = start.wait() == -np.inf
        first = self._record(self.events[0])
        return None if late else first

    def end(self) -> Any:
        return self._record(self.events[1])

    def seconds(self, begin: Any, end: Any) -> float:
        self.cuda.synchronize()
        return np.inf if begin is None else self.cuda.seconds(begin, end)

    def _record(self, event: Any) -> Any:
        return self.cuda.record(self.cuda.current(), event)

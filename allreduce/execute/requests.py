"""Requests: collectives in flight, and how whoever waits for one helps all that the same thread began."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from .loop import DONE
from .operation import Operation

if TYPE_CHECKING:
    from .bound import Plan

__all__ = [
    "Patience",
    "PersistentRequest",
    "Request",
    "break_off",
    "breaking_off",
    "finish",
    "in_flight",
    "run",
    "waitall",
]

#: Seconds without a move before the first nap, and those of the longest; a nap takes this share of the silence before.
AWAKE, LONGEST, SHARE = 50e-6, 300e-6, 1 / 4


class Request:
    """A collective in flight, as `MPI.Request`: Test it, or Wait for it.

    Attributes
    ----------
    result : object
        The receive buffer.
    """

    def __init__(self, operation: Operation, result: Any) -> None:
        self.operation, self.result, self.done = operation, result, False
        self.thread, self.moving = get_ident(), Lock()
        in_flight.append(self)

    def Wait(self, status: Any = None) -> bool:
        """Wait until the result is there, keeping all other requests moving."""
        if not self.done:
            self.operation.plan.channel.check()
            finish(self.operation, self)
        return True

    def Test(self, status: Any = None) -> bool:
        """Move on without waiting; True if the result is there."""
        if not self.done:
            self.operation.plan.channel.check()
            for request in (self, *beside(self)):
                request.progress()
        if not self.done:
            with breaking_off(self.operation):
                self.operation.expire()
        return self.done

    def wait(self) -> Any:
        """Wait, and return the result."""
        self.Wait()
        return self.result

    def progress(self) -> None:
        """Move on without waiting, unless another thread does so, which may wait for what this one began."""
        if self.moving.acquire(blocking=False):
            try:
                with breaking_off(self.operation):
                    self._move(patient=False)
            finally:
                self.moving.release()

    def move(self, patient: bool) -> int:
        """Move on; DONE or AGAIN, as of an operation."""
        with self.moving:
            return self._move(patient)

    def _move(self, patient: bool) -> int:
        if self.done:
            return DONE
        code = self.operation.advance(patient)
        if code == DONE:
            self.complete()
        return code

    def complete(self) -> None:
        """Let go of the buffers."""
        self.operation.buffers = ()
        self.done = True
        if self in in_flight:
            in_flight.remove(self)


#: Begun and not ended, oldest first.
in_flight: list[Request] = []


def beside(request: Request | None) -> list[Request]:
    """What else this thread began; another one's operations must not be moved on by two threads at once."""
    me = get_ident()
    return [other for other in list(in_flight) if other is not request and other.thread == me]


@contextmanager
def breaking_off(operation: Operation) -> Iterator[None]:
    """After an error nothing may follow on its channel; messages may still arrive, so buffers stay alive."""
    try:
        yield
    except BaseException as error:
        break_off(operation, error)
        raise


def break_off(operation: Operation, error: BaseException) -> None:
    """Let nothing follow on its channel."""
    channel = operation.plan.channel
    channel.fail(f"an earlier collective was broken off by {type(error).__name__}")
    in_flight[:] = [request for request in in_flight if request.operation.plan.channel is not channel]


class Patience:
    """Sleeps between polls once nothing has moved for a while: the core is for whoever computes."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.since = 0.0

    def rest(self, operations: Iterable[Operation]) -> None:
        """Nothing to do, unless one of these has moved since the last call."""
        rows, now = [operation.row() for operation in operations], time.monotonic()
        if rows != self.rows:
            self.rows, self.since = rows, now
        elif now - self.since > AWAKE:
            time.sleep(min(SHARE * (now - self.since), LONGEST))


def run(plan: "Plan", arrays: tuple[np.ndarray, ...]) -> None:
    """One run of a plan, from start to end."""
    operation = plan.operation()
    operation.start(arrays)
    finish(operation)


def finish(operation: Operation, request: Request | None = None) -> None:
    """Wait for an operation, keeping all others moving.

    Raises
    ------
    CollectiveTimeout, mpi4py.MPI.Exception
    """
    patience, move = Patience(), request.move if request else operation.advance
    rests = operation.plan.channel.rests
    with breaking_off(operation):
        while True:
            others = beside(request)
            if move(not others and not rests) == DONE:
                break
            for other in others:
                other.progress()
            if others or rests:
                patience.rest([operation, *(other.operation for other in others)])
            operation.expire()
    if not request:
        operation.buffers = ()


def waitall(requests: Iterable[Any]) -> list[Any]:
    """Wait for requests, ours or MPI's, in any order; returns their results, None for MPI's."""
    requests = list(requests)
    for request in requests:
        if not hasattr(request, "Wait"):
            raise TypeError(f"expected requests, of ours or MPI's, not {request!r}")
    for request in requests:
        request.Wait()
    return [getattr(request, "result", None) for request in requests]


class PersistentRequest:
    """A prepared collective, as `MPI.Prequest`: Start it, then Test or Wait, again and again; Free it."""

    def __init__(self, operation: Operation, arrays: tuple[np.ndarray, np.ndarray], result: Any) -> None:
        self.operation: Operation | None = operation
        self.arrays, self.result = arrays, result
        self.request: Request | None = None

    def Start(self) -> None:
        """Begin on what the buffers hold now."""
        if self.operation is None:
            raise RuntimeError("the persistent request is freed")
        if self.request is not None and not self.request.done:
            raise RuntimeError("the persistent request is already started; Wait for it first")
        self.operation.start(self.arrays)
        self.request = Request(self.operation, self.result)

    def Wait(self, status: Any = None) -> bool:
        """Wait for the last Start; at once if there was none."""
        return self.request.Wait() if self.request else True

    def Test(self, status: Any = None) -> bool:
        """True if the last Start is done."""
        return self.request.Test() if self.request else True

    def Free(self) -> None:
        """Let go of the buffers."""
        self.Wait()
        self.operation = self.request = None

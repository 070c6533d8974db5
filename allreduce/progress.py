"""Jobs behind the caller's back: one thread a communicator, begun in the order in which they came."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import get_ident
from typing import Any

import torch
from mpi4py import MPI

from .execute.requests import Patience, Request

__all__ = ["Job", "Progress", "future_on"]

#: Jobs under way at once: while one waits for a message, those of others fill the link. On four hosts at 1 Gbit/s six
#: all-reduces of 3.5 MB took 319 ms one by one, 282 by two, 280 by three; the link alone 270. In training, where ranks
#: come late, a step took 334 ms by three, 324 by six.
MOST = 6
#: A function; or one that yields the requests that are to be waited for before it goes on.
Job = Callable[[], Iterable[Request] | None]


class Progress:
    """A thread that begins jobs in the order in which they came, so that all ranks communicate in one order.

    It needs MPI_THREAD_MULTIPLE, for the caller may be inside MPI, too. mpi4py asks for that unless `mpi4py.rc` says
    otherwise; below it every job is done before `later` returns. The thread starts with the first job, and ends
    with the interpreter, before MPI does, or by `close`.

    Parameters
    ----------
    threaded : bool
        Whether there is a thread at all.
    """

    def __init__(self, threaded: bool = True) -> None:
        self.threaded = threaded and MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self.pool = ThreadPoolExecutor(1, "allreduce", self._begin)
        self.thread = 0
        self.last: Future | None = None
        self.asked = self.begun = 0
        self.under_way: deque[Steps] = deque()

    def _begin(self) -> None:
        self.thread = get_ident()

    @property
    def at_once(self) -> bool:
        """Whether the thread would wait for itself: the job comes from it, as from the callback of a Future."""
        return not self.threaded or get_ident() == self.thread

    def now(self, job: Job) -> None:
        """Do a job in this thread, after all that came before."""
        if self.last is not None and not self.at_once:
            self.last.exception()
        through(job)

    def later(self, job: Job, result: Any, stream: Any = None) -> torch.futures.Future:
        """Do a job in the thread.

        Parameters
        ----------
        job : Job
        result : object
            Tensors, as the caller passed them.
        stream : torch.cuda.Stream, optional
            That is current while the job is done, though not for others between its requests.

        Returns
        -------
        torch.futures.Future
            Of the result, or of what the job raised. The current stream of who waits for it follows `stream`.
        """
        at_once = self.at_once
        steps = Steps(partial(through, job) if at_once else job, result, stream)
        if at_once:
            steps.advance()
        else:
            self.asked += 1
            self.last = self.pool.submit(self._work, steps)
        # An exception set in a Future is one of its values, which C++ would take for tensors, until somebody raises it.
        return steps.future.then(lambda done: done.value())

    def _work(self, steps: "Steps") -> None:
        """Begin a job, and go on with all until there is another to begin; after the last one to the end."""
        self.begun += 1
        patience = Patience()
        if not steps.advance():
            self.under_way.append(steps)
        while self.under_way and (self.begun == self.asked or len(self.under_way) == MOST):
            for steps in list(self.under_way):
                if steps.advance():
                    self.under_way.remove(steps)
            patience.rest([steps.request.operation for steps in self.under_way if steps.request])

    def close(self) -> None:
        """End the thread, after its last job."""
        self.pool.shutdown()


class Steps:
    """A job under way, and the Future of its result."""

    def __init__(self, job: Job, result: Any, stream: Any) -> None:
        self.requests, self.result, self.stream = requests_of(job), result, stream
        self.future = future_on(stream)
        self.request: Request | None = None

    def advance(self) -> bool:
        """Go on without waiting; whether that was the end."""
        try:
            while self.request is None or self.request.Test():
                with current(self.stream):
                    self.request = next(self.requests)
        except StopIteration:
            with current(self.stream):  # after which the result is there
                self.future.set_result(self.result)
        except Exception as error:
            self.future.set_exception(error)
        except BaseException as error:  # which no Future takes, and whoever waits for it would wait for ever
            self.future.set_exception(RuntimeError(f"a job ended with {error!r}"))
        return self.future.done()


def future_on(stream: Any) -> torch.futures.Future:
    """A Future of tensors that are ready on the stream which is current when they are set, of this one's device."""
    return torch.futures.Future(devices=None if stream is None else [stream.device])


def current(stream: Any) -> AbstractContextManager[Any]:
    """Makes it PyTorch's current stream in this thread, if there is one."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def requests_of(job: Job) -> Iterator[Request]:
    """What a job, which begins with the first of them, is waiting for."""
    yield from job() or ()


def through(job: Job) -> None:
    """Do a job to its end."""
    for request in requests_of(job):
        request.Wait()

"""Jobs behind the caller's back: one thread a communicator, first come, first served."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import get_ident
from typing import Any

import torch
from mpi4py import MPI

__all__ = ["Progress"]


class Progress:
    """A thread that does jobs in the order in which they came, so that all ranks communicate in one order.

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

    def _begin(self) -> None:
        self.thread = get_ident()

    @property
    def at_once(self) -> bool:
        """Whether the thread would wait for itself: the job comes from it, as from the callback of a Future."""
        return not self.threaded or get_ident() == self.thread

    def now(self, job: Callable[[], Any]) -> None:
        """Do a job in this thread, after all that came before."""
        if self.last is not None and not self.at_once:
            self.last.exception()
        job()

    def later(self, job: Callable[[], Any], result: Any) -> torch.futures.Future:
        """Do a job in the thread.

        Returns
        -------
        torch.futures.Future
            Of the result, or of what the job raised.
        """
        future: torch.futures.Future = torch.futures.Future()

        def work() -> None:
            try:
                job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        if self.at_once:
            work()
        else:
            self.last = self.pool.submit(work)
        # An exception set in a Future is one of its values, which C++ would take for tensors, until somebody raises it.
        return future.then(lambda done: done.value())

    def close(self) -> None:
        """End the thread, after its last job."""
        self.pool.shutdown()

"""The window: memory that all ranks of a node map, and the arrays they share.

Of a rank's part of it: control words, slots for short messages used in rotation, areas for long ones. Memory has no
name in any file system where the ranks can open each other's through /proc, so that nothing is left behind however
they end.
"""

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from .layout import AREAS, LONG, area_bytes
from .table import LINE, aligned

__all__ = ["Window", "one_node"]

#: Arrays that can be shared, at most.
MOST_SHARED = 256


class Window:
    """Memory that all ranks of a communicator map, and the arrays they share.

    Parameters
    ----------
    comm : MPI.Intracomm
        All ranks must be on one node; collective.
    bcast, all_true : callable
        How ranks tell each other: rank 0's numbers to all, and whether something is true on all.

    Attributes
    ----------
    parts : list of int
        Where every rank's part begins, as we see it.
    shared : numpy.ndarray
        For the loop: how many shared allocations there are, then for each our start, its bytes and all ranks'
        starts.
    """

    def __init__(
        self, comm: MPI.Intracomm, bcast: Callable[[np.ndarray], None], all_true: Callable[[bool], bool]
    ) -> None:
        self.comm, self.bcast, self.all_true = comm, bcast, all_true
        self.maps: list[mmap.mmap] = []
        self.windows: list[MPI.Win] = []
        self.shared = np.zeros(1 + MOST_SHARED * (2 + comm.size), np.int64)
        self.parts = self.allocate(LONG + AREAS * area_bytes(comm.size))

    def allocate(self, nbytes: int) -> list[int]:
        """So many bytes a rank, all 0; returns the addresses of all ranks' bytes, as we see them. Collective."""
        each = -(-(nbytes + LINE) // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = self.anonymous(each * self.comm.size)
        if memory is not None:
            start = np.frombuffer(memory, np.uint8).ctypes.data
            self.maps.append(memory)
            return [start + rank * each for rank in range(self.comm.size)]
        window = MPI.Win.Allocate_shared(each, 1, comm=self.comm)
        self.windows.append(window)
        mine = window.Shared_query(self.comm.rank)[0]
        mine[:] = bytes(len(mine))
        self.all_true(True)
        return [aligned(window.Shared_query(rank)[0].address) for rank in range(self.comm.size)]

    def share(self, nbytes: int) -> Any:
        """So many bytes of this rank that all ranks can read and write, as a buffer. Collective.

        Raises
        ------
        ValueError
            On all ranks: they ask for different lengths.
        """
        number = int(self.shared[0])
        if number == MOST_SHARED:
            raise RuntimeError(f"this communicator already has {MOST_SHARED} shared arrays; use them again")
        asked = np.array([nbytes])
        self.bcast(asked)
        if not self.all_true(asked[0] == nbytes):
            raise ValueError(f"ranks ask for shared arrays of different lengths, this one for {nbytes} bytes")
        starts = self.allocate(nbytes)
        width = 2 + self.comm.size
        self.shared[1 + number * width :][:width] = [starts[self.comm.rank], nbytes, *starts]
        self.shared[0] += 1
        if self.windows:
            self.windows.pop()  # never freed: that would be collective, and the array may live on after `free`
            return MPI.memory.fromaddress(starts[self.comm.rank], nbytes)
        memory = self.maps[-1]
        first = starts[self.comm.rank] - starts[0]
        return memoryview(memory)[first : first + nbytes]

    def anonymous(self, nbytes: int) -> mmap.mmap | None:
        """Memory without a name in any file system, so that nothing is left behind however the ranks end.

        Rank 0 makes it and the others open it through /proc; None, on all ranks, where one cannot. In containers
        numbers of processes may be those of others, so what is opened must be what was made.
        """
        file, memory = -1, None
        if self.comm.rank == 0:
            file = nameless(nbytes)
        where = np.array([os.getpid(), file, *identity(file)])
        self.bcast(where)
        maker, number, *made = where.tolist()
        with suppress(OSError, ValueError):
            if self.comm.rank:
                file = os.open(f"/proc/{maker}/fd/{number}", os.O_RDWR)
            if identity(file) == made:
                memory = mmap.mmap(file, nbytes)
        everyone = self.all_true(memory is not None)
        if file >= 0:
            os.close(file)
        return memory if everyone else None

    def free(self) -> None:
        """Give the memory back, but for what arrays still use. Collective."""
        for window in self.windows:
            window.Free()
        self.windows.clear()
        self.maps.clear()


def nameless(nbytes: int) -> int:
    """A file of so many bytes that no file system knows, or -1 where there is none to be had."""
    try:
        file = os.memfd_create("allreduce")
    except (AttributeError, OSError):
        return -1
    try:
        os.ftruncate(file, nbytes)
    except OSError:
        os.close(file)
        return -1
    return file


def identity(file: int) -> list[int]:
    """What no other file of this machine has."""
    if file < 0:
        return [0, 0]
    found = os.fstat(file)
    return [found.st_dev, found.st_ino]


def one_node(comm: MPI.Intracomm) -> bool:
    """Whether all ranks share memory; collective."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    together = node.size == comm.size
    node.Free()
    return together

"""Memory that knows who touched it when, and the clocks of those who do."""

import ctypes
import mmap
import os

import numpy as np
from mpi4py import MPI

SIZE = MPI.COMM_WORLD.size
#: Streams of a process, the host included.
AGENTS = 16
NONE, READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
libc = ctypes.CDLL(None, use_errno=True)


class OrderError(AssertionError):
    """Something was touched before what it should have waited for."""


class Memory:
    """Bytes in a file without a name; of each, who wrote it last and when, and when all agents have last read it."""

    def __init__(self, nbytes, file):
        self.file, self.nbytes = file, nbytes
        room = self.room = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        total = room * (1 + 4 + 4 + 4 * AGENTS * SIZE)
        if os.fstat(file).st_size < total:
            os.ftruncate(file, total)
        self.map = mmap.mmap(file, total)
        whole = np.frombuffer(self.map, np.uint8)
        self.address = whole.ctypes.data
        self.bytes = whole[:room]
        times = whole[room:].view(np.int32).reshape(-1, room)
        self.written, self.writer, self.read = times[0], times[1], times[2:]

    def lock(self, protection):
        assert libc.mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(self.room), protection) == 0


class Stream:
    def __init__(self, agent, handle):
        self.agent, self.handle = agent, handle
        self.clock = np.zeros(AGENTS * SIZE, np.int32)
        self.idle = 0.0  # the time from when on it has nothing to do

    def tick(self, host):
        np.maximum(self.clock, host.clock, out=self.clock)
        self.clock[self.agent] += 1


class Event:
    def __init__(self, file=None, polls=0):
        self.file = os.memfd_create("event") if file is None else file
        if file is None:
            os.ftruncate(self.file, mmap.PAGESIZE)
        self.clock = np.frombuffer(mmap.mmap(self.file, mmap.PAGESIZE), np.int32)[: AGENTS * SIZE]
        self.polls, self.time = polls, 0.0

    def __del__(self):
        if self.file is not None:
            os.close(self.file)


class Array:
    """Somebody's array on the device."""

    def __init__(self, fake, shape, dtype, strides=None, stream=None, read_only=False):
        self.shape, self.dtype, self.strides = shape, np.dtype(dtype), strides
        self.size = int(np.prod(shape))
        self.nbytes = self.size * self.dtype.itemsize
        self.fake, self.address = fake, fake.malloc(self.nbytes)
        self.stream, self.read_only, self.whole = stream, read_only, None

    def __getitem__(self, part):
        """Some elements of a vector."""
        first, last, _ = part.indices(self.size)
        some = object.__new__(type(self))
        some.__dict__.update(self.__dict__)
        some.size, some.whole = last - first, self
        some.shape, some.nbytes = (some.size,), some.size * self.dtype.itemsize
        some.address += first * self.dtype.itemsize
        return some

    def __del__(self):
        if self.whole is None:
            os.close(self.fake.memories.pop(self.address).file)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, self.read_only), "version": 3,
            "strides": self.strides, "stream": self.stream,
        }  # fmt: skip

"""A CUDA device that is none: what the class `Cuda` does, on memory of this process that only it can touch.

All that is asked of a stream is done at once, so results are right whatever the order. The order is proven instead:
every stream, and the host, has a clock; an event carries the clock of its stream to whoever waits for it; and every
byte remembers when and by whom it was last written and read. Who touches a byte without having waited for that is
told so. Messages under way count as well. Between the calls memory is locked: to touch it ends the process.

Events tell the time of day, unless a test says that a stream is `busy`: that passes for all of this process who wait.
"""

import ctypes
import os
import struct
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import cpu
import numpy as np
from clocks import AGENTS, NONE, READ_WRITE, Array, Event, Memory, OrderError, Stream
from touched import OF_METHODS, touched

from compress.kernels_device.lookup import coding


class Fake:
    """Methods are those of `allreduce.execute.cuda.Cuda`."""

    number = 0

    def __init__(self, rank, aware=False, seed=0):
        self.rank, self.aware, self.random = rank, aware, np.random.default_rng(seed + rank)
        self.memories, self.opened, self.flying = {}, [], []
        self.made = rank * AGENTS
        self.handles, self.ahead = {}, 0.0
        self.coded = []  # what codecs ran
        self.host = self.stream()
        self.default = self.active = self.stream()
        self.name = f"fake {rank:11}".encode()

    # --- memory

    def malloc(self, nbytes, pinned=False):
        memory = Memory(nbytes, os.memfd_create("device"))
        memory.bytes[:] = 0xFF
        return self.add(memory, pinned)

    def add(self, memory, pinned=False):
        memory.pinned = pinned
        self.memories[memory.address] = memory
        memory.lock(READ_WRITE if self.aware or pinned else NONE)
        return memory.address

    @contextmanager
    def room(self, nbytes):
        address = self.malloc(nbytes)
        yield address
        os.close(self.memories.pop(address).file)

    def free(self, address):
        memory = self.memories.pop(address)
        memory.lock(READ_WRITE)
        os.close(memory.file)
        self.synchronize()

    def pinned(self, nbytes):
        return self.malloc(nbytes, pinned=True)

    def free_pinned(self, address):
        """CUDA does not wait here."""
        self.touch(self.host, address, self.memories[address].nbytes, True)
        self.memories.pop(address)

    def device_of(self, address):
        self.find(address, 1)
        return self.number

    def find(self, address, nbytes):
        for start, memory in self.memories.items():
            if start <= address and address + nbytes <= start + memory.room:
                return memory, slice(address - start, address - start + nbytes)
        raise OrderError(f"no memory at {address:#x}, {nbytes} bytes")

    def empty(self, shape, dtype, order):
        assert order == "C"
        return Array(self, shape, dtype, stream=self.active.handle)

    # --- who touches what, and when

    @contextmanager
    def open_for(self, stream):
        """What a stream does at once; memory is unlocked when it is touched."""
        stream.tick(self.host)
        before, self.opened = self.opened, []
        yield
        for memory in self.opened:
            memory.lock(READ_WRITE if self.aware or memory.pinned or memory in before else NONE)
        self.opened = before

    def touch(self, agent, address, nbytes, writes, arriving=False):
        """Check and note that bytes are read or written."""
        if not nbytes:
            return
        memory, where = self.find(address, nbytes)
        memory.lock(READ_WRITE)
        self.opened.append(memory)
        for other, length, receives in self.flying:
            if (writes or receives) and other < address + nbytes and address < other + length and not arriving:
                raise OrderError(f"{'written' if writes else 'read'} while a message is under way")
        clock, written, read = agent.clock, memory.written[where], memory.read[:, where]
        if not writes and (written == 0).any():
            raise OrderError("read before it is written")
        if (written > clock[memory.writer[where]]).any():
            raise OrderError(f"{'written' if writes else 'read'} without waiting for who wrote it")
        if writes and (read > clock[:, None]).any():
            raise OrderError("written without waiting for who reads it")
        if writes:
            written[:], memory.writer[where] = clock[agent.agent], agent.agent
        else:
            read[agent.agent] = clock[agent.agent]

    # --- what is asked of streams

    def copy(self, to, from_, nbytes, stream):
        with self.open_for(stream):
            self.touch(stream, from_, nbytes, False)
            self.touch(stream, to, nbytes, True)
            ctypes.memmove(to, from_, nbytes)

    def upload(self, to, values):
        with self.open_for(self.active):
            self.touch(self.active, to, values.nbytes, True)
            ctypes.memmove(to, values.ctypes.data, values.nbytes)
        self.joined(self.active)

    def clear(self, address, nbytes):
        with self.open_for(self.active):
            self.touch(self.active, address, nbytes, True)
            ctypes.memset(address, 0, nbytes)

    def read(self, address, nbytes):
        with self.open_for(self.active):
            self.touch(self.active, address, nbytes, False)
            found = ctypes.string_at(address, nbytes)
        self.joined(self.active)
        return found

    def coding(self, codec, dtype):
        """As `lookup.coding`: of whole messages it is checked who touches them when."""
        found = coding(codec, dtype)

        def encode(out, a, count, at, scratch, read):
            with self.open_for(self.active):
                self.touch(self.active, a, count * dtype.itemsize, False)
                self.touch(self.active, scratch, found.scratch(count), True)
                assert out % found.alignment == 0
                self.touch(self.active, out, codec.nbytes(count), True)
                self.coded.append("encode")
                return found.encode(out, a, count, at, scratch, read)

        def decode(out, a, message, nbytes, count, scratch):
            with self.open_for(self.active):
                assert message % found.alignment == 0
                self.touch(self.active, message, nbytes, False)
                self.touch(self.active, a, count * dtype.itemsize * bool(a), False)
                self.touch(self.active, scratch, found.scratch(count), True)
                self.touch(self.active, out, count * dtype.itemsize, True)
                self.coded.append("add" if a else "decode")
                found.decode(out, a, message, nbytes, count, scratch)

        def rest(out, a, message, nbytes, count, scratch):
            with self.open_for(self.active):
                self.touch(self.active, message, nbytes, False)
                self.touch(self.active, a, count * dtype.itemsize, False)
                self.touch(self.active, out, count * dtype.itemsize, True)
                self.coded.append("rest")
                found.rest(out, a, message, nbytes, count, scratch)

        def losing(out, a, count, at, scratch, read):
            with self.open_for(self.active):
                self.touch(self.active, a, count * dtype.itemsize, False)
                self.touch(self.active, out, codec.nbytes(count), True)
                self.touch(self.active, a, count * dtype.itemsize, True)
                self.coded.append("losing")
                return found.losing(out, a, count, at, scratch, read)

        def hop(out, a, message, count, at, losing):
            with self.open_for(self.active):
                self.touch(self.active, message, codec.nbytes(count), False)
                self.touch(self.active, a, count * dtype.itemsize, False)
                self.touch(self.active, out, codec.nbytes(count), True)
                self.touch(self.active, a, count * dtype.itemsize * losing, True)
                self.coded.append("hop")
                found.hop(out, a, message, count, at, losing)

        return found._replace(
            encode=encode, decode=decode, rest=found.rest and rest, losing=found.losing and losing,
            hop=found.hop and hop,
        )

    def module(self, text):
        """As `device_kernels.module`; of codecs, see `coding`."""
        whole = "EightOf" not in text

        def get_function(name):
            known = whole or name in OF_METHODS
            return partial(self.kernel, text, name) if known else cpu.module(text).get_function(name)

        return SimpleNamespace(get_function=get_function)

    def kernel(self, text, name, grid, block, arguments):
        stream = self.active
        with self.open_for(stream):
            for address, nbytes, writes in sorted(touched(self, text, name, arguments), key=lambda r: r[2]):
                self.touch(stream, address, nbytes, writes)
            cpu.module(text).get_function(name)(grid, block, arguments)

    def numbers(self, address, count):
        """What a kernel is told by a table."""
        self.touch(self.active, address, 8 * count, False)
        memory, where = self.find(address, 8 * count)
        return memory.bytes[where].view(np.int64).tolist()

    # --- order

    def stream(self):
        self.made += 1
        assert self.made < (self.rank + 1) * AGENTS
        stream = Stream(self.made, 0x5000 + self.made)
        self.handles[stream.handle] = stream
        return stream

    def stream_at(self, handle):
        return self.handles[handle]

    def current(self):
        return self.active

    @contextmanager
    def on(self, stream):
        before, self.active = self.active, stream
        yield
        self.active = before

    def record(self, stream, event=None):
        event = event or Event(polls=self.random.integers(3))
        stream.tick(self.host)
        event.clock[:] = stream.clock
        event.time = self.busy(stream, 0)
        return event

    def timed_event(self):
        return Event()

    def seconds(self, first, last):
        for event in (first, last):
            if (event.clock > self.host.clock).any() or not event.clock.any():
                raise OrderError("an event is asked for its time before the host has waited for it")
        return last.time - first.time

    def wait(self, stream, event):
        np.maximum(stream.clock, event.clock, out=stream.clock)
        stream.idle = max(stream.idle, event.time)

    def done(self, event):
        event.polls -= 1
        if event.polls < 0:
            np.maximum(self.host.clock, event.clock, out=self.host.clock)
        return event.polls < 0

    def synchronize(self):
        for stream in self.handles.values():
            self.joined(stream)

    def joined(self, stream):
        """The host has waited for a stream."""
        np.maximum(self.host.clock, stream.clock, out=self.host.clock)
        self.ahead += max(stream.idle - self.now(), 0)

    # --- other processes

    def shared_event(self):
        return Event()

    def export_event(self, event):
        return struct.pack("qqq", os.getpid(), event.file, 0).ljust(64, b"\0")

    def open_event(self, handle):
        pid, file, _ = struct.unpack("qqq", handle[:24])
        return Event(os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR))

    def export(self, address):
        memory = self.memories[address]
        return struct.pack("qqq", os.getpid(), memory.file, memory.nbytes).ljust(64, b"\0")

    def open(self, handle):
        pid, file, nbytes = struct.unpack("qqq", handle[:24])
        return self.add(Memory(nbytes, os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)))

    def shut(self, address):
        os.close(self.memories.pop(address).file)

    def shut_event(self, event):
        os.close(event.file)
        event.file = None

    # --- for tests

    def busy(self, stream, seconds):
        """A stream works for so long, which nobody has to wait for; returns when it will be idle."""
        stream.idle = max(stream.idle, self.now()) + seconds
        return stream.idle

    def now(self):
        return time.perf_counter() + self.ahead

    def put(self, values, writer=None, **facts):
        """An array, written by a stream of its own library."""
        stream = writer or self.active
        array = Array(self, values.shape, values.dtype, **facts)
        values = np.ascontiguousarray(values)
        with self.open_for(stream):
            self.touch(stream, array.address, values.nbytes, True)
            ctypes.memmove(array.address, values.ctypes.data, values.nbytes)
        return array

    def get(self, array, stream=None):
        """Its values, as a stream sees them."""
        stream, values = stream or self.active, np.empty(array.shape, array.dtype)
        with self.open_for(stream):
            self.touch(stream, array.address, values.nbytes, False)
            ctypes.memmove(values.ctypes.data, array.address, values.nbytes)
        return values

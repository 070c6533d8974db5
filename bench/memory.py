"""Where the arrays of a sweep lie: in buffers of the largest size, made once; shorter ones are their beginnings."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import allreduce

from .timers import DeviceTimer, HostTimer

__all__ = ["DeviceMemory", "HostMemory", "Placed"]

LINE = 64
#: Bytes that are more than the caches of a device hold.
FLUSHED = 1 << 28


class HostMemory:
    """Arrays of NumPy.

    Parameters
    ----------
    shared : bool
        Made by `empty_shared`.
    most : int
        Bytes of the longest array.
    flush : int
        More bytes than the caches hold, if these are to be emptied.

    Attributes
    ----------
    timer : HostTimer
        Of what is done with these arrays.
    """

    timer = HostTimer()

    def __init__(self, shared: bool, most: int, flush: int, comm: Any) -> None:
        private, mapped = partial(np.empty, dtype=np.uint8), partial(allreduce.empty_shared, dtype=np.uint8, comm=comm)
        self.make: Callable[[int], Any] = mapped if shared else private
        self.most, self.buffers = most, dict[str, Any]()
        self.flushed: Any = np.zeros(flush, np.uint8)

    def array(self, name: str, count: int, dtype: np.dtype) -> Any:
        """The first elements of the buffer of this name."""
        return self.arrays(name, count, dtype, 1)[0]

    def arrays(self, name: str, count: int, dtype: np.dtype, number: int) -> list[Any]:
        """Several, one behind the other, none sharing a cache line with the next."""
        stride = -(-count * dtype.itemsize // LINE) * LINE
        if name not in self.buffers or self.buffers[name].nbytes < stride * number:
            self.buffers[name] = self.make(max(self.most, stride * number))
        return [self.part(self.buffers[name], i * stride, count, dtype) for i in range(number)]

    def part(self, whole: Any, begin: int, count: int, dtype: np.dtype) -> Any:
        """Some elements of a buffer of bytes."""
        return whole[begin:][: count * dtype.itemsize].view(dtype)

    def write(self, array: Any, values: np.ndarray) -> None:
        """Fill it."""
        np.copyto(array, values)

    def read(self, array: Any) -> np.ndarray:
        """Its values."""
        return array

    def copy(self, send: Any, recv: Any) -> None:
        """What every all-reduce does at least."""
        np.copyto(recv, send)

    def flush(self) -> None:
        """Empty the caches."""
        self.flushed += 1


class Placed:
    """Elements of a buffer on a device, for all who know `__cuda_array_interface__`."""

    def __init__(self, whole: Any, begin: int, count: int, dtype: np.dtype) -> None:
        self.whole, self.begin, self.count, self.dtype = whole, begin, count, dtype
        self.nbytes = count * dtype.itemsize
        self.address = whole.__cuda_array_interface__["data"][0] + begin

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        facts = {"shape": (self.count,), "typestr": self.dtype.str, "strides": None, "version": 3}
        return {**facts, "data": (self.address, False)}

    @property
    def bytes(self) -> "Placed":
        """The same memory."""
        return Placed(self.whole, self.begin, self.nbytes, np.dtype(np.uint8))


class DeviceMemory(HostMemory):
    """Arrays on the CUDA device of this process; what is asked of it goes by the current stream."""

    def __init__(self, cuda: Any, most: int, flush: bool) -> None:
        self.make = lambda nbytes: cuda.empty((nbytes,), np.dtype(np.uint8), "C")
        self.cuda, self.timer = cuda, DeviceTimer(cuda)
        self.most, self.buffers = most, {}
        self.flushed = self.array("flushed", FLUSHED, np.dtype(np.uint8)) if flush else None

    def part(self, whole: Any, begin: int, count: int, dtype: np.dtype) -> Placed:
        return Placed(whole, begin, count, dtype)

    def write(self, array: Placed, values: np.ndarray) -> None:
        self.cuda.upload(array.address, np.ascontiguousarray(values))

    def read(self, array: Placed) -> np.ndarray:
        return np.frombuffer(self.cuda.read(array.address, array.nbytes), array.dtype)

    def copy(self, send: Placed, recv: Placed) -> None:
        self.cuda.copy(recv.address, send.address, send.nbytes, self.cuda.current())

    def flush(self) -> None:
        self.cuda.clear(self.flushed.address, FLUSHED)

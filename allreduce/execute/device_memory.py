"""Memory of our own on a device, as arrays, and what a stream does in order with those of other arrays."""

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any

import numpy as np

from .cuda import cuda
from .device_arrays import OnDevice, view_of

__all__ = ["lasting", "ordered", "rooms"]

#: Shape and dtype of an array.
Wanted = tuple[tuple[int, ...], Any]


@contextmanager
def ordered(stream: Any, *arrays: OnDevice) -> Iterator[None]:
    """What is asked of a stream inside comes after what these arrays' streams were asked for, and before the rest."""
    device, streams = cuda(), dict.fromkeys(other for array in arrays for other in array.streams())
    with device.on(stream):
        for other in streams:
            device.wait(stream, device.record(other))
        yield
        end = device.record(stream)
        for other in streams:
            device.wait(other, end)


@contextmanager
def rooms(*wanted: Wanted) -> Iterator[list[OnDevice]]:
    """Arrays for what the current stream is asked for inside."""
    with ExitStack() as stack:
        yield [view_of(stack.enter_context(cuda().room(nbytes(each))), *each) for each in wanted]


def lasting(values: np.ndarray) -> OnDevice:
    """A copy, ready on the current stream, whose memory is freed with the last array that lies in it."""
    device = cuda()
    array = view_of(device.malloc(max(values.nbytes, 1)), values.shape, values.dtype)
    device.upload(array.ctypes.data, np.ascontiguousarray(values))
    array.owner = Owner()
    weakref.finalize(array.owner, device.free, array.ctypes.data)
    return array


class Owner:
    """What lives as long as memory is needed."""


def nbytes(wanted: Wanted) -> int:
    shape, dtype = wanted
    return prod(shape) * np.dtype(dtype).itemsize

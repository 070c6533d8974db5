"""Codecs on a CUDA device, as the kernels that a table calls: the bits are those of the host."""

from collections.abc import Callable
from typing import Any

import numpy as np

from compress.codec import Codec
from compress.context import Context, Kernels

from .cuda import cuda
from .device_reductions import reduction
from .elements import Kernel
from .table import HEAD
from .wire import STREAM, Codes

__all__ = ["of_device"]


def of_device(codec: Codec, dtype: np.dtype, size: int) -> Codes:
    """In the memory of a device.

    Raises
    ------
    TypeError
        A codec that has no kernels there, naming those that have.
    """
    from compress.kernels_device.lookup import coding

    found = coding(codec, dtype)
    head = 0 if codec.exact_size else max(HEAD, found.alignment)
    total, _ = reduction(dtype, "sum")

    def encode(out: int, a: int, b: int, count: int, step: int) -> None:
        at = Context(step % STREAM, b, step // STREAM, size)
        with cuda().room(found.scratch(count)) as scratch:
            nbytes = found.encode(out + head, a, count, at, scratch, cuda().read)
        if head:
            first = np.zeros(head, np.uint8)
            first[:HEAD] = np.frombuffer(nbytes.to_bytes(HEAD, "little"), np.uint8)
            cuda().upload(out, first)

    def decoded(out: int, a: int, message: int, count: int) -> None:
        nbytes = _told(codec, message, count) if head else codec.nbytes(count)
        with cuda().room(found.scratch(count)) as scratch:
            found.decode(out, a, message + head, nbytes, count, scratch)

    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        decoded(out, 0, a, count)

    def add(out: int, a: int, b: int, count: int, step: int) -> None:
        if not head or codec.sparse:
            decoded(out, a, b, count)
            return
        with cuda().room(count * dtype.itemsize) as values:
            decoded(values, 0, b, count)
            total.call(out, a, values, count, 0)  # as on the host, where zeros that do not travel are added, too

    return Codes(_kernels(encode, decode, add), head, found.alignment)


def _told(codec: Codec, message: int, count: int) -> int:
    """The length that a message begins with, once it is there."""
    length = int.from_bytes(cuda().read(message, HEAD), "little")
    if length > codec.nbytes(count):
        raise ValueError(f"a {codec} message of {count} values cannot have {length} bytes")
    return length


def _kernels(*functions: Callable[..., Any]) -> Kernels:
    return Kernels(*(Kernel(0, function) for function in functions))

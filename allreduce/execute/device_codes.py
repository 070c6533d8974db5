"""Codecs on a CUDA device, as the kernels that a table calls: the bits are those of the host."""

from collections.abc import Callable

import numpy as np

from compress.codec import Codec
from compress.context import Context, Kernels
from compress.kernels_device.coding import Decode, Encode, Hop

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

    def place(first: int, step: int) -> Context:
        return Context(step % STREAM, first, step // STREAM, size)

    def encoding(function: Encode) -> Kernel:
        def encode(out: int, a: int, b: int, count: int, step: int) -> None:
            with cuda().room(found.scratch(count)) as scratch:
                nbytes = function(out + head, a, count, place(b, step), scratch, cuda().read)
            if head:
                first = np.zeros(head, np.uint8)
                first[:HEAD] = np.frombuffer(nbytes.to_bytes(HEAD, "little"), np.uint8)
                cuda().upload(out, first)

        return Kernel(0, encode)

    def decoded(function: Decode, out: int, a: int, message: int, count: int) -> None:
        nbytes = _told(codec, message, count) if head else codec.nbytes(count)
        with cuda().room(found.scratch(count)) as scratch:
            function(out, a, message + head, nbytes, count, scratch)

    def taking_away(function: Decode) -> Kernel:
        return Kernel(0, lambda out, a, b, count, step: decoded(function, out, a, b, count))

    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        decoded(found.decode, out, 0, a, count)

    def add(out: int, a: int, b: int, count: int, step: int) -> None:
        if not head or codec.sparse:
            decoded(found.decode, out, a, b, count)
            return
        with cuda().room(count * dtype.itemsize) as values:
            decoded(found.decode, values, 0, b, count)
            total.call(out, a, values, count, 0)  # as on the host, where zeros that do not travel are added, too

    def hopping(function: Hop) -> Callable[[int, bool], Kernel]:
        return lambda first, losing: Kernel(
            0, lambda out, a, b, count, step: function(out, a, b, count, place(first, step), losing)
        )

    rest = found.rest and taking_away(found.rest)
    losing = found.losing and encoding(found.losing)
    hop = found.hop and hopping(found.hop)
    kernels = Kernels(encoding(found.encode), Kernel(0, decode), Kernel(0, add), rest, losing, hop)
    return Codes(kernels, head, found.alignment)


def _told(codec: Codec, message: int, count: int) -> int:
    """The length that a message begins with, once it is there."""
    length = int.from_bytes(cuda().read(message, HEAD), "little")
    if length > codec.nbytes(count):
        raise ValueError(f"a {codec} message of {count} values cannot have {length} bytes")
    return length

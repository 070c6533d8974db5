"""What travels when a codec is used: how the blocks of a vector lie in messages, and what encodes and decodes them."""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

import compress
from compress.codec import START, Codec
from compress.context import Context, Kernels

from ..schedules import cut
from . import lowering, reductions
from .table import HEAD

__all__ = ["STREAM", "Codes", "Strip", "Wire", "kernels_of", "of_host", "try_out"]

#: The random numbers of a rank begin at a multiple of this, see `compress.Context`.
STREAM = 1 << 40


class Codes(NamedTuple):
    """What makes codes and reads them.

    Attributes
    ----------
    kernels : Kernels
    head : int
        Bytes in front of a code, the first of which tell its length, if that depends on the data.
    alignment : int
        It begins, with these, at a multiple of so many bytes.
    """

    kernels: Kernels
    head: int = 0
    alignment: int = 1


class Strip(NamedTuple):
    """What is encoded at a time: elements, and the place of their code in a message."""

    first: int
    length: int
    start: int
    nbytes: int


class Wire:
    """A message is the codes of its blocks, one after the other.

    Blocks are encoded in strips of `segment` bytes, so that one travels while the next is encoded, or as long as the
    codec is to have them. If the length of a code depends on the data, there is room for the longest, and each strip is
    a message of its own.

    Parameters
    ----------
    codec : Codec
    dtype : numpy.dtype
        Of the values.
    count, blocks : int
        Elements of the vector, and the blocks it is cut into.
    size : int
        Number of ranks.
    codes : function (codec, dtype, size)
        Makes the `Codes`.
    segment : int
        Bytes of a strip, if not as many as is best on the host.

    Attributes
    ----------
    varies : int
        The `head` of its codes.
    """

    def __init__(
        self,
        codec: Codec,
        dtype: np.dtype,
        count: int,
        blocks: int,
        size: int,
        codes: "Callable[[Codec, np.dtype, int], Codes] | None" = None,
        segment: int = 0,
    ) -> None:
        self.codec, self.dtype = codec, dtype
        self.kernels, self.varies, self.alignment = (codes or of_host)(codec, dtype, size)
        units = -(-count // codec.block)
        self.firsts = [min(cut(units, blocks, b) * codec.block, count) for b in range(blocks + 1)]
        self.longest = max(1, (segment or lowering.SEGMENT) // codec.nbytes(codec.block)) * codec.block
        rooms = (sum(self.room(n) for _, n in self.cut(first, end)) for first, end in pairwise(self.firsts))
        self.starts = [0, *accumulate(rooms)]

    def room(self, count: int) -> int:
        """Bytes for the code of so many elements, up to where the next may begin."""
        return -(-self.nbytes(count) // self.alignment) * self.alignment

    def nbytes(self, count: int) -> int:
        """Bytes of the code of so many elements, at most."""
        return self.codec.nbytes(count) + self.varies if count else 0

    def length(self, blocks: range) -> int:
        """Bytes for a message."""
        return self.starts[blocks.stop] - self.starts[blocks.start]

    def cut(self, first: int, end: int) -> list[tuple[int, int]]:
        """What is encoded at a time of these elements: the first and how many."""
        return [(first + i, n) for i, n in self.codec.parts(end - first, self.longest)]

    def strips(self, blocks: range) -> list[Strip]:
        """The strips of a message."""
        edges = self.firsts[blocks.start : blocks.stop + 1]
        if self.codec.chunkable and not self.varies:  # the codes of neighbours are that of both
            edges = [edges[0], edges[-1]]
        spans = [span for first, end in pairwise(edges) for span in self.cut(first, end)]
        starts = accumulate((self.room(count) for _, count in spans), initial=0)
        return [Strip(*span, start, self.nbytes(span[1])) for span, start in zip(spans, starts)]


def kernels_of(codec: Codec, dtype: np.dtype) -> Kernels | None:
    """What the compiled loop can run, if it can."""
    return codec.kernels(dtype) if codec.exact_size else None


def of_host(codec: Codec, dtype: np.dtype, size: int) -> Codes:
    """In host memory."""
    kernels = kernels_of(codec, dtype)
    return Codes(kernels) if kernels else Codes(python_kernels(codec, dtype, size), HEAD)


def python_kernels(codec: Codec, dtype: np.dtype, size: int) -> Kernels:
    """A codec without kernels of its own, for the Python interpreter; its codes begin with their length."""
    codec.encode(np.zeros(1, dtype))  # a library that it needs and that is not there is missed before anything is sent
    view = reductions.view
    total, _ = reductions.reduction(dtype, "sum")

    def message(address: int, count: int) -> np.ndarray:
        room = view(address, HEAD + codec.nbytes(count), np.dtype(np.uint8))
        length = int.from_bytes(room[:HEAD].tobytes(), "little")
        if length > room.size - HEAD:
            raise ValueError(f"a {codec} message of {count} values cannot have {length} bytes")
        return room[HEAD:][:length]

    def encode(out: int, a: int, b: int, count: int, step: int) -> None:
        room = view(out, HEAD + codec.nbytes(count), np.dtype(np.uint8))
        at = Context(step % STREAM, b, step // STREAM, size)
        length = encoded(codec, view(a, count, dtype), room[HEAD:], at).size
        room[:HEAD] = np.frombuffer(length.to_bytes(HEAD, "little"), np.uint8)

    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        codec.decode(message(a, count), view(out, count, dtype))

    def add(out: int, a: int, b: int, count: int, step: int) -> None:
        if codec.sparse:
            place = view(out, count, dtype)
            if out != a:
                place[...] = view(a, count, dtype)
            codec.decode(message(b, count), place, add=True)
            return
        values = np.empty(count, dtype)
        codec.decode(message(b, count), values)
        total.call(out, a, values.ctypes.data, count, 0)  # not by the codec: of NaNs there is to be one

    return Kernels(reductions.Kernel(0, encode), reductions.Kernel(0, decode), reductions.Kernel(0, add))


def encoded(codec: Codec, values: np.ndarray, room: np.ndarray, at: Context = START) -> np.ndarray:
    """The message of values in the room for it; what does not lie there would not be sent.

    Raises
    ------
    ValueError
    """
    message = codec.encode(values, room, at)
    if not isinstance(message, np.ndarray) or message.dtype != np.uint8 or message.size > room.size:
        made = f"{message.size} x {message.dtype}" if isinstance(message, np.ndarray) else repr(message)
        raise ValueError(f"{codec} makes {made} of {values.size} values; it promises {room.size} bytes at most")
    if message.size and message.ctypes.data != room.ctypes.data:
        raise ValueError(f"{codec} does not write its message to `out`")
    return message


def try_out(codec: Codec, dtype: np.dtype) -> None:
    """Refuse a codec of the caller's own that does not do what `Codec` says, before anything is sent.

    Raises
    ------
    TypeError, ValueError
    """
    if type(codec).__module__.partition(".")[0] == compress.__name__:
        return
    if not is_dataclass(codec) or type(codec).__hash__ is None:
        raise TypeError(f"a codec must be a frozen dataclass, which {type(codec).__name__} is not")
    _try_out(codec, dtype)


@lru_cache
def _try_out(codec: Codec, dtype: np.dtype) -> None:
    if not isinstance(codec.block, int) or codec.block < 1:
        raise ValueError(f"block of {codec} is a whole number from 1 on, not {codec.block!r}")
    values = np.arange(codec.block + 1).astype(dtype)
    nbytes, block = codec.nbytes(values.size), codec.nbytes(codec.block)
    if not isinstance(nbytes, int) or not isinstance(block, int) or min(nbytes, block) < 1:
        raise ValueError(f"nbytes of {codec} is a whole number of bytes, not {block!r} for {codec.block} values")
    message, out = encoded(codec, values, np.zeros(nbytes, np.uint8)), np.full(values.size, np.nan, dtype)
    if codec.exact_size and message.size != nbytes:
        raise ValueError(f"{codec} makes {message.size} bytes of {values.size} values; it promises {nbytes}")
    if codec.decode(message, out) is not out or np.isnan(out).any():
        raise ValueError(f"{codec} does not decode into `out`")

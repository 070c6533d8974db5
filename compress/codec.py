"""The interface of codecs: how a block of values becomes a shorter message, and back."""

from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from . import doors
from .bounds import through
from .context import Context, Kernels
from .table import config

__all__ = ["Codec", "Context", "Kernels"]

#: The first element, in the first step.
START = Context()
#: An all-reduce cuts what is not chunkable into parts of so many elements at most: one travels while the next is
#: encoded, and they are enough to choose the largest among.
PART = 1 << 19


class Codec:
    """A code for arrays of floating-point numbers, without state; a frozen dataclass.

    The arguments of the constructor are its configuration: ``repr(codec)`` is the call that makes it, ``str(codec)``
    the text from which `compress.get` makes it.

    Attributes
    ----------
    block : int
        Buffers are cut at multiples of so many elements.
    chunkable : bool
        Cut there, the messages of the parts, one after the other, are the message of the whole; else an all-reduce
        sends those of `parts`.
    lossless : bool
        Decodes to the same bits.
    homomorphic : bool
        Messages can be added without decoding them.
    exact_size : bool
        `nbytes` is the size, not only a bound.
    sparse : bool
        Decodes to zeros but for some values: to decode is to add to zeros. Of NaNs that are added there is to be one.
    share : float
        Of the values that are not zero, where that is what the codec is for: prices count on it, bits do not.
    random : bool
        The message depends on the context, because random numbers are drawn.
    unbiased : bool
        Decodes to the value in the mean over steps.
    idempotent : bool
        What was decoded decodes to the same bits when it is encoded again.
    """

    block: int = 1
    chunkable: bool = True
    lossless: bool = False
    homomorphic: bool = False
    exact_size: bool = True
    sparse: bool = False
    share: float = 1.0

    @property
    def random(self) -> bool:
        return False

    @property
    def unbiased(self) -> bool:
        """Most random numbers are drawn for this."""
        return self.random

    @property
    def idempotent(self) -> bool:
        return False

    @property
    def bits(self) -> float:
        """Bits per value of a long message, everything counted."""
        return 8 * self.nbytes(1 << 20) / (1 << 20)

    def nbytes(self, n: int) -> int:
        """Bytes of the message of n elements."""
        raise NotImplementedError

    def parts(self, n: int, most: int) -> list[tuple[int, int]]:
        """What is encoded at a time of n elements, the first and how many: even parts, of whole blocks.

        Parameters
        ----------
        n : int
        most : int
            Elements of a part, if the codec is chunkable.

        >>> Codec().parts(10, 4)
        [(0, 3), (3, 3), (6, 4)]
        """
        units, most = -(-n // self.block), max((most if self.chunkable else PART) // self.block, 1)
        number = -(-units // most)
        edges = [min(units * i // number * self.block, n) for i in range(number + 1)] if n else []
        return [(first, end - first) for first, end in pairwise(edges)]

    def bound(self, x: np.ndarray) -> np.ndarray:
        """What abs(decode(encode(x)) - x) is at most, element by element, float64; for x finite in float32."""
        size = np.abs(x.astype(np.float64))
        return through(x.dtype, size, self.errors(size))

    def errors(self, x: np.ndarray) -> np.ndarray:
        """The bound for float32, from magnitudes in float64."""
        raise NotImplementedError

    def kernels(self, dtype: Any) -> Kernels | None:
        """The kernels for a dtype; None if the codec runs in Python only, and has its own `_encode` and `_decode`."""
        return None

    def encode(self, x: np.ndarray, out: np.ndarray | None = None, at: Context = START) -> np.ndarray:
        """Turn values into a message.

        Parameters
        ----------
        x : ndarray of float16, bfloat16, float32 or float64
            Or an array on a CUDA device: then the message is one, too, with the same bits.
        out : ndarray of uint8, optional
            Room for the message, at least ``nbytes(x.size)`` bytes.
        at : Context

        Returns
        -------
        ndarray of uint8
            The message; the first part of `out` if that was given.

        Raises
        ------
        TypeError
            Another dtype, or a codec that has no kernels for the device, naming those that have.
        """
        if hasattr(x, "__cuda_array_interface__"):
            return on_device().encode(self, x, out, at)
        return self._encode(x, out, at)

    def decode(self, message: np.ndarray, out: np.ndarray, add: bool = False) -> np.ndarray:
        """Turn a message into values, written or added to `out`, and return `out`; both on the host, or on a device."""
        if hasattr(out, "__cuda_array_interface__"):
            return on_device().decode(self, message, out, add)
        return self._decode(message, out, add)

    def _encode(self, x: np.ndarray, out: np.ndarray | None, at: Context) -> np.ndarray:
        """As `encode`, on the host."""
        x = doors.values(x)
        message = doors.room(out, self.nbytes(x.size))
        self._run("encode", x.dtype, message.ctypes.data, x.ctypes.data, at.offset, x.size, at.stream)
        return message

    def _decode(self, message: np.ndarray, out: np.ndarray, add: bool) -> np.ndarray:
        """As `decode`, on the host."""
        message = doors.readable(self, message, out)
        source, target = message.ctypes.data, out.ctypes.data
        if add:
            self._run("add", out.dtype, target, target, source, out.size, 0)
        else:
            self._run("decode", out.dtype, target, source, 0, out.size, 0)
        return out

    def _run(self, name: str, dtype: np.dtype, *args: int) -> None:
        getattr(self.kernels(dtype), name).call(*args)

    def __str__(self) -> str:
        return config(self)


def on_device() -> Any:
    """The module, which only they need that have a device."""
    return import_module(".on_device", __package__)

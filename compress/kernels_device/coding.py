"""What all codecs are on a device."""

from collections.abc import Callable
from typing import NamedTuple

from ..context import Context

__all__ = ["Coding", "Read"]

#: Returns the bytes at (address, nbytes) of device memory, when all that was launched before has run.
Read = Callable[[int, int], bytes]
Encode = Callable[[int, int, int, Context, int, Read], int]
Decode = Callable[[int, int, int, int, int, int], None]
Hop = Callable[[int, int, int, int, Context, bool], None]


class Coding(NamedTuple):
    """A codec for arrays of a dtype on a device; addresses are those of device memory.

    Attributes
    ----------
    encode : function (out, a, count, at, scratch, read)
        out = message of the values at a; its length in bytes. `at` is a `Context`; only where lengths vary does it
        call `read`, and wait for the device.
    decode : function (out, a, message, nbytes, count, scratch)
        out = values of the message, added to those at a if that is not 0; out may be a.
    scratch : function (count)
        Bytes of scratch memory that both need, aligned to 8, for one call at a time.
    alignment : int
        Messages begin at multiples of so many bytes.
    rest : function (out, a, message, nbytes, count, scratch), optional
        out = values at a less those of the message; out may be a. Where there is a shorter way than by decoding.
    losing : function (out, a, count, at, scratch, read), optional
        As encode, and values at a become what the message lacks of them. Where that is one kernel.
    hop : function (out, a, message, count, at, losing), optional
        out = message of the sum of the values at a and those of another message, which is not written anywhere; if
        losing, values at a become what it lacks of the sum. For a codec whose `nbytes` is exact.
    """

    encode: Encode
    decode: Decode
    scratch: Callable[[int], int]
    alignment: int
    rest: Decode | None = None
    losing: Encode | None = None
    hop: Hop | None = None

"""Nothing but what is not zero, the same bits."""

from dataclasses import dataclass

import numpy as np

from . import doors
from .context import Context
from .exact import Exact
from .nonzero_kernels import find, length, read_bitmap, read_gaps, write_bitmap, write_gaps

__all__ = ["Nonzero"]

#: What the first byte of a message says.
DENSE, BITMAP, GAPS = range(3)


@dataclass(frozen=True)
class Nonzero(Exact):
    """The values whose bits are not all zero, and where they are; the same bits come back.

    Where they are takes the shorter of a bit per element and one or more bytes per value: seven bits a byte of the
    number of zeros before it, the lowest first, the eighth bit set if more follow. So an index does not grow with the
    array but with the distance, and never to 8 bytes, as fixed ones do from 2**31 elements on. Past a density of
    v / (v + i), with v bytes for a value and i for its place, all values travel as they are: a sum that fills up from
    hop to hop becomes dense by itself, and from the hop on where that is shorter. Two ranks must use the same dtype.

    Message: a byte, 0 for all values, 1 for a bit per element, from the lowest, 2 for distances; then that, then the
    values. The length tells how many there are.

    Parameters
    ----------
    share : float
        Of the values of a sum that are thought not to be zero. ``algorithm="auto"`` goes by it, for all ranks must
        choose alike, and none knows the values of the others; by default it takes the codec never.

    See: Renggli et al., SparCML: high-performance sparse communication for machine learning, SC 2019.

    >>> x = np.array([0, -0.0, 0, np.nan] + 996 * [0], np.float32)
    >>> message = Nonzero().encode(x)
    >>> x.nbytes, message
    (4000, array([  2,   1,   1,   0,   0,   0, 128,   0,   0, 192, 127], dtype=uint8))
    >>> Nonzero().decode(message, np.empty_like(x))[:4]
    array([ 0., -0.,  0., nan], dtype=float32)
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        doors.share(self, "share")

    def _encode(self, x: np.ndarray, out: np.ndarray | None, at: Context) -> np.ndarray:
        x = doors.values(x).reshape(-1)
        if not x.size:
            return doors.room(out, 0)
        words, places = x.view(f"u{x.itemsize}"), np.empty(x.size, np.int64)
        places = places[: find(words, places)]
        nbytes = 0, -(-x.size // 8), length(places)
        kind = min(DENSE, BITMAP, GAPS, key=lambda kind: nbytes[kind] + (places if kind else x).size * x.itemsize)
        values = words[places] if kind else words
        message = doors.room(out, 1 + nbytes[kind] + values.nbytes)
        where = message[1 : 1 + nbytes[kind]]
        message[0] = kind
        if kind:
            (write_bitmap if kind == BITMAP else write_gaps)(places, where)
        message[1 + nbytes[kind] :] = values.view(np.uint8)
        return message

    def _decode(self, message: np.ndarray, out: np.ndarray, add: bool) -> np.ndarray:
        message = doors.readable(self, message, out)
        if not out.size:
            return out
        words = np.zeros(out.size, f"u{out.itemsize}")
        if not message.size or not self._read(message[0], message[1:], words):
            raise ValueError(f"a message of {message.size} bytes does not fit {out.size} of {out.dtype}")
        values = words.view(out.dtype).reshape(out.shape)
        if add:
            out += values
        else:
            out[...] = values
        return out

    def _read(self, kind: int, body: np.ndarray, words: np.ndarray) -> bool:
        """Write what is not zero; whether the message makes sense."""
        if kind == DENSE:
            fits = body.size == words.nbytes
            words[...] = body.view(words.dtype) if fits else 0
            return fits
        if kind == BITMAP:
            return read_bitmap(body, words.itemsize, words)
        return kind == GAPS and read_gaps(body, words.itemsize, words)

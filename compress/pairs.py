"""Sixteen values as eight pairs of codes, so that a width may be half a bit, on levels that lie closer towards zero.

Of L levels on either side, number q is q(q + 2L) / 3L^2 of the scale. With y = 1 + q / L that is (y^2 - 1) / 3, and the
middle of two neighbouring levels is 1 / 12L^2 above the level between them, which makes the nearest one easy to find.
"""

from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.machine import bits_of_float, float_from_bits

from .memory import at8
from .packing import join, part, read, write
from .values import magnitude, nearest

__all__ = ["load", "narrow", "store", "widen"]


@njit(error_model="numpy")
def narrow(x: Any, scale: Any, levels: int, codes: Any) -> None:
    """The codes of 16 values up to the scale: of each pair the lower byte, then of each the upper."""
    most, less = np.float32(levels), np.float32(0.25) / np.float32(levels * levels)
    for i in range(16):
        share = float_from_bits(magnitude(x[i])) / scale
        place = np.sqrt(np.float32(1) - less + np.float32(3) * share) - np.float32(1)
        q = min(np.int32(nearest(place * most) - nearest(np.float32(0))), np.int32(levels))
        codes[i] = np.uint8(np.int32(levels) + (q if bits_of_float(x[i]) < np.uint32(0x80000000) else -q))
    for i in range(8):
        pair = np.uint32(codes[i]) + np.uint32(2 * levels + 1) * np.uint32(codes[i + 8])
        codes[i], codes[i + 8] = np.uint8(pair & np.uint32(255)), np.uint8(pair >> np.uint32(8))


@njit(error_model="numpy")
def widen(codes: Any, scale: Any, levels: int, values: Any) -> None:
    """The values of what `narrow` wrote."""
    size, inverse = np.uint32(2 * levels + 1), np.float32(1) / np.float32(2 * levels + 1)
    step = scale / np.float32(3 * levels * levels)
    for i in range(8):
        pair = np.uint32(codes[i]) | np.uint32(codes[i + 8]) << np.uint32(8)
        upper = np.uint32((np.float32(pair) + np.float32(0.5)) * inverse)
        values[i], values[i + 8] = np.float32(pair - size * upper), np.float32(upper)
    for i in range(16):
        q = values[i] - np.float32(levels)
        values[i] = q * (abs(q) + np.float32(2 * levels)) * step


@njit(error_model="numpy")
def store(place: int, end: int, width: int, words: Any) -> None:
    """Write eight pairs of so many bits, 5..16, in as many bytes; they lie in `words`. Bytes up to `end` are ours."""
    _put(place, end, min(width, 8), words[0])
    if width > 8:
        _put(place + 8, end, width - 8, words[1])


@njit(error_model="numpy")
def load(place: int, end: int, width: int, words: Any) -> None:
    """Read what `store` wrote."""
    words[0] = _get(place, end, min(width, 8))
    words[1] = _get(place + 8, end, width - 8) if width > 8 else np.uint64(0)


@njit(error_model="numpy")
def _put(place: int, end: int, width: int, word: Any) -> None:
    word = join(width, word)
    if place + 8 <= end:  # what is too much will be overwritten
        write(8, place, 0, word)
    else:
        some = at8(place, 8)
        for i in range(width):
            some[i] = np.uint8(word >> np.uint64(8 * i))


@njit(error_model="numpy")
def _get(place: int, end: int, width: int) -> Any:
    if place + 8 <= end:
        return part(width, read(8, place, 0))
    some, word = at8(place, 8), np.uint64(0)
    for i in range(width):
        word |= np.uint64(some[i]) << np.uint64(8 * i)
    return part(width, word)

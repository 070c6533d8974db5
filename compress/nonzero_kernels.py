"""Where values are that are not zero, as bits or distances."""

from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

__all__ = ["find", "length", "read_bitmap", "read_gaps", "write_bitmap", "write_gaps"]

#: Elements that are looked at together first, for most are zero.
RUN = 64


@njit(error_model="numpy")
def _empty(part: Any) -> bool:
    some = part[0]
    for i in range(1, part.size):
        some |= part[i]
    return some == 0


@keep
@njit(nogil=True, error_model="numpy")
def find(words: Any, places: Any) -> int:
    """Write to `places`, which has room for all, where values are not zero; how many are not."""
    found = 0
    for first in range(0, words.size, RUN):
        part = words[first : first + RUN]
        if _empty(part):
            continue
        for i in range(part.size):
            places[found] = first + i
            found += part[i] != 0
    return found


@keep
@njit(nogil=True, error_model="numpy")
def length(places: Any) -> int:
    """How many bytes `write_gaps` takes."""
    nbytes, last = places.size, -1
    for place in places:
        gap, last = place - last - 1, place
        while gap >= 128:
            gap, nbytes = gap >> 7, nbytes + 1
    return nbytes


@keep
@njit(nogil=True, error_model="numpy")
def write_gaps(places: Any, where: Any) -> None:
    """Write the zeros before each, seven bits a byte."""
    byte, last = 0, -1
    for place in places:
        gap, last = place - last - 1, place
        while gap >= 128:
            where[byte] = np.uint8(gap & 127 | 128)
            gap, byte = gap >> 7, byte + 1
        where[byte] = np.uint8(gap)
        byte += 1


@keep
@njit(nogil=True, error_model="numpy")
def write_bitmap(places: Any, where: Any) -> None:
    """Write a bit per element."""
    where[:] = 0
    for place in places:
        where[place >> 3] |= np.uint8(1 << (place & 7))


@njit(error_model="numpy")
def _word(body: Any, byte: int, itemsize: int) -> Any:
    """A value, which may begin anywhere."""
    word = np.uint64(0)
    for i in range(itemsize):
        word |= np.uint64(body[byte + i]) << np.uint64(8 * i)
    return word


@keep
@njit(nogil=True, error_model="numpy")
def read_gaps(body: Any, itemsize: int, words: Any) -> bool:
    """Read what `write_gaps` wrote, and values after it, to words that are zero; whether it makes sense."""
    first = found = 0
    while first + found * itemsize < body.size:  # there are as many values as distances
        first, found = first + 1, found + (body[first] < 128)
    if first + found * itemsize != body.size:
        return False
    byte, place = 0, -1
    for j in range(found):
        gap = shift = 0
        while body[byte] >= 128 and shift < 56:
            gap |= np.int64(body[byte] & 127) << shift
            byte, shift = byte + 1, shift + 7
        gap |= np.int64(body[byte]) << shift
        if not 0 <= gap < words.size - place - 1:
            return False
        byte, place = byte + 1, place + gap + 1
        words[place] = _word(body, first + j * itemsize, itemsize)
    return byte == first


@keep
@njit(nogil=True, error_model="numpy")
def read_bitmap(body: Any, itemsize: int, words: Any) -> bool:
    """Read what `write_bitmap` wrote, and values after it, to words that are zero; whether it makes sense."""
    byte = (words.size + 7) // 8
    for place in range(words.size if byte <= body.size else 0):
        if body[place >> 3] >> np.uint8(place & 7) & np.uint8(1):
            if byte + itemsize > body.size:
                return False
            words[place] = _word(body, byte, itemsize)
            byte += itemsize
    return byte == body.size

"""Bits that are written and read one number after the other, through a window of 64 of them."""

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep
from allreduce.execute.elements import CODES, compiled
from allreduce.execute.machine import bits_of_float, trailing_zeros

from .arrays import settle
from .memory import at8, at16, floats, inline, scratch
from .noise import noise, noise_key
from .packing import read, write
from .values import INFINITE, LARGEST, NAN_SCALE, SMALLEST, nearest, norm, peak, scale, scale_up

__all__ = ["LONGEST", "reader", "write_blocks"]

#: Values in a block, at most; and no number has so many bits below its highest.
LONGEST = 8192
MOST_BITS = 14
ALL = np.uint64(2**64 - 1)
SIGNATURE = "int64(int64, int64, int64, int64, int64, int64)"


@keep
@njit(nogil=True, error_model="numpy")
def write_blocks(x: Any, block: int, levels: int, seed: int, stream: int, offset: int, message: int, end: int) -> int:
    """Encode float32 values to these addresses; returns the bytes of the message."""
    work, steps, places = np.empty(2 * block, np.float32), np.empty(block, np.int32), np.empty(block, np.int32)
    at = message
    for first in range(0, x.size, block):
        part = x[first : first + block]
        step = norm(part, part.size, work) / np.float32(levels)
        code = scale_up(step, LARGEST / np.float32(levels)) if bits_of_float(step) >= SMALLEST else np.uint32(0)
        code = NAN_SCALE if peak(part, part.size) >= INFINITE else code
        at16(at, 1)[0] = np.uint16(code)
        at += 2
        if np.uint32(0) < code < NAN_SCALE:
            key = noise_key(seed, stream, offset + first)
            _quantize(part, np.float32(1) / scale(code), levels, key, steps)
            at = _write(steps, places, part.size, at, end)
    return at - message


@inline
def _quantize(x: Any, inverse: Any, levels: int, key: Any, steps: Any) -> None:
    """Whole numbers of steps, rounded at random."""
    for i in range(x.size):
        q = np.int32(nearest(x[i] * inverse + noise(key, i)) - nearest(np.float32(0)))
        steps[i] = min(max(q, np.int32(-levels)), np.int32(levels))


@inline
def _write(steps: Any, places: Any, n: int, at: int, end: int) -> int:
    """Write n numbers of steps from this address on; returns the one after them."""
    found, last, bits, held = 0, -1, np.uint64(0), 0
    for i in range(n):  # without a branch, which would be guessed wrong
        places[found] = i
        found += steps[i] != 0
    for j in range(found):
        i = np.int64(places[j])
        q = np.int64(steps[i])
        gap, length = _gamma(i - last)
        level, more = _gamma(abs(q))
        code = gap | (np.uint64(q < 0) | level << np.uint64(1)) << np.uint64(length)
        bits, held, at = _flush(bits | code << np.uint64(held), held + length + 1 + more, at, end)
        last = i
    if last < n - 1:
        code, length = _gamma(n - last)
        bits, held = bits | code << np.uint64(held), held + length
    _, _, at = _flush(bits, held + 7, at, end)
    return at


@inline
def _gamma(k: int) -> Any:
    """The code of a number below 2**24, and its length."""
    below = np.int64(bits_of_float(np.float32(np.int32(k))) >> np.uint32(23)) - np.int64(127)
    one = np.uint64(1) << np.uint64(below)
    return (np.uint64(1) | (np.uint64(k) ^ one) << np.uint64(1)) << np.uint64(below), 2 * below + 1


@inline
def _flush(bits: Any, held: int, at: int, end: int) -> Any:
    """Write whole bytes; what lies after them, and is still to come, is written over if there is room."""
    whole = held >> 3
    if at + 8 <= end:
        write(8, at, 0, bits)
    else:
        rest = at8(at, whole)
        for i in range(whole):
            rest[i] = np.uint8(bits >> np.uint64(8 * i) & np.uint64(255))
    return bits >> np.uint64(8 * whole), held & 7, at + whole


@cache
def reader(code: int, adding: int) -> Any:
    """A function that writes decoded values, or adds them: (out, a, message, bytes, count, block) -> bytes read.

    These are -1 if there are too few or they make no sense.
    """
    size, room = CODES[code].itemsize, 4 * LONGEST

    def decode(out: int, a: int, message: int, nbytes: int, count: int, block: int) -> int:
        values, byte = floats(scratch(room), LONGEST), 0
        for first in range(0, count, block):
            n = min(block, count - first)
            if byte + 2 > nbytes:
                return -1
            step = np.uint32(at16(message + byte, 1)[0])
            for i in range(n):
                values[i] = scale(step) * np.float32(0)
            byte += 2
            if np.uint32(0) < step < NAN_SCALE:
                byte = _read(message, byte, nbytes, values, n, scale(step))
                if byte < 0:
                    return -1
            settle(adding, code, out + first * size, a + first * size, n, values)
        return byte

    return compiled(decode, SIGNATURE)


@inline
def _read(message: int, byte: int, nbytes: int, values: Any, n: int, step: Any) -> int:
    """Read what `_write` wrote, to values that are zero; returns the byte after it, or -1."""
    bit, place = 8 * byte, -1
    while place < n - 1:
        gap, bit = _number(message, bit, nbytes)
        place += gap
        if gap == 0 or place > n or bit > 8 * nbytes:
            return -1
        if place < n:
            sign = _window(message, bit, nbytes) << np.uint64(63)
            level, bit = _number(message, bit + 1, nbytes)
            values[place] = np.float32(np.int64(level) if sign == 0 else -np.int64(level)) * step
    return (bit + 7) >> 3 if bit <= 8 * nbytes else -1


@inline
def _window(message: int, bit: int, nbytes: int) -> Any:
    """The next 57 bits or more; beyond the end all are ones, so that no number is long."""
    byte, shift = bit >> 3, np.uint64(bit & 7)
    if byte + 8 <= nbytes:
        return read(8, message + byte, 0) >> shift
    word, rest = ALL, at8(message, nbytes)
    for i in range(byte, nbytes):
        word ^= (np.uint64(255) ^ np.uint64(rest[i])) << np.uint64(8 * (i - byte))
    return word >> shift


@inline
def _number(message: int, bit: int, nbytes: int) -> Any:
    """A number, 0 for one that is too large, and where the next bit is."""
    word = _window(message, bit, nbytes)
    below = trailing_zeros(word)
    if below >= MOST_BITS:
        return 0, bit
    one = np.uint64(1) << np.uint64(below)
    return np.int64(word >> np.uint64(below + 1) & (one - np.uint64(1)) | one), bit + 2 * below + 1

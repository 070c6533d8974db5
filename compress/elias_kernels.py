"""Bits that are written and read one number after the other."""

from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.cache import keep
from allreduce.execute.machine import bits_of_float

from .noise import noise, noise_key
from .values import INFINITE, LARGEST, NAN_SCALE, SMALLEST, nearest, norm, peak, scale, scale_up

__all__ = ["read_blocks", "write_blocks"]


@keep
@njit(nogil=True, error_model="numpy")
def write_blocks(x: Any, block: int, levels: int, seed: int, stream: int, offset: int, message: Any) -> int:
    """Encode float32 values; returns the bytes of the message."""
    work, byte = np.empty(2 * block, np.float32), 0
    for first in range(0, x.size, block):
        part = x[first : first + block]
        step = norm(part, part.size, work) / np.float32(levels)
        code = scale_up(step, LARGEST / np.float32(levels)) if bits_of_float(step) >= SMALLEST else np.uint32(0)
        code = NAN_SCALE if peak(part, part.size) >= INFINITE else code
        message[byte], message[byte + 1] = np.uint8(code & np.uint32(255)), np.uint8(code >> np.uint32(8))
        byte += 2
        if not np.uint32(0) < code < NAN_SCALE:
            continue
        inverse, key = np.float32(1) / scale(code), noise_key(seed, stream, offset + first)
        bits, held, last = np.uint64(0), 0, -1
        for i in range(part.size):
            q = np.int32(nearest(part[i] * inverse + noise(key, i)) - nearest(np.float32(0)))
            q = min(max(q, np.int32(-levels)), np.int32(levels))
            if q:
                bits, held = _gamma(bits, held, i - last)
                bits |= np.uint64(q < 0) << np.uint64(held)
                bits, held = _gamma(bits, held + 1, abs(q))
                bits, held, byte = _flush(bits, held, byte, message)
                last = i
        if last < part.size - 1:
            bits, held = _gamma(bits, held, part.size - last)
        _, _, byte = _flush(bits, held + 7, byte, message)
    return byte


@njit(error_model="numpy")
def _gamma(bits: Any, held: int, k: int) -> Any:
    """Put a number on top of the bits that are held."""
    below = 0
    while k >> (below + 1):
        below += 1
    code = (np.uint64(1) | (np.uint64(k) ^ np.uint64(1) << np.uint64(below)) << np.uint64(1)) << np.uint64(below)
    return bits | code << np.uint64(held), held + 2 * below + 1


@njit(error_model="numpy")
def _flush(bits: Any, held: int, byte: int, message: Any) -> Any:
    """Write whole bytes."""
    while held >= 8:
        message[byte] = np.uint8(bits & np.uint64(255))
        bits, held, byte = bits >> np.uint64(8), held - 8, byte + 1
    return bits, held, byte


@keep
@njit(nogil=True, error_model="numpy")
def read_blocks(message: Any, block: int, out: Any) -> int:
    """Decode to float32 values; returns the bytes that were read, -1 if there are too few or they make no sense."""
    byte = 0
    for first in range(0, out.size, block):
        if byte + 2 > message.size:
            return -1
        code = np.uint32(message[byte]) | np.uint32(message[byte + 1]) << np.uint32(8)
        step, part = scale(code), out[first : first + block]
        for i in range(part.size):
            part[i] = step * np.float32(0)
        bit = 8 * (byte + 2)
        if np.uint32(0) < code < NAN_SCALE:
            place = -1
            while place < part.size - 1:
                gap, bit = _number(message, bit)
                place += gap
                if place < part.size and gap:
                    negative, bit = _bit(message, bit), bit + 1
                    level, bit = _number(message, bit)
                    part[place] = np.float32(-level if negative else level) * step
                if bit > 8 * message.size or gap == 0 or place > part.size:
                    return -1
        byte = (bit + 7) // 8
    return byte


@njit(error_model="numpy")
def _bit(message: Any, bit: int) -> Any:
    """One bit; beyond the end all are ones, so that no number is long."""
    return message[bit >> 3] >> np.uint8(bit & 7) & np.uint8(1) if bit >> 3 < message.size else np.uint8(1)


@njit(error_model="numpy")
def _number(message: Any, bit: int) -> Any:
    """A number, 0 for one that is too large, and where the next bit is."""
    below = 0
    while below < 20 and not _bit(message, bit + below):
        below += 1
    bit += below + 1
    number = 1 << below
    for i in range(below):
        number |= np.int64(_bit(message, bit + i)) << i
    return (number if below < 20 else 0), bit + below

"""The k largest magnitudes of an array, exactly, mostly in one pass.

A sample tells a magnitude that a few more than k values reach. These are gathered, and the k largest found among them
by radix selection; or among all, where the sample erred, as it must if very many values are equal.
"""

from math import ceil, sqrt
from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.elements import CODES, widen
from allreduce.execute.machine import trailing_zeros

from .memory import inline
from .values import magnitude

__all__ = ["STRIP", "gather", "kept", "select", "value"]

#: A magnitude has 31 bits; they are looked at in digits, from the highest.
DIGITS = (11, 10, 10)
#: Values that are compared at a time, and room that `gather` needs beyond what it is to find.
STRIP = 4096
FLOAT32 = CODES.index(np.dtype(np.float32))
#: A sample has so many values at most, one of so many where that suffices, and so many of the k largest if it can.
SAMPLE, ONE_OF, ENOUGH = 1 << 16, 64, 128


@njit(error_model="numpy")
def kept(ratio: float, n: int) -> int:
    """How many of n values are sent: a share, rounded up, so that one is if there is any."""
    return min(n, ceil(ratio * n))


@inline
def value(code: int, x: Any) -> Any:
    """A stored element as float32."""
    return np.float32(widen(code, x))


@njit(error_model="numpy")
def gather(code: int, x: Any, least: Any, indices: Any, values: Any) -> int:
    """Write indices, ascending, and values of what has a magnitude at least; returns how many, or more than fit."""
    found, room = 0, indices.size - STRIP
    flags = np.zeros(STRIP, np.uint8)
    words, hits = flags.view(np.uint64), np.empty(STRIP // 8, np.int64)
    for first in range(0, x.size, STRIP):
        if found > room:
            break
        part = x[first : first + STRIP]
        for i in range(part.size):
            flags[i] = np.uint8(magnitude(value(code, part[i])) >= least)
        for i in range(part.size, STRIP):
            flags[i] = 0
        count = 0
        for word in range(words.size):  # of eight that are none is the rule; no branch, that would be guessed wrong
            hits[count] = word
            count += np.int64(words[word] != 0)
        for hit in range(count):
            left = words[hits[hit]]
            while left:
                i = 8 * hits[hit] + (trailing_zeros(left) >> 3)
                indices[found], values[found] = first + i, value(code, part[i])
                left &= left - np.uint64(1)
                found += 1
    return found


@njit(error_model="numpy")
def _digit(tables: Any, k: int) -> tuple[int, int]:
    """The digit of the k-th largest number, and how many numbers have a larger one."""
    larger, digit = 0, tables.shape[1]
    while True:
        digit -= 1
        here = np.int64(tables[0, digit] + tables[1, digit] + tables[2, digit] + tables[3, digit])
        if larger + here >= k:
            return digit, larger
        larger += here


@njit(error_model="numpy")
def _kth(code: int, x: Any, k: int) -> tuple[int, int]:
    """The k-th largest magnitude, and how many are larger."""
    prefix, larger, shift = 0, 0, np.uint32(31)
    for width in DIGITS:
        shift -= np.uint32(width)
        tables = np.zeros((4, 1 << DIGITS[0]), np.uint32)  # four, for neighbours often have the same digit
        for i in range(x.size):  # without a branch, which would be guessed wrong
            key = magnitude(value(code, x[i]))
            among = np.uint32(key >> (shift + np.uint32(width)) == prefix)
            tables[i & 3, (key >> shift) & np.uint32((1 << width) - 1)] += among
        digit, more = _digit(tables, k - larger)
        prefix, larger = prefix << width | digit, larger + more
    return prefix, larger


@njit(error_model="numpy")
def _largest(code: int, x: Any, k: int) -> Any:
    """The indices of the k largest magnitudes."""
    least, larger = _kth(code, x, k)
    indices, found, ties = np.empty(k + 1, np.int64), 0, k - larger
    for i in range(x.size):  # without a branch, which would be guessed wrong
        key = magnitude(value(code, x[i]))
        tie = np.int64(key == least) & np.int64(ties > 0)
        indices[found] = i
        found += np.int64(key > least) | tie
        ties -= tie
    return indices[:k]


@njit(error_model="numpy")
def _nearly(code: int, x: Any, k: int) -> Any:
    """A magnitude that more than k values reach, but rarely many more, from a sample."""
    apart = (x.size // min(SAMPLE, max(x.size // ONE_OF, ENOUGH * x.size // k))) | 1
    sample = np.empty((x.size - 1) // apart + 1, x.dtype)
    for i in range(sample.size):
        sample[i] = x[i * apart]
    expected = k * sample.size / x.size
    return np.uint32(_kth(code, sample, min(sample.size, ceil(expected + 4 * sqrt(expected) + 4)))[0])


@inline
def select(code: int, x: Any, k: int, chosen: Any, values: Any) -> None:
    """Write the indices of the k largest magnitudes, ascending, and the values; of equal ones the first are taken.

    NaN is larger than infinity.
    """
    if k == 0:
        return
    room = min(2 * k, x.size) + STRIP
    indices, nearly = np.empty(room, np.int64), np.empty(room, np.float32)
    found = gather(code, x, _nearly(code, x, k), indices, nearly)
    if k <= found <= 2 * k:
        places = _largest(FLOAT32, nearly[:found], k)
        for j in range(k):
            chosen[j], values[j] = indices[places[j]], nearly[places[j]]
    else:
        places = _largest(code, x, k)
        for j in range(k):
            chosen[j], values[j] = places[j], value(code, x[places[j]])

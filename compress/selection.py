"""The k largest magnitudes of an array, exactly, by radix selection."""

from math import ceil
from typing import Any

import numpy as np
from numba import njit

from allreduce.execute.elements import widen

from .memory import inline
from .values import magnitude

__all__ = ["kept", "select", "value"]

#: A magnitude has 31 bits; they are looked at in digits, from the highest.
DIGITS = (11, 10, 10)
FIRST = np.uint32(31 - DIGITS[0])


@njit(error_model="numpy")
def kept(ratio: float, n: int) -> int:
    """How many of n values are sent: a share, rounded up, so that one is if there is any."""
    return min(n, ceil(ratio * n))


@inline
def value(code: int, x: Any) -> Any:
    """A stored element as float32."""
    return np.float32(widen(code, x))


@njit(error_model="numpy")
def _digit(counts: Any, k: int) -> tuple[int, int]:
    """The digit of the k-th largest number, and how many numbers have a larger one."""
    larger = 0
    digit = counts.size - 1
    while larger + counts[digit] < k:
        larger += counts[digit]
        digit -= 1
    return digit, larger


@inline
def select(code: int, x: Any, k: int, chosen: Any) -> None:
    """Write the indices of the k largest magnitudes to `chosen`, ascending; of equal ones the first are taken.

    One pass counts the highest digits, one collects what has the k-th largest's or a larger one, which is not much
    more than k; among these the other digits are found. NaN is larger than infinity.
    """
    if k == 0:
        return
    tables = np.zeros((4, 1 << DIGITS[0]), np.uint32)  # four, for neighbours often have the same digit
    for i in range(x.size):
        tables[i & 3, magnitude(value(code, x[i])) >> FIRST] += np.uint32(1)
    counts = tables.sum(axis=0)
    digit, larger = _digit(counts, k)
    room = larger + counts[digit]
    indices, keys = np.empty(room + 1, np.int64), np.empty(room + 1, np.uint32)
    least, found = np.uint32(digit << FIRST), 0
    for i in range(x.size):  # without a branch, which would be guessed wrong
        key = magnitude(value(code, x[i]))
        indices[found], keys[found] = i, key
        found += key >= least
    prefix, shift = digit, np.uint32(FIRST)
    for width in DIGITS[1:]:
        shift -= np.uint32(width)
        counts = np.zeros(1 << width, np.uint32)
        for j in range(room):
            if keys[j] >> (shift + np.uint32(width)) == prefix:
                counts[(keys[j] >> shift) & np.uint32((1 << width) - 1)] += np.uint32(1)
        digit, more = _digit(counts, k - larger)
        prefix, larger = prefix << width | digit, larger + more
    ties, j = k - larger, 0
    for i in range(room):
        tie = keys[i] == prefix
        if keys[i] > prefix or (tie and ties > 0):
            chosen[j] = indices[i]
            ties -= tie
            j += 1

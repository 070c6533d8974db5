"""How the bytes of a block are shared out among groups of values, from statistics that sender and receiver have."""

from typing import Any

import numpy as np
from numba import njit

__all__ = [
    "CLASSES", "GROUP", "LEVELS", "MANTISSAS", "PRICES", "ROOM", "ROOTS", "SMALL", "WIDTHS",
    "allot", "classify", "spacing_of",
]  # fmt: skip

#: Values that share a scale and a width.
GROUP = 16
#: Scales of a block; one more class is for groups of zeros.
CLASSES = 7
#: Bytes of a group, from nothing up: eight pairs of values, of 2 * levels + 1 values each. Between 0 and 5 nothing is
#: worth its bytes.
WIDTHS = np.array([0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])
LEVELS = np.array([0, *((np.sqrt(2.0 ** WIDTHS[1:]) - 1) // 2)]).astype(np.int32)
#: Mean squared errors, for values up to 1; a tenth is what values are worth that are not sent.
_ERRORS = np.array([0.1, *(1 / (12 * LEVELS[1:].astype(float) ** 2))])
#: Where the next bytes are worth most, as the logarithm of an amplitude, in 16ths of an octave.
PRICES = np.rint(-8 * np.log2(-np.diff(_ERRORS) / np.diff(WIDTHS))).astype(np.int32)
#: From one to a half, in 16ths of an octave, and the mantissas of what lies between a half and one.
ROOTS = (2.0 ** (-np.arange(16) / 16)).astype(np.float32)
MANTISSAS = ((2.0 ** (np.arange(16) / 16) - 1) * 2**23).astype(np.uint32)
#: What is deeper is left out.
SMALL = 12 * 16
ROOM = SMALL + 1


@njit(error_model="numpy")
def depth(bits: Any) -> Any:
    """How many 16ths of an octave a number up to one, given as bits of a float32, is below one, rounded down."""
    above, mantissa = 0, bits & np.uint32(0x7FFFFF)
    for i in range(16):
        above += mantissa > MANTISSAS[i]
    return max(16 * (127 - np.int32(bits >> np.uint32(23))) - above, 0)


@njit(error_model="numpy")
def spacing_of(depths: Any, groups: int, counts: Any) -> Any:
    """How far apart the scales of a block lie, in 16ths of an octave, so that they are least in the mean.

    `counts` is overwritten, ROOM numbers: of the groups at least so deep.
    """
    for d in range(ROOM):
        counts[d] = 0
    for g in range(groups):
        if depths[g] < SMALL:
            counts[depths[g]] += 1
    for d in range(SMALL - 1, 0, -1):
        counts[d - 1] += counts[d]
    best, most = 1, 0
    for spacing in range(1, SMALL // (CLASSES - 1) + 1):
        total = 0
        for c in range(1, CLASSES):
            total += spacing * counts[c * spacing]
        if total > most:
            best, most = spacing, total
    return best


@njit(error_model="numpy")
def classify(depths: Any, groups: int, spacing: int, classes: Any) -> None:
    """The number of the least scale that is not exceeded; CLASSES where all values are negligible."""
    for g in range(groups):
        above = 0
        for c in range(1, CLASSES):
            above += depths[g] >= c * spacing
        classes[g] = above if depths[g] < SMALL else CLASSES


@njit(error_model="numpy")
def allot(classes: Any, groups: int, spacing: int, budget: int, counts: Any, grades: Any, out: Any) -> None:
    """Choose for every group a place in WIDTHS: bytes go where they are worth most, in equal cases to the first.

    `counts` and `grades` are overwritten, CLASSES + 1 numbers each.
    """
    for c in range(CLASSES + 1):
        counts[c] = grades[c] = 0
    for g in range(groups):
        counts[classes[g]] += 1
    raised, spare = -1, 0
    while spare == 0:
        raised, least = -1, 1 << 30
        for c in range(CLASSES):
            if counts[c] > 0 and grades[c] < len(PRICES) and c * spacing + PRICES[grades[c]] < least:
                raised, least = c, c * spacing + PRICES[grades[c]]
        if raised < 0:
            break
        step = WIDTHS[grades[raised] + 1] - WIDTHS[grades[raised]]
        if step * counts[raised] > budget:
            spare = budget // step
            break
        budget -= step * counts[raised]
        grades[raised] += 1
    for g in range(groups):
        extra = classes[g] == raised and spare > 0
        out[g] = grades[classes[g]] + extra
        spare -= extra

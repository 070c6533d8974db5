"""Two and three bits for blocks in which a few values outweigh the others."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from . import doors, linear
from .bounds import per_block
from .linear import Linear
from .memory import at8, at16, floats, inline, scratch
from .values import INFINITE, magnitude

__all__ = ["Spikes"]

MOST = 256
MEMORY = 4 * MOST
encode_rest, decode_rest = inline(linear.encode_block), inline(linear.decode_block)


@dataclass(frozen=True)
class Spikes(Linear):
    """The two largest values of a block apart, in 16 bits each, the others as whole multiples of a smaller step.

    What is left is coded as by `Linear`, with the third largest magnitude in place of the largest.

    Message: per block the two values as bfloat16, rounded to nearest and no further than to the largest, then where
    they are, a byte each, then the record of the others, with zeros in these places.

    Parameters
    ----------
    width, block, rounding, norm, seed
        As of `Linear`; blocks have at most 256 elements.

    See: FlashCommunication V2, arXiv 2508.03760, 2025, for the idea.

    >>> x = np.array([0.1, -7, 0.35, 0.3, 9], np.float32)
    >>> Spikes(width=2).decode(Spikes(width=2).encode(x), np.empty(5, np.float32))
    array([ 0.        , -7.        ,  0.34960938,  0.34960938,  9.        ],
          dtype=float32)
    """

    width: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        doors.power_of_two(self, "block", most=MOST)

    @property
    def unbiased(self) -> bool:
        """The two values are always rounded to nearest."""
        return False

    @property
    def idempotent(self) -> bool:
        """What is third may decode to more than what is second."""
        return False

    def record(self, n: int) -> int:
        return 6 + super().record(n)

    def errors(self, x: np.ndarray) -> np.ndarray:
        third = per_block(x, self.block, lambda block, axis: np.sort(block, axis=axis)[:, -3:].min(axis=axis))
        rest = super().errors(np.where(x > third, 0, x))
        return np.where(x > third, np.maximum(rest, x * 2.0**-8 + 2.0**-133), rest)


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    rest, spikes, places = floats(scratch(MEMORY), MOST), at16(out, 2), at8(out + 4, 2)
    for i in range(n):
        rest[i] = x[i]
    for j in range(2):
        place = largest(rest, n)
        spikes[j], places[j] = bfloat16(rest[place]), np.uint8(place)
        rest[place] = np.float32(0)
    encode_rest(params, rest, n, out + 6, key, codes, words, work)


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    decode_rest(params, message + 6, n, values, codes, words)
    spikes, places = at16(message, 2), at8(message + 4, 2)
    for j in range(1, -1, -1):  # of a block of one value both are that, the second zero
        if places[j] < n:
            values[places[j]] = float_from_bits(np.uint32(np.uint32(spikes[j]) << np.uint32(16)))


@inline
def largest(x: Any, n: int) -> Any:
    """Where the largest magnitude is; the first of equal ones."""
    place = 0
    for i in range(1, n):
        place = i if magnitude(x[i]) > magnitude(x[place]) else place
    return place


@inline
def bfloat16(x: Any) -> Any:
    """The bits of a value in half the room, rounded to nearest even; of a finite one, finite; there is one NaN."""
    bits = bits_of_float(x)
    size = np.uint32(bits & np.uint32(0x7FFFFFFF))
    if size > INFINITE:  # its bits depend on where it was converted
        return np.uint16(0x7FC0)
    half = np.uint32(size + np.uint32(0x7FFF) + (size >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    half = min(half, np.uint32(0x7F7F)) if size < INFINITE else np.uint32(0x7F80)
    return np.uint16(half | bits >> np.uint32(16) & np.uint32(0x8000))

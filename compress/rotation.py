"""A random rotation that is its own inverse: signs, and a Hadamard transform."""

from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from .memory import inline
from .noise import mix

__all__ = ["flipped", "hadamard"]


@inline
def flipped(x: Any, key: Any, i: int) -> Any:
    """x with a random sign."""
    return float_from_bits(np.uint32(bits_of_float(x) ^ mix(np.uint32(key + np.uint32(i))) & np.uint32(0x80000000)))


@inline
def hadamard(x: Any, spare: Any, size: int) -> None:
    """Sums and differences, in place; twice is `size` times the identity.

    Every stage reads and writes the same places, in runs (Pease, 1968), so that all of them are vectorised.
    """
    half, stages = size // 2, size
    while stages > 1:
        for i in range(half):
            spare[2 * i], spare[2 * i + 1] = x[i] + x[i + half], x[i] - x[i + half]
        for i in range(size):
            x[i] = spare[i]
        stages //= 2

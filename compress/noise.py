"""Random numbers without a state: a hash of where they are used."""

from typing import Any

import numpy as np

from .memory import inline

__all__ = ["apart", "mix", "noise", "noise_key", "random32"]


@inline
def mix(x: Any) -> Any:
    """Hash 32 bits; `lowbias32` of C. Wellons' hash-prospector."""
    x = np.uint32((x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D))
    x = np.uint32((x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B))
    return np.uint32(x ^ x >> np.uint32(16))


@inline
def noise_key(seed: int, stream: int, index: int) -> Any:
    """What to add the number within the block to, for a hash of (seed, stream, global index of the element)."""
    key = mix(np.uint32(seed + 0x9E3779B9))
    for word in (stream, stream >> 32, index >> 32):
        key = mix(key ^ np.uint32(word & 0xFFFFFFFF))
    return np.uint32(key + np.uint32(index & 0xFFFFFFFF))


@inline
def apart(correlated: int, stream: int) -> Any:
    """Of a stream, what goes into the key of a block, and what is put on top of it, with its rank bit-reversed.

    Whole numbers that begin anywhere, bit-reversed, fill the range from 0 to 1 evenly (van der Corput), and still do
    after exclusive or with a random number. That one, from the key, is the same on all ranks.
    """
    turn = 0
    if correlated:
        for bit in range(24):
            turn |= (stream >> (40 + bit) & 1) << (63 - bit)
        stream &= (1 << 40) - 1
    return stream, np.uint64(turn)


@inline
def random32(key: Any, i: int) -> Any:
    """A random number of 32 bits for element i of the block; the upper half of a key of 64 bits turns it."""
    return np.uint32(mix(np.uint32(key + np.uint32(i))) ^ np.uint32(np.uint64(key) >> np.uint64(32)))


@inline
def noise(key: Any, i: int) -> Any:
    """A random number in steps of 2**-16 that lies within, and is symmetric about, -1/2..1/2.

    Coarse, so that a whole number up to 128 plus noise is exact in float32, and rounds to itself.
    """
    bits = random32(key, i) >> np.uint32(16)
    return (np.float32(np.int32(bits)) - np.float32(32767.5)) * np.float32(2**-16)

"""Random numbers without a state: a hash of where they are used."""

from typing import Any

import numpy as np

from .memory import inline

__all__ = ["mix", "noise", "noise_key"]


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
def noise(key: Any, i: int) -> Any:
    """A random number in steps of 2**-16 that lies within, and is symmetric about, -1/2..1/2.

    Coarse, so that a whole number up to 128 plus noise is exact in float32, and rounds to itself.
    """
    bits = mix(np.uint32(key + np.uint32(i))) >> np.uint32(16)
    return (np.float32(np.int32(bits)) - np.float32(32767.5)) * np.float32(2**-16)

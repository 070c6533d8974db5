"""The steps that blocks have in common: magnitudes, sums in one fixed order, and scales.

They are compiled into the kernels that use them. No product is contracted with a sum, so that a device can give the
same bits.
"""

from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from .memory import inline

__all__ = [
    "INFINITE", "LARGEST", "NAN_SCALE", "SMALLEST",
    "filled", "magnitude", "nearest", "norm", "peak", "power_below", "scale", "scale_near", "scale_up", "tree_sum",
]  # fmt: skip

#: Bits of a float32 from which on it is no number, and of the smallest that is not denormal.
INFINITE, SMALLEST = np.uint32(0x7F800000), np.uint32(0x00800000)
LARGEST = np.float32(np.finfo(np.float32).max)
#: Added to a float32 below 2**22, it leaves the nearest whole number in the low bits, ties to even.
SHIFTER = np.float32(1.5 * 2**23)
NAN_SCALE = np.uint32(0xFFFF)


@inline
def magnitude(x: Any) -> Any:
    """The bits of abs(x), which order like the numbers; NaN is the largest."""
    return np.uint32(bits_of_float(x) & np.uint32(0x7FFFFFFF))  # Numba computes in 64 bits if it may


@inline
def peak(x: Any, n: int) -> Any:
    """The largest magnitude; as integers, because a maximum of floats that minds NaN is not vectorised."""
    largest = np.uint32(0)
    for i in range(n):
        m = magnitude(x[i])
        largest = m if m > largest else largest
    return largest


@inline
def nearest(x: Any) -> Any:
    """The nearest whole number, ties to even, modulo 2**22."""
    return bits_of_float(x + SHIFTER)


@inline
def filled(n: int) -> Any:
    """The least power of two from 8 on that n values fit."""
    size = 8
    while size < n:
        size *= 2
    return size


@inline
def power_below(x: Any, n: int) -> Any:
    """The power of two at or below the peak: divided by it, no square overflows, and that of the peak is there."""
    return float_from_bits(max(peak(x, n) & INFINITE, SMALLEST))


@inline
def tree_sum(x: Any, size: int) -> Any:
    """The sum of so many numbers, a power of two, in `x`, which is overwritten: halves are added until one is left.

    Zeros that fill up do not change the result.
    """
    while size > 1:
        size //= 2
        for i in range(size):
            x[i] += x[i + size]
    return x[0]


@inline
def norm(x: Any, n: int, work: Any) -> Any:
    """The Euclidean norm of n values; `work` is overwritten."""
    size, unit = filled(n), power_below(x, n)
    for i in range(n, size):
        work[i] = np.float32(0)
    for i in range(n):
        work[i] = (x[i] / unit) * (x[i] / unit)
    return np.sqrt(tree_sum(work, size)) * unit


@inline
def scale_up(x: Any, most: Any) -> Any:
    """A scale, not negative, as 16 bits: a float32 of 9 significant bits, rounded up but not above `most`.

    The sign of a float32 is left out, so that one bit more than bfloat16's is in the same room. Products with whole
    numbers up to 128 are exact.
    """
    return min((bits_of_float(x) + np.uint32(0x7FFF)) >> np.uint32(15), bits_of_float(most) >> np.uint32(15))


@inline
def scale_near(x: Any, most: Any) -> Any:
    """A scale of as many bits, rounded to nearest but not above `most`.

    Rounded up, the largest value of a block would grow a little every time that it is encoded.
    """
    return min((bits_of_float(x) + np.uint32(0x4000)) >> np.uint32(15), bits_of_float(most) >> np.uint32(15))


@inline
def scale(bits: Any) -> Any:
    """The scale of these 16 bits; NaN for a block that holds what is no finite number."""
    return float_from_bits(np.uint32(bits) << np.uint32(15))

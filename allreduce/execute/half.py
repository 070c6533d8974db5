"""float16 and bfloat16 as bits: conversions to and from float32, rounded to nearest even."""

from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_features
from numba import njit

from .machine import bits_of_float, float_from_bits

__all__ = ["HAS_F16C", "float_to_bfloat16", "float_to_half_by_bits", "half_to_float_by_bits"]

#: On other processors LLVM would call library functions that are not there.
HAS_F16C = bool(get_host_cpu_features().get("f16c") or get_host_cpu_features().get("fp16"))


@njit(inline="always")
def half_to_float_by_bits(h: Any) -> Any:
    """Move exponent and mantissa into place and let one multiplication fix the bias, subnormal numbers included."""
    bits = np.uint32(h)
    magnitude = bits & np.uint32(0x7FFF)
    finite = bits_of_float(float_from_bits(magnitude << np.uint32(13)) * np.float32(2.0**112))
    infinite = np.uint32(0x7F800000) if magnitude >= np.uint32(0x7C00) else np.uint32(0)
    return float_from_bits(finite | infinite | (bits & np.uint32(0x8000)) << np.uint32(16))


@njit(inline="always")
def float_to_half_by_bits(x: Any) -> Any:
    """Round to nearest even by adding in a place where the last bit of the sum is the last bit of the half."""
    bits = bits_of_float(x)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    bits &= np.uint32(0x7FFFFFFF)
    small = bits_of_float(float_from_bits(bits) + np.float32(0.5)) - np.uint32(0x3F000000)
    normal = (bits + np.uint32(0xC8000FFF) + ((bits >> np.uint32(13)) & np.uint32(1))) >> np.uint32(13)
    finite = small if bits < np.uint32(0x38800000) else normal
    big = np.uint32(0x7E00) if bits > np.uint32(0x7F800000) else np.uint32(0x7C00)
    return np.uint16(sign | (big if bits >= np.uint32(0x477FF000) else finite))


@njit(inline="always")
def float_to_bfloat16(x: Any) -> Any:
    """Round to nearest even."""
    bits = bits_of_float(x)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(rounded if x == x else np.uint32(0x7FC0))

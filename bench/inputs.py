"""Inputs whose right answer is known exactly, and real values with a bound."""

from typing import NamedTuple

import ml_dtypes
import numpy as np

from compress import Codec

__all__ = ["Case", "exact", "lossy", "real"]

#: Long and prime, so that no block or segment of a buffer looks like another.
PERIOD = 1021

REFERENCE = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


class Case(NamedTuple):
    """One rank's input, and what must come out: within `bound` of `expected`, element by element."""

    send: np.ndarray
    expected: np.ndarray
    bound: np.ndarray | None

    def wrong(self, result: np.ndarray) -> int:
        """How many elements are not as they must be."""
        if self.bound is None:
            return int(np.count_nonzero(result != self.expected))
        distance = np.abs(result.astype(self.expected.dtype) - self.expected)
        return int(np.count_nonzero(~(distance <= self.bound)))


def exact(dtype: np.dtype, op: str, count: int, rank: int, size: int, variant: int) -> Case:
    """Small whole numbers, different on every rank, whose reduction the dtype holds exactly.

    Double counting, a lost contribution or a stale block of another variant changes every element it touches.
    """
    patterns = [_pattern(dtype, op, r, size, variant) for r in range(size)]
    wide = patterns[0].astype(_wide(dtype))
    for pattern in patterns[1:]:
        wide = REFERENCE[op](wide, pattern.astype(wide.dtype))
    if op == "avg":
        wide = wide // size if dtype.kind in "iu" else wide / size
    return Case(np.resize(patterns[rank], count), np.resize(wide.astype(dtype), count), None)


def _pattern(dtype: np.dtype, op: str, rank: int, size: int, variant: int) -> np.ndarray:
    i = np.arange(PERIOD)
    if op == "prod":
        return np.where((i + rank + variant) % 3, 1, -1 if dtype.kind not in "bu" else 1).astype(dtype)
    digits = {"float16": 11, "bfloat16": 8}.get(dtype.name, 20)
    values = max(2, min(31, (1 << digits) // size))
    return ((i * 7 + rank * 13 + variant * 5 + i * rank) % values).astype(dtype)


def _wide(dtype: np.dtype) -> np.dtype:
    return dtype if dtype.kind in "iubc" or dtype == np.longdouble else np.dtype(np.float64)


def real(values: np.ndarray, dtype: np.dtype, op: str, count: int, rank: int, size: int, variant: int) -> Case:
    """Real values, turned by a different amount on every rank; the bound is that of any order of summation."""
    if op not in ("sum", "avg"):
        raise ValueError(f"--data is for op sum and avg, not {op!r}")
    turned = [np.resize(np.roll(values, 97 * r + variant), count).astype(dtype) for r in range(size)]
    wide = np.longdouble if dtype == np.float64 else np.float64
    total, magnitude = np.zeros(count, wide), np.zeros(count, wide)
    for each in turned:
        total += each.astype(wide)
        magnitude += np.abs(each.astype(wide))
    eps = ml_dtypes.finfo(dtype).eps
    part = size if op == "avg" else 1
    return Case(turned[rank], total / part, size * float(eps) * magnitude / part)


def lossy(case: Case, codec: Codec, dtype: np.dtype, size: int) -> Case:
    """The same sum by way of a codec: its bound is what 2 * size - 1 encodings may lose, as many as any schedule makes.

    Each is of a partial sum, no larger than the sum of magnitudes. Codecs that drop values, or have one bit for them,
    may lose as much again.
    """
    eps = float(ml_dtypes.finfo(dtype).eps)
    wanted = case.expected.astype(np.float64)
    total = np.abs(wanted) if case.bound is None else case.bound.astype(np.float64) / (size * eps)
    error = size * eps * total
    for _ in range(2 * size - 1):
        largest = total + error
        error = error + codec.bound(largest.astype(dtype)) + (0 if codec.chunkable and codec.bits > 2 else largest)
    return Case(case.send, wanted, error)

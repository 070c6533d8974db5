"""Sixteen bits a value: float16 and bfloat16."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from allreduce.execute.elements import CODES, narrow, widen

from . import doors
from .arrays import saturated
from .blocks import Blockwise
from .memory import at16

__all__ = ["Cast"]


@dataclass(frozen=True)
class Cast(Blockwise):
    """The nearest value of a narrower dtype, ties to even.

    A finite value that is too large becomes the largest one, not infinity; infinity and NaN stay what they are.
    Sums are made in the dtype of the values, so that only what travels is narrow.

    Message: 2 bytes a value.

    Parameters
    ----------
    to : {"float16", "bfloat16"}

    >>> x = np.array([1 / 3, 1e5, -np.inf], np.float32)
    >>> Cast("float16").decode(Cast("float16").encode(x), np.empty(3, np.float32))
    array([3.3325195e-01, 6.5504000e+04,          -inf], dtype=float32)
    """

    to: str = "float16"

    def __post_init__(self) -> None:
        doors.choice(self, "to", "float16", "bfloat16")

    @property
    def idempotent(self) -> bool:
        return True

    @property
    def strip(self) -> int:
        return 512

    @property
    def params(self) -> tuple[int, ...]:
        return (CODES.index(np.dtype(self.to)),)

    def record(self, n: int) -> int:
        return 2 * n

    def errors(self, x: np.ndarray) -> np.ndarray:
        info = ml_dtypes.finfo(self.to)
        nearest = np.maximum(x * float(info.eps) / 2, float(info.smallest_subnormal) / 2)
        return np.maximum(nearest, x - float(info.max))


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    y = at16(out, n)
    for i in range(n):
        y[i] = narrow(params[0], saturated(params[0], x[i]))


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    y = at16(message, n)
    for i in range(n):
        values[i] = widen(params[0], y[i])

"""Parts of error bounds."""

from collections.abc import Callable

import numpy as np

__all__ = ["per_block", "through"]

#: What a value is off when it goes through the dtype and float32, relative to it and absolute.
ROUNDING = {
    "float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134),
    "float32": (0, 0), "float64": (2.0**-24, 2.0**-150),
}  # fmt: skip


def through(dtype: np.dtype, size: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The bound for a dtype, from magnitudes and from the bound for float32, in float64."""
    relative, absolute = ROUNDING[dtype.name]
    return errors + relative * (size + errors) + absolute


def per_block(x: np.ndarray, block: int, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """What `reduce(..., axis=1)` makes of each block, for each of its elements."""
    full = x.size // block * block
    parts = [x.reshape(-1)[:full].reshape(-1, block), x.reshape(1, -1)[:, full:]]
    sizes = [np.repeat(reduce(part, axis=1), part.shape[1]) for part in parts if part.size]
    return np.concatenate([np.empty(0), *sizes]).reshape(x.shape)

"""What lossless codecs share whose messages are as long as the values make them."""

import numpy as np

from .codec import Codec

__all__ = ["Exact"]


class Exact(Codec):
    """A lossless codec of variable length: at most all values, after a byte that says how they are written."""

    lossless = True
    chunkable = False
    exact_size = False

    @property
    def idempotent(self) -> bool:
        return True

    def nbytes(self, n: int) -> int:
        return 1 + 8 * n if n else 0

    def bound(self, x: np.ndarray) -> np.ndarray:
        return np.zeros(x.shape)

"""Codecs of blocks: one record of fixed size per block of values."""

from typing import Any

import numpy as np

from .codec import Codec
from .context import Kernels
from .kernels_host import block_kernels

__all__ = ["Blockwise"]


class Blockwise(Codec):
    """A codec whose message is a record per block.

    Attributes
    ----------
    strip : int
        Elements given to `encode_block` at a time.
    seed : int
        Of the random numbers.
    correlated : bool
        These differ from rank to rank by how their bits are turned.
    """

    seed: int = 0

    @property
    def correlated(self) -> bool:
        return False

    @property
    def strip(self) -> int:
        return self.block

    @property
    def params(self) -> tuple[int, ...]:
        """What `encode_block` and `decode_block` are told about the codec."""
        return ()

    def record(self, n: int) -> int:
        """Bytes of the record of n elements, 0 < n <= block."""
        raise NotImplementedError

    def nbytes(self, n: int) -> int:
        full, rest = divmod(n, self.strip)
        return full * self.record(self.strip) + (self.record(rest) if rest else 0)

    def kernels(self, dtype: Any) -> Kernels:
        return block_kernels(
            type(self).__module__,
            (*self.params, int(self.correlated)),
            self.seed,
            self.strip,
            self.record(self.strip),
            np.dtype(dtype),
        )

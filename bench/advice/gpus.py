"""GPUs, from their data sheets: dense half-precision matrix FLOP/s without sparsity, memory, and its bandwidth."""

from math import log, sqrt
from typing import NamedTuple

__all__ = ["GPUS", "PRODUCT", "Gpu", "slowest"]


class Gpu(NamedTuple):
    """One accelerator.

    Attributes
    ----------
    flops : float
        Peak FLOP/s of matrix products, 16-bit in, 32-bit sums.
    memory : float
        Bytes.
    bandwidth : float
        Of the memory, bytes/s.
    processors : int
        Multiprocessors, each of which computes one tile of a product at a time.
    source : str
        The vendor's data sheet.
    fused : bool
        Whether training on it has had attention in one kernel from the start.
    """

    flops: float
    memory: float
    bandwidth: float
    processors: int
    source: str
    fused: bool = False

    def matmul(self, m: float, n: float, k: float) -> float:
        """Seconds of an (m, k) by (k, n) product: as long as arithmetic or memory takes, whichever is more.

        Of arithmetic, what shrinks with the matrices is lost twice: the last wave of tiles fills half of the
        processors on average, and the first slices of k are loaded before anything is multiplied.
        """
        waves = -(-m // TILE) * -(-n // TILE) / self.processors
        full = waves / (waves + 0.5) * k / (k + TILE)
        return max(2 * m * n * k / (self.flops * PRODUCT * full), self.move(2 * (m * n + n * k + m * k)))

    def move(self, nbytes: float) -> float:
        """Seconds to read or write so many bytes of the memory."""
        return nbytes / (self.bandwidth * MOVE)


#: What large products reach of the peak, because clocks sink under load, and long copies of the bandwidth.
PRODUCT, MOVE = 0.77, 0.8
#: Deviation of the speed of GPUs of one kind. See: Sinha et al., arXiv 2208.11035, 8% from slow to fast, 22% at most.
SPREAD = 0.025
#: Rows and columns of the part of a product that a multiprocessor computes at a time, and the depth of its pipeline.
TILE = 128
GIB = 2.0**30


def slowest(gpus: int) -> float:
    """How much longer than one the slowest of so many takes, for whom all the others wait.

    >>> slowest(1), round(slowest(1000), 3)
    (1.0, 1.093)
    """
    return 1 + SPREAD * sqrt(2 * log(gpus))


GPUS = {
    "v100-16g": Gpu(125e12, 16 * GIB, 900e9, 80, "NVIDIA V100 data sheet, SXM2"),
    "v100-32g": Gpu(125e12, 32 * GIB, 900e9, 80, "NVIDIA V100 data sheet, SXM2"),
    "a100-40g": Gpu(312e12, 40 * GIB, 1555e9, 108, "NVIDIA A100 data sheet, SXM4 40 GB"),
    "a100-80g": Gpu(312e12, 80 * GIB, 2039e9, 108, "NVIDIA A100 data sheet, SXM4 80 GB"),
    "h100-80g": Gpu(989e12, 80 * GIB, 3350e9, 132, "NVIDIA H100 data sheet, SXM5", fused=True),
    "h200-141g": Gpu(989e12, 141e9, 4800e9, 132, "NVIDIA H200 data sheet, SXM", fused=True),
    "h800-80g": Gpu(989e12, 80 * GIB, 3350e9, 132, "NVIDIA H800 data sheet, SXM5", fused=True),
    "a800-80g": Gpu(312e12, 80 * GIB, 2039e9, 108, "NVIDIA A800 data sheet, SXM4"),
    "mi250x-gcd": Gpu(191.5e12, 64 * GIB, 1638e9, 110, "AMD Instinct MI250X data sheet, one of two dies"),
}

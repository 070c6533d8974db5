"""Whole numbers on a grid that all ranks share, so that sums of codes are codes of sums."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .codec import START
from .context import Context
from .method import AllReduce, Method
from .noise import apart, noise, noise_key
from .values import nearest, peak
from .vectors import together

__all__ = ["THC", "holding"]


@dataclass
class THC(Method):
    """Quantise once, to multiples of a step agreed per block; add whole numbers; multiply once.

    First the largest magnitudes of the blocks are maximised over the ranks. The sum of codes is exact: independent of
    order, algorithm and timing, whatever the number of hops, and unbiased, off by less than one step per rank. Whole
    numbers travel as int8, int16 or int32, whichever the largest possible sum fits. A block in which any rank holds
    NaN or infinity is NaN on all; one whose step is below 2**-126 is zero.

    Parameters
    ----------
    width : int
        Bits of a code, 2..8: up to L = 2**(width-1) - 1 steps to either side.
    block : int
        Elements that share a step, a power of two.
    rounding : {"stochastic", "correlated"}
        Correlated, the sum of alike values is off by less than one step in all, see `rounding.Rounding`.
    seed : int
        Of the stochastic rounding.

    See: Li et al., THC: accelerating distributed deep learning using tensor homomorphic compression, NSDI 2024.

    >>> alone = lambda x, op="sum", codec=None: x
    >>> THC(width=8).reduce(np.array([1, -0.5, 0.25, 0], np.float32), alone, "weight")
    array([ 1.       , -0.503937 ,  0.2519685,  0.       ], dtype=float32)
    """

    width: int = 4
    block: int = 256
    rounding: str = "stochastic"
    seed: int = 0

    def __post_init__(self) -> None:
        doors.whole(self, "width", 2, 8)
        doors.power_of_two(self, "block")
        doors.choice(self, "rounding", "stochastic", "correlated")
        doors.whole(self, "seed")

    @property
    def levels(self) -> int:
        """The most steps to either side."""
        return 2 ** (self.width - 1) - 1

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        return self.reduce_together({key: x}, allreduce, at)[key]

    def reduce_together(
        self, tensors: dict[str, np.ndarray], allreduce: AllReduce, at: Context = START
    ) -> dict[str, np.ndarray]:
        """In two all-reduces: of all largest magnitudes, and of all codes."""
        with np.errstate(over="ignore"):
            values = {k: doors.values(x).reshape(-1).astype(np.float32, copy=False) for k, x in tensors.items()}
            largest = together({k: self.largest(x) for k, x in values.items()}, partial(allreduce, op="max"))
            steps = {k: self.steps(peaks) for k, peaks in largest.items()}
            codes = together({k: self.codes(x, steps[k], at) for k, x in values.items()}, allreduce)
            sums = {k: self.scaled(codes[k], steps[k]) for k in tensors}
            return {k: sums[k].reshape(x.shape).astype(x.dtype, copy=False) for k, x in tensors.items()}

    def largest(self, x: np.ndarray) -> np.ndarray:
        """Magnitudes, per block; NaN where one is not finite."""
        peaks = np.empty(-(-x.size // self.block), np.float32)
        _largest(x, self.block, peaks.view(np.uint32))
        return np.where(np.isfinite(peaks), peaks, np.float32(np.nan))

    def steps(self, peaks: np.ndarray) -> np.ndarray:
        """From one code to the next, per block."""
        steps = peaks / np.float32(self.levels)
        steps[steps < np.float32(2.0**-126)] = 0
        return steps

    def codes(self, x: np.ndarray, steps: np.ndarray, at: Context) -> np.ndarray:
        """Of this rank's values."""
        codes, correlated = np.zeros(x.size, holding(self.levels * at.size)), int(self.rounding == "correlated")
        _quantise(x, steps, self.block, self.levels, self.seed, correlated, at.stream, at.offset, codes)
        return codes

    def scaled(self, codes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """What codes stand for."""
        values = np.empty(codes.size, np.float32)
        _scale(codes, steps, self.block, values)
        return values


def holding(most: int) -> np.dtype:
    """The narrowest integers up to this."""
    return next(np.dtype(t) for t in (np.int8, np.int16, np.int32) if most <= np.iinfo(t).max)


@keep
@njit(nogil=True, error_model="numpy")
def _largest(x, block, peaks):
    """The largest magnitude of each block, as bits."""
    for k in range(peaks.size):
        part = x[k * block : (k + 1) * block]
        peaks[k] = peak(part, part.size)


@keep
@njit(nogil=True, error_model="numpy")
def _scale(total, steps, block, out):
    """What sums of codes stand for."""
    for k in range(steps.size):
        sums, part = total[k * block : (k + 1) * block], out[k * block : (k + 1) * block]
        for i in range(part.size):
            part[i] = np.float32(sums[i]) * steps[k]


@keep
@njit(nogil=True, error_model="numpy")
def _quantise(x, steps, block, levels, seed, correlated, stream, offset, codes):
    """Round x over the steps of its blocks stochastically; leave zeros where a step is none."""
    stream, turn = apart(correlated, stream)
    for k in range(steps.size):
        if steps[k] > 0:
            inverse = np.float32(1) / steps[k]
            key = np.uint64(noise_key(seed, stream, offset + k * block)) | turn
            values, part = x[k * block : (k + 1) * block], codes[k * block : (k + 1) * block]
            for i in range(values.size):
                q = np.int32(nearest(values[i] * inverse + noise(key, i)) - nearest(np.float32(0)))
                part[i] = min(max(q, -levels), levels)

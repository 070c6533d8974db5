"""Samples shared out unequally, on purpose. Needs PyTorch."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import torch
from torch.utils.data import Sampler

from .balance import told

__all__ = ["SkewedSampler"]


class SkewedSampler(Sampler[int]):
    """Every sample for one rank, and for some ranks more than for others.

    To see what imbalance costs, for in a synchronous step all wait for the rank with most; or to undo it, where ranks
    are not equally fast. Ranks run out of batches one after the other, as with `DistributedDataParallel.join`. Rank 0
    prints the imbalance.

    Parameters
    ----------
    length : int
        Samples of the data set.
    shares : sequence of float
        What each rank gets, as a multiple of anything.
    rank : int
    seed : int
        The same on all ranks; the samples are shuffled by it and by the epoch.

    Raises
    ------
    ValueError
        Shares that are negative or all zero; no such rank.

    >>> sampler = SkewedSampler(8, [2, 1, 1], rank=0)
    samples: 4 2 2 a rank, the largest 50% above the mean
    >>> len(sampler), len(list(sampler))
    (4, 4)
    """

    def __init__(self, length: int, shares: Sequence[float], rank: int, seed: int = 0) -> None:
        if not (0 <= rank < len(shares) and min(shares) >= 0 and sum(shares) > 0):
            raise ValueError(f"rank {rank} cannot get one of the shares {list(shares)}")
        ends = [round(length * end / sum(shares)) for end in accumulate(shares, initial=0)]
        self.length, self.seed, self.epoch = length, seed, 0
        self.mine = slice(ends[rank], ends[rank + 1])
        if rank == 0:
            print(told("samples", [stop - start for start, stop in pairwise(ends)], "a rank"))

    def set_epoch(self, epoch: int) -> None:
        """Shuffle in another way."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.mine.stop - self.mine.start

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(torch.randperm(self.length, generator=generator)[self.mine].tolist())

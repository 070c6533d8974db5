"""What samples say: order statistics, for times are not normally distributed."""

from collections.abc import Sequence
from functools import cache
from math import comb
from typing import NamedTuple

import numpy as np

__all__ = [
    "CONFIDENCE", "Launches", "Summary", "half_width", "interval", "paired", "quotients", "samples_of", "summarize",
]  # fmt: skip

CONFIDENCE = 0.95
#: Repetitions of each launch of a program, None for one that does not count.
Launches = Sequence[Sequence[float | None]]


class Summary(NamedTuple):
    """Of the repetitions of one row, or of their ratios to another's."""

    median: float
    low: float  # confidence interval of the median
    high: float
    confidence: float  # that it has: less than 0.95 where samples are few

    @property
    def half(self) -> float:
        """Half of the interval, as a part of the median."""
        return (self.high - self.low) / 2 / self.median


@cache
def interval(n: int) -> tuple[int, float]:
    """How many of n ordered samples to leave out at each end, and with what confidence the median lies in the rest.

    The number of samples below the median is binomial, whatever they are distributed like (Hoefler and Belli, SC 2015).

    Examples
    --------
    >>> interval(11)
    (1, 0.98828125)
    >>> interval(5)
    (0, 0.9375)
    """
    outside = tail = 2 * 0.5**n
    left_out = 0
    while left_out < (n - 1) // 2:
        tail += 2 * comb(n, left_out + 1) / 2**n
        if tail > 1 - CONFIDENCE:
            break
        left_out, outside = left_out + 1, tail
    return left_out, 1 - min(outside, 1.0)


def samples_of(launches: Launches) -> np.ndarray:
    """What to judge by, shape (samples,): repetitions, without those that do not count, which are None.

    Launches differ by more than repetitions do: of several, the medians are the samples.
    """
    valid = [values for launch in launches if (values := [x for x in launch if x is not None])]
    return np.array(valid[0] if len(valid) == 1 else [np.median(values) for values in valid])


def summarize(launches: Launches) -> Summary:
    """The median and its confidence interval.

    Parameters
    ----------
    launches : sequence of sequences of float or None
        The repetitions of each launch of the program, see `samples_of`.

    Examples
    --------
    >>> summarize([[1.0, 2.0, None, 3.0]])
    Summary(median=2.0, low=1.0, high=3.0, confidence=0.75)
    """
    samples = np.sort(samples_of(launches))
    if not samples.size:
        return Summary(np.nan, np.nan, np.nan, 0.0)
    left_out, confidence = interval(len(samples))
    return Summary(
        float(np.median(samples)), float(samples[left_out]), float(samples[-1 - left_out]), float(confidence)
    )


def half_width(samples: np.ndarray) -> np.ndarray:
    """Half of the confidence interval over the median, of every column; NaN does not count.

    Parameters
    ----------
    samples : numpy.ndarray
        Shape (samples, columns).
    """
    ordered, counts = np.sort(samples, axis=0), np.count_nonzero(~np.isnan(samples), axis=0)
    widths = np.full(samples.shape[1], np.inf)
    for column, n in enumerate(counts):
        if n:
            left_out, _ = interval(int(n))
            low, high = ordered[left_out, column], ordered[n - 1 - left_out, column]
            widths[column] = (high - low) / 2 / ordered[n // 2, column]
    return widths


def quotients(ours: Launches, base: Launches) -> list[list[float | None]]:
    """The ratios of repetitions that were measured in the same round of the same launch."""
    return [[x / y if x and y else None for x, y in zip(a, b, strict=False)] for a, b in zip(ours, base, strict=False)]


def paired(ours: Launches, base: Launches) -> Summary:
    """Of these ratios."""
    return summarize(quotients(ours, base))

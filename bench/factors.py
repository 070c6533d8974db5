"""By what factor one set of samples is greater than another."""

from functools import cache
from itertools import accumulate
from math import comb

import numpy as np

from .statistics import CONFIDENCE, Summary

__all__ = ["factor", "of_two"]

#: Pairs from which on their number is as good as normally distributed.
MANY = 900


def factor(new: np.ndarray, old: np.ndarray) -> Summary:
    """By what factor some samples are greater than others: the median of all ratios of two, and its interval.

    That of Hodges and Lehmann (1963), from the ranks of both together; it holds if they are distributed alike but for
    the factor. It is less than half as wide as that between the intervals of both.

    Examples
    --------
    >>> factor(np.array([2.0, 2.2, 2.4]), np.array([1.0, 1.1, 1.2]))
    Summary(median=2.0, low=1.6666666666666667, high=2.4, confidence=0.9)
    """
    ratios, (left_out, confidence) = np.divide.outer(new, old).ravel(), of_two(len(new), len(old))
    ends = left_out, ratios.size - 1 - left_out
    ordered = np.partition(ratios, ends)
    low, high = ordered[list(ends)].tolist()
    return Summary(float(np.median(ratios)), low, high, confidence)


@cache
def of_two(n: int, m: int) -> tuple[int, float]:
    """How many of the n times m ordered ratios to leave out at each end, and with what confidence.

    Of so many pairs, by Mann and Whitney (1947), as many as are turned round in an arrangement of n and m things, of
    which none is likelier than another; if these are many, their number is normally distributed.

    Examples
    --------
    >>> of_two(3, 3)
    (0, 0.9)
    >>> of_two(7, 7)[0]
    8
    """
    if n * m > MANY:
        return int(n * m / 2 - 1.96 * np.sqrt(n * m * (n + m + 1) / 12)), CONFIDENCE
    turned = [1] + [0] * (n * m // 2)  # arrangements by pairs turned round: Gauss's binomial coefficient
    for i in range(1, n + 1):
        turned = [x - (turned[k - m - i] if k >= m + i else 0) for k, x in enumerate(turned)]
        for k in range(i, len(turned)):
            turned[k] += turned[k - i]
    outside = [2 * x / comb(n + m, n) for x in accumulate(turned)]
    left_out = max(sum(x <= 1 - CONFIDENCE for x in outside) - 1, 0)
    return left_out, 1 - min(outside[left_out], 1.0)

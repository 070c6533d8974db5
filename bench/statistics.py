"""What samples say: order statistics, for times are not normally distributed."""

from typing import NamedTuple

import numpy as np

__all__ = ["Summary", "fit", "summarize"]


class Summary(NamedTuple):
    """Of the repetitions of one row, in seconds per call; each repetition counts its slowest rank."""

    median: float
    low: float  # 95 % confidence interval of the median
    high: float
    p99: float


def summarize(samples: np.ndarray) -> Summary:
    """Median, its confidence interval by order statistics (Hoefler and Belli, SC 2015), and the 99th percentile."""
    ordered = np.sort(samples)
    n, z = len(ordered), 1.96
    low = max(0, int(np.floor((n - z * np.sqrt(n)) / 2)))
    high = min(n - 1, int(np.ceil(1 + (n + z * np.sqrt(n)) / 2)) - 1)
    values = (np.median(ordered), ordered[low], ordered[high], np.quantile(ordered, 0.99))
    return Summary(*(float(value) for value in values))


def fit(features: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The non-negative factors that explain the times best, by relative squared error.

    Parameters
    ----------
    features : numpy.ndarray
        Shape (samples, factors): how often each factor counts.
    times : numpy.ndarray
        Shape (samples,), in seconds.

    Examples
    --------
    >>> fit(np.array([[1.0, 8], [2, 64], [1, 1024]]), np.array([1.8, 8.4, 103.4]))
    array([1. , 0.1])
    """
    weighted, ones = features / times[:, None], np.ones(len(times))
    best, least = np.zeros(features.shape[1]), np.inf
    for mask in range(1, 1 << features.shape[1]):  # factors that would come out negative are left out
        chosen = [k for k in range(features.shape[1]) if mask >> k & 1]
        factors = np.linalg.lstsq(weighted[:, chosen], ones, rcond=None)[0]
        error = float(np.sum((weighted[:, chosen] @ factors - 1) ** 2))
        if (factors >= 0).all() and error < least:
            best, least = np.zeros(features.shape[1]), error
            best[chosen] = factors
    return np.round(best, 15)

"""Who gets how much: layers to stages, tensors to servers."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

__all__ = ["balance", "imbalance", "shards", "told"]


def balance(costs: Sequence[float], parts: int) -> list[range]:
    """Cut a row of layers into stages so that the longest takes as little as can be.

    Parameters
    ----------
    costs : sequence of float
        Such as seconds, per layer.
    parts : int

    Returns
    -------
    list of range
        The layers of each stage, one at least.

    Raises
    ------
    ValueError
        Fewer layers than parts.

    >>> balance([5, 1, 1, 1, 4, 3], 3)
    [range(0, 2), range(2, 5), range(5, 6)]
    """
    if not 1 <= parts <= len(costs):
        raise ValueError(f"cannot cut {len(costs)} layers into {parts} stages of one layer or more")
    ends = [0, *accumulate(costs)]
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0, (0,))}  # by layers given out: longest stage, and cuts
    for part in range(1, parts + 1):
        best = {
            stop: min(
                (max(longest, ends[stop] - ends[start]), (*cuts, stop))
                for start, (longest, cuts) in best.items()
                if start < stop
            )
            for stop in range(part, len(costs) + 1)
        }
    return [range(start, stop) for start, stop in pairwise(best[len(costs)][1])]


def shards(sizes: Sequence[int], parts: int) -> list[int]:
    """The part of each tensor: the largest first, each to the part that has least.

    The largest part has at most 4/3 of what the best way gives it.

    See: Graham, Bounds on multiprocessing timing anomalies, 1969.

    >>> shards([100, 60, 50, 40], 2)
    [0, 1, 1, 0]
    """
    loads, owners = [0] * parts, [0] * len(sizes)
    for tensor in sorted(range(len(sizes)), key=lambda tensor: -sizes[tensor]):
        owners[tensor] = loads.index(min(loads))
        loads[owners[tensor]] += sizes[tensor]
    return owners


def imbalance(loads: Sequence[float]) -> float:
    """By how much the largest is above the mean: the part of their time that the others wait.

    >>> imbalance([4, 6, 2])
    0.5
    """
    return max(loads) * len(loads) / sum(loads) - 1 if any(loads) else 0.0


def told(what: str, loads: Sequence[float], unit: str) -> str:
    """A line to print.

    >>> print(told("stages", [4, 6, 2], "ms"))
    stages: 4 6 2 ms, the largest 50% above the mean
    """
    each = " ".join(f"{load:.3g}" for load in loads)
    return f"{what}: {each} {unit}, the largest {imbalance(loads):.0%} above the mean"

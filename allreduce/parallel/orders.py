"""Orders of work in a pipeline: what a stage does with which microbatch; pure functions, as algorithms are."""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ORDERS", "Work", "drawn", "gpipe", "one_f_one_b", "play", "waiting"]


class Work(NamedTuple):
    """One microbatch through the layers of a stage: forward, or backward."""

    forward: bool
    microbatch: int


def gpipe(stage: int, stages: int, microbatches: int) -> list[Work]:
    """All forward, then all backward: simple, but a stage holds the activations of all microbatches.

    >>> print(drawn("gpipe", 3, 5))
    0  01234......aabbccddee
    1  .01234...aabbccddee..
    2  ..01234aabbccddee....

    See: Huang et al., GPipe, NeurIPS 2019.
    """
    every = range(microbatches)
    return [Work(True, m) for m in every] + [Work(False, m) for m in every]


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[Work]:
    """Backward as early as it can be: as long as `gpipe`, but stage i of p holds only p - i microbatches.

    >>> print(drawn("1f1b", 3, 5))
    0  012....aa3bb4cc.dd.ee
    1  .01..aa2bb3cc4dd.ee..
    2  ..0aa1bb2cc3dd4ee....

    See: Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021.
    """
    ahead = min(stages - stage, microbatches)
    order = [Work(True, m) for m in range(ahead)]
    for m in range(microbatches):
        order.append(Work(False, m))
        if m + ahead < microbatches:
            order.append(Work(True, m + ahead))
    return order


ORDERS: dict[str, Callable[[int, int, int], list[Work]]] = {"gpipe": gpipe, "1f1b": one_f_one_b}


def play(name: str, stages: int, microbatches: int, forward: int = 1, backward: int = 2) -> list[dict[Work, int]]:
    """When every stage begins what, if messages take no time.

    Parameters
    ----------
    forward, backward : int
        How long a microbatch takes in a stage.

    Returns
    -------
    list of dict of Work to int
        By stage.

    Raises
    ------
    ValueError
        An unknown order, or one in which stages wait for each other.
    """
    if name not in ORDERS:
        raise ValueError(f"unknown order {name!r}; have {', '.join(ORDERS)}")
    orders = [ORDERS[name](stage, stages, microbatches) for stage in range(stages)]
    began: list[dict[Work, int]] = [{} for _ in orders]
    free = [0] * stages
    while left := sum(map(len, orders)) - sum(map(len, began)):
        for stage, order in enumerate(orders):
            for work in order[len(began[stage]) :]:
                needs = _needs(stage, stages, work)
                if any(need not in began[where] for where, need in needs):
                    break
                ends = [began[where][need] + (forward if need.forward else backward) for where, need in needs]
                began[stage][work] = max(free[stage], *ends, 0)
                free[stage] = began[stage][work] + (forward if work.forward else backward)
        if left == sum(map(len, orders)) - sum(map(len, began)):
            raise ValueError(f"{name} comes to a halt with {left} passes to go")
    return began


def _needs(stage: int, stages: int, work: Work) -> list[tuple[int, Work]]:
    """What must be over before: the same pass in the stage before, and the way there before the way back."""
    before = stage - 1 if work.forward else stage + 1
    own = [] if work.forward else [(stage, Work(True, work.microbatch))]
    return [*own, *[(before, work)] * (0 <= before < stages)]


def waiting(name: str, stages: int, microbatches: int) -> float:
    """What share of its work a stage spends waiting, backward taking twice as long as forward.

    >>> waiting("gpipe", 4, 8), waiting("1f1b", 4, 8)
    (0.375, 0.375)
    """
    busy = microbatches * 3
    return max(start + 2 for start in play(name, stages, microbatches)[0].values()) / busy - 1


def drawn(name: str, stages: int, microbatches: int) -> str:
    """A row per stage, a column per unit of time: digits are forward passes, letters the backward ones that match."""
    rows = []
    for began in play(name, stages, microbatches):
        row = ""
        for (forward, m), start in began.items():
            row = row.ljust(start, ".") + (str(m % 10) if forward else 2 * chr(ord("a") + m % 26))
        rows.append(row)
    width = max(map(len, rows))
    return "\n".join(f"{stage}  {row.ljust(width, '.')}" for stage, row in enumerate(rows))

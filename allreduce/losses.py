"""What a codec loses in a collective, from what it loses in one encoding: played on the schedules of all ranks."""

from functools import lru_cache

import numpy as np

from .algorithms import halves
from .schedules import Recv, Send

__all__ = ["loss_of"]

#: Ranks that are played at most: beyond, the order of the algorithms stays as it is, and a ring takes seconds.
PLAYED = 64


@lru_cache(maxsize=4096)
def loss_of(name: str, size: int, once: float, collective: str = "allreduce") -> float:
    """The squared error of a sum over the squares of that sum, if one encoding loses a share `once` of the squares.

    Ranks have independent values of one size, so a partial sum of j of them has j times the squares of one, and so much
    more is lost when it is encoded again. Small losses add up to `once` times the number of encodings that a rank's
    values go through on their way to the result, in the mean over ranks. Large ones, as of unbiased sparse codes, also
    multiply: what was lost before is encoded as well.

    >>> [round(loss_of(name, 8, 1e-6) * 1e6, 3) for name in ("one_shot", "direct", "rabenseifner", "ring")]
    [1.0, 1.875, 2.5, 4.5]
    >>> [round(loss_of(name, 8, 9.0)) for name in ("one_shot", "direct", "rabenseifner", "ring")]
    [9, 88, 1663, 13888888]
    """
    size = min(size, PLAYED)
    both = [halves(name, rank, size, collective) for rank in range(size)]
    held = np.zeros((2, size, both[0][0].blocks))  # squares of the values, and of what was lost of them
    held[0] = 1
    for step in zip(*(half.steps for half, _ in both)):
        sent, held = coded(held, once), held.copy()
        messages = [(rank, m) for rank, posted in enumerate(step) for m in posted]
        for rank, m in messages:
            if isinstance(m, Send):  # who sends and adds, adds what the others decode
                held[:, rank, m.blocks] = sent[:, rank, m.blocks]
        for rank, m in messages:
            if isinstance(m, Recv):
                held[:, rank, m.blocks] += sent[:, m.peer, m.blocks]
    if both[0][1].steps:
        held = coded(held, once)
    squares, errors = held
    return float(np.where(squares == size, errors, 0).max(axis=0).mean()) / size


def coded(held: np.ndarray, once: float) -> np.ndarray:
    """What is held, decoded from its code."""
    return np.stack([held[0], held[1] + once * held.sum(axis=0)])

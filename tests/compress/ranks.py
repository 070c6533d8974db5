"""Several ranks in one process: threads, and an all-reduce that adds in rank order."""

import threading
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from compress import Codec, Context


def run(size: int, work: Callable[[int, Any], Any]) -> list[Any]:
    """What work(rank, allreduce) returns on each rank."""
    barrier, held, results = threading.Barrier(size), [None] * size, [None] * size
    errors: list[Exception] = []
    ops = {"sum": np.add, "max": np.maximum}

    def rank_of(rank: int) -> None:
        def allreduce(x: np.ndarray, op: str = "sum", codec: Codec | None = None) -> np.ndarray:
            if codec is not None:
                x = codec.decode(codec.encode(x, at=Context(step=77)), np.empty_like(x))
            held[rank] = x.copy()
            barrier.wait()
            total = reduce(ops[op], held)
            barrier.wait()
            return total

        try:
            results[rank] = work(rank, allreduce)
        except Exception as error:
            barrier.abort()
            errors.append(error)

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for error in errors:
        raise error
    return results

"""What a sweep has measured: a row per cell, with all repetitions."""

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .statistics import Summary, summarize

__all__ = ["BARE", "BASELINES", "COMPOSED", "IDENTITY", "NATIVE", "Row", "family", "key", "ours"]

#: What MPI's own all-reduce should not be slower than: two other collectives of the same library.
COMPOSED = ("reduce+bcast", "reduce_scatter+allgather")
#: MPI's own; with one of its algorithms it is called native:ring.
NATIVE = "native"
#: The same in a compiled loop: without what it costs to call from Python.
BARE = "native:bare"
#: What ours are held against.
BASELINES = (NATIVE, "gloo", "nccl", "copy", *COMPOSED)
#: What a cell is. Rows that agree in all of it are launches of one measurement.
IDENTITY = (
    "mpi", "ranks", "nodes", "dtype", "op", "accumulate", "nbytes", "count", "algorithm", "codec", "place", "call",
    "buffers", "cache", "start", "across",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One algorithm at one size; times in seconds, bandwidths in GB/s (10^9 bytes).

    An algorithm on a device by a route that was asked for is called `ring@staged`; `buffers` is then "cuda".
    `batch` calls back to back make a repetition. `samples` holds a list per launch of the program, with None where a
    rank started late; `slowest` likewise the rank that took longest. `wire` is the bytes of the whole vector as it
    travels, `error` the squared error of the sum over its squares, `marks` what makes the times doubtful. `work` is the
    seconds computed while a call was under way, and `overlap` which part of that call they hid.
    """

    mpi: str
    ranks: int
    nodes: int
    dtype: str
    op: str
    accumulate: str | None
    nbytes: int
    count: int
    algorithm: str
    codec: str | None
    place: str
    call: str
    buffers: str
    cache: str
    start: str
    across: str
    batch: int
    marks: list[str]
    predicted: float | None
    wire: int
    error: float | None
    wrong: int
    complete: bool
    ratio: float | None = None
    work: float = 0.0
    overlap: float | None = None
    samples: list[list[float | None]] = field(repr=False, default_factory=list)
    slowest: list[list[int]] = field(repr=False, default_factory=list)

    @cached_property
    def time(self) -> Summary:
        """Of a call; over launches, where there are several."""
        return summarize(self.samples)

    @cached_property
    def valid(self) -> np.ndarray:
        """The repetitions of all launches that count, shape (repetitions,)."""
        return np.array([x for launch in self.samples for x in launch if x is not None])

    @property
    def late(self) -> int:
        """Repetitions thrown away, because a rank started late."""
        return sum(x is None for launch in self.samples for x in launch)

    @property
    def algbw(self) -> float:
        """Bytes over time."""
        return self.nbytes / self.time.median / 1e9

    @property
    def busbw(self) -> float:
        """The same times 2(p-1)/p, what every rank must send (nccl-tests' convention)."""
        return self.algbw * 2 * (self.ranks - 1) / self.ranks

    def record(self) -> dict[str, Any]:
        """All fields, and what follows from them for those who read the file with other tools."""
        found: dict[str, Any] = {}
        if self.valid.size:
            found = {**self.time._asdict(), "p99": float(np.quantile(self.valid, 0.99)), "late": self.late}
            found |= {"mean": float(self.valid.mean()), "algbw": self.algbw, "busbw": self.busbw}
        known = asdict(self)
        bulk = {name: known.pop(name) for name in ("samples", "slowest")}
        return {"record": "row", **known, **found, **bulk}


def key(row: Row) -> tuple[Any, ...]:
    """What makes rows comparable."""
    return tuple(getattr(row, name) for name in IDENTITY)


def family(algorithm: str) -> str:
    """The name without parameters, and without the route.

    >>> family("torus:grid=2x4@staged")
    'torus'
    """
    return algorithm.partition("@")[0].partition(":")[0]


def ours(algorithm: str) -> bool:
    """Whether it is no baseline."""
    return family(algorithm) not in BASELINES

"""What to measure: the arguments of the command line."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from math import inf
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

import allreduce
from allreduce.algorithms import parse
from allreduce.buffers import as_codec, as_type
from allreduce.execute.reductions import check

from .records import BASELINES, COMPOSED, NATIVE, family
from .stored import stored

__all__ = ["OTHERS", "Group", "Sweep"]

#: Rows that are no schedule: other people's, the engine's choice, and shared memory.
OTHERS = (*BASELINES, "auto", "node")
#: What cannot be had on a device.
OF_HOSTS = ("node", "gloo", *COMPOSED)


class Group(NamedTuple):
    """What is measured interleaved."""

    dtype: np.dtype
    op: str
    nbytes: int

    @property
    def elements(self) -> int:
        """How many; at least one."""
        return max(1, self.nbytes // self.dtype.itemsize)


@dataclass(frozen=True)
class Sweep:
    """What to measure, and how; see `python -m bench sweep --help`."""

    algorithms: list[str]
    min: int = 4
    max: int = 1 << 26
    factor: int = 4
    sizes: list[int] | None = None
    dtype: list[str] = field(default_factory=lambda: ["float32"])
    op: list[str] = field(default_factory=lambda: ["sum"])
    accumulate: str | None = None
    ranks: list[int] | None = None
    codec: list[str] = field(default_factory=list)
    data: str | None = None
    device: str = "host"
    route: list[str] = field(default_factory=lambda: ["auto"])
    transport: str | None = None
    buffers: str = "private"
    place: list[str] = field(default_factory=lambda: ["out"])
    call: list[str] = field(default_factory=lambda: ["blocking"])
    rewrite: bool = False
    cold: bool = False
    start: str = "barrier"
    across: str = "max"
    batch: int = 200
    batched: int = 1 << 10
    warm_up: int = 0
    seconds: float = 0.2
    precision: float = 0.02
    seed: int = 0
    json: str | None = None
    resume: bool = False
    style: str = "table"

    def lengths(self) -> list[int]:
        """Message sizes in bytes."""
        if self.sizes:
            if (self.min, self.max, self.factor) != (Sweep.min, Sweep.max, Sweep.factor):
                raise ValueError("--sizes are all sizes: leave out --min, --max and --factor, also in a plan")
            return list(dict.fromkeys(self.sizes))
        if self.factor < 2 or self.min > self.max:
            raise ValueError(f"expected min <= max, factor >= 2, not {self.min}, {self.max}, {self.factor}")
        sizes = [self.min]
        while sizes[-1] * self.factor <= self.max:
            sizes.append(sizes[-1] * self.factor)
        return sizes

    def teams(self, world: int) -> list[int]:
        """Numbers of ranks, checked; ValueError on all ranks, for some of them would have nothing to object."""
        sizes = sorted({*(self.ranks or [world])})
        if not all(0 < p <= world for p in sizes):
            raise ValueError(f"expected --ranks from 1 to {world}, not {self.ranks}")
        names = {name for p in sizes for name in self.names(p, sizes)}
        if "gloo" in names and sizes != [world]:
            raise ValueError("algorithm 'gloo' is for all ranks: leave out --ranks")
        if "gloo" in names:
            _check_gloo(self.op, [dtype.name for dtype in self.dtypes()])
        return sizes

    def words(self) -> list[str]:
        """What is asked for: names of algorithms, and of sets of them."""
        return [w for word in self.algorithms for w in ([word] if ":" in word else word.split(","))]

    def foresee(self, world: int) -> None:
        """Refuse what so many ranks would; what only their machine knows, MPI's own and PyTorch, is left to them."""
        away = (NATIVE, "natives", "gloo", "torch")
        replace(self, algorithms=[word for word in self.words() if family(word) not in away]).teams(world)
        self.groups()

    def names(self, size: int, sizes: Sequence[int] = ()) -> list[str]:
        """Our algorithms that can do with this number of ranks, each once.

        Raises ValueError for what can do with none of `sizes`, the numbers of ranks in this sweep.
        """
        sets = {
            "all": lambda: [*allreduce.algorithms(), "auto"],
            "guidelines": lambda: COMPOSED,
            "natives": _natives,
            "torch": _torch,
        }
        names = [name for word in self.words() for name in sets.get(word, lambda word=word: [word])()]
        elsewhere, other = (OF_HOSTS, "host") if self.device == "cuda" else (("nccl",), "cuda")
        for name in names:
            if family(name) in elsewhere:
                raise ValueError(f"algorithm {name!r} is for --device {other}")
        return [n for n in dict.fromkeys(names) if n != NATIVE and _fits(n, size, sizes)]

    def dtypes(self) -> list[np.dtype]:
        """Those of NumPy and those of ml_dtypes."""
        return [np.dtype(getattr(ml_dtypes, name, name)) for name in self.dtype]

    def groups(self) -> list[Group]:
        """All that is measured, checked."""
        for dtype, op in product(self.dtypes(), self.op):
            check(dtype, op)
            as_type(self.accumulate, dtype, op)
            for text in self.codec:
                if op != "sum":
                    raise ValueError(f"--codec is for op sum, not {op!r}")
                as_codec(text, dtype, op)
        if not (0 < self.seconds < inf and 0 <= self.precision < inf and self.batch >= 1):
            given = f"{self.seconds}, {self.precision}, {self.batch}"
            raise ValueError(f"expected seconds > 0, precision >= 0, batch >= 1, not {given}")
        if self.device == "host" and self.route != ["auto"]:
            raise ValueError("--route is for --device cuda")
        if self.device == "cuda" and self.buffers != "private":
            raise ValueError(f"--buffers {self.buffers} is for --device host")
        if self.resume and not self.json:
            raise ValueError("--resume goes on with a file: name it by --json")
        groups = [Group(*each) for each in product(self.dtypes(), self.op, self.lengths())]
        return list({(g.dtype, g.op, g.elements): g for g in groups}.values())

    def values(self) -> np.ndarray | None:
        """The values of --data, shape (n,)."""
        if not self.data:
            return None
        return stored(Path(self.data)).reshape(-1)

    @property
    def memory(self) -> str:
        """Where arrays lie: private and shared are on the host."""
        return "cuda" if self.device == "cuda" else self.buffers

    @property
    def cache(self) -> str:
        """What caches hold when a repetition starts."""
        return "cold" if self.cold else "rewritten" if self.rewrite else "warm"


def _check_gloo(ops: list[str], dtypes: list[str]) -> None:
    try:
        from .gloo import OPS, TYPES
    except ModuleNotFoundError as error:
        raise ValueError(f"algorithm 'gloo' needs {error.name}: pip install torch") from None
    if not OPS.keys() >= {*ops}:
        raise ValueError(f"gloo has {', '.join(OPS)}, not all of {', '.join(ops)}")
    if not TYPES.issuperset(dtypes):
        raise ValueError(f"gloo is measured for {', '.join(sorted(TYPES))}, not for all of {', '.join(dtypes)}")


def _torch() -> list[str]:
    return ["gloo"] if find_spec("torch") else []


def _natives() -> list[str]:
    from .knobs import algorithms  # only for these MPI is needed

    return list(algorithms())


def _fits(name: str, size: int, sizes: Sequence[int]) -> bool:
    if family(name) == NATIVE:
        from .knobs import check

        check(name)
    if family(name) in OTHERS:
        return True
    refusals = {}
    for p in {size, *sizes}:
        try:
            parse(name, p)
        except ValueError as refusal:
            refusals[p] = refusal
    if len(refusals) == len({size, *sizes}):
        raise refusals[size]
    return size not in refusals

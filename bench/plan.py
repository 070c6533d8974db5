"""What to measure: the arguments of the command line, or a file that names them."""

import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import allreduce
from allreduce.algorithms import parse
from allreduce.buffers import as_codec, as_type
from allreduce.execute.reductions import check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["OTHERS", "Group", "Sweep", "words"]

#: Rows that are no schedule: MPI's own, the engine's choice, shared memory, PyTorch's gloo, and every rank copying
#: its input.
OTHERS = ("native", "auto", "node", "gloo", "copy")


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
    codec: list[str] = field(default_factory=list)
    data: str | None = None
    buffers: str = "private"
    place: list[str] = field(default_factory=lambda: ["out"])
    rewrite: bool = False
    cold: bool = False
    start: str = "barrier"
    across: str = "max"
    batch: int = 200
    seconds: float = 0.2
    precision: float = 0.02
    seed: int = 0
    json: str | None = None
    resume: bool = False
    style: str = "table"

    def lengths(self) -> list[int]:
        """Message sizes in bytes."""
        if self.sizes:
            return list(dict.fromkeys(self.sizes))
        if self.factor < 2 or self.min > self.max:
            raise ValueError(f"expected min <= max, factor >= 2, not {self.min}, {self.max}, {self.factor}")
        sizes = [self.min]
        while sizes[-1] * self.factor <= self.max:
            sizes.append(sizes[-1] * self.factor)
        return sizes

    def names(self, size: int) -> list[str]:
        """Our algorithms, each once, checked for this number of ranks."""
        words = [w for word in self.algorithms for w in ([word] if ":" in word else word.split(","))]
        names = [n for word in words for n in ([*allreduce.algorithms(), "auto"] if word == "all" else [word])]
        for name in names:
            if name not in OTHERS:
                parse(name, size)
        return list(dict.fromkeys(name for name in names if name != "native"))

    def groups(self) -> list[Group]:
        """All that is measured, checked."""
        dtypes = [np.dtype(getattr(ml_dtypes, name, name)) for name in self.dtype]
        for dtype, op in product(dtypes, self.op):
            check(dtype, op)
            as_type(self.accumulate, dtype, op)
            for text in self.codec:
                if op != "sum":
                    raise ValueError(f"--codec is for op sum, not {op!r}")
                as_codec(text, dtype, op)
        if self.seconds <= 0 or self.precision < 0 or self.batch < 1:
            raise ValueError("expected seconds > 0, precision >= 0, batch >= 1")
        groups = [Group(*each) for each in product(dtypes, self.op, self.lengths())]
        return list({(g.dtype, g.op, g.elements): g for g in groups}.values())

    def values(self) -> np.ndarray | None:
        """The values of --data, shape (n,)."""
        if not self.data:
            return None
        values = np.load(self.data, allow_pickle=False).reshape(-1)
        if not values.size:
            raise ValueError(f"{self.data} holds no values")
        return values

    @property
    def cache(self) -> str:
        """What caches hold when a repetition starts."""
        return "cold" if self.cold else "rewritten" if self.rewrite else "warm"


def words(path: Path) -> list[str]:
    """A sweep's file as arguments of the command line, so that both are checked alike.

    Raises ValueError if it is no TOML, or holds tables.

    Examples
    --------
    A file of the lines `algorithms = ["ring", "torus:grid=2x4"]`, `seconds = 0.5` and `cold = true` gives
    `["--algorithms", "ring", "torus:grid=2x4", "--seconds", "0.5", "--cold"]`.
    """
    try:
        wishes: dict[str, Any] = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    found: list[str] = []
    for name, value in wishes.items():
        if isinstance(value, bool):
            found.append(f"--{name}" if value else f"--no-{name}")
            continue
        each = value if isinstance(value, list) else [value]
        if not all(isinstance(v, str | int | float) for v in each):
            raise ValueError(f"{path}: expected words and numbers for {name}, not {value!r}")
        found += [f"--{name}", *map(str, each)]
    return found

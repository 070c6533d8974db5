"""The sweep: every algorithm at every message size, beside MPI's own, in one run."""

from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

import allreduce
import compress
from allreduce.algorithms import parse
from allreduce.buffers import as_codec, as_type
from allreduce.costs import estimate, segmented
from allreduce.execute.reductions import check
from allreduce.native import OPS, mpi_has

from .environment import environment
from .inputs import Arena, Case, exact, lossy, real
from .report import Report, Row
from .statistics import fit, summarize
from .timing import Cell, measure

__all__ = ["Sweep", "run"]

#: Backends of PyTorch by the names of their rows.
BACKENDS = {"gloo": "gloo", "torch": "allreduce"}
#: Rows that no codec can be used with: shared memory, torch.distributed, and every rank copying its input.
UNCODED = ("node", *BACKENDS, "copy")
#: Rows that are no schedule; MPI's own and the engine's choice, too.
OTHERS = ("native", "auto", *UNCODED)
#: What the constants of the model are fitted to: short and long messages, many and few bytes added.
PROBES = [(name, nbytes) for name in ("recursive_doubling", "ring", "direct") for nbytes in (8, 1 << 16, 1 << 21)]


@dataclass(frozen=True)
class Sweep:
    """What to measure; the arguments of the command line."""

    min: int
    max: int
    factor: int
    algorithms: list[str]
    dtype: str
    op: str
    accumulate: str | None = None
    codec: list[str] = field(default_factory=list)
    data: str | None = None
    buffers: str = "private"
    rewrite: bool = False
    seconds: float = 0.2
    seed: int = 0
    json: str | None = None

    def sizes(self) -> list[int]:
        """Message sizes in bytes, ascending."""
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


def run(sweep: Sweep) -> int:
    """Measure, print, write; returns 1 if any result was wrong, else 0. Collective."""
    comm = MPI.COMM_WORLD
    dtype = np.dtype(getattr(ml_dtypes, sweep.dtype, sweep.dtype))
    check(dtype, sweep.op)
    as_type(sweep.accumulate, dtype, sweep.op)
    if sweep.codec and sweep.op != "sum":
        raise ValueError(f"--codec is for op sum, not {sweep.op!r}")
    for text in sweep.codec:
        as_codec(text, dtype, sweep.op)
    names, sizes = sweep.names(comm.size), sweep.sizes()
    values = np.load(sweep.data, allow_pickle=False).reshape(-1) if sweep.data else None
    if values is not None and not values.size:
        raise ValueError(f"{sweep.data} holds no values")
    rng = np.random.default_rng(sweep.seed)
    arena = Arena(sweep.buffers, dtype, max(1, sizes[-1] // dtype.itemsize))
    facts = environment(comm) | {"buffers": sweep.buffers, "rewrite": sweep.rewrite}
    report = Report(facts, Path(sweep.json) if sweep.json else None, len(sizes), comm.rank == 0)
    with report:
        constants = constants_of(comm, rng)
        report.constants(*constants)
        for index in rng.permutation(len(sizes)):
            count = max(1, sizes[index] // dtype.itemsize)
            report.rows(rows_of(sweep, names, arena, count, values, constants, rng))
    return report.exit_code()


def rows_of(
    sweep: Sweep,
    names: list[str],
    arena: Arena,
    count: int,
    values: np.ndarray | None,
    constants: tuple[float, float, float],
    rng: np.random.Generator,
) -> list[Row]:
    """Measure all algorithms at one size."""
    comm, dtype = MPI.COMM_WORLD, arena.dtype
    nbytes = count * dtype.itemsize
    cases = case_pair(sweep.op, dtype, count, values)
    wishes: dict[str, Any] = {"op": sweep.op} if sweep.op != "sum" else {}
    wishes |= {"accumulate": sweep.accumulate} if sweep.accumulate else {}
    calls: dict[tuple[str, str | None], Any] = {
        (name, None): partial(allreduce.allreduce, algorithm=name, **wishes) for name in names
    }
    right: dict[str | None, tuple[Case, Case]] = {None: cases}
    for text in sweep.codec:
        codec = compress.get(text)
        right[text] = lossy(cases[0], codec, dtype, comm.size), lossy(cases[1], codec, dtype, comm.size)
        for name in names:
            if name not in UNCODED:
                calls[name, text] = partial(allreduce.allreduce, algorithm=name, codec=text, **wishes)
    if ("copy", None) in calls:
        calls["copy", None] = lambda send, recv: np.copyto(recv, send)
    for name in [name for name in names if name in BACKENDS]:
        calls[name, None] = by_torch(name, sweep.op)
    if mpi_has(dtype) and sweep.op in OPS:
        calls["native", None] = partial(comm.Allreduce, op=OPS[sweep.op])
    inputs = arena.inputs(cases)
    cells = {
        (name, codec): Cell(
            call, right[codec], inputs, arena.array(f"{name} {codec}", count), sweep.rewrite, name != "copy"
        )
        for (name, codec), call in calls.items()
    }
    batch = measure(list(cells.values()), nbytes, comm, sweep.seconds, rng)

    samples = np.array([cell.samples for cell in cells.values()])
    comm.Allreduce(MPI.IN_PLACE, samples, MPI.MAX)
    wrong = np.array([cell.wrong for cell in cells.values()])
    comm.Allreduce(MPI.IN_PLACE, wrong, MPI.SUM)
    same = [not cell.checked or alike(cell.result) for cell in cells.values()]
    native = samples[list(cells).index(("native", None))] if ("native", None) in cells else None
    return [
        Row(
            nbytes=nbytes, count=count, dtype=dtype.name, op=sweep.op, ranks=comm.size, algorithm=name, codec=codec,
            batch=batch,
            **summarize(samples[i])._asdict(),
            algbw=nbytes / np.median(samples[i]) / 1e9,
            predicted=None if name in OTHERS or codec else predict(name, comm.size, nbytes, constants),
            ratio=None if native is None else float(np.median(samples[i] / native)),
            wrong=int(wrong[i]) + (0 if same[i] else count),
            samples=samples[i].tolist(),
        )
        for i, (name, codec) in enumerate(cells)
    ]  # fmt: skip


def predict(name: str, size: int, nbytes: int, constants: tuple[float, float, float]) -> float:
    """Seconds by the model, for the parameters that the engine takes."""
    key, params = parse(name, size)
    return estimate(key, size, nbytes, *constants, **segmented(key, size, nbytes, params))


def by_torch(name: str, op: str) -> Any:
    """An all-reduce of PyTorch, which not everyone has."""
    try:
        from .process_groups import start
    except ModuleNotFoundError as error:
        raise ValueError(f"algorithm {name!r} needs {error.name}: pip install torch") from None
    return start(BACKENDS[name], op)


def alike(array: np.ndarray) -> bool:
    """Whether all ranks hold the same bits; collective."""
    digest = np.frombuffer(blake2b(array.view(np.uint8).data, digest_size=16).digest(), np.uint8)
    digests = np.empty((MPI.COMM_WORLD.size, 16), np.uint8)
    MPI.COMM_WORLD.Allgather(digest, digests)
    return bool((digests == digests[0]).all())


def case_pair(op: str, dtype: np.dtype, count: int, values: np.ndarray | None) -> tuple[Case, Case]:
    """This rank's two inputs."""
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    if values is not None:
        return real(values, dtype, op, count, rank, size, 0), real(values, dtype, op, count, rank, size, 1)
    return exact(dtype, op, count, rank, size, 0), exact(dtype, op, count, rank, size, 1)


def constants_of(comm: MPI.Intracomm, rng: np.random.Generator) -> tuple[float, float, float]:
    """Alpha, beta and gamma of this machine: the model fitted to a few of our own all-reduces."""
    features, times = [], []
    for name, nbytes in PROBES:
        cases = case_pair("sum", np.dtype(np.float32), nbytes // 4, None)
        inputs = cases[0].send, cases[1].send
        cell = Cell(partial(allreduce.allreduce, algorithm=name), cases, inputs, np.empty_like(inputs[0]))
        measure([cell], nbytes, comm, 0.02, rng)
        slowest = np.array(cell.samples)
        comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
        features.append([estimate(name, comm.size, nbytes, *unit) for unit in np.eye(3)])
        times.append(float(np.median(slowest)))
    if comm.size == 1:
        return 0.0, 0.0, 0.0
    alpha, beta, gamma = fit(np.array(features), np.array(times))
    return float(alpha), float(beta), float(gamma)

"""The calls to be timed for one group: what they are given, where their results go, what they must be."""

from hashlib import blake2b
from typing import Any

import numpy as np
from mpi4py import MPI

import compress
from allreduce.native import OPS, mpi_has

from . import nccl
from .calls import COMPOSED, OUT_OF_PLACE, UNCODED, Label
from .inputs import Case, exact, lossy, real
from .knobs import Knob, native
from .links import Pool
from .memory import HostMemory
from .plan import Group, Sweep
from .records import NATIVE, family
from .requests import Call, can_persist
from .timing import Cell

__all__ = ["Maker", "alike", "case_pair"]

#: Operations that MPI defines, by kinds of dtypes: an MPI may end the program at others.
LOGICAL, ARITHMETIC = ("land", "lor", "lxor"), ("sum", "prod")
MPI_REDUCES = {"b": LOGICAL, "c": ARITHMETIC, "f": (*ARITHMETIC, "min", "max"), "i": tuple(OPS), "u": tuple(OPS)}

#: Bytes of vectors that go through the rounds that do not count, at most.
WARM = 1 << 20
#: Bytes of the buffers of a batch in place, in which every call has its own.
ROOM = 1 << 24


class Maker:
    """Makes the cells of a sweep's groups on this rank.

    Parameters
    ----------
    sweep : Sweep
    names : list of str
        The algorithms, those of others included.
    memory : HostMemory
        Where arrays lie.
    """

    def __init__(self, sweep: Sweep, comm: MPI.Intracomm, names: list[str], memory: HostMemory) -> None:
        self.sweep, self.comm, self.names, self.memory = sweep, comm, names, memory
        self.values = sweep.values()
        self.requests: list[Any] = []
        self.knob = Knob(comm)
        self.persistent = "persistent" in sweep.call and can_persist(comm)

    def most(self, group: Group) -> int:
        """Calls in a repetition."""
        alone = group.nbytes > self.sweep.batched or self.sweep.cold or "overlapped" in self.sweep.call
        most = max(1, ROOM // group.nbytes) if "in" in self.sweep.place else self.sweep.batch
        return 1 if alone else min(most, self.sweep.batch)

    def warm_up(self, group: Group) -> int:
        """Rounds at first that do not count."""
        return min(self.sweep.warm_up, WARM // group.nbytes)

    def labels(self, group: Group) -> list[Label]:
        """What is measured, the same on all ranks."""
        names = [name for name in self.names if can_reduce(name, group)]
        codecs = {name: [None] if family(name) in UNCODED else [None, *self.sweep.codec] for name in names}
        return [
            label
            for place in self.sweep.place
            for name in names
            for codec in codecs[name]
            for call in self.sweep.call
            if self._has(label := Label(name, codec, place, call))
        ]

    def _has(self, label: Label) -> bool:
        name, codec, place, call = label
        if place == "in" and name in OUT_OF_PLACE:
            return False
        if name == native():
            return call != "persistent" or self.persistent
        if name.endswith("@ipc"):
            return call == "blocking" and codec is None
        return call == "blocking" or family(name) not in UNCODED

    def cells(self, group: Group) -> dict[Label, Cell]:
        """Ready to be measured."""
        cases = case_pair(group.op, group.dtype, group.elements, self.values, self.comm)
        size = self.comm.size
        right: dict[str | None, tuple[Case, Case]] = {None: cases}
        for text in self.sweep.codec:
            codec = compress.get(text)
            right[text] = tuple(lossy(case, codec, group.dtype, size) for case in cases)  # type: ignore[assignment]
        return {label: self._cell(label, group, right[label.codec]) for label in self.labels(group)}

    def pool(self, group: Group, cells: dict[Label, Cell]) -> Pool:
        """The arrays of these cells, for the model."""
        expected = next(iter(cells.values())).case.expected.astype(group.dtype)
        return Pool(self._inputs(group), [cell.results[0] for cell in cells.values()], expected, group.op)

    def free(self) -> None:
        """Let go of the last group's requests, and of what MPI was told."""
        self.knob.turn(NATIVE)
        for request in self.requests:
            request.Free()
        self.requests.clear()

    def _inputs(self, group: Group) -> list[Any]:
        return [self.memory.array(f"input {i}", group.elements, group.dtype) for i in (0, 1)]

    def _cell(self, label: Label, group: Group, cases: tuple[Case, Case]) -> Cell:
        make = self._in_place if label.place == "in" else self._out_of_place
        call = Call(label, group, self.sweep, self.knob.comm(label.algorithm), self.memory)
        cell = make(label, group, cases, call)
        self.requests += call.requests
        return cell

    def _out_of_place(self, label: Label, group: Group, cases: tuple[Case, Case], call: Call) -> Cell:
        sends = self._inputs(group)
        for send, case in zip(sends, cases, strict=True):
            self.memory.write(send, case.send)
        result = self.memory.array(" ".join(map(str, label)), group.elements, group.dtype)

        def prepare(variant: int) -> None:
            if self.sweep.rewrite:  # what others have of it in their caches is void
                self.memory.write(sends[variant], cases[variant].send)
            self._ready(label)

        most = self.most(group)
        first, second = ([call.arguments(send, result)] * most for send in sends)
        checked = label.algorithm != "copy"
        return Cell(call.function(), cases, (first, second), [result] * most, prepare, self.memory, checked, call.work)

    def _in_place(self, label: Label, group: Group, cases: tuple[Case, Case], call: Call) -> Cell:
        """Every call of a batch has a buffer of its own: a sum of sums would be another number."""
        buffers = self.memory.arrays(" ".join(map(str, label)), group.elements, group.dtype, self.most(group))
        mpi = family(label.algorithm) == NATIVE
        arguments = [call.arguments(MPI.IN_PLACE if mpi else each, each) for each in buffers]

        def prepare(variant: int) -> None:
            for each in buffers:
                self.memory.write(each, cases[variant].send)
            self._ready(label)

        return Cell(call.function(), cases, (arguments, arguments), buffers, prepare, self.memory, work=call.work)

    def _ready(self, label: Label) -> None:
        self.knob.turn(label.algorithm)
        if self.sweep.cold:
            self.memory.flush()


def can_reduce(name: str, group: Group) -> bool:
    """Whether others have the operation for the dtype; ours have all that a sweep takes."""
    if family(name) == "nccl":
        return group.dtype.name in nccl.TYPES and group.op in nccl.OPS
    if family(name) in (NATIVE, *COMPOSED):
        return mpi_has(group.dtype) and group.op in MPI_REDUCES.get(group.dtype.kind, ())
    return True


def case_pair(
    op: str, dtype: np.dtype, count: int, values: np.ndarray | None, comm: MPI.Intracomm
) -> tuple[Case, Case]:
    """This rank's two inputs."""
    rank, size = comm.rank, comm.size
    if values is not None:
        return real(values, dtype, op, count, rank, size, 0), real(values, dtype, op, count, rank, size, 1)
    return exact(dtype, op, count, rank, size, 0), exact(dtype, op, count, rank, size, 1)


def alike(array: np.ndarray, comm: MPI.Intracomm) -> bool:
    """Whether all ranks hold the same bits; collective."""
    digest = np.frombuffer(blake2b(array.view(np.uint8).data, digest_size=16).digest(), np.uint8)
    digests = np.empty((comm.size, 16), np.uint8)
    comm.Allgather(digest, digests)
    return bool((digests == digests[0]).all())

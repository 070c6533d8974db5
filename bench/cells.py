"""The calls to be timed for one group: what they are given, where their results go, what they must be."""

from hashlib import blake2b
from typing import Any

import numpy as np
from mpi4py import MPI

import compress
from allreduce.native import OPS, mpi_has

from .calls import COMPOSED, OUT_OF_PLACE, UNCODED, Label, call_of
from .inputs import Arena, Case, exact, lossy, real
from .plan import Group, Sweep
from .timing import BATCHED, Cell

__all__ = ["Maker", "alike", "case_pair"]


class Maker:
    """Makes the cells of a sweep's groups on this rank.

    Parameters
    ----------
    sweep : Sweep
    flush : numpy.ndarray
        Longer than the caches, to be written over where they are to be cold.
    """

    def __init__(self, sweep: Sweep, comm: MPI.Intracomm, flush: np.ndarray) -> None:
        self.sweep, self.comm, self.flush = sweep, comm, flush
        self.names, self.values = sweep.names(comm.size, sweep.teams(MPI.COMM_WORLD.size)), sweep.values()
        self.arena = Arena(sweep.buffers, max([*sweep.lengths(), 16]), comm)

    def most(self, group: Group) -> int:
        """Calls in a repetition."""
        return self.sweep.batch if group.nbytes <= BATCHED and self.sweep.cache != "cold" else 1

    def labels(self, group: Group) -> list[Label]:
        """What is measured, the same on all ranks."""
        known = mpi_has(group.dtype) and group.op in OPS
        names = [name for name in (*self.names, "native") if known or name not in (*COMPOSED, "native")]
        codecs = {name: [None] if name in UNCODED else [None, *self.sweep.codec] for name in names}
        return [
            Label(name, codec, place)
            for place in self.sweep.place
            for name in names
            for codec in codecs[name]
            if place == "out" or name not in OUT_OF_PLACE
        ]

    def cells(self, group: Group) -> dict[Label, Cell]:
        """Ready to be measured."""
        cases = case_pair(group.op, group.dtype, group.elements, self.values, self.comm)
        size = self.comm.size
        right: dict[str | None, tuple[Case, Case]] = {None: cases}
        for text in self.sweep.codec:
            codec = compress.get(text)
            right[text] = tuple(lossy(case, codec, group.dtype, size) for case in cases)  # type: ignore[assignment]
        return {label: self._cell(label, group, right[label.codec]) for label in self.labels(group)}

    def _cell(self, label: Label, group: Group, cases: tuple[Case, Case]) -> Cell:
        make = self._in_place if label.place == "in" else self._out_of_place
        return make(label, group, cases, call_of(label, group, self.sweep, self.comm))

    def _out_of_place(self, label: Label, group: Group, cases: tuple[Case, Case], call: Any) -> Cell:
        sends = [self.arena.array(f"input {i}", group.elements, group.dtype) for i in (0, 1)]
        for send, case in zip(sends, cases, strict=True):
            np.copyto(send, case.send)
        result = self.arena.array(" ".join(map(str, label)), group.elements, group.dtype)

        def prepare(variant: int) -> None:
            if self.sweep.rewrite:  # what others have of it in their caches is void
                np.copyto(sends[variant], cases[variant].send)
            self._cool()

        most = self.most(group)
        arguments = [(sends[0], result)] * most, [(sends[1], result)] * most
        return Cell(call, cases, arguments, [result] * most, prepare, label.algorithm != "copy")

    def _in_place(self, label: Label, group: Group, cases: tuple[Case, Case], call: Any) -> Cell:
        """Every call of a batch has a buffer of its own: a sum of sums would be another number."""
        buffers = self.arena.arrays(" ".join(map(str, label)), group.elements, group.dtype, self.most(group))
        arguments = [(MPI.IN_PLACE if label.algorithm == "native" else each, each) for each in buffers]

        def prepare(variant: int) -> None:
            for each in buffers:
                np.copyto(each, cases[variant].send)
            self._cool()

        return Cell(call, cases, (arguments, arguments), buffers, prepare)

    def _cool(self) -> None:
        if self.sweep.cold:
            self.flush += 1


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

"""A mesh of ranks: data, tensor and pipeline axes, each with its own communicators."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from mpi4py import MPI

from .communicator import Communicator

__all__ = ["Mesh", "side_by_side"]


class Mesh:
    """Ranks in a block of data x tensor x pipeline; collective, as communicators are made.

    Ranks count tensor first, then data, then pipeline, so that those who talk most share a node.

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        MPI.COMM_WORLD by default.
    data : int
        Replicas of the model, each with its part of the batch.
    tensor : int
        Ranks that share every layer.
    pipeline : int
        Stages, each with some of the layers.

    Attributes
    ----------
    comm, data, tensor, pipeline : Communicator
        Of all ranks, and of those that differ from this one on that axis only; its rank there is its place.

    Raises
    ------
    ValueError
        Sizes whose product is not the number of ranks.

    Examples
    --------
    On 8 ranks::

        with allreduce.Mesh(data=2, tensor=2, pipeline=2) as mesh:
            allreduce.allreduce(gradient, gradient, "avg", comm=mesh.data)
            last = mesh.pipeline.rank == mesh.pipeline.size - 1
    """

    data: Communicator
    tensor: Communicator
    pipeline: Communicator

    def __init__(
        self, comm: MPI.Intracomm | None = None, *, data: int = 1, tensor: int = 1, pipeline: int = 1
    ) -> None:
        axes = {"tensor": tensor, "data": data, "pipeline": pipeline}
        if not isinstance(comm, (MPI.Intracomm, type(None))):
            raise TypeError(f"comm must be an intracommunicator, not {comm!r}")
        _check(axes, MPI.COMM_WORLD.size if comm is None else comm.size)
        self._own = not isinstance(comm, Communicator)
        self.comm = comm if isinstance(comm, Communicator) else Communicator(comm)
        place, stride = side_by_side(self.comm.engine.nodes, tensor).index(self.comm.rank), 1
        for name, length in axes.items():
            at = place // stride % length
            setattr(self, name, self.comm.Split(place - at * stride, at))
            stride *= length

    def __enter__(self) -> "Mesh":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Free the communicators that were made here; collective."""
        for comm in (self.tensor, self.data, self.pipeline, *[self.comm] * self._own):
            comm.close()


def side_by_side(nodes: Sequence[Sequence[int]], tensor: int) -> list[int]:
    """All ranks in an order in which groups of `tensor` share a node, where nodes have room for whole groups.

    >>> side_by_side([(0, 2, 4), (1, 3, 5, 6, 7)], 2)
    [0, 2, 1, 3, 5, 6, 4, 7]
    """
    whole = [len(node) // tensor * tensor for node in nodes]
    groups = chain.from_iterable(node[:stop] for node, stop in zip(nodes, whole))
    left = chain.from_iterable(node[stop:] for node, stop in zip(nodes, whole))
    return [*groups, *left]


def _check(axes: dict[str, int], size: int) -> None:
    product = 1
    for name, length in axes.items():
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"{name} must be a positive whole number, not {length!r}")
        product *= length
    if product != size:
        text = " x ".join(f"{name}={axes[name]}" for name in ("data", "tensor", "pipeline"))
        raise ValueError(f"{text} is {product} ranks, but the communicator has {size}")

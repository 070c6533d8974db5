"""Local steps, and now and then an outer one: data parallel over slow links."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..buffers import as_array
from ..collectives import allreduce
from ..communicator import Communicator

__all__ = ["OuterSteps"]


class OuterSteps:
    """Let replicas go their own ways, and every so many steps take one step towards where they went on average.

    What is all-reduced is how far each has moved; a codec makes it shorter still. With lr 1 and momentum 0, as by
    default, parameters are averaged, which is local SGD; DiLoCo has lr 0.7, momentum 0.9, hundreds of steps between.

    Parameters
    ----------
    parameters : sequence of arrays
        Contiguous arrays or CPU tensors of floating-point numbers, the same on all ranks at first; changed in place.
    comm : Communicator
        Of the replicas, such as `Mesh.data`.
    every : int
        Steps between two outer ones.
    lr, momentum : float
        Of the outer steps, which are SGD with Nesterov's momentum.
    codec : str, Codec or Method, optional
        As in `allreduce`.

    See: Stich, Local SGD converges fast and communicates little, ICLR 2019; Douillard et al., DiLoCo, arXiv 2311.08105.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        comm: Communicator,
        every: int,
        lr: float = 1.0,
        momentum: float = 0.0,
        codec: Any = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be a positive number of steps, not {every}")
        self.arrays = [as_array(p, f"parameter {i}", writeable=True) for i, p in enumerate(parameters)]
        self.comm, self.every, self.lr, self.momentum, self.codec = comm, every, lr, momentum, codec
        self.steps = 0
        self.anchor = self._flat()
        self.velocity = np.zeros_like(self.anchor)

    def step(self) -> bool:
        """Call after each local step; True if it was followed by an outer one."""
        self.steps += 1
        if self.steps % self.every:
            return False
        moved = self.anchor - self._flat()
        allreduce(moved, moved, "avg", comm=self.comm, codec=self.codec, key="outer step")
        self.velocity = self.momentum * self.velocity + moved
        self.anchor -= self.lr * (moved + self.momentum * self.velocity)
        begin = 0
        for array in self.arrays:
            array[...] = self.anchor[begin : begin + array.size].reshape(array.shape)
            begin += array.size
        return True

    def _flat(self) -> np.ndarray:
        """A copy of all parameters, in float32, or in float64 if they are."""
        wide = np.result_type(np.float32, *{array.dtype for array in self.arrays if array.dtype == np.float64})
        return np.concatenate([array.reshape(-1).astype(wide) for array in self.arrays])

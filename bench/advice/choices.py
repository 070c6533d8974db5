"""Which splits of a model over a cluster there are, which of them fit, and what each costs."""

from collections.abc import Iterator
from typing import NamedTuple

import compress

from .links import Cluster
from .memory import RECOMPUTE, Memory, Split, memory
from .model import Model
from .step import Step, step

__all__ = ["USABLE", "Choice", "fitting", "misfit", "splits"]

#: Part of a GPU's memory to plan with: the rest goes to the driver, libraries, and gaps between tensors.
USABLE = 0.8
#: Codecs for the gradients, from the mildest; a harsher one must take this part of a step away.
CODECS, WORTH = ("none", "bfloat16", "int8"), 0.02
MICROBATCHES = (1, 2, 4, 8, 16)


class Choice(NamedTuple):
    """A split with its price; `codec`: of the gradients, in the time and bytes of `step`; `note`: why it leads."""

    split: Split
    memory: Memory
    step: Step
    codec: str
    note: str = ""

    @property
    def kind(self) -> tuple[int, int, int]:
        return self.split[:3]

    @property
    def seconds(self) -> float:
        return self.step.seconds


def splits(model: Model, cluster: Cluster) -> Iterator[Split]:
    """Every sensible (data, tensor, pipeline), the optimiser whole and sharded; microbatches of one sequence.

    Tensor axes fill nodes or divide them. Of pipelines with equally long longest stages, the shortest. As many
    replicas as there are GPUs for, if the batch divides by their number, else fewer.
    """
    total = cluster.nodes * cluster.gpus
    tensors = [t for t in range(1, min(total, model.heads) + 1) if cluster.gpus % t == 0 or t % cluster.gpus == 0]
    pipelines = sorted({-(-model.layers // layers) for layers in range(1, model.layers + 1)})
    for tensor in (t for t in tensors if model.hidden % t == 0 and model.heads % t == 0):
        for pipeline in (p for p in pipelines if p * tensor <= total):
            most = total // (tensor * pipeline)
            data = next(d for d in range(min(most, model.batch), 0, -1) if model.batch % d == 0)
            yield Split(data, tensor, pipeline)
            if data > 1:
                yield Split(data, tensor, pipeline, sharded=True)


def variants(model: Model, split: Split) -> Iterator[Split]:
    """With each microbatch, whatever is recomputed, and interleaved where stages are equal and the rounds fill them."""
    layers, stages = split.layers(model), split.pipeline
    for b in (b for b in MICROBATCHES if model.batch // split.data % b == 0):
        sized = split._replace(microbatch=b)
        equal = 1 < stages and layers * stages == model.layers and sized.rounds(model) % stages == 0
        for chunks in (c for c in range(1, layers + 1) if c == 1 or (equal and layers % c == 0)):
            yield from (sized._replace(chunks=chunks, recompute=name) for name in RECOMPUTE)


def fitting(model: Model, cluster: Cluster, usable: float = USABLE, sharded: bool = True) -> list[Choice]:
    """Of each (data, tensor, pipeline), the quickest that fits.

    Parameters
    ----------
    usable : float
        Part of a GPU's memory that may be planned with.
    sharded : bool
        Whether the optimiser may be.
    """
    room, found = usable * cluster.gpu.memory, {}
    for split in (s for s in splits(model, cluster) if sharded or not s.sharded):
        for v in variants(model, split):
            if memory(model, v).total <= room:
                found.setdefault(v[:3], []).append((step(model, cluster, v).seconds, v))
    return [coded(model, cluster, min(tries)[1]) for tries in found.values()]


def coded(model: Model, cluster: Cluster, split: Split) -> Choice:
    """With the mildest codec of the gradients beyond which there is little to gain."""
    best = step(model, cluster, split), CODECS[0]
    for codec in CODECS[1:]:
        priced = step(model, cluster, split, compress.get(codec).bits / 8)
        if priced.seconds < best[0].seconds - WORTH * priced.seconds:
            best = priced, codec
    return Choice(split, memory(model, split), *best)


def misfit(model: Model, cluster: Cluster) -> str:
    """What is missing."""
    need, split = min((memory(model, s).total, s) for s in splits(model, cluster))
    return (
        f"nothing fits: data {split.data}, tensor {split.tensor}, pipeline {split.pipeline} needs the least, "
        f"{need / 1e9:.0f} GB of the {USABLE * cluster.gpu.memory / 1e9:.0f} GB that a GPU can give"
    )

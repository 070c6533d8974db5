"""Which splits of a model over a cluster there are, which of them fit, and what each costs."""

from collections.abc import Iterator
from typing import NamedTuple

import compress

from .memory import Memory, Split, memory
from .model import Model
from .step import Cluster, Step, step

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


def fitting(model: Model, cluster: Cluster, usable: float = USABLE) -> list[Choice]:
    """Of each (data, tensor, pipeline) that fits, the quickest microbatch; the optimiser whole where that fits.

    Parameters
    ----------
    usable : float
        Part of a GPU's memory that may be planned with.
    """
    room, found = usable * cluster.gpu.memory, {}
    for split in splits(model, cluster):
        sizes = [b for b in MICROBATCHES if model.batch // split.data % b == 0]
        tries = [s for s in (split._replace(microbatch=b) for b in sizes) if memory(model, s).total <= room]
        if tries and split[:3] not in found:
            quickest = min(tries, key=lambda s: step(model, cluster, s).seconds)
            found[split[:3]] = coded(model, cluster, quickest)
    return list(found.values())


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
    need, split = min((memory(model, split).total, split) for split in splits(model, cluster))
    return (
        f"nothing fits: data {split.data}, tensor {split.tensor}, pipeline {split.pipeline} needs the least, "
        f"{need / 1e9:.0f} GB of the {USABLE * cluster.gpu.memory / 1e9:.0f} GB that a GPU can give"
    )

"""Which splits of a model over a cluster there are, which of them fit, and what each costs."""

from bisect import bisect
from collections.abc import Iterator
from typing import NamedTuple

import compress

from .links import Cluster
from .memory import Memory, Split, memory
from .model import Model
from .step import Step, step

__all__ = ["USABLE", "Choice", "fitting", "misfit", "splits"]

#: Part of a GPU's memory to plan with: the rest goes to the driver, libraries, and gaps between tensors.
USABLE = 0.8
#: Codecs for the gradients, from the mildest; a harsher one must take this part of a step away.
CODECS, WORTH = ("none", "bfloat16", "int8"), 0.02
MICROBATCHES = (1, 2, 4, 8, 16)
#: What earlier and later software computes again; attention in one kernel has no scores that could be spared.
RECOMPUTE = ("full",), ("none", "selective")


class Choice(NamedTuple):
    """A split with its price; `codec`: of the gradients, in the time and bytes of `step`; `note`: why it leads.

    `exact`: seconds of a step without the codec.
    """

    split: Split
    memory: Memory
    step: Step
    codec: str
    exact: float
    note: str = ""

    @property
    def kind(self) -> tuple[int, int, int]:
        return self.split[:3]

    @property
    def seconds(self) -> float:
        return self.step.seconds


def splits(model: Model, cluster: Cluster, sharded: bool = True) -> Iterator[Split]:
    """Every sensible (data, tensor, pipeline); the optimiser of replicas sharded, or whole.

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
            yield Split(data, tensor, pipeline, sharded=sharded and data > 1)


def variants(model: Model, split: Split, room: float, later: bool) -> Iterator[Split]:
    """Those that fit: with each microbatch and number of interleaved stages, recomputing as little as it takes.

    Without stages, replicas that share an optimiser can share weights as well.
    """
    layers, rounds = split.layers(model), model.batch // split.data
    if split.sharded and split.pipeline == 1 and not split.strewn:
        yield from variants(model, split._replace(strewn=True), room, later)
    for b in (b for b in MICROBATCHES if rounds % b == 0):
        filled = later and split.pipeline > 1 and rounds // b % split.pipeline == 0
        for chunks in (c for c in range(1, layers * filled + 1) if layers % c == 0) if filled else (1,):
            for recompute in RECOMPUTE[later][: 1 if model.fused else 2]:
                lighter = lightened(model, split._replace(microbatch=b, chunks=chunks, recompute=recompute), room)
                if memory(model, lighter).total <= room:
                    yield lighter


def lightened(model: Model, split: Split, room: float) -> Split:
    """With as few layers computed again as a whole as it takes to fit, if that is enough."""
    steps = [split._replace(again=again) for again in range(split.layers(model) + 1 if split.later else 1)]
    first = bisect(steps[:-1], False, key=lambda s: memory(model, s).total <= room)
    return steps[first]


def fitting(
    model: Model, cluster: Cluster, usable: float = USABLE, later: bool = True, sharded: bool = True
) -> list[Choice]:
    """Of each (data, tensor, pipeline), the quickest that fits.

    Parameters
    ----------
    usable : float
        Part of a GPU's memory that may be planned with.
    later : bool
        With software of 2022 or later; else that before.
    sharded : bool
        Whether the optimiser may be.
    """
    room, found = usable * cluster.gpu.memory, []
    for split in splits(model, cluster, sharded):
        if tries := list(variants(model, split, room, later)):
            quickest = min(tries, key=lambda s: step(model, cluster, s).seconds)
            found.append(coded(model, cluster, quickest))
    return found


def coded(model: Model, cluster: Cluster, split: Split) -> Choice:
    """With the mildest codec of the gradients beyond which there is little to gain."""
    best = step(model, cluster, split), CODECS[0]
    exact = best[0].seconds
    for codec in CODECS[1:]:
        priced = step(model, cluster, split, compress.get(codec).bits / 8)
        if priced.seconds < best[0].seconds - WORTH * priced.seconds:
            best = priced, codec
    return Choice(split, memory(model, split), *best, exact)


def misfit(model: Model, cluster: Cluster) -> str:
    """What is missing."""
    leanest = (lightened(model, split._replace(recompute="selective"), 0) for split in splits(model, cluster))
    need, split = min((memory(model, s).total, s) for s in leanest)
    return (
        f"nothing fits: data {split.data}, tensor {split.tensor}, pipeline {split.pipeline} needs the least, "
        f"{need / 1e9:.0f} GB of the {USABLE * cluster.gpu.memory / 1e9:.0f} GB that a GPU can give"
    )

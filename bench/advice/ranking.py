"""Which splits there are, which of them fit, and in which order to try them."""

from collections.abc import Iterator
from typing import NamedTuple

import compress

from .memory import Memory, Split, memory
from .model import Model
from .step import Cluster, Step, step

__all__ = ["CLOSE", "Choice", "fitting", "ranked", "splits"]

#: Part of a GPU's memory to plan with: the rest goes to the driver, libraries, and gaps between tensors.
USABLE = 0.8
#: The same for the rule of thumb, which leaves room for what a model of memory does not know.
CAUTIOUS = 2 / 3
#: Times that differ by less are the same: the model is not more exact.
CLOSE = 0.07
#: Codecs for the gradients, from the mildest; a harsher one must take this part of a step away.
CODECS, WORTH = ("none", "bfloat16", "int8"), 0.02
MICROBATCHES = (1, 2, 4, 8, 16)
#: Of the first of each order.
NOTES = (
    "of those as quick, the one with the fewest stages",
    "by the rule of thumb: tensor parallel inside the node, stages as memory asks for them, nothing sharded",
)


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


def ranked(model: Model, cluster: Cluster) -> list[Choice]:
    """Every choice that fits, the one to try first in front.

    There are two orders, of all choices and of those by the rule of thumb of Narayanan et al. (arXiv 2104.04473):
    tensor parallel inside the node, pipeline stages once that fills it, as few as memory asks for, data parallel
    for the rest, nothing sharded. The first of each lead; the others follow, whichever order's next is quicker.

    Raises
    ------
    ValueError
        Nothing fits; naming what comes closest.
    """
    choices = fitting(model, cluster)
    if not choices:
        raise ValueError(misfit(model, cluster))
    custom = [c for c in fitting(model, cluster, CAUTIOUS) if customary(c, cluster)]
    orders = [plainest(order, cluster) for order in (choices, custom)]
    leaders = {o[0].kind: o[0]._replace(note=note) for o, note in zip(orders, NOTES) if o}
    result = sorted(leaders.values(), key=lambda c: c.seconds)
    while orders := [o for o in (drop(order, result) for order in orders) if o]:
        result.append(min((o[0] for o in orders), key=lambda c: c.seconds))
    return result


def misfit(model: Model, cluster: Cluster) -> str:
    """What is missing."""
    need, split = min((memory(model, split).total, split) for split in splits(model, cluster))
    return (
        f"nothing fits: data {split.data}, tensor {split.tensor}, pipeline {split.pipeline} needs the least, "
        f"{need / 1e9:.0f} GB of the {USABLE * cluster.gpu.memory / 1e9:.0f} GB that a GPU can give"
    )


def customary(choice: Choice, cluster: Cluster) -> bool:
    """Whether the rule of thumb would make it."""
    split = choice.split
    return not split.sharded and split.tensor <= cluster.gpus and (split.tensor == cluster.gpus or split.pipeline == 1)


def plainest(choices: list[Choice], cluster: Cluster) -> list[Choice]:
    """By time; but of those as quick as any, first the one with the fewest stages, then the next depth.

    For a depth speaks its quickest, if there is one among those that leave memory free; splits whose tensor axis
    leaves the node come last, for links between nodes are shared with everything else.
    """

    def plainness(choice: Choice) -> tuple[bool, int, bool]:
        split, room = choice.split, CAUTIOUS * cluster.gpu.memory
        return split.tensor > cluster.gpus, split.pipeline, choice.memory.total > room

    choices = sorted(choices, key=lambda c: c.seconds)
    close = [c for c in choices if c.seconds <= choices[0].seconds * (1 + CLOSE)]
    heads: dict[int, Choice] = {}
    for choice in sorted(close, key=plainness):
        heads.setdefault(choice.split.pipeline, choice)
    return [*heads.values(), *drop(choices, list(heads.values()))]


def drop(choices: list[Choice], those: list[Choice]) -> list[Choice]:
    kinds = {c.kind for c in those}
    return [c for c in choices if c.kind not in kinds]

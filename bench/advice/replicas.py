"""What replicas of a weight send each other, and how much of that nothing hides."""

from typing import NamedTuple

from .links import Cluster, neighbours, reduced, sent
from .memory import GRADIENT, WEIGHT, Split
from .model import Model

__all__ = ["Exchange", "averaged", "behind", "gathered"]

#: Part of its time by which a message that hides behind computation slows that down: it takes processors and memory.
SLOWS = 0.25


class Exchange(NamedTuple):
    """Seconds by which it makes a step longer, and the bytes that a GPU sends in it."""

    seconds: float
    nbytes: float


def averaged(model: Model, cluster: Cluster, split: Split, gradient: float, backward: float) -> Exchange:
    """Gradients, of which each travels as so many bytes.

    Replicas that share an optimiser scatter sums of gradients, and gather new weights. Software that fuses attention
    does so during the backward pass, of `backward` seconds a microbatch: the last layer's gradients are there when the
    last microbatch has come through it, the first layer's at the end. Of interleaved stages the last chunk ends before
    the last `pipeline` microbatches go through the others.
    """
    owned, (_, near) = split.owned(model), neighbours(cluster, split)
    nbytes = owned * ((gradient + WEIGHT) / 2 if split.sharded else gradient)
    seconds = reduced(cluster, near, split.data // near, nbytes)
    parts, passes = (split.chunks, split.pipeline) if split.chunks > 1 else (split.layers(model), 1)
    hides = (1 - 1 / parts) * passes * backward if split.later and model.fused else 0.0
    coding = 3 * owned * (GRADIENT + gradient) if gradient != GRADIENT else 0.0  # encode, decode and add, decode
    return Exchange(behind(seconds, hides, seconds / parts) + cluster.gpu.move(coding), sent(split.data, nbytes))


def gathered(model: Model, cluster: Cluster, split: Split, forward: float, backward: float) -> Exchange:
    """Weights of which every replica keeps its share only, and their gradients, in as many bytes.

    In each microbatch weights are gathered twice, each layer's while the one before is computed, and gradients
    scattered. Earlier software does not gather node by node: every GPU gets all of it over its own part of the links.
    """
    nbytes, (_, near) = split.owned(model) * WEIGHT, neighbours(cluster, split)
    if not split.later and near < split.data:
        near = 1
    once = reduced(cluster, near, split.data // near, nbytes) / 2
    first = once / split.layers(model)
    waited = behind(once, forward, first) + behind(2 * once, backward, 2 * first)
    return Exchange(split.rounds(model) * waited, split.rounds(model) * 1.5 * sent(split.data, nbytes))


def behind(seconds: float, computation: float, end: float) -> float:
    """By how much a step becomes longer through messages that can hide behind computation, all but the end of them.

    >>> behind(4, 3, 1), behind(4, 2, 1), behind(4, 0, 1)
    (1.75, 2.5, 4.0)
    """
    waited = max(seconds - computation, end)
    return waited + SLOWS * (seconds - waited)

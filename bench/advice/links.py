"""What travels between GPUs, and how long it takes."""

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from allreduce.costs import estimate

from .gpus import Gpu
from .memory import Split

__all__ = ["ALGORITHM", "Cluster", "neighbours", "passed", "reduced", "sent"]

#: What long messages reach of a link's bandwidth, and seconds for a message between GPUs.
REACHED, ALPHA = 0.8, 5e-6
#: As many bytes as a ring's, in the fewest steps; of long messages it is the price of NCCL's rings and trees.
ALGORITHM = "circulant"


class Cluster(NamedTuple):
    """Equal nodes: of each GPU to the others of its node, and of each node to the others, bytes/s in each direction."""

    nodes: int
    gpus: int  # of a node
    gpu: Gpu
    intra: float
    inter: float


@lru_cache(maxsize=4096)
def sent(size: int, nbytes: float) -> float:
    """Bytes that each of `size` GPUs sends to all-reduce `nbytes`: 2 (p-1)/p of them.

    >>> sent(4, 1000)
    1500.0
    """
    return estimate(ALGORITHM, size, nbytes, alpha=0, beta=1, gamma=0)


@lru_cache(maxsize=4096)
def reduced(cluster: Cluster, near: int, far: int, nbytes: float) -> float:
    """Seconds to all-reduce among `near` GPUs in each of `far` nodes, all GPUs of a node sharing its links.

    Inside the nodes, then the shares across them; additions hide behind transfers. A reduce-scatter and an
    all-gather, as sequence parallelism has them, take as long.
    """
    inside = estimate(ALGORITHM, near, nbytes, ALPHA, 1 / (cluster.intra * REACHED), 0)
    across = estimate(ALGORITHM, far, nbytes / near, ALPHA, cluster.gpus / (cluster.inter * REACHED), 0)
    return inside + across


def passed(cluster: Cluster, split: Split, nbytes: float) -> float:
    """Seconds to pass activations to the next stage: every GPU sends its share, the receivers gather."""
    inside = split.tensor * split.data < cluster.gpus
    wire = (cluster.intra if inside else cluster.inter / cluster.gpus) * REACHED
    near, _ = neighbours(cluster, split)
    gather = 0.0 if split.later else reduced(cluster, near, 1, nbytes) / 2
    return ALPHA + nbytes / split.tensor / wire + gather


def neighbours(cluster: Cluster, split: Split) -> tuple[int, int]:
    """How many of a GPU's tensor peers, and of its data peers, are in its node; itself included.

    Ranks count tensor first, then data, then pipeline: who talks most sits together.
    """
    tensor = gcd(split.tensor, cluster.gpus)
    return tensor, gcd(split.data, cluster.gpus // tensor)

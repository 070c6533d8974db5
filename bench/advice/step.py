"""The time of a training step: what is computed, what each axis sends, and who waits."""

from math import gcd
from typing import NamedTuple

from allreduce.costs import estimate

from .gpus import Gpu
from .memory import GRADIENT, OPTIMISER, WEIGHT, Split
from .model import Model

__all__ = ["Cluster", "Step", "sent", "step"]

#: What long messages reach of a link's bandwidth, and seconds for a message between GPUs.
REACHED, ALPHA = 0.8, 5e-6
#: As many bytes as a ring's, in the fewest steps; of long messages it is the price of NCCL's rings and trees.
ALGORITHM = "circulant"
#: All-reduces of a layer and microbatch along the tensor axis: two forward, two backward, two when computed again.
TENSOR = 6


class Cluster(NamedTuple):
    """Equal nodes: of each GPU to the others of its node, and of each node to the others, bytes/s in each direction."""

    nodes: int
    gpus: int  # of a node
    gpu: Gpu
    intra: float
    inter: float


class Step(NamedTuple):
    """Seconds of a step by cause, and the bytes that a GPU sends in it along each axis."""

    compute: float
    tensor: float
    pipeline: float
    data: float
    bubble: float
    optimiser: float
    tensor_bytes: float
    pipeline_bytes: float
    data_bytes: float

    @property
    def seconds(self) -> float:
        return sum(self[:6])

    @property
    def ratio(self) -> float:
        """Communication over computation."""
        return (self.tensor + self.pipeline + self.data) / self.compute


def sent(size: int, nbytes: float) -> float:
    """Bytes that each of `size` GPUs sends to all-reduce `nbytes`: 2 (p-1)/p of them.

    >>> sent(4, 1000)
    1500.0
    """
    return estimate(ALGORITHM, size, nbytes, alpha=0, beta=1, gamma=0)


def reduced(cluster: Cluster, near: int, far: int, nbytes: float) -> float:
    """Seconds to all-reduce among `near` GPUs in each of `far` nodes, all GPUs of a node sharing its links.

    Inside the nodes, then the shares across them; additions hide behind transfers.
    """
    inside = estimate(ALGORITHM, near, nbytes, ALPHA, 1 / (cluster.intra * REACHED), 0)
    across = estimate(ALGORITHM, far, nbytes / near, ALPHA, cluster.gpus / (cluster.inter * REACHED), 0)
    return inside + across


def neighbours(cluster: Cluster, split: Split) -> tuple[int, int]:
    """How many of a GPU's tensor peers, and of its data peers, are in its node; itself included.

    Ranks count tensor first, then data, then pipeline: who talks most sits together.
    """
    tensor = gcd(split.tensor, cluster.gpus)
    return tensor, gcd(split.data, cluster.gpus // tensor)


def step(model: Model, cluster: Cluster, split: Split, gradient: float = GRADIENT) -> Step:
    """The price of a step; `gradient`: bytes that travel for one.

    Nothing is hidden behind computation but additions: stages wait for each other, and gradients for the last
    microbatch, as in the runs this was compared with. One forward, one backward, stages not interleaved.
    """
    data, tensor, pipeline, b, sharded = split
    layers, rounds = split.layers(model), split.rounds(model)
    near_tensor, near_data = neighbours(cluster, split)
    message = model.activation(b)

    forward = model.forward(cluster.gpu, b, tensor)
    output = 3 * model.output(cluster.gpu, b, tensor)
    if model.layers % pipeline:  # a shorter stage takes the output
        output = max(0.0, output - 4 * forward)
    compute = layers * 4 * forward + output  # backward is twice forward, and forward is done again

    axis = layers * TENSOR * reduced(cluster, near_tensor, tensor // near_tensor, message)
    inside = tensor * data < cluster.gpus
    wire = (cluster.intra if inside else cluster.inter / cluster.gpus) * REACHED
    gather = reduced(cluster, near_tensor, 1, message) / 2  # every GPU sends its share, the receivers gather
    hop = 2 * (ALPHA + message / tensor / wire + gather) if pipeline > 1 else 0.0

    owned = split.owned(model)
    state = WEIGHT + GRADIENT + 2 * OPTIMISER / (data if sharded else 1)
    coding = 3 * owned * (GRADIENT + gradient) if gradient != GRADIENT else 0.0  # encode, decode and add, decode
    return Step(
        compute=rounds * compute,
        tensor=rounds * axis,
        pipeline=rounds * hop,
        data=reduced(cluster, near_data, data // near_data, owned * gradient) + cluster.gpu.move(coding),
        bubble=(pipeline - 1) * (compute + axis + hop),
        optimiser=cluster.gpu.move(owned * state),
        tensor_bytes=rounds * layers * TENSOR * sent(tensor, message),
        pipeline_bytes=rounds * min(2, pipeline - 1) * message / tensor,  # to both neighbours, of a stage inside
        data_bytes=sent(data, owned * gradient),
    )

"""The time of a training step: what is computed, what each axis sends, and who waits."""

from typing import NamedTuple

from .gpus import slowest
from .links import Cluster, neighbours, passed, reduced, sent
from .memory import GRADIENT, OPTIMISER, WEIGHT, Split
from .model import Model
from .replicas import averaged, gathered

__all__ = ["AGAIN", "TENSOR", "Step", "step"]

#: All-reduces of a layer and microbatch along the tensor axis: two forward, two backward; two when computed again.
TENSOR, AGAIN = 4, 2


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
        """Communication that nothing hides, over computation."""
        return (self.tensor + self.pipeline + self.data) / self.compute


def step(model: Model, cluster: Cluster, split: Split, gradient: float = GRADIENT) -> Step:
    """The price of a step; `gradient`: bytes that travel for one.

    One forward, one backward, at the pace of the slowest GPU. Messages between stages hide behind computation if the
    stages are interleaved, for then there is another chunk to go on with.
    """
    data, tensor, pipeline, b, sharded, recompute, again, chunks, strewn = split
    layers, rounds = split.layers(model), split.rounds(model)
    near, _ = neighbours(cluster, split)
    message, pace = model.activation(b), slowest(split.gpus)

    forward = pace * model.forward(cluster.gpu, b, tensor, split.later)
    scores = pace * model.attention(cluster.gpu, b, tensor) if recompute == "selective" else 0.0
    whole = layers if recompute == "full" else again  # layers of which the forward pass is done again
    output = 3 * pace * model.output(cluster.gpu, b, tensor)
    if model.layers % pipeline:  # a shorter stage takes the output
        output = max(0.0, output - 3 * forward)
    compute = layers * 3 * forward + whole * forward + (layers - whole) * scores + output  # backward is twice forward

    reductions = layers * TENSOR + whole * AGAIN
    axis = reductions * reduced(cluster, near, tensor // near, message)
    hop = 2 * chunks * passed(cluster, split, message) if pipeline > 1 else 0.0
    waited = hop if chunks == 1 else max(0.0, hop - compute)

    owned = split.owned(model)
    shares = data if sharded else 1
    state = (WEIGHT + GRADIENT) / (shares if strewn else 1) + 2 * OPTIMISER / shares
    if strewn:
        exchange = gathered(model, cluster, split, layers * forward, compute - layers * forward)
    else:
        exchange = averaged(model, cluster, split, gradient, layers * 2 * forward)
    return Step(
        compute=rounds * compute,
        tensor=rounds * axis,
        pipeline=rounds * waited,
        data=exchange.seconds,
        bubble=(pipeline - 1) * (compute + axis + hop) / chunks,
        optimiser=cluster.gpu.move(owned * state),
        tensor_bytes=rounds * reductions * sent(tensor, message),
        pipeline_bytes=rounds * min(2 * chunks, pipeline * chunks - 1) * message / tensor,  # of a stage inside
        data_bytes=exchange.nbytes,
    )


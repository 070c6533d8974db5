"""What a GPU must hold of a split model."""

from typing import NamedTuple

from .model import Model

__all__ = ["Memory", "Split", "memory"]

#: Bytes a parameter: the weight and its gradient, which is summed in float32; a float32 weight and Adam's two moments.
WEIGHT, GRADIENT, OPTIMISER = 2, 4, 12


class Split(NamedTuple):
    """How a batch and a model are shared out: data x tensor x pipeline GPUs, `microbatch` sequences at a time."""

    data: int
    tensor: int
    pipeline: int
    microbatch: int = 1
    sharded: bool = False  # each replica of a weight keeps its share of the optimiser only (ZeRO stage 1)

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline

    def layers(self, model: Model) -> int:
        """Of the longest stage."""
        return -(-model.layers // self.pipeline)

    def rounds(self, model: Model) -> int:
        """Microbatches of a replica in a step."""
        return model.batch // (self.data * self.microbatch)

    def owned(self, model: Model) -> float:
        """Parameters of a GPU of the first stage, which holds the embedding."""
        return (self.layers(model) * model.weights + model.embedding) / self.tensor


class Memory(NamedTuple):
    """Bytes of the fullest GPU."""

    weights: float
    gradients: float
    optimiser: float
    activations: float  # the inputs of layers, and one layer at work: the others are computed again
    activations_kept: float  # had nothing to be computed again; not in the total

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimiser + self.activations


def memory(model: Model, split: Split) -> Memory:
    """The fuller of the first stage, which has most microbatches in flight, and the last, which has the output.

    One forward, one backward: stage i of p starts p - i microbatches before it ends the first.
    """
    layers, b = split.layers(model), split.microbatch
    first = min(split.pipeline, split.rounds(model)) * layers
    work, output = model.kept(b, split.tensor), model.logits(b, split.tensor)
    kept = max(first * work, layers * work + output)
    if split.pipeline == 1:
        work = max(work, output)
    activations = max(first * model.activation(b) + work, layers * model.activation(b) + max(work, output))
    owned = split.owned(model)
    share = split.data if split.sharded else 1
    return Memory(WEIGHT * owned, GRADIENT * owned, OPTIMISER * owned / share, activations, kept)

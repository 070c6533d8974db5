"""What a GPU must hold of a split model."""

from typing import NamedTuple

from .model import Model

__all__ = ["Memory", "Split", "memory"]

#: Bytes a parameter: the weight and its gradient, which is summed in float32; a float32 weight and Adam's two moments.
WEIGHT, GRADIENT, OPTIMISER = 2, 4, 12


class Split(NamedTuple):
    """How a batch and a model are shared out: data x tensor x pipeline GPUs, `microbatch` sequences at a time.

    Attributes
    ----------
    sharded : bool
        Each replica of a weight keeps its share of the optimiser only (ZeRO stage 1).
    strewn : bool
        And its share of weights and gradients, gathered layer by layer (ZeRO stage 3, FSDP).
    recompute : str
        What of the forward pass is done again in the backward pass: "none"; "selective", of every layer the scores of
        attention; "full", everything, as software before 2022 did.
        See: Korthikanti et al., arXiv 2205.05198.
    again : int
        Layers of a GPU that are computed again as a whole, though the others are not.
    chunks : int
        Parts of the model, far from each other, that a GPU works on in turn (interleaved stages).
    """

    data: int
    tensor: int
    pipeline: int
    microbatch: int = 1
    sharded: bool = False
    recompute: str = "full"
    again: int = 0
    chunks: int = 1
    strewn: bool = False

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def later(self) -> bool:
        """Whether it takes software of 2022 or later.

        That shares out the sequence along the tensor axis where nothing else is split (sequence parallelism), and
        sends gradients during the backward pass.
        """
        return self.recompute != "full"

    def layers(self, model: Model) -> int:
        """Of the longest stage."""
        return -(-model.layers // self.pipeline)

    def rounds(self, model: Model) -> int:
        """Microbatches of a replica in a step."""
        return model.batch // (self.data * self.microbatch)

    def flying(self, model: Model) -> float:
        """Microbatches that the first stage has begun and not ended, at most: one forward, one backward.

        With c chunks the last pass of a microbatch starts later: (p-1)/c more, in whole layers of the stage.
        """
        extra = (self.pipeline - 1) / self.chunks if self.chunks > 1 else 0
        return min(self.pipeline + extra, self.rounds(model))

    def owned(self, model: Model) -> float:
        """Parameters of a GPU of the first stage, which holds the embedding."""
        return (self.layers(model) * model.weights + model.embedding) / self.tensor


class Memory(NamedTuple):
    """Bytes of the fullest GPU."""

    weights: float
    gradients: float
    optimiser: float
    activations: float  # kept from forward to backward, and what one layer needs besides while at work

    @property
    def total(self) -> float:
        return sum(self)


def memory(model: Model, split: Split) -> Memory:
    """Strewn weights are there of two layers at a time, of which one comes in, and gradients of one, in 16 bits."""
    owned, share = split.owned(model), split.data if split.sharded else 1
    here, layer = (owned / share, WEIGHT * model.weights / split.tensor) if split.strewn else (owned, 0.0)
    weights, gradients = WEIGHT * here + 2 * layer, GRADIENT * here + layer
    return Memory(weights, gradients, OPTIMISER * owned / share, activations(model, split))


def activations(model: Model, split: Split) -> float:
    """Of the fuller of the first stage, which has most microbatches in flight, and the last, which has the output."""
    b, tensor, again = split.microbatch, split.tensor, split.again
    layers, output = split.layers(model), model.logits(b, tensor)
    whole, scores = model.kept(b, tensor, split.later), model.kept_scores(b, tensor)
    work = {"none": 0.0, "selective": scores, "full": whole}[split.recompute]  # of one layer at a time
    kept = (layers - again) * (whole - work) + again * model.activation(b) / tensor
    if not split.later:
        kept = float(layers) * model.activation(b)
    if again:
        work = whole
    return max(split.flying(model) * kept + work, kept + max(work, output))

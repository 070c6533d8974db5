"""A transformer as work: what its layers multiply, keep and move."""

from functools import lru_cache
from typing import NamedTuple

from .gpus import PRODUCT, Gpu

__all__ = ["Model"]

#: Kernels of a layer's forward pass, and seconds that the host takes to launch one.
LAUNCHES, LAUNCH = 20, 5e-6
#: Bytes per logit while the loss is computed: itself in 16 bits, in 32 bits, and its gradient.
LOGIT = 10


class Model(NamedTuple):
    """A decoder of equal layers, its word embedding shared with the output; mixed precision.

    Attributes
    ----------
    params, layers, hidden, heads, vocab : int
        `params` are all of them, the embedding included.
    seq : int
        Tokens of a sequence.
    batch : int
        Sequences of a step, over all GPUs.
    fused : bool
        Attention in one kernel, which keeps no scores (FlashAttention); without, they go through memory.
    """

    params: int
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    batch: int
    fused: bool = False

    @property
    def embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def weights(self) -> float:
        """Parameters of one layer."""
        return (self.params - self.embedding) / self.layers

    def check(self) -> "Model":
        """Itself, if the numbers can belong to one model: a layer of GPT has 12 hidden**2 parameters."""
        if not 4 <= self.weights / self.hidden**2 <= 48:
            usual = 12 * self.layers * self.hidden**2 + self.embedding
            size = f"{self.layers} layers of hidden size {self.hidden}"
            raise ValueError(f"{self.params:.3g} parameters cannot be: {size} have about {usual:.3g}")
        return self

    def flops(self, again: float = 1.0, scores: bool = True) -> float:
        """FLOP of a step as published runs count them: forward, backward, and what is computed again.

        See: Narayanan et al., arXiv 2104.04473, section 5.1; with 12 hidden**2 weights a layer it is their formula.

        Parameters
        ----------
        again : float
            Part of the layers that are computed again.
        scores : bool
            Whether the scores of all the others are.
        """
        attended = 16 if scores else 12 + 4 * again
        layer = (6 + 2 * again) * self.weights + attended * self.seq * self.hidden
        return self.batch * self.seq * (self.layers * layer + 6 * self.embedding)

    def activation(self, b: int) -> int:
        """Bytes that go from layer to layer, of b sequences: 16-bit numbers."""
        return 2 * self.seq * b * self.hidden

    def kept(self, b: int, tensor: int, sequence: bool = False) -> float:
        """Bytes of a layer's inner activations that its backward pass needs, on one of `tensor` GPUs.

        See: Korthikanti et al., arXiv 2205.05198, equations 2 and 4. What is not split is computed by every GPU;
        with `sequence` parallelism nothing is left that is not.
        """
        values = self.seq * b * self.hidden
        return values * (34 / tensor if sequence else 10 + 24 / tensor) + self.kept_scores(b, tensor)

    def kept_scores(self, b: int, tensor: int) -> float:
        """Bytes of `kept` that are of the scores: themselves, and before and after dropout."""
        return 5 * self.scores(b, tensor)

    def scores(self, b: int, tensor: int) -> float:
        """Numbers that say how much a token attends to another, as far as they are stored."""
        return 0.0 if self.fused else self.heads * self.seq**2 * b / tensor

    def logits(self, b: int, tensor: int) -> float:
        """Bytes of the output layer."""
        return LOGIT * self.seq * b * self.vocab / tensor

    @lru_cache(maxsize=1024)  # noqa: B019 - a tuple
    def forward(self, gpu: Gpu, b: int, tensor: int, sequence: bool = False) -> float:
        """Seconds of a layer's forward pass on one of `tensor` GPUs, without communication.

        Four products with weights, attention, and all that only moves memory: what is kept is written once and read
        once. Small layers take as long as their kernels take to launch.
        """
        rows, h, split = self.seq * b, self.hidden, self.hidden / tensor
        shapes = (3 * split, h), (h, split), (4 * split, h), (h, 4 * split)
        products = sum(gpu.matmul(rows, n, k) for n, k in shapes) * self.weights / (12 * h * h)
        moved = gpu.move(2 * self.kept(b, tensor, sequence))
        return max(products + self.attention(gpu, b, tensor) + moved, LAUNCHES * LAUNCH)

    def attention(self, gpu: Gpu, b: int, tensor: int) -> float:
        """Seconds of two products with the scores."""
        values = self.seq * b * self.hidden / tensor
        attended = 2 * values * self.seq / (gpu.flops * PRODUCT)
        return 2 * max(attended, gpu.move(2 * self.scores(b, tensor) + 4 * values))

    def output(self, gpu: Gpu, b: int, tensor: int) -> float:
        """Seconds of the output layer's forward pass and the loss."""
        product = gpu.matmul(self.seq * b, self.vocab / tensor, self.hidden)
        return product + gpu.move(self.logits(b, tensor))

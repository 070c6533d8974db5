"""Three models, each a row of layers of one width, so that they can be cut in every way.

A layer is x + down(gelu(up(norm(x)))), between two linear layers that tensor parallel ranks share; in front of that a
convolutional network looks at neighbours, and a GPT at the characters before.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from allreduce import Communicator
from allreduce.parallel.tensor import ColumnParallelLinear, RowParallelLinear

from .data import CONTEXT

__all__ = ["HEADS", "WIDTHS", "cut", "layers", "loss_of"]

#: Of attention.
HEADS = 4
#: If nothing else is wished for.
WIDTHS = {"mlp": 64, "cnn": 32, "gpt": 64}


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up: nn.Module = nn.Linear(width, wide)
        self.down: nn.Module = nn.Linear(wide, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))

    def cut(self, comm: Communicator) -> None:
        assert isinstance(self.up, nn.Linear) and isinstance(self.down, nn.Linear)
        self.up, self.down = ColumnParallelLinear(self.up, comm), RowParallelLinear(self.down, comm)


class Neighbours(nn.Module):
    """Every channel's 3 x 3 pixels; what comes in has shape (sample, row, column, channel)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Attention(nn.Module):
    """Causal; its heads are cut as columns are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.each = nn.LayerNorm(width), width // HEADS
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out: nn.Module = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x, rest = self.norm(x), x
        parts = self.query(x), self.key(x), self.value(x)
        query, key, value = (part.unflatten(-1, (-1, self.each)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return rest + self.out(seen.transpose(1, 2).flatten(2))

    def cut(self, comm: Communicator) -> None:
        for name in ("query", "key", "value"):
            setattr(self, name, ColumnParallelLinear(getattr(self, name), comm))
        assert isinstance(self.out, nn.Linear)
        self.out = RowParallelLinear(self.out, comm)


class Characters(nn.Module):
    """What a character is, and where."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.what, self.where = nn.Embedding(classes, width), nn.Embedding(CONTEXT, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.what(x) + self.where.weight[: x.shape[1]]


class Pixels(nn.Module):
    """Rows of 64 numbers as images, and these as 4 x 4 pixels of many channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lift = nn.Conv2d(1, width, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.lift(x.unflatten(1, (1, 8, 8))).permute(0, 2, 3, 1)


def layers(model: str, width: int, depth: int, classes: int) -> list[nn.Module]:
    """The same on all ranks: a first one, `depth` alike, and a last one."""
    torch.manual_seed(0)
    last = nn.LayerNorm(width), nn.Linear(width, classes)
    if model == "mlp":
        return [nn.Linear(64, width), *(FeedForward(width, width) for _ in range(depth)), nn.Sequential(*last)]
    if model == "cnn":
        blocks = [nn.Sequential(Neighbours(width), FeedForward(width, 2 * width)) for _ in range(depth)]
        flat = nn.LayerNorm(width), nn.Flatten(), nn.Linear(16 * width, classes)
        return [Pixels(width), *blocks, nn.Sequential(*flat)]
    blocks = [nn.Sequential(Attention(width), FeedForward(width, 4 * width)) for _ in range(depth)]
    return [Characters(classes, width), *blocks, nn.Sequential(*last)]


def cut(stage: nn.Module, comm: Communicator) -> None:
    """Share the linear layers of a stage among the ranks of a tensor axis."""
    for module in list(stage.modules()):
        if isinstance(module, (FeedForward, Attention)):
            module.cut(comm)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over all that is to be told."""
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())

"""Sending more at the beginning of a training, when gradients change fast."""

from dataclasses import replace
from typing import Any

from .codec import Codec

__all__ = ["check", "warmed"]

#: Shares of the values, one after the other, and then that of the codec.
RATIOS = (0.25, 0.0625, 0.0156, 0.004, 0.001)


def check(codec: Codec, warmup: int) -> None:
    """Refuse a warm-up of a codec that sends no share of the values."""
    if warmup and not hasattr(codec, "ratio"):
        raise ValueError(f"warmup needs a codec with a ratio, such as topk, not {codec}")


def warmed(codec: Any, warmup: int, step: int) -> Any:
    """The codec for a step: during the first `warmup` ones a denser one, in five stages.

    See: Lin et al., Deep gradient compression, ICLR 2018.

    >>> from compress import get
    >>> [str(warmed(get("topk:ratio=0.03"), 10, step)) for step in (0, 2, 4, 10)]
    ['topk:ratio=0.25', 'topk:ratio=0.0625', 'topk:ratio=0.03', 'topk:ratio=0.03']
    """
    if step >= warmup:
        return codec
    return replace(codec, ratio=max(codec.ratio, RATIOS[len(RATIOS) * step // warmup]))

"""What methods share that send a share of the values."""

from dataclasses import dataclass
from typing import ClassVar

from . import doors
from .method import Method
from .topk import TopK

__all__ = ["Sparsified"]


@dataclass
class Sparsified(Method):
    """A method that sends the largest values.

    Parameters
    ----------
    ratio : float
        Share of the values that is sent, rounded up.
    warmup : int
        Steps in which more is sent, see `warmup.warmed`.
    """

    ratio: float = 0.01
    warmup: int = 0
    by_value: ClassVar = {"residual": -0.0}

    def __post_init__(self) -> None:
        doors.share(self, "ratio")
        doors.whole(self, "warmup")

    @property
    def codec(self) -> TopK:
        return TopK(self.ratio)

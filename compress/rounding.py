"""What codecs that round have in common."""

from . import doors
from .blocks import Blockwise

__all__ = ["Rounding"]


class Rounding(Blockwise):
    """A codec of blocks that rounds to nearest or at random; correlated: at random, but not alike on all ranks.

    Correlated, the random numbers of 2**k neighbouring ranks for the same element are one in each of 2**k equal parts
    of their range, so that errors of alike values cancel: a sum is off by less than a step, however many ranks there
    are. Each rank's alone is unbiased.

    See: Suresh et al., Correlated quantization for distributed mean estimation, ICML 2022.
    """

    rounding: str

    def __post_init__(self) -> None:
        doors.power_of_two(self, "block")
        doors.choice(self, "rounding", "nearest", "stochastic", "correlated")
        doors.whole(self, "seed")

    @property
    def random(self) -> bool:
        return self.rounding != "nearest"

    @property
    def correlated(self) -> bool:
        return self.rounding == "correlated"

"""Where a block stands, and the functions that turn it into a message: what passes between codecs and their callers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allreduce.execute.elements import Kernel

__all__ = ["Context", "Kernels"]


class Context(NamedTuple):
    """Where a block stands, so that its random numbers can be drawn again: in any chunks, anywhere, after a resume.

    Attributes
    ----------
    step : int
        Number of the operation, below 2**40.
    offset : int
        Global index of the first element of the block.
    rank, size : int
        Who encodes. Leave rank 0 where several ranks must encode the same values to the same bytes.
    """

    step: int = 0
    offset: int = 0
    rank: int = 0
    size: int = 1

    @property
    def stream(self) -> int:
        """The number of the random stream, which is what kernels take as their step."""
        return self.rank << 40 | self.step


class Kernels(NamedTuple):
    """A codec for the compiled loop: C functions (out, a, b, count, step) on addresses and a count of elements.

    Attributes
    ----------
    encode : Kernel
        out = message of the values at a; b is the global index of the first, a plain number, step the stream.
    decode : Kernel
        out = values of the message at a.
    add : Kernel
        out = values at a + values of the message at b; out may be a.
    rest : Kernel, optional
        out = values at a - values of the message at b; out may be a. Where there is a shorter way than by decoding.
    losing : Kernel, optional
        As encode, and values at a become what the message lacks of them. Where that is one kernel.
    hop : function (index, losing) -> Kernel, optional
        out = message of the sum of the values at a and those of the message at b; the global index of the first is not
        in b, so there is a kernel for each. If losing, values at a become what `out` lacks of the sum.
    """

    encode: "Kernel"
    decode: "Kernel"
    add: "Kernel"
    rest: "Kernel | None" = None
    losing: "Kernel | None" = None
    hop: "Callable[[int, bool], Kernel] | None" = None

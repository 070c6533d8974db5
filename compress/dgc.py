"""Momentum that is kept, and sent, value by value."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from allreduce.execute.cache import keep

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, working
from .vectors import fitting, flat
from .warmup import check, warmed

__all__ = ["DGC"]


@dataclass
class DGC(Method):
    """Error feedback of the velocity instead of the gradient, for codecs that send single values.

    The velocity u is momentum times u plus the gradient; velocities add up, and what the codec keeps of that sum is
    sent. What was sent leaves the sum, and its velocity stops (factor masking), or it would push on in an old
    direction. The result replaces gradient and momentum: the optimizer is to be plain gradient descent. A step that is
    not finite leaves the memory as it was.

    Parameters
    ----------
    codec : Codec
        Such as `Sampled` or `TopK`.
    momentum : float
        Above 0, up to 1.
    warmup : int
        Steps in which more is sent, see `warmup.warmed`.

    See: Lin et al., Deep gradient compression, ICLR 2018.

    >>> from compress import get
    >>> method = get("dgc(topk:ratio=0.5):momentum=0.5")
    >>> alone = lambda x, op="sum", codec=None: x
    >>> for step in range(3):
    ...     print(method.reduce(np.array([4, 3], np.float32), alone, "weight"))
    [4. 0.]
    [0.  7.5]
    [10.  0.]
    """

    codec: Codec
    momentum: float = 0.9
    warmup: int = 0
    by_value: ClassVar = {"velocity": 0.0, "residual": 0.0}

    def __post_init__(self) -> None:
        doors.share(self, "momentum")
        doors.whole(self, "warmup")
        check_codec(self)
        check(self.codec, self.warmup)
        doors.shrinking(self.codec)

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        codec, dtype = warmed(self.codec, self.warmup, at.step), working(x)
        values = x.astype(dtype, "C", copy=False)
        velocity, wanted = states = [self.room(key, part, x.shape, dtype) for part in self.by_value]
        _push(self.momentum, *map(flat, (values, *(self.kept(key, part, x) for part in self.by_value), *states)))
        sent = codec.decode(codec.encode(wanted, at=at), fitting(out, x.shape, x.dtype))
        _stop(*map(flat, (sent.astype(dtype, copy=False), *states)))
        total = allreduce(sent, codec=codec)
        self.turn(key, velocity=velocity, residual=wanted)
        return total


@keep
@njit(nogil=True, error_model="numpy")
def _push(momentum, x, velocity, residual, pushed, wanted):
    """Momentum times velocity plus x; and what is not sent yet plus that."""
    share = velocity.dtype.type(momentum)
    for i in range(x.size):
        pushed[i] = share * velocity[i] + x[i]
        wanted[i] = residual[i] + pushed[i]


@keep
@njit(nogil=True, error_model="numpy")
def _stop(sent, velocity, wanted):
    """Of what is sent velocities stop, and nothing is left."""
    for i in range(sent.size):
        velocity[i] = 0 if sent[i] != 0 else velocity[i]
        wanted[i] -= sent[i]

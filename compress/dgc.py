"""Momentum that is kept, and sent, value by value."""

from dataclasses import dataclass, field

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, working
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
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        velocity, residual = (self.recall(key, part, x.shape) for part in ("velocity", "residual"))
        if velocity is None or residual is None:
            velocity = residual = np.zeros(x.shape, dtype)
        velocity = dtype.type(self.momentum) * velocity + x.astype(dtype)
        wanted = residual + velocity
        sent = codec.decode(codec.encode(wanted, at=at), np.empty(x.shape, x.dtype))
        velocity, residual = np.where(sent != 0, 0, velocity), wanted - sent
        total = allreduce(sent, codec=codec)
        self.remember(key, velocity=velocity, residual=residual)
        return total

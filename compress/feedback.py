"""Error feedback: what a codec loses is added to the next gradient."""

from dataclasses import dataclass, field

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, working
from .warmup import check, warmed

__all__ = ["ErrorFeedback"]


@dataclass
class ErrorFeedback(Method):
    """Send what the codec keeps of gradient plus residual; the rest is the next residual.

    Over time nothing is lost: what was sent, plus the residual, is the sum of all gradients. The all-reduce is given
    what was sent and the codec, so that its first hop loses nothing more if the codec is idempotent; losses of later
    hops, on partial sums, are not fed back. A gradient that is not finite is sent but leaves the residual as it was.

    Parameters
    ----------
    codec : Codec
    warmup : int
        Steps in which a codec with a ratio sends more, see `warmup.warmed`.

    See: Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Stich et al., NeurIPS 2018.

    >>> from compress import get
    >>> method = get("feedback(topk:ratio=0.25)")
    >>> alone = lambda x, op="sum", codec=None: x
    >>> gradient = np.array([4, 3, 2, 1], np.float32)
    >>> for step in range(3):
    ...     print(method.reduce(gradient, alone, "weight"), method.residual("weight"))
    [4. 0. 0. 0.] [0. 3. 2. 1.]
    [0. 6. 0. 0.] [4. 0. 4. 2.]
    [8. 0. 0. 0.] [0. 3. 6. 3.]
    """

    codec: Codec
    warmup: int = 0
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        doors.whole(self, "warmup")
        check(self.codec, self.warmup)

    def reduce(self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START) -> np.ndarray:
        codec = warmed(self.codec, self.warmup, at.step)
        residual = self.recall(key, "residual", x.shape)
        wanted = x.astype(working(x))
        if residual is not None:
            wanted += residual
        sent = codec.decode(codec.encode(wanted, at=at), np.empty_like(x))
        self.remember(key, residual=wanted - sent)
        return allreduce(sent, codec=codec)

    def residual(self, key: str) -> np.ndarray:
        """What of a tensor was not sent yet."""
        return self.memory[key]["residual"]

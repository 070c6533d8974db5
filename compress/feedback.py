"""Error feedback: what a codec loses is added to the next gradient."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, working
from .warmup import check, codec_of

__all__ = ["ErrorFeedback", "chosen", "with_all_losses"]


@dataclass
class ErrorFeedback(Method):
    """Send what the codec keeps of gradient plus residual; the rest is the next residual.

    Over time nothing is lost: what was sent, plus the residual, is the sum of all gradients. The all-reduce is given
    what was sent and the codec, so that its first hop loses nothing more if the codec is idempotent; losses of later
    hops, on partial sums, are fed back if asked for, at the price of decoding all that is encoded: then the sum of all
    results, plus the residuals of all ranks, is that of all gradients. A gradient that is not finite is sent but
    leaves the residual as it was.

    Parameters
    ----------
    codec : Codec
    warmup : int
        Steps of a tensor in which a codec with a ratio sends more, see `warmup.warmed`.
    hops : bool
        Feed back the losses of every hop, each on the rank that encodes, and not only of the first.

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
    hops: bool = False
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        doors.whole(self, "warmup")
        doors.choice(self, "hops", True, False)
        check(self.codec, self.warmup)

    def reduce(self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START) -> np.ndarray:
        codec = codec_of(self, key)
        if self.hops:
            return with_all_losses(self, codec, x, allreduce, key)
        return allreduce(chosen(self, codec, x, key, at), codec=codec)

    def residual(self, key: str) -> np.ndarray:
        """What of a tensor was not sent yet."""
        return self.memory[key]["residual"]


def chosen(method: Method, codec: Codec, x: np.ndarray, key: str, at: Context) -> np.ndarray:
    """What a codec keeps of x plus the residual of a tensor; the rest is the next residual."""
    wanted = _wanted(method, x, key)
    sent = codec.decode(codec.encode(wanted, at=at), np.empty(x.shape, x.dtype))
    method.remember(key, residual=wanted - sent)
    return sent


def with_all_losses(
    method: Method, codec: Codec, x: np.ndarray, allreduce: Callable[..., np.ndarray], key: str, **how: str
) -> np.ndarray:
    """The sum of x plus the residual of a tensor; what this rank loses at any hop is the next residual."""
    wanted = _wanted(method, x, key)
    lost = np.zeros_like(wanted)
    total = allreduce(wanted, codec=codec, lost=lost, **how)
    method.remember(key, residual=lost)
    return total.astype(x.dtype)


def _wanted(method: Method, x: np.ndarray, key: str) -> np.ndarray:
    residual = method.recall(key, "residual", x.shape)
    wanted = x.astype(working(x), order="C")
    if residual is not None:
        wanted += residual
    return wanted

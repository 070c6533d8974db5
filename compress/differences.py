"""What changes is sent."""

from dataclasses import dataclass, field

import numpy as np

from . import doors
from .codec import START, Codec
from .context import Context
from .method import AllReduce, Method, check_codec, working

__all__ = ["Differences"]


@dataclass
class Differences(Method):
    """Encode how a tensor differs from a state that all ranks can follow; nothing where it does not.

    Every rank has a state h, and the sum H of all states. With m = x - h less all that this rank's encodings lose, on
    any hop, the result is H plus the sum of m; then alpha m is added to h, and alpha times the sum to H, which so
    remains the sum of all h. With alpha = 1 that is EF21, for any codec whose error is less than its input: of a tensor
    that stays the same the error falls geometrically. With an unbiased codec and alpha up to 1 / (1 + its variance over
    the square of its input) it is DIANA, which stays unbiased. A step that is not finite on any rank leaves all states
    as they were.

    Parameters
    ----------
    codec : Codec
    alpha : float
        How far the state follows, above 0 up to 1.

    See: Richtarik et al., EF21, NeurIPS 2021; Mishchenko et al., DIANA, 2019.

    >>> from compress import get
    >>> from compress.simulate import run
    >>> gradient = np.array([4, 3, 2, 1], np.float32)
    >>> def work(rank, allreduce):
    ...     method = get("ef21(topk:ratio=0.25)")
    ...     return [method.reduce(gradient, allreduce, "weight") for step in range(3)]
    >>> print(*run(2, work)[0])
    [8. 0. 0. 0.] [8. 6. 0. 0.] [8. 6. 4. 0.]
    """

    codec: Codec
    alpha: float = 0.5
    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_codec(self)
        doors.share(self, "alpha")

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        dtype = working(x)
        own, total = (self.recall(key, part, x.shape) for part in ("own", "total"))
        if own is None or total is None:
            own, total = np.zeros(x.shape, dtype), np.zeros(x.shape, dtype)
        lost = x.astype(dtype, order="C") - own
        changes = allreduce(lost, codec=self.codec, lost=lost)
        change, follow = x - own - lost, dtype.type(self.alpha)
        self.remember(key, own=own + follow * change, total=total + follow * changes)
        return (total + changes).astype(x.dtype)

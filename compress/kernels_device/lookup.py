"""Which codecs have kernels for CUDA devices."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..table import TABLE
from .blocks import CONSTANTS, blockwise
from .blocktopk import blocktopk
from .bounded import bounded
from .coding import Coding
from .randomk import randomk
from .sparse import sparse

__all__ = ["coding"]

#: By the module of a codec.
FAMILIES: dict[str, Callable[[Any, np.dtype], Coding]] = {
    **dict.fromkeys(CONSTANTS, blockwise),
    **dict.fromkeys(("topk", "threshold", "sampled"), sparse),
    "blocktopk": blocktopk,
    "bounded": bounded,
    "randomk": randomk,
}
#: Where a number ends is known only when all before it have been read, which is not for a thousand threads.
INSTEAD = {"elias": "; for elias take qsgd, which rounds alike, to a fixed width"}


@cache
def coding(codec: Any, dtype: np.dtype) -> Coding:
    """The kernels of a codec for a dtype, compiled on first use.

    Raises
    ------
    TypeError
        A codec without kernels for the device, naming those with.
    """
    package, _, module = type(codec).__module__.rpartition(".")
    if package != "compress" or module not in FAMILIES:
        names = ", ".join(name for name, entry in TABLE.items() if entry.module in FAMILIES)
        raise TypeError(f"{codec} has no kernels for a CUDA device; have {names}{INSTEAD.get(module, '')}")
    return FAMILIES[module](codec, dtype)

"""Codecs of blocks: the kernels of `kernels_host`, with the same bits, and fused ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from allreduce.execute.device_kernels import launcher, name_of
from allreduce.execute.elements import Kernel

from ..blocks import Blockwise
from ..eden import CENTRES, EDGES
from .text import largest, text_of

__all__ = ["DeviceKernels", "block_kernels", "source_of"]

#: What the C++ of a codec is told about it: types are text.
CONSTANTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cast": lambda codec: {"To": name_of(np.dtype(codec.to)), "LIMIT": largest(codec.to)},
    "eden": lambda codec: {
        "WIDTH": codec.width, "CENTRES": CENTRES[codec.width - 1], "EDGES": EDGES[codec.width - 1]
    },
    "fp8": lambda codec: dict(zip(("MANTISSA", "BIAS", "TOP_EXPONENT"), codec.params)),
    "linear": lambda codec: dict(zip(("WIDTH", "STOCHASTIC", "L2"), codec.params)),
    "natural": lambda codec: {"STOCHASTIC": int(codec.random)},
    "sign": lambda codec: {},
}
#: Values of a thread, and the fewest threads of a block.
RUN, THREADS = 8, 256


class DeviceKernels(NamedTuple):
    """A codec for arrays on a device; addresses are those of device memory.

    Attributes
    ----------
    encode, decode, add : Kernel
        As of `Kernels`.
    hop : function (out, a, message, index, count, step)
        out = message of the sum of the values at `a` and those of another message, which is not written anywhere.
    encode_losing : function (out, a, lost, index, count, step)
        As encode; values at `lost` += values at `a` - what `out` decodes to.
    hop_losing : function (out, a, message, lost, index, count, step)
        Both.
    """

    encode: Kernel
    decode: Kernel
    add: Kernel
    hop: Callable[..., None]
    encode_losing: Callable[..., None]
    hop_losing: Callable[..., None]


def block_kernels(codec: Blockwise, dtype: Any) -> DeviceKernels:
    """The kernels of a codec of blocks for a dtype, compiled on first use.

    Raises
    ------
    TypeError
        A codec without kernels for the device, naming those with.
    """
    dtype = np.dtype(dtype)
    text = source_of(codec, dtype)
    threads = max(THREADS, codec.strip // RUN)

    def run(name: str, of_count: int) -> Callable[..., None]:
        launch = launcher(text, name, threads)

        def call(*arguments: int) -> None:
            if arguments[of_count]:
                launch(-(-arguments[of_count] // (RUN * threads)), *arguments)

        return call

    decode, add = run("decode", -1), run("add", -1)
    return DeviceKernels(
        Kernel(0, run("encode", -2)),
        Kernel(0, lambda out, a, b, count, step: decode(out, a, count)),
        Kernel(0, lambda out, a, b, count, step: add(out, a, b, count)),
        run("hop", -2),
        run("encode_losing", -2),
        run("hop_losing", -2),
    )


def source_of(codec: Blockwise, dtype: np.dtype) -> str:
    """The text of all kernels of a codec for a dtype."""
    name = type(codec).__module__.rpartition(".")[2]
    if name not in CONSTANTS:
        raise TypeError(f"{codec} has no kernels for a CUDA device; have {', '.join(CONSTANTS)}")
    common = {"BLOCK": codec.strip, "SEED": codec.seed, "CORRELATED": int(codec.correlated)}
    return text_of(("arrays", "values", name, "blocks"), dtype, common | CONSTANTS[name](codec))

"""Codecs of blocks: the kernels of `kernels_host`, with the same bits, and fused ones."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from allreduce.execute.device_kernels import launcher, name_of
from allreduce.execute.elements import Kernel

from ..allocation import LEVELS, MANTISSAS, PRICES, ROOTS
from ..blocks import Blockwise
from ..context import Context
from ..eden import CENTRES, EDGES
from .coding import Coding, Read
from .text import largest, text_of

__all__ = ["DeviceKernels", "block_kernels", "blockwise", "source_of"]



def _linear(codec: Any) -> dict[str, Any]:
    return dict(zip(("WIDTH", "STOCHASTIC", "L2"), codec.params))


#: What the C++ of a codec is told about it: types are text.
CONSTANTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cast": lambda codec: {"To": name_of(np.dtype(codec.to)), "LIMIT": largest(codec.to)},
    "dynamic": lambda codec: {
        "SIXTEENTHS": codec.params[0], "LEVELS": LEVELS, "PRICES": PRICES, "ROOTS": ROOTS, "MANTISSAS": MANTISSAS
    },
    "eden": lambda codec: {
        "WIDTH": codec.width, "CENTRES": CENTRES[codec.width - 1], "EDGES": EDGES[codec.width - 1]
    },
    "fp8": lambda codec: dict(zip(("MANTISSA", "BIAS", "TOP_EXPONENT"), codec.params)),
    "linear": _linear,
    "natural": lambda codec: {"STOCHASTIC": int(codec.random)},
    "sign": lambda codec: {},
    "spikes": _linear,
}
#: What else a codec is made of.
PARTS = {"spikes": ("linear",)}
#: Values of a thread, and the fewest threads of a block.
RUN, THREADS = 8, 256


class DeviceKernels(NamedTuple):
    """A codec for arrays on a device; addresses are those of device memory.

    Attributes
    ----------
    encode, decode, add, rest, losing : Kernel
        As of `Kernels`.
    hop : function (out, a, message, index, count, step)
        out = message of the sum of the values at `a` and those of another message, which is not written anywhere.
    hop_losing : function (out, a, message, index, count, step)
        As hop; values at `a` become what `out` lacks of the sum.
    """

    encode: Kernel
    decode: Kernel
    add: Kernel
    rest: Kernel
    losing: Kernel
    hop: Callable[..., None]
    hop_losing: Callable[..., None]


def over_runs(text: str, threads: int, name: str, of_count: int) -> Callable[..., None]:
    """A kernel each of whose threads does a RUN of as many values as one of its arguments says."""
    launch = launcher(text, name, threads)

    def call(*arguments: int) -> None:
        if arguments[of_count]:
            launch(-(-arguments[of_count] // (RUN * threads)), *arguments)

    return call


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

    run = partial(over_runs, text, threads)
    decode, add, rest = run("decode", -1), run("add", -1), run("rest", -1)
    return DeviceKernels(
        Kernel(0, run("encode", -2)),
        Kernel(0, lambda out, a, b, count, step: decode(out, a, count)),
        Kernel(0, lambda out, a, b, count, step: add(out, a, b, count)),
        Kernel(0, lambda out, a, b, count, step: rest(out, a, b, count)),
        Kernel(0, run("losing", -2)),
        run("hop", -2),
        run("hop_losing", -2),
    )


def blockwise(codec: Blockwise, dtype: np.dtype) -> Coding:
    """A codec of blocks for a dtype, compiled on first use."""
    kernels = block_kernels(codec, dtype)

    def encode(out: int, a: int, count: int, at: Context, scratch: int, read: Read) -> int:
        kernels.encode.call(out, a, at.offset, count, at.stream)
        return codec.nbytes(count)

    def losing(out: int, a: int, count: int, at: Context, scratch: int, read: Read) -> int:
        kernels.losing.call(out, a, at.offset, count, at.stream)
        return codec.nbytes(count)

    def rest(out: int, a: int, message: int, nbytes: int, count: int, scratch: int) -> None:
        kernels.rest.call(out, a, message, count, 0)

    def decode(out: int, a: int, message: int, nbytes: int, count: int, scratch: int) -> None:
        if a:
            kernels.add.call(out, a, message, count, 0)
        else:
            kernels.decode.call(out, message, 0, count, 0)

    def hop(out: int, a: int, message: int, count: int, at: Context, losing: bool) -> None:
        run = kernels.hop_losing if losing else kernels.hop
        run(out, a, message, at.offset, count, at.stream)

    return Coding(encode, decode, lambda count: 0, 1, rest, losing, hop)


def source_of(codec: Blockwise, dtype: np.dtype) -> str:
    """The text of all kernels of a codec for a dtype."""
    name = type(codec).__module__.rpartition(".")[2]
    if name not in CONSTANTS:
        raise TypeError(f"{codec} has no kernels for a CUDA device; have {', '.join(CONSTANTS)}")
    files = "arrays", "noise", "values", *PARTS.get(name, ()), name, "blocks"
    common = {"BLOCK": codec.strip, "SEED": codec.seed, "CORRELATED": int(codec.correlated)}
    return text_of(files, dtype, common | CONSTANTS[name](codec))

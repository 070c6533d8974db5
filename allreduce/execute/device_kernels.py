"""Kernels for CUDA devices: C++ in the files beside, with the constants of a dtype before it, compiled on first use.

They have the form of the host's, (out, a, b, count, step) on addresses, which are those of device memory, and run on
CuPy's current stream of its current device. CuPy is imported when the first is called.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .cuda import import_cupy
from .elements import BFLOAT16, Kernel

__all__ = ["kernel", "launcher", "module", "name_of", "source"]

#: No product is contracted with a sum: the bits would be others than the host's. Functions are for the device.
OPTIONS = ("-std=c++17", "--fmad=false", "-default-device")
ELEMENTS = Path(__file__).with_name("device_elements.cu")
THREADS = 256
#: More blocks than run at once on any device; then each thread does several runs.
MOST_BLOCKS = 1 << 16

INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long"}
REALS = {4: "float", 8: "double"}


def name_of(dtype: np.dtype) -> str:
    """A dtype in C++.

    Raises
    ------
    TypeError
        The device has none, such as for long double.
    """
    if dtype == BFLOAT16:
        return "BFloat16"
    if dtype == np.float16:
        return "Half"
    if dtype.kind in "iu":
        return f"{'un' * (dtype.kind == 'u')}signed {INTEGERS[dtype.itemsize]}"
    if dtype.kind == "b":
        return "unsigned char"
    if dtype.kind == "c" and dtype.itemsize // 2 in REALS:
        return f"Complex<{REALS[dtype.itemsize // 2]}>"
    if dtype.kind == "f" and dtype.itemsize in REALS:
        return REALS[dtype.itemsize]
    raise TypeError(f"a CUDA device has no {dtype}")


def source(files: Sequence[Path], constants: str) -> str:
    """The text to compile: what elements are, the constants of this kernel, then the files."""
    texts = [ELEMENTS.read_text(), constants, *(path.read_text() for path in files)]
    return "\n".join(texts)


@cache
def module(text: str) -> Any:
    """The compiled kernels of a source text.

    Raises
    ------
    RuntimeError
        There is no CuPy, or no device that it can use.
    """
    return import_cupy().RawModule(code=text, options=OPTIONS)


def launcher(text: str, name: str, threads: int = THREADS) -> Callable[..., None]:
    """A function (blocks, *arguments) that runs a kernel with so many threads a block; arguments are plain integers."""

    @cache
    def function() -> Any:
        return module(text).get_function(name)

    def launch(blocks: int, *arguments: int) -> None:
        function()((blocks,), (threads,), arguments)

    return launch


def kernel(text: str, name: str, itemsize: int, arguments: Callable[..., Sequence[int]]) -> Kernel:
    """A kernel for each of so many elements, whose arguments are made of (out, a, b, count, step)."""
    launch = launcher(text, name)

    def call(out: int, a: int, b: int, count: int, step: int) -> None:
        if count:
            runs = -(-count * itemsize // 16)
            launch(min(-(-runs // THREADS), MOST_BLOCKS), *arguments(out, a, b, count, step))

    return Kernel(0, call)

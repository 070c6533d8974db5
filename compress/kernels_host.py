"""The driver that runs a codec of blocks over an array.

Such a codec is a module with a class and two functions on float32, `encode_block` and `decode_block`; the driver
brings values of any dtype there and back. Numba caches kernels that close over numbers and names only, which is why
the driver finds the two functions by the name of their module.
"""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numba.extending import overload

from allreduce.execute.elements import CODES, Kernel, compiled

from .arrays import fetch, settle
from .context import Kernels
from .memory import at8, at64, floats, inline, scratch
from .noise import apart, noise_key

__all__ = ["block_kernels"]


def block_kernels(module: str, params: tuple[int, ...], seed: int, block: int, record: int, dtype: np.dtype) -> Kernels:
    """The kernels of the codec in a module whose message is a record of so many bytes per block.

    The last parameter tells whether random numbers are correlated.
    """
    return _kernels(module, params, seed, block, record, CODES.index(dtype))


@cache
def _kernels(module: str, params: tuple[int, ...], seed: int, block: int, record: int, code: int) -> Kernels:
    size, room = CODES[code].itemsize, 13 * block

    def encode(out: int, a: int, b: int, count: int, step: int) -> None:
        memory = scratch(room)
        stream, turn = apart(params[-1], step)
        codes, words = at8(memory, block), at64(memory, block // 8)
        values, work = floats(memory + block, block), floats(memory + 5 * block, 2 * block)
        for k in range((count + block - 1) // block):
            n = min(block, count - k * block)
            x = fetch(code, a + k * block * size, n, values)
            key = np.uint64(noise_key(seed, stream, b + k * block)) | turn
            _encode_block(module, params, x, n, out + k * record, key, codes, words, work)

    return Kernels(
        compiled(encode),
        _decoder(module, params, block, record, code, adding=0),
        _decoder(module, params, block, record, code, adding=1),
    )


def _decoder(module: str, params: tuple[int, ...], block: int, record: int, code: int, adding: int) -> Kernel:
    size, room = CODES[code].itemsize, 9 * block

    def decode(out: int, a: int, b: int, count: int, step: int) -> None:
        memory = scratch(room)
        codes, words, values = at8(memory, block), at64(memory, block // 8), floats(memory + block, 2 * block)
        message = b if adding else a
        for k in range((count + block - 1) // block):
            n = min(block, count - k * block)
            _decode_block(module, params, message + k * record, n, values, codes, words)
            settle(adding, code, out + k * block * size, a + k * block * size, n, values)

    return compiled(decode)


def _encode_block(module: str, *args: Any) -> None:
    """The function of that name in the codec's module."""


@overload(_encode_block, prefer_literal=True, jit_options={"forceinline": True})
def _encode_block_of(module, params, x, n, out, key, codes, words, work):
    function = inline(import_module(module.literal_value).encode_block)
    return lambda module, params, x, n, out, key, codes, words, work: function(
        params, x, n, out, key, codes, words, work
    )


def _decode_block(module: str, *args: Any) -> None:
    """The function of that name in the codec's module."""


@overload(_decode_block, prefer_literal=True, jit_options={"forceinline": True})
def _decode_block_of(module, params, message, n, values, codes, words):
    function = inline(import_module(module.literal_value).decode_block)
    return lambda module, params, message, n, values, codes, words: function(params, message, n, values, codes, words)

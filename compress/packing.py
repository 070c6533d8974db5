"""Codes of 1..8 bits, packed without gaps."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from allreduce.execute.machine import intrinsic

from .memory import at8, inline

__all__ = ["join", "pack", "packed", "part", "read", "unpack", "write"]


@inline
def join(width: int, word: Any) -> Any:
    """Eight codes that lie in bytes, moved together."""
    gap = np.uint64(8 - width)
    low = np.uint64(0x00FF00FF00FF00FF)
    word = word & low | (word & ~low) >> gap
    low = np.uint64(0x0000FFFF0000FFFF)
    word = word & low | (word & ~low) >> gap * np.uint64(2)
    low = np.uint64(0x00000000FFFFFFFF)
    return word & low | (word & ~low) >> gap * np.uint64(4)


@inline
def part(width: int, word: Any) -> Any:
    """Eight codes that lie together, moved apart into bytes."""
    gap, ones = np.uint64(8 - width), (np.uint64(1) << np.uint64(4 * width)) - np.uint64(1)
    word = word & ones | (word << gap * np.uint64(4)) & (ones << np.uint64(32))
    ones = ((np.uint64(1) << np.uint64(2 * width)) - np.uint64(1)) * np.uint64(0x0000000100000001)
    word = word & ones | (word << gap * np.uint64(2)) & (ones << np.uint64(16))
    ones = ((np.uint64(1) << np.uint64(width)) - np.uint64(1)) * np.uint64(0x0001000100010001)
    return word & ones | (word << gap) & (ones << np.uint64(8))


def packed(width: int, n: int) -> int:
    """Bytes of n codes of so many bits; eight codes are as many bytes, and fewer than eight are filled up."""
    return width * ((n + 7) // 8)


def _field(builder: Any, address: Any, i: Any, width: int) -> Any:
    """An integer of so many bytes, and where number i is; computed as a pointer, or LLVM does not see a sequence."""
    bits, byte = ir.IntType(8 * width), ir.IntType(8)
    start = builder.inttoptr(address, byte.as_pointer())
    place = builder.gep(start, [builder.mul(i, ir.Constant(i.type, width))], source_etype=byte)
    return bits, builder.bitcast(place, bits.as_pointer())


@intrinsic(prefer_literal=True)
def write(_: Any, width: Any, address: Any, i: Any, word: Any) -> Any:
    """Write so many of the low bytes of a word, as number i of its kind."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, place = _field(builder, args[1], args[2], width.literal_value)
        builder.store(builder.trunc(args[3], bits) if bits.width < 64 else args[3], place, align=1)
        return context.get_dummy_value()

    return types.void(width, types.int64, types.int64, types.uint64), codegen


@intrinsic(prefer_literal=True)
def read(_: Any, width: Any, address: Any, i: Any) -> Any:
    """Read what `write` wrote."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, place = _field(builder, args[1], args[2], width.literal_value)
        part = builder.load(place, align=1)
        return builder.zext(part, ir.IntType(64)) if bits.width < 64 else part

    return types.uint64(width, types.int64, types.int64), codegen


@inline
def pack(width: int, words: Any, n: int, out: int) -> None:
    """Write n codes of 1..8 bits, which lie in the bytes of `words`, joined, the first in the lowest bits.

    Eight at a time: in a word neighbours are joined, then pairs, then fours.
    """
    if n % 8:
        words[n // 8] &= (np.uint64(1) << np.uint64(8 * (n % 8))) - np.uint64(1)
    if width == 4:  # half as many steps, on four times as many lanes
        pairs, target = words.view(np.uint16), at8(out, n)
        for i in range((n + 7) // 8 * 4):
            target[i] = np.uint8(pairs[i] | pairs[i] >> np.uint16(4))
    else:
        for i in range((n + 7) // 8):
            write(width, out, i, join(width, words[i]))


@inline
def unpack(width: int, message: int, n: int, words: Any) -> None:
    """Read what `pack` wrote."""
    for i in range((n + 7) // 8):
        words[i] = part(width, read(width, message, i))

"""Memory at an address, as arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types

from allreduce.execute.machine import intrinsic, pointer

__all__ = ["at8", "at16", "at32", "at64", "floats", "inline", "scratch"]

#: Compiled into whatever uses it.
inline: Callable[[Callable], Any] = njit(forceinline=True, error_model="numpy")


@intrinsic(prefer_literal=True)
def scratch(_: Any, nbytes: Any) -> Any:
    """The address of memory on the stack, for as long as the calling function runs.

    NumPy arrays would be counted in every block, and checked for overlap with the values.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():  # once, and without the zeros that Numba's own would write
            memory = builder.alloca(ir.ArrayType(ir.IntType(8), nbytes.literal_value))
        memory.align = 64
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.int64(nbytes), codegen


@inline
def at8(address: int, n: int) -> Any:
    return carray(pointer(address), (n,), np.uint8)


@inline
def at16(address: int, n: int) -> Any:
    return carray(pointer(address), (n,), np.uint16)


@inline
def at32(address: int, n: int) -> Any:
    return carray(pointer(address), (n,), np.uint32)


@inline
def at64(address: int, n: int) -> Any:
    return carray(pointer(address), (n,), np.uint64)


@inline
def floats(address: int, n: int) -> Any:
    return carray(pointer(address), (n,), np.float32)

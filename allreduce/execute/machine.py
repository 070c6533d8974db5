"""What Numba lacks: memory at an address, a call to an address, half-precision numbers, IEEE minimum and maximum.

Numba does not cache functions that close over ctypes pointers, so everything native is reached by an int64 address.
"""

import fcntl
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core.cgutils import unpack_tuple

#: Untyped, for what it returns is called with one argument less than what it takes.
intrinsic: Any = extending.intrinsic

PATIENCE = 10.0

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


@contextmanager
def compiling() -> Iterator[None]:
    """Let the first process of a machine compile alone and write the cache; the others wait, then read it together.

    Only a courtesy: who has waited PATIENCE seconds, as for one that is stopped, goes ahead and waits no more; and who
    cannot have the file at once.
    """
    global PATIENCE
    path = os.path.join(tempfile.gettempdir(), f"allreduce-compiling-{os.getuid()}")
    try:
        file = open(path, "a")  # noqa: SIM115
    except OSError:
        yield
        return
    with file:
        deadline, kind = time.monotonic() + PATIENCE, fcntl.LOCK_EX
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                kind = fcntl.LOCK_SH
                time.sleep(0.002)
        else:
            PATIENCE = 0.0
        yield


def _reader(llvm: ir.Type, numba_type: Any) -> Callable:
    @intrinsic
    def load(_: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], llvm.as_pointer()))
            return value if llvm is I64 else builder.sext(value, I64)

        return numba_type(types.int64), codegen

    return load


load64 = _reader(I64, types.int64)
load32 = _reader(I32, types.int64)


@intrinsic
def store64(_: Any, address: Any, value: Any) -> Any:
    """Write eight bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], I64.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def load_acquire(_: Any, address: Any) -> Any:
    """Read eight bytes; what the writer wrote before is seen after."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(_: Any, address: Any, value: Any) -> Any:
    """Write eight bytes; whoever reads them sees all that was written before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], builder.inttoptr(args[0], I64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _streamer(llvm: ir.Type, nbytes: int) -> Callable:
    @intrinsic
    def stream(_: Any, to: Any, from_: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[1], llvm.as_pointer()), align=1)
            store = builder.store(value, builder.inttoptr(args[0], llvm.as_pointer()), align=nbytes)
            store.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return stream


#: Copy a whole cache line, or four bytes, past the caches, to where such a thing begins.
stream_line, stream_word = _streamer(ir.VectorType(FLOAT, 16), 64), _streamer(I32, 4)


@intrinsic
def stream_fence(_: Any) -> Any:
    """Let what was streamed be seen before what is written next."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if platform.machine() in ("x86_64", "AMD64"):
            fence = builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), ir.FunctionType(ir.VoidType(), []))
            builder.call(fence, [])
        else:
            builder.fence("release")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def call(_: Any, address: Any, args: Any) -> Any:
    """Call a C function that takes integers or pointers and returns an int.

    A 32-bit integer passed as 64 bits is read from the lower half of its register, on every platform we know.
    """

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        arguments = unpack_tuple(builder, values[1])
        function = ir.FunctionType(I32, [I64] * len(arguments))
        result = builder.call(builder.inttoptr(values[0], function.as_pointer()), arguments)
        return builder.sext(result, I64)

    return types.int64(types.int64, args), codegen


@intrinsic
def call_double(_: Any, address: Any) -> Any:
    """Call a C function without arguments that returns a double."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function = ir.FunctionType(DOUBLE, [])
        return builder.call(builder.inttoptr(values[0], function.as_pointer()), [])

    return types.float64(types.int64), codegen


@intrinsic
def pointer(_: Any, address: Any) -> Any:
    """An address as a pointer, for `carray`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@intrinsic
def half_to_float(_: Any, bits: Any) -> Any:
    """float16 as bits to float32; only where the processor has the instruction, elsewhere LLVM calls into nothing."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], HALF), FLOAT)

    return types.float32(types.uint16), codegen


@intrinsic
def float_to_half(_: Any, value: Any) -> Any:
    """float32 to float16 as bits, rounded to nearest even."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], HALF), I16)

    return types.uint16(types.float32), codegen


@intrinsic
def float_from_bits(_: Any, bits: Any) -> Any:
    """The float32 with these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], FLOAT)

    return types.float32(types.uint32), codegen


@intrinsic
def bits_of_float(_: Any, value: Any) -> Any:
    """The bits of a float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], I32)

    return types.uint32(types.float32), codegen


@intrinsic
def trailing_zeros(_: Any, bits: Any) -> Any:
    """How many of 64 bits, from the lowest, are 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


def _ieee(name: str) -> Callable:
    @intrinsic
    def extremum(_: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = args[0].type
            function = ir.FunctionType(kind, [kind, kind])
            return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [kind], function), args)

        return a(a, a), codegen

    return extremum


#: NaN wins, and -0 < +0.
minimum, maximum = _ieee("minimum"), _ieee("maximum")

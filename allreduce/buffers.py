"""The door: what callers hand in becomes checked arrays and names, before anything is sent or changed."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

import compress
from compress.codec import Codec
from compress.doors import DTYPES
from compress.method import Method

from .execute.device_arrays import OnDevice, is_on_device, on_device
from .execute.elements import BFLOAT16, Kernel, type_named
from .execute.reductions import check, python_kernel
from .execute.wire import try_out

__all__ = [
    "OP_NAMES", "Unsupported", "as_array", "as_codec", "as_op", "as_type", "check_pair", "is_ordered", "of_tensor",
]  # fmt: skip


class Unsupported(TypeError):
    """A dtype, operation or kind of buffer that is not ours; MPI itself may know it."""


#: MPI's operations by handle, and NumPy's, that we have kernels for.
OP_NAMES: dict[Any, str] = {
    MPI.SUM.handle: "sum", MPI.PROD.handle: "prod", MPI.MIN.handle: "min", MPI.MAX.handle: "max",
    MPI.LAND.handle: "land", MPI.LOR.handle: "lor", MPI.LXOR.handle: "lxor",
    MPI.BAND.handle: "band", MPI.BOR.handle: "bor", MPI.BXOR.handle: "bxor",
}  # fmt: skip
UFUNCS: dict[Any, str] = {
    np.add: "sum", np.multiply: "prod", np.minimum: "min", np.maximum: "max",
    np.logical_and: "land", np.logical_or: "lor", np.logical_xor: "lxor",
    np.bitwise_and: "band", np.bitwise_or: "bor", np.bitwise_xor: "bxor",
}  # fmt: skip


def as_array(buffer: Any, name: str, writeable: bool = False, anywhere: bool = False) -> np.ndarray:
    """A view of a caller's buffer as a contiguous array; never a copy. `anywhere`: on a device too.

    Raises
    ------
    TypeError
        No buffer; one on a device where that is not wanted.
    ValueError
        Not contiguous, not aligned, or to be written and read-only.
    """
    array = buffer if isinstance(buffer, np.ndarray) else _view(buffer, name, anywhere)
    if array.dtype.hasobject:
        raise Unsupported(f"{name} holds Python objects (dtype {array.dtype}), which cannot be sent as bytes")
    if not array.dtype.itemsize:
        raise Unsupported(f"{name} has dtype {array.dtype}, of no bytes")
    if not array.dtype.isnative:
        native = array.dtype.newbyteorder("=")
        raise TypeError(f"{name} has dtype {array.dtype} in foreign byte order; pass {name}.astype({str(native)!r})")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(f"{name} is not contiguous (shape {array.shape}, strides {array.strides}); pass a copy")
    if not array.flags.aligned:
        raise ValueError(f"{name} is not aligned to its dtype {array.dtype}; pass a copy")
    if writeable and not array.flags.writeable:
        raise ValueError(f"{name} is read-only")
    return array


def _view(buffer: Any, name: str, anywhere: bool) -> np.ndarray:
    if isinstance(buffer, (list, tuple)):
        return _of_message(buffer, name)
    if is_on_device(buffer):
        if not anywhere:
            raise TypeError(f"{name} lies on a device; here only host memory will do")
        return on_device(buffer, name)
    if type(buffer).__module__.partition(".")[0] == "torch":
        return of_tensor(buffer)
    try:
        return np.asarray(memoryview(buffer))
    except TypeError:
        raise Unsupported(f"{name} must be an array or another buffer, not {type(buffer).__name__}") from None


def _of_message(message: Any, name: str) -> np.ndarray:
    """mpi4py's [buffer, count, datatype], where it says what the array says itself."""
    array, *facts = message or [None]
    if not isinstance(array, np.ndarray):
        raise Unsupported(f"{name} must be an array or [array, count, datatype], not {type(message).__name__}")
    for fact in facts:
        if type(fact) is int and 0 <= fact <= array.size and array.flags.c_contiguous:
            array = array.reshape(-1)[:fact]
        elif not (isinstance(fact, (MPI.Datatype, str)) and _same_type(array.dtype, fact)):
            raise Unsupported(f"{name}: only [array, count, datatype] with the array's own datatype, not {facts}")
    return array


def _same_type(dtype: np.dtype, datatype: Any) -> bool:
    from mpi4py.util.dtlib import to_numpy_dtype

    if isinstance(datatype, str):
        return dtype.char == datatype
    try:
        return bool(to_numpy_dtype(datatype) == dtype)
    except (ValueError, TypeError):
        return False


def of_tensor(tensor: Any) -> np.ndarray:
    """A CPU tensor's memory; NumPy has no name for its bfloat16, so it passes as 16 bits."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.itemsize == 2 and str(tensor.dtype) == "torch.bfloat16":
        import torch

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def check_pair(sendbuf: np.ndarray, recvbuf: np.ndarray, send_parts: int = 1, recv_parts: int = 1) -> None:
    """Refuse buffers that do not fit together: recvbuf has recv_parts shares where sendbuf has send_parts.

    Raises
    ------
    TypeError
        Different dtypes; one on a device and the other not.
    ValueError
        Different counts or memory orders, or partial overlap.
    """
    if sendbuf.dtype != recvbuf.dtype:
        raise TypeError(f"sendbuf has dtype {sendbuf.dtype}, recvbuf has {recvbuf.dtype}; they must be equal")
    if isinstance(sendbuf, OnDevice) != isinstance(recvbuf, OnDevice):
        where = [f"on {'a device' if isinstance(b, OnDevice) else 'the host'}" for b in (sendbuf, recvbuf)]
        raise TypeError(f"sendbuf lies {where[0]}, recvbuf {where[1]}; both must lie on one")
    if sendbuf.size * recv_parts != recvbuf.size * send_parts:
        wants = sendbuf.size * recv_parts // send_parts
        raise ValueError(f"sendbuf has {sendbuf.size} elements, so recvbuf must have {wants}, not {recvbuf.size}")
    if sendbuf.shape == recvbuf.shape and sendbuf.flags.c_contiguous != recvbuf.flags.c_contiguous:
        raise ValueError("sendbuf and recvbuf are laid out in different orders (C and Fortran)")
    a, b = sendbuf.ctypes.data, recvbuf.ctypes.data
    same = a == b and sendbuf.size == recvbuf.size
    if not same and a < b + recvbuf.nbytes and b < a + sendbuf.nbytes:
        raise ValueError("sendbuf and recvbuf overlap in part; pass the same array or MPI.IN_PLACE to work in place")


def as_type(accumulate: Any, dtype: np.dtype, op: Any) -> np.dtype | None:
    """The type to sum in, if it is another.

    Raises
    ------
    ValueError
        One that is not wider, or an operation that is not a sum or average.
    """
    if accumulate is None:
        return None
    wide = type_named("accumulate", accumulate)
    if wide == dtype:
        return None
    floats = dtype.kind == "f" or dtype == BFLOAT16
    if floats and dtype.itemsize == 2 and wide != np.dtype(np.float32):
        raise ValueError(f"accumulate={accumulate!r}: {dtype} is summed in float32, from which it is rounded once")
    fits = (wide.kind == "f" and floats) or (wide.kind in "iu" and wide.kind == dtype.kind)
    if not fits or wide.itemsize <= dtype.itemsize or wide == np.dtype(np.longdouble):
        raise ValueError(f"accumulate={accumulate!r} is no wider type of {dtype}'s kind, such as float32 for float16")
    if op not in ("sum", "avg", "prod"):
        raise ValueError(f"accumulate is for op 'sum', 'avg' and 'prod', not {op!r}")
    return wide


def as_codec(codec: Any, dtype: np.dtype, op: Any) -> Codec | None:
    """The codec of a configuration.

    Raises
    ------
    TypeError, ValueError
        Unknown, a method, or not for the dtype or the operation.
    """
    found = None if codec is None else compress.get(codec)
    if isinstance(found, Method):
        raise TypeError(f"codec {found} has a memory and makes several all-reduces; only allreduce(..., key=) takes it")
    if found is not None and not isinstance(found, Codec):
        raise TypeError(f"codec must be text such as 'int4:block=32', or a codec, not {codec!r}")
    if found is not None:
        check_lossy(found, dtype, op)
        try_out(found, dtype)
    return found


def check_lossy(codec: Any, dtype: np.dtype, op: Any) -> None:
    """Refuse what codecs and methods cannot reduce.

    Raises
    ------
    TypeError, ValueError
    """
    if dtype.name not in DTYPES:
        raise TypeError(f"codec {codec} is for {', '.join(DTYPES)}, not {dtype}")
    if op not in ("sum", "avg"):
        raise ValueError(f"codec {codec} is for op 'sum' and 'avg', not {op if isinstance(op, str) else 'your own'!r}")


def as_op(op: Any, dtype: np.dtype) -> str | Kernel:
    """The name of an operation, or the kernel of the caller's own.

    Raises
    ------
    TypeError, ValueError
        Unknown, or not defined for the dtype.
    """
    name = op if isinstance(op, str) else None
    if isinstance(op, MPI.Op):
        name = OP_NAMES.get(op.handle)
    elif isinstance(op, np.ufunc):
        name = UFUNCS.get(op)
    if name is not None:
        try:
            check(dtype, name)
        except TypeError as error:
            raise Unsupported(str(error)) from None
        return name
    if isinstance(op, MPI.Op):
        if op.is_predefined or dtype.char not in MPI._typedict:
            known = [n for n in ("MINLOC", "MAXLOC", "REPLACE", "NO_OP") if op == getattr(MPI, n)]
            raise Unsupported(f"cannot apply {'MPI.' + known[0] if known else 'an MPI.Op'} to dtype {dtype}")
    elif not callable(op):
        raise TypeError(f"op must be a name, an MPI.Op or a callable of two arrays, not {op!r}")
    return _own_kernel(op, dtype)


#: Kernels of the caller's own operations, the latest ones; the operation is kept so that its id stays its own.
_own: dict[tuple[int, np.dtype], tuple[Any, Kernel]] = {}
MOST_OWN = 256


def _own_kernel(op: Any, dtype: np.dtype) -> Kernel:
    key = id(op), dtype
    if key not in _own:
        function = _reduce_local(op) if isinstance(op, MPI.Op) else op
        try_out = np.asarray(function(np.ones(2, dtype), np.ones(2, dtype)))
        if try_out.shape != (2,):
            raise TypeError(f"op {op!r} makes shape {try_out.shape} of two arrays of shape (2,)")
        _own[key] = op, python_kernel(dtype, function)
        if len(_own) > MOST_OWN:
            del _own[next(iter(_own))]
    return _own[key][1]


def _reduce_local(op: MPI.Op) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        result = b.copy()
        op.Reduce_local(a, result)
        return result

    return function


def is_ordered(op: Any) -> bool:
    """Whether operands must stay in rank order: a Python function commutes only if it says `commutative = True`."""
    if isinstance(op, MPI.Op):
        return not op.Is_commutative()
    known = isinstance(op, np.ufunc) and op in UFUNCS
    return callable(op) and not known and not getattr(op, "commutative", False)

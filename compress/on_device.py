"""Codecs on arrays that lie on a CUDA device: CuPy's, Numba's, those of torch.cuda.

What they do runs on CuPy's current stream, after what the array's own stream has been asked for.
"""

from math import prod
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from allreduce.execute.cuda import import_cupy

from . import doors
from .context import Context
from .kernels_device.lookup import coding

__all__ = ["decode", "encode"]


class Seen(NamedTuple):
    """An array on a device: its address, dtype, and number of elements."""

    address: int
    dtype: np.dtype
    size: int


def encode(codec: Any, x: Any, out: Any, at: Context) -> Any:
    """As `Codec.encode`; the message is an array of CuPy, or the first part of `out`."""
    values = seen(x)
    if values.dtype.name not in doors.DTYPES:
        raise TypeError(f"cannot encode dtype {values.dtype}; have {', '.join(doors.DTYPES)}")
    kernels, nbytes = coding(codec, values.dtype), codec.nbytes(values.size)
    message = empty(nbytes) if out is None else out
    room = seen(message, writable=True)
    if room.dtype != np.uint8 or room.size < nbytes or room.address % kernels.alignment:
        raise ValueError(
            f"a message takes {nbytes} bytes of uint8 from a multiple of {kernels.alignment} on, "
            f"not {room.size} of {room.dtype} at {room.address:#x}"
        )
    scratch = empty(kernels.scratch(values.size))
    return message[: kernels.encode(room.address, values.address, values.size, at, seen(scratch).address, read)]


def decode(codec: Any, message: Any, out: Any, add: bool) -> Any:
    """As `Codec.decode`."""
    source, target = seen(message), seen(out, writable=True)
    if source.dtype != np.uint8:
        raise TypeError(f"a message is an array of uint8, not of {source.dtype}")
    if target.dtype.name not in doors.DTYPES:
        raise TypeError(f"cannot decode to dtype {target.dtype}; have {', '.join(doors.DTYPES)}")
    doors.fitting(codec, source.size, target.size)
    kernels = coding(codec, target.dtype)
    if source.address % kernels.alignment:
        raise ValueError(f"a message begins at a multiple of {kernels.alignment} bytes, not at {source.address:#x}")
    scratch, a = empty(kernels.scratch(target.size)), target.address if add else 0
    kernels.decode(target.address, a, source.address, source.size, target.size, seen(scratch).address)
    return out


def seen(array: Any, writable: bool = False) -> Seen:
    """Where an array is, once its stream, if it names one, has come so far."""
    face = getattr(array, "__cuda_array_interface__", None)
    if face is None:
        raise TypeError(f"values and messages are on one device or on the host, not {type(array).__name__}")
    address, readonly = face["data"]
    if writable and readonly:
        raise ValueError("cannot write into an array that is read-only")
    # NumPy has no name for bfloat16
    dtype = np.dtype(ml_dtypes.bfloat16 if face["typestr"] == "<V2" else face["typestr"])
    shape, strides = face["shape"], face.get("strides")
    if strides is not None and tuple(strides) != _steps(shape, dtype.itemsize):
        raise ValueError(f"an array on a device is contiguous, not of shape {shape} with strides {strides}")
    stream = face.get("stream")
    current = import_cupy().cuda.get_current_stream().ptr or 1
    if stream not in (None, current):
        import_cupy().cuda.runtime.streamSynchronize(stream)
    return Seen(address or 0, dtype, prod(shape))


def _steps(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape)))


def empty(nbytes: int) -> Any:
    """Bytes of device memory."""
    return import_cupy().empty(nbytes, np.uint8)


def read(address: int, nbytes: int) -> bytes:
    """What is there when all that the current stream was asked for is done."""
    host, stream = np.empty(nbytes, np.uint8), import_cupy().cuda.get_current_stream()
    runtime = import_cupy().cuda.runtime
    runtime.memcpyAsync(host.ctypes.data, address, nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    stream.synchronize()
    return host.tobytes()

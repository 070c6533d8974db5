"""Codecs on arrays that lie on a CUDA device: CuPy's, Numba's, those of torch.cuda.

What they do runs on CuPy's current stream, after what the arrays' own streams have been asked for; what these are asked
for next comes after it.
"""

from typing import Any

import numpy as np

from allreduce.execute.cuda import cuda
from allreduce.execute.device_arrays import OnDevice, is_on_device, on_device
from allreduce.execute.device_memory import ordered

from . import doors
from .context import Context
from .kernels_device.lookup import coding

__all__ = ["decode", "encode"]


def encode(codec: Any, x: Any, out: Any, at: Context) -> Any:
    """As `Codec.encode`; the message is an array of CuPy, or the first part of `out`."""
    values = seen(x, "x")
    if values.dtype.name not in doors.DTYPES:
        raise TypeError(f"cannot encode dtype {values.dtype}; have {', '.join(doors.DTYPES)}")
    kernels, nbytes = coding(codec, values.dtype), codec.nbytes(values.size)
    message = cuda().empty((nbytes,), np.dtype(np.uint8), "C") if out is None else out
    room = seen(message, "out", writable=True)
    if room.dtype != np.uint8 or room.size < nbytes or room.ctypes.data % kernels.alignment:
        raise ValueError(
            f"a message takes {nbytes} bytes of uint8 from a multiple of {kernels.alignment} on, "
            f"not {room.size} of {room.dtype} at {room.ctypes.data:#x}"
        )
    with ordered(cuda().current(), values, room), cuda().room(kernels.scratch(values.size)) as scratch:
        size = kernels.encode(room.ctypes.data, values.ctypes.data, values.size, at, scratch, cuda().read)
    return message[:size]


def decode(codec: Any, message: Any, out: Any, add: bool) -> Any:
    """As `Codec.decode`."""
    source, target = seen(message, "message"), seen(out, "out", writable=True)
    if source.dtype != np.uint8:
        raise TypeError(f"a message is an array of uint8, not of {source.dtype}")
    if target.dtype.name not in doors.DTYPES:
        raise TypeError(f"cannot decode to dtype {target.dtype}; have {', '.join(doors.DTYPES)}")
    doors.fitting(codec, source.size, target.size)
    kernels, to, from_ = coding(codec, target.dtype), target.ctypes.data, source.ctypes.data
    if from_ % kernels.alignment:
        raise ValueError(f"a message begins at a multiple of {kernels.alignment} bytes, not at {from_:#x}")
    with ordered(cuda().current(), source, target), cuda().room(kernels.scratch(target.size)) as scratch:
        kernels.decode(to, to if add else 0, from_, source.size, target.size, scratch)
    return out


def seen(array: Any, name: str, writable: bool = False) -> OnDevice:
    """Where an array is."""
    if not is_on_device(array):
        raise TypeError(f"values and messages are on one device or on the host, not {type(array).__name__}")
    view = on_device(array, name)
    if writable and not view.flags.writeable:
        raise ValueError("cannot write into an array that is read-only")
    if not view.flags.c_contiguous:
        raise ValueError(f"an array on a device is contiguous, not of shape {view.shape} with strides {view.strides}")
    return view

"""Arrays on a CUDA device as NumPy sees them from outside: address, shape, dtype and order, but no values."""

import ctypes
from math import prod
from typing import Any

import numpy as np

from .cuda import cuda
from .elements import BFLOAT16

__all__ = ["OnDevice", "is_on_device", "on_device", "view_of"]

#: Of DLPack: memory of a CUDA device, and memory that its driver moves.
DLPACK_CUDA = (2, 13)


class OnDevice(np.ndarray):
    """Where an array on a device lies. To look at its values ends the process: only kernels and copies may.

    Attributes
    ----------
    owner : object
        The caller's array.
    made_on : int or None
        The stream that the array says to be ordered by, as a handle of CUDA; PyTorch's current one of its tensors.
    used_on : object
        The stream that the call names, if it does.
    """

    owner: Any = None
    made_on: int | None = None
    used_on: Any = None
    __array_ufunc__ = None  # type: ignore[assignment]

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, OnDevice):
            self.owner, self.made_on, self.used_on = other.owner, other.made_on, other.used_on

    def __repr__(self) -> str:
        return f"<{'x'.join(map(str, self.shape))} {self.dtype} on a CUDA device>"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        raise TypeError("an array on a device cannot be pickled")

    def copy(self, order: Any = "C") -> np.ndarray:
        """Its values, in host memory, when all that the device was asked for is done."""
        device = cuda()
        device.synchronize()
        read = device.read(self.ctypes.data, self.nbytes) if self.nbytes else b""
        memory = np.frombuffer(bytearray(read), self.dtype)
        return memory.reshape(self.shape, order="C" if self.flags.c_contiguous else "F")

    def __copy__(self) -> np.ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> np.ndarray:
        return self.copy()

    def another(self, shape: tuple[int, ...]) -> Any:
        """A new array of the caller's kind, of this dtype; in this order if it is as long."""
        if _is_torch(self.owner):
            import torch

            return torch.empty_like(self.owner.detach()) if shape == self.shape else self.owner.new_empty(shape)
        return cuda().empty(shape, self.dtype, "C" if self.flags.c_contiguous else "F")

    def fill(self, value: Any) -> None:
        """Make it zero."""
        assert value == 0
        device, first = cuda(), self.streams()[0]
        with device.on(first):
            if self.nbytes:  # memory of no bytes may have no address
                device.clear(self.ctypes.data, self.nbytes)

    def streams(self) -> list[Any]:
        """Those that our work comes after, and that come after it."""
        handles = [None if self.used_on is None else _handle(self.used_on), self.made_on]
        found = [cuda().stream_at(handle) for handle in dict.fromkeys(handles) if handle is not None]
        return found if _is_torch(self.owner) or self.used_on is not None else [*found, cuda().current()]


def is_on_device(buffer: Any) -> bool:
    """Whether it is an array in a CUDA device's memory, or a DLPack capsule of one."""
    if isinstance(buffer, (list, tuple)):  # mpi4py's [buffer, count, datatype]
        return bool(buffer) and is_on_device(buffer[0])
    if _is_torch(buffer):
        return getattr(buffer, "is_cuda", False)
    if hasattr(buffer, "__cuda_array_interface__"):
        return True
    if hasattr(buffer, "__dlpack_device__"):
        return buffer.__dlpack_device__()[0] in DLPACK_CUDA
    return type(buffer).__name__ == "PyCapsule"


def on_device(buffer: Any, name: str) -> OnDevice:
    """A view of a caller's array.

    Raises
    ------
    RuntimeError
        CUDA cannot be used.
    TypeError, ValueError
        Masked; not contiguous; on another device than ours.
    """
    device, made_on = _cuda_for(name), None
    if _is_torch(buffer):
        import torch

        made_on = torch.cuda.current_stream(buffer.device).cuda_stream
        tensor, kind = buffer.detach(), str(buffer.dtype).removeprefix("torch.")
        dtype = BFLOAT16 if kind == "bfloat16" else np.dtype(kind)
        strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
        facts: tuple = tensor.data_ptr(), tuple(tensor.shape), dtype, strides, False
    else:
        if not hasattr(buffer, "__cuda_array_interface__"):
            buffer = device.from_dlpack(buffer)
        facts, made_on = _facts(buffer, name)
    view = _view(name, *facts)
    where = device.device_of(view.ctypes.data) if view.size else device.number
    if where != device.number:
        raise ValueError(f"{name} is on device {where}, but this process is on {device.number}")
    view.owner, view.made_on = buffer, made_on
    return view


def _cuda_for(name: str) -> Any:
    try:
        return cuda()
    except RuntimeError as error:
        raise RuntimeError(f"{name} lies on a device; {error}") from error


def _facts(buffer: Any, name: str) -> tuple[tuple, int | None]:
    interface = buffer.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise TypeError(f"{name} is masked; pass the values alone")
    dtype = getattr(buffer, "dtype", None)
    if not isinstance(dtype, np.dtype):  # NumPy has no name for bfloat16
        dtype = BFLOAT16 if interface["typestr"] == "<V2" else np.dtype(interface["typestr"])
    address, read_only = interface["data"]
    facts = address, tuple(interface["shape"]), dtype, interface.get("strides"), read_only
    return facts, interface.get("stream")


def view_of(
    address: int | None, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
) -> OnDevice:
    """An array at an address."""
    dtype = np.dtype(dtype)
    memory: Any = (ctypes.c_char * (prod(shape) * dtype.itemsize)).from_address(address or 0)
    return OnDevice.__new__(OnDevice, shape, dtype, memory, 0, strides if prod(shape) else None)


def _view(
    name: str, address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None, read_only: bool
) -> OnDevice:
    try:
        view = view_of(address, shape, dtype, strides)
    except ValueError:
        raise ValueError(f"{name} is not contiguous (shape {shape}, strides {strides}); pass a copy") from None
    view.flags.writeable = not read_only
    return view


def _is_torch(buffer: Any) -> bool:
    """Whether it is a tensor, of a class of one's own perhaps."""
    return any(kind.__module__.partition(".")[0] == "torch" for kind in type(buffer).__mro__)


def _handle(stream: Any) -> int:
    """Of a stream of CuPy, PyTorch, or anything with `__cuda_stream__`; or the number itself."""
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    return int(getattr(stream, "ptr", getattr(stream, "cuda_stream", stream)))

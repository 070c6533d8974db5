"""What we need of CUDA, by CuPy: memory, copies, streams and events of one device, and memory of other processes.

Addresses are numbers. But for this class, and for the kernels, which run on CuPy's current stream, nothing in the
package calls CUDA; so tests can put another class in its place.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from platform import node
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Cuda", "cuda", "import_cupy"]

#: Of cudaMemcpyAsync: the addresses say where they are.
ANY_KIND = 4


class Opened(NamedTuple):
    """An event of another process."""

    ptr: int


class Cuda:
    """The device that is current when it is made."""

    def __init__(self) -> None:
        self.cupy = import_cupy()
        self.runtime = self.cupy.cuda.runtime
        self.device = self.cupy.cuda.Device()
        self.number: int = self.device.id

    @property
    def name(self) -> bytes:
        """What no other device has, in 16 bytes: a hash, for CuPy cuts a UUID off at its first zero."""
        facts = node(), self.device.pci_bus_id, self.runtime.getDeviceProperties(self.device.id).get("uuid")
        return sha256(repr(facts).encode()).digest()[:16]

    def device_of(self, address: int) -> int:
        """The number of the device whose memory it is."""
        return self.runtime.pointerGetAttributes(address).device

    # --- memory ------------------------------------------------------------------------------------

    def malloc(self, nbytes: int) -> int:
        with self.here():
            return self.runtime.malloc(nbytes)

    def free(self, address: int) -> None:
        self.runtime.free(address)

    def pinned(self, nbytes: int) -> int:
        """Host memory that copies from and to the device need not wait for."""
        with self.here():
            return self.runtime.hostAlloc(nbytes, 0)

    def free_pinned(self, address: int) -> None:
        self.runtime.freeHost(address)

    def copy(self, to: int, from_: int, nbytes: int, stream: Any) -> None:
        self.runtime.memcpyAsync(to, from_, nbytes, ANY_KIND, stream.ptr)

    def clear(self, address: int, nbytes: int) -> None:
        """Write zeros, on the current stream."""
        self.runtime.memsetAsync(address, 0, nbytes, self.current().ptr)

    def upload(self, to: int, values: np.ndarray) -> None:
        """Copy from ordinary memory, now, in the order of the current stream.

        A plain copy may return before it has arrived, and streams that wait for no other do not wait for it.
        """
        self.copy(to, values.ctypes.data, values.nbytes, self.current())
        self.current().synchronize()

    def read(self, address: int, nbytes: int) -> bytes:
        """What is there when all that the current stream was asked for is done."""
        host = np.empty(nbytes, np.uint8)
        self.copy(host.ctypes.data, address, nbytes, self.current())
        self.current().synchronize()
        return host.tobytes()

    @contextmanager
    def room(self, nbytes: int) -> Iterator[int]:
        """Memory for what the current stream is asked for inside; only its later work gets it again."""
        memory = self.cupy.cuda.alloc(nbytes)
        yield memory.ptr

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, order: str) -> Any:
        """An array of CuPy's."""
        with self.here():
            return self.cupy.empty(shape, dtype, order)

    def from_dlpack(self, tensor: Any) -> Any:
        """An array of CuPy's that is the same memory, ready on the current stream."""
        return self.cupy.from_dlpack(tensor)

    # --- order -------------------------------------------------------------------------------------

    def stream(self) -> Any:
        """A new one, which waits for no other."""
        with self.here():
            return self.cupy.cuda.Stream(non_blocking=True)

    def stream_at(self, handle: int) -> Any:
        """The one that another library made."""
        return self.cupy.cuda.ExternalStream(handle)

    def current(self) -> Any:
        """This thread's, on this device."""
        return self.cupy.cuda.get_current_stream(self.number)

    def here(self) -> Any:
        """Makes this device current; each is used once, for what was current before is kept in it, for all threads."""
        return self.cupy.cuda.Device(self.number)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """What is called inside runs on this device, kernels on this stream."""
        with self.here(), stream:
            yield

    def record(self, stream: Any, event: Any = None) -> Any:
        """An event after all that was asked of a stream so far; a new one, or one again."""
        event = event or self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def timed_event(self) -> Any:
        """One to record again and again, which remembers when it happened."""
        with self.here():
            return self.cupy.cuda.Event()

    def seconds(self, first: Any, last: Any) -> float:
        """From one timed event to another, when both have happened."""
        return self.cupy.cuda.get_elapsed_time(first, last) / 1e3

    def wait(self, stream: Any, event: Any) -> None:
        """Let what is asked of a stream from now on come after an event."""
        self.runtime.streamWaitEvent(stream.ptr, event.ptr)

    def done(self, event: Any) -> bool:
        return event.done

    def synchronize(self) -> None:
        """Wait for all that was asked of the device."""
        self.here().synchronize()

    # --- other processes of this node --------------------------------------------------------------

    def shared_event(self) -> Any:
        with self.here():
            return self.cupy.cuda.Event(disable_timing=True, interprocess=True)

    def export_event(self, event: Any) -> bytes:
        return bytes(self.runtime.ipcGetEventHandle(event.ptr))

    def open_event(self, handle: bytes) -> Opened:
        with self.here():
            return Opened(self.runtime.ipcOpenEventHandle(handle))

    def export(self, address: int) -> bytes:
        """What another process can open of memory that `malloc` made: all that CUDA took it from, 2 MB or more."""
        return bytes(self.runtime.ipcGetMemHandle(address))

    def open(self, handle: bytes) -> int:
        with self.here():
            return self.runtime.ipcOpenMemHandle(handle)

    def shut(self, address: int) -> None:
        self.runtime.ipcCloseMemHandle(address)

    def shut_event(self, event: Opened) -> None:
        self.runtime.eventDestroy(event.ptr)


def import_cupy() -> Any:
    """CuPy, with a device that it can use.

    Raises
    ------
    RuntimeError
        There is none.
    """
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError("arrays on a CUDA device need CuPy: pip install 'allreduce[cuda12]', or cuda13") from error
    if not cupy.is_available():
        raise RuntimeError(f"CuPy {cupy.__version__} finds no CUDA device or no driver")
    return cupy


@cache
def cuda() -> Any:
    """CUDA on the device of this process.

    Raises
    ------
    RuntimeError
        There is no CuPy, or no device that it can use.
    """
    return Cuda()

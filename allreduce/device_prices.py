"""What messages and codecs cost for arrays on a CUDA device."""

import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from compress.codec import Codec

from .execute.aware import VARIABLE, is_aware
from .execute.device import CARRIERS
from .execute.device_arrays import on_device
from .execute.device_codes import of_device
from .execute.elements import Kernel
from .execute.plan import Order
from .execute.requests import finish
from .measured import Prices, best

if TYPE_CHECKING:
    from .execute.channel import Channel

__all__ = ["DevicePrices", "messages"]

#: Sizes at which the two ways of messages are compared.
SIZES = (1 << 12, 1 << 16, 1 << 20)


class DevicePrices(Prices):
    """Of messages by the faster way, and of kernels."""

    def seconds(self, name: str, nbytes: int) -> float:
        order = Order("allreduce", name, nbytes // 8, np.dtype(np.float64), route=messages(self.channel, nbytes))
        return measured(self.channel, order)

    def speeds(self, codec: Codec, values: np.ndarray, message: np.ndarray, out: np.ndarray) -> list[float]:
        cuda, count, codes = self.channel.device.cuda, values.size, of_device(codec, values.dtype, 1)
        encode, decode, add = codes.kernels[:3]
        with (
            cuda.on(self.channel.device.work),
            cuda.room(values.nbytes) as a,
            cuda.room(codec.nbytes(count) + codes.head) as code,
            cuda.room(values.nbytes) as to,
        ):
            cuda.upload(a, values)

            def seconds(kernel: Kernel, out: int, a: int, b: int) -> float:
                return best(lambda: (kernel.call(out, a, b, count, 0), cuda.synchronize()))

            return [seconds(encode, code, a, 0), seconds(decode, to, code, 0), seconds(add, to, to, code)]

    def step(self, codec: Codec, dtype: np.dtype) -> float:
        """Nothing: kernels are launched with and without a codec."""
        return 0.0


def messages(channel: "Channel", nbytes: int) -> str:
    """The faster way of messages; collective on first use."""
    device = channel.device
    if device.direct_from is None:
        device.direct_from = faster_from(channel) if is_aware(channel.comm) else sys.maxsize
        if device.direct_from == sys.maxsize and channel.rank == 0:
            warnings.warn(
                "this MPI takes no messages from the memory of devices, or is slower at that: they go through the "
                f"host; {VARIABLE}=1 says that it does",
                RuntimeWarning,
                stacklevel=2,
            )
    return "aware" if nbytes >= device.direct_from else "staged"


def faster_from(channel: "Channel") -> int:
    """Bytes of an array from which messages straight from the device are faster, measured; collective."""
    found = np.array([sys.maxsize])
    for nbytes in reversed(SIZES):
        order = partial(Order, "allreduce", "recursive_doubling", nbytes // 4, np.dtype(np.float32))
        seconds = {route: measured(channel, order(route=route)) for route in CARRIERS}
        if seconds["aware"] > seconds["staged"]:
            break
        found[0] = nbytes if nbytes > SIZES[0] else 0
    channel.bcast(found)
    return int(found[0])


def measured(channel: "Channel", order: "Order") -> float:
    """Seconds of an all-reduce of zeros, the shortest of a few."""
    cuda = channel.device.cuda
    array = on_device(cuda.empty((order.count,), order.dtype, "C"), "array")
    array.fill(0)

    def call() -> None:
        operation = channel.plan(order).operation()
        operation.start((array, array))
        finish(operation)
        cuda.synchronize()

    return best(call)

"""Which way arrays on a device go: as messages that MPI takes from the device, as messages staged through the host, or
through device memory that the ranks of a node map by CUDA-IPC."""

import os
import sys
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .algorithms import supporting
from .execute import plan
from .execute.aware import VARIABLE, is_aware
from .execute.device import CARRIERS
from .execute.device_arrays import on_device
from .execute.device_kernels import name_of
from .execute.elements import Kernel
from .execute.plan import Order
from .execute.requests import finish

if TYPE_CHECKING:
    from .engine import Engine
    from .execute.channel import Channel

__all__ = ["ROUTES", "check_device", "placed"]

#: "ipc" is for ranks of one node and calls that block.
ROUTES = (*CARRIERS, "ipc")
#: The algorithms that go through memory of others: all to all, or to one and back.
BY_IPC = ("one_shot", "direct", "star")
#: Up to this many bytes everyone adds everything.
ONE_SHOT = 1 << 18
#: Sizes at which the two ways of messages are compared.
SIZES = (1 << 12, 1 << 16, 1 << 20)
CALLS = 5


def check_device(arrays: tuple[Any, Any], op: str | Kernel, codec: Any, stream: Any) -> None:
    """Refuse what devices cannot do, before anything is sent; note the stream that the arrays are used on.

    Raises
    ------
    TypeError
    """
    if not isinstance(op, str):
        raise TypeError("an operation of your own cannot run on a device; have the names of operations only")
    if codec is not None:
        raise TypeError(f"codec {codec} is for arrays in host memory; on a device none can be used yet")
    for array in arrays:
        array.used_on = stream
        name_of(array.dtype)


def placed(engine: "Engine", order: "Order", wish: str, named: bool, alone: bool) -> "Order":
    """An order for a device, with its route and, for CUDA-IPC if no algorithm was named, another algorithm.

    Raises
    ------
    ValueError
        A route that is unknown, or not for this call.
    """
    wish = os.environ.get("ALLREDUCE_ROUTE", "auto") if wish == "auto" else wish
    if wish not in ("auto", *ROUTES):
        raise ValueError(f"unknown route {wish!r}; have auto, {', '.join(ROUTES)}")
    name = order.algorithm.partition(":")[0]
    fits = alone and engine.channel.together and (name in BY_IPC or not named)
    if wish == "ipc" and not fits:
        raise ValueError(f"route 'ipc' is for blocking calls on ranks of one node, by {', '.join(BY_IPC)}")
    everyone = tuple(range(engine.channel.size))
    if wish == "ipc" or (wish == "auto" and fits and engine.channel.device.neighbours(everyone, plan.DEVICE.areas)):
        if not named:
            order = replace(order, algorithm=by_ipc(order), params=())
        return replace(order, route="staged", inside=(everyone,))
    nbytes = order.count * (order.accumulate or order.dtype).itemsize
    return replace(order, route=messages(engine.channel, nbytes) if wish == "auto" else wish)


def by_ipc(order: "Order") -> str:
    """The algorithm that suits memory which all ranks map."""
    nbytes = order.count * order.dtype.itemsize
    if order.collective == "allreduce":
        return "one_shot" if nbytes <= ONE_SHOT else "direct"
    return next(name for name in BY_IPC if name in supporting(order.collective))


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
        seconds = {route: measured(channel, route, nbytes) for route in CARRIERS}
        if seconds["aware"] > seconds["staged"]:
            break
        found[0] = nbytes if nbytes > SIZES[0] else 0
    channel.bcast(found)
    return int(found[0])


def measured(channel: "Channel", route: str, nbytes: int) -> float:
    """Seconds of an all-reduce of zeros, the shortest of a few."""
    order = Order("allreduce", "recursive_doubling", nbytes // 4, np.dtype(np.float32), route=route)
    array, best = on_device(channel.device.cuda.empty((order.count,), order.dtype, "C"), "array"), float("inf")
    for _ in range(CALLS):
        operation = channel.plan(order).operation()
        channel.device.cuda.synchronize()
        begin = time.perf_counter()
        operation.start((array, array))
        finish(operation)
        channel.device.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best

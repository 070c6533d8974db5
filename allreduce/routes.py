"""Which way arrays on a device go: as messages that MPI takes from the device, as messages staged through the host, or
through device memory that the ranks of a node map by CUDA-IPC."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .algorithms import supporting
from .device_prices import messages
from .execute import plan
from .execute.device import CARRIERS
from .execute.device_codes import of_device
from .execute.device_kernels import name_of
from .execute.elements import Kernel
from .execute.plan import Order

if TYPE_CHECKING:
    from compress.codec import Codec

    from .engine import Engine

__all__ = ["ROUTES", "check_device", "coded", "placed"]

#: "ipc" is for ranks of one node and calls that block.
ROUTES = (*CARRIERS, "ipc")
#: The algorithms that go through memory of others: all to all, or to one and back.
BY_IPC = ("one_shot", "direct", "star")
#: Up to this many bytes everyone adds everything.
ONE_SHOT = 1 << 18


def check_device(
    arrays: tuple[Any, Any], op: str | Kernel, codec: "Codec | None", wide: np.dtype, stream: Any
) -> None:
    """Refuse what devices cannot do, before anything is sent; note the stream that the arrays are used on.

    Raises
    ------
    TypeError
        An operation, a dtype, or a codec of values of a dtype that has no kernels there.
    """
    if not isinstance(op, str):
        raise TypeError("an operation of your own cannot run on a device; have the names of operations only")
    if codec is not None:
        of_device(codec, wide, 1)
    for array in arrays:
        array.used_on = stream
        name_of(array.dtype)


def coded(engine: "Engine", route: str, alone: bool, asked: tuple) -> tuple[str, Any]:
    """The algorithm and the codec of an array on a device, or none where that does not pay; collective."""
    if mapped(engine, wished(route), alone):
        return "auto", None
    return engine.device_prices.place(*asked)


def placed(engine: "Engine", order: "Order", route: str, named: bool, alone: bool) -> "Order":
    """An order for a device, with its route and, for CUDA-IPC if no algorithm was named, another algorithm.

    Raises
    ------
    ValueError
        A route that is unknown, or not for this call.
    """
    wish, name = wished(route), order.algorithm.partition(":")[0]
    fits = alone and engine.channel.together and (name in BY_IPC or not named) and order.codec is None
    if wish == "ipc" and not fits:
        raise ValueError(f"route 'ipc' is for blocking calls on ranks of one node, by {', '.join(BY_IPC)}, no codec")
    if fits and mapped(engine, wish, alone):
        if not named:
            order = replace(order, algorithm=by_ipc(order), params=())
        return replace(order, route="staged", inside=(tuple(range(engine.channel.size)),))
    nbytes = order.count * (order.accumulate or order.dtype).itemsize
    nbytes = nbytes if order.codec is None else order.codec.nbytes(order.count)
    return replace(order, route=messages(engine.channel, nbytes) if wish == "auto" else wish)


def wished(route: str) -> str:
    """The route that a call or the environment asks for.

    Raises
    ------
    ValueError
    """
    wish = os.environ.get("ALLREDUCE_ROUTE", "auto") if route == "auto" else route
    if wish not in ("auto", *ROUTES):
        raise ValueError(f"unknown route {wish!r}; have auto, {', '.join(ROUTES)}")
    return wish


def mapped(engine: "Engine", wish: str, alone: bool) -> bool:
    """Whether a call may go through device memory that all ranks map; collective on first use."""
    if wish != "auto" or not (alone and engine.channel.together):
        return wish == "ipc"
    everyone = tuple(range(engine.channel.size))
    return engine.channel.device.neighbours(everyone, plan.DEVICE.areas) is not None


def by_ipc(order: "Order") -> str:
    """The algorithm that suits memory which all ranks map."""
    nbytes = order.count * order.dtype.itemsize
    if order.collective == "allreduce":
        return "one_shot" if nbytes <= ONE_SHOT else "direct"
    return next(name for name in BY_IPC if name in supporting(order.collective))

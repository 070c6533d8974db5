"""Methods: what is done with a memory before and after an all-reduce, such as error feedback."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import compress
from compress.codec import Codec
from compress.context import Context
from compress.method import Method

from .arguments import arrays
from .buffers import as_op, check_lossy
from .engine import Engine
from .execute import device_reductions
from .execute.channel import Channel
from .execute.device_arrays import OnDevice
from .execute.device_memory import ordered
from .execute.requests import run
from .execute.table import MOST_OPERATIONS, OPERATION

__all__ = ["as_method", "average_together", "reduce_by"]


def as_method(engine: Engine, codec: Any) -> Method | None:
    """The method that is meant, if it is one; of text, the same for every call on a communicator."""
    if isinstance(codec, str):
        if codec not in engine.methods:
            found = compress.get(codec)
            if not isinstance(found, Method):
                return None
            engine.methods[codec] = found
        return engine.methods[codec]
    return codec if isinstance(codec, Method) else None


def reduce_by(
    method: Method,
    engine: Engine,
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    algorithm: str,
    accumulate: Any,
    key: str | None,
    route: str = "auto",
    stream: Any = None,
) -> Any:
    """An all-reduce by a method; parameters and result are those of `allreduce`.

    The method draws random numbers as the first hop of its first all-reduce will, so that this keeps what it kept.

    Raises
    ------
    TypeError, ValueError
        Before anything is sent or remembered.
    """
    channel = engine.channel
    channel.check()
    send, recv, result = arrays("allreduce", sendbuf, recvbuf, channel.rank, channel.size)
    op = as_op(op, send.dtype)
    check_lossy(method, send.dtype, op)
    if not isinstance(key, str):
        raise ValueError(f"codec {method} has a memory per tensor; pass key='a name that is the same in all steps'")
    if accumulate is not None:
        raise ValueError(f"codec {method} cannot accumulate in another type")
    check_algorithm(method, engine, algorithm, send.nbytes)
    check_place(method, (send, recv), route, stream)
    channel.agree(f"{send.size} x {send.dtype}", op, method, f"key {key!r}", algorithm)
    if isinstance(send, OnDevice):
        reduce_there(method, engine, {key: send}, {key: recv.reshape(send.shape)}, op, algorithm, route)
        return result
    bring_back(method, [key])
    room = recv if recv.shape == send.shape else None
    with context(method, channel, [key]) as at:
        total = method.reduce(send, summing(engine, algorithm), key, at, room)
    if op == "avg":
        total = np.divide(total, channel.size, out=total if total is recv else None)
    if total is not recv:
        in_memory(recv, recv)[...] = in_memory(total, send)
    return result


def average_together(method: Method, engine: Engine, tensors: dict[str, np.ndarray], algorithm: str) -> None:
    """Replace tensors of one dtype by their means over the ranks, by a method that remembers each of them.

    Raises
    ------
    TypeError, ValueError
        Before anything is sent or remembered.
    """
    channel, dtype = engine.channel, next(iter(tensors.values())).dtype
    channel.check()
    check_lossy(method, dtype, "avg")
    check_algorithm(method, engine, algorithm, sum(x.nbytes for x in tensors.values()))
    check_place(method, tensors.values())
    channel.agree(f"{ {key: x.size for key, x in tensors.items()} } of {dtype}", method, algorithm)
    if isinstance(next(iter(tensors.values())), OnDevice):
        reduce_there(method, engine, tensors, tensors, "avg", algorithm, "auto")
        return
    bring_back(method, tensors)
    with context(method, channel, list(tensors)) as at:
        totals = method.reduce_together(tensors, summing(engine, algorithm), at)
    for key, x in tensors.items():
        np.divide(totals[key], channel.size, out=x)


def reduce_there(
    method: Method, engine: Engine, tensors: Any, outs: Any, op: str, algorithm: str, route: str
) -> None:
    """Write the sums or means of arrays on a device, by their keys; they may be written where they are."""
    from compress.kernels_device.methods import reduce_together

    channel = engine.channel
    kernel, _ = device_reductions.divide(next(iter(outs.values())).dtype)
    with (
        context(method, channel, list(tensors)) as at,
        ordered(channel.device.work, *tensors.values(), *outs.values()),
    ):
        reduce_together(method, tensors, outs, summing(engine, algorithm, route), at)
        for out in outs.values():
            if op == "avg":
                kernel.call(out.ctypes.data, out.ctypes.data, channel.size, out.size, 0)


def check_place(method: Method, arrays: Iterable[np.ndarray], route: str = "auto", stream: Any = None) -> None:
    """Refuse what the method cannot reduce where the arrays are, and note the stream that they are used on."""
    for array in arrays:
        if isinstance(array, OnDevice):
            from compress.kernels_device.methods import check

            check(method, array)
            array.used_on = stream
        elif route != "auto" or stream is not None:
            raise ValueError("route and stream are for arrays on a device")


def bring_back(method: Method, keys: Iterable[str]) -> None:
    """Have in host memory what of tensors was remembered on a device."""
    for key in keys:
        parts = method.memory.get(key, {})
        parts.update({name: part.copy() for name, part in parts.items() if isinstance(part, OnDevice)})


def check_algorithm(method: Method, engine: Engine, algorithm: str, nbytes: int) -> None:
    """Refuse what the method cannot use."""
    if algorithm in ("native", "node") and hasattr(method, "codec"):
        raise ValueError(f"algorithm {algorithm!r} cannot use the codec of {method}")
    if algorithm != "native":
        engine.algorithm(algorithm, "allreduce", nbytes, False, engine.together, {})


def summing(engine: Engine, algorithm: str, route: str = "auto") -> Any:
    """The all-reduce of a method."""

    def allreduce(
        x: np.ndarray,
        op: str = "sum",
        codec: Codec | None = None,
        out: np.ndarray | None = None,
        lost: np.ndarray | None = None,
        residual: np.ndarray | None = None,
        prefer: str = "auto",
    ) -> np.ndarray:
        wishes: dict[str, Any] = {"op": op, "algorithm": algorithm}
        wishes |= {"route": route} if route != "auto" else {}
        if codec is not None:
            wishes |= {"codec": codec, "prefer": prefer}
        if lost is not None:
            return losing(engine, x, np.empty_like(x) if out is None else out, lost, residual, **wishes)
        return engine.blocking("allreduce", x, x, **wishes)

    return allreduce


def losing(
    engine: Engine, x: np.ndarray, out: np.ndarray, lost: np.ndarray, residual: np.ndarray | None, **wishes: Any
) -> np.ndarray:
    """The all-reduce of a method that is told what it loses; if the codec does not pay, that is nothing."""
    wishes |= {"alone": True, "lost": True, "fed": residual is not None}
    plan, (send, recv), result = engine.prepare("allreduce", x, out, **wishes)
    if residual is not None:
        if plan.order.fed:
            run(plan, (send, recv, residual, lost))
            return result
        send = np.add(x, residual, out=lost)
    run(plan, (send, recv))
    if plan.order.codec is None:
        send.fill(0)
    return result


@contextmanager
def context(method: Method, channel: Channel, keys: list[str]) -> Iterator[Context]:
    """Of a reduction of these tensors; with a warm-up, steps are counted in the memory, by which it goes on."""
    warmup = bool(getattr(method, "warmup", 0))
    step = counted(method, keys[0]) if warmup else int(channel.counters[0]) % MOST_OPERATIONS * OPERATION
    yield Context(step, 0, channel.rank, channel.size)
    if warmup:
        for key in keys:
            method.remember(key, step=np.array(step + 1))


def counted(method: Method, key: str) -> int:
    """The step of a tensor, for a warm-up: counted in the memory, so that it goes on after a resume."""
    before = method.recall(key, "step", ())
    return 0 if before is None else int(before)


def in_memory(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The values in the order in which a contiguous array has them in memory: buffers may differ in shape."""
    return x.reshape(-1, order="C" if like.flags.c_contiguous else "F")

"""The engine behind a communicator: from checked arguments to a plan, and from a plan to a result."""

from collections.abc import Iterable
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from mpi4py import MPI

from compress.method import Method

from .algorithms import TABLE, parse, supporting
from .arguments import arrays, room
from .buffers import Unsupported, as_codec, as_op, as_type, is_ordered
from .choice import across, choose
from .costs import segmented
from .device_prices import DevicePrices
from .execute import loop
from .execute.bound import NODE, Plan
from .execute.channel import Channel
from .execute.device_arrays import OnDevice
from .execute.elements import CODES
from .execute.inside import MOST_BLOCKS
from .execute.mpi_abi import library, threads_need_lock
from .execute.once import once
from .execute.plan import Order
from .execute.requests import PersistentRequest, Request, break_off, finish, run
from .execute.wire import kernels_of
from .measured import Prices
from .native import native
from .routes import check_device, coded, placed

__all__ = ["Engine", "engine_of"]


class Engine:
    """All collectives on one communicator.

    Parameters
    ----------
    comm : MPI.Intracomm
        Is duplicated; collective.
    timeout : float or None
        Seconds after which a wait raises `CollectiveTimeout`.
    together : bool
        All ranks are known to share memory.
    """

    def __init__(self, comm: MPI.Intracomm, timeout: float | None = None, together: bool = False) -> None:
        if not isinstance(timeout, (Real, type(None))):
            raise TypeError(f"timeout must be a number of seconds or None, not {timeout!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds or None, not {timeout!r}")
        if comm == MPI.COMM_NULL:
            raise ValueError("the communicator is MPI.COMM_NULL")
        if library() is not None:
            loop.prepare()
        self.channel = Channel(comm, timeout, together)
        self.handle = comm.handle
        self.quick = library() is not None and not threads_need_lock() and loop.reads_arrays()
        self._nodes: tuple[tuple[int, ...], ...] = ()
        self.prices = Prices(self.channel, self.sharing)
        #: methods by their configuration
        self.methods: dict[str, Method] = {}

    def blocking(self, collective: str, sendbuf: Any, recvbuf: Any, key: tuple = (), **wishes: Any) -> Any:
        """Run a collective and return its result; remember it under the key of the call."""
        if wishes.get("algorithm") == "native":
            return self.native(collective, sendbuf, recvbuf, **wishes)
        plan, arrays, result = self.prepare(collective, sendbuf, recvbuf, alone=True, **wishes)
        if key and self.quick and plan.state:
            self.channel.fast[key] = plan.state
        run(plan, arrays)
        return result

    def native(
        self,
        collective: str,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = "sum",
        algorithm: str = "native",
        accumulate: Any = None,
        root: int = 0,
        codec: Any = None,
    ) -> Any:
        """MPI's own collective, on the private duplicate."""
        if accumulate is not None:
            raise ValueError("algorithm 'native' cannot accumulate in another type")
        if codec is not None:
            raise ValueError(f"algorithm 'native' cannot use codec {codec}")
        channel = self.channel
        channel.check()
        send, recv, result = arrays(collective, sendbuf, recvbuf, channel.rank, channel.size, root)
        if isinstance(send, OnDevice):
            raise ValueError("algorithm 'native' is for host memory: no MPI is trusted to reduce on a device")
        if collective not in ("allgather", "bcast"):
            as_op(op, send.dtype)
        native(channel.comm, collective, send, recv, op, root)
        return result

    def resume(self, state: int, code: int, *buffers: Any) -> None:
        """Go on where `loop.run` left off."""
        operation = self.channel.running(state)
        operation.check(code)
        operation.watch(buffers)
        finish(operation)

    def interrupted(self, state: int, error: BaseException) -> None:
        """An exception, such as Ctrl-C, came between `loop.run` and `finish`."""
        operation = self.channel.running(state)
        if operation.busy:
            break_off(operation, error)

    def empty_shared(self, shape: Any, dtype: Any) -> np.ndarray:
        """An array of this rank in memory that all ranks of the node map; collective."""
        if not self.channel.together or library() is None:
            raise ValueError("empty_shared needs all ranks of the communicator on one node")
        self.channel.check()
        shape, dtype, nbytes = room(shape, dtype, self.channel.size)
        return np.frombuffer(self.channel.window.share(nbytes), np.uint8).view(dtype).reshape(shape)

    def request(self, collective: str, sendbuf: Any, recvbuf: Any, **wishes: Any) -> Request:
        """Begin a collective."""
        plan, arrays, result = self.prepare(collective, sendbuf, recvbuf, **wishes)
        operation = plan.operation()
        operation.start(arrays)
        return Request(operation, result)

    def persistent(self, collective: str, sendbuf: Any, recvbuf: Any, **wishes: Any) -> PersistentRequest:
        """Prepare a collective to be started many times on the same buffers."""
        plan, arrays, result = self.prepare(collective, sendbuf, recvbuf, **wishes)
        return PersistentRequest(plan.new(), arrays, result)

    def prepare(
        self,
        collective: str,
        sendbuf: Any,
        recvbuf: Any,
        op: Any = "sum",
        algorithm: str = "auto",
        accumulate: Any = None,
        root: int = 0,
        codec: Any = None,
        lost: bool = False,
        fed: bool = False,
        prefer: str = "auto",
        alone: bool = False,
        route: str = "auto",
        stream: Any = None,
        **params: Any,
    ) -> tuple[Plan, tuple[np.ndarray, np.ndarray], Any]:
        """Check everything at the door; returns the plan, the two arrays it runs on, and what to hand back.

        Raises
        ------
        TypeError, ValueError
            Naming what was given and what is allowed.
        """
        channel = self.channel
        channel.check()
        if algorithm == "native":
            raise Unsupported("algorithm 'native' only runs blocking calls, and no codec")
        send, recv, result = arrays(collective, sendbuf, recvbuf, channel.rank, channel.size, root)
        dtype, count, far = send.dtype, max(send.size, recv.size), isinstance(send, OnDevice)
        if collective in ("allgather", "bcast"):
            kernel: Any = "sum"
            wide = None
        else:
            kernel = as_op(op, dtype)
            wide = as_type(accumulate, dtype, kernel)
        ordered = collective not in ("allgather", "bcast") and is_ordered(op)
        codec = as_codec(codec, wide or dtype, kernel)
        half_wide = dtype.itemsize == 2 and wide == np.dtype(np.float32)  # what shared memory does in any case
        here = alone and self.together and isinstance(kernel, str) and dtype in CODES and (wide is None or half_wide)
        here = here and not far
        if far:
            check_device((send, recv), kernel, codec, wide or dtype, stream)
        elif route != "auto" or stream is not None:
            raise ValueError("route and stream are for arrays on a device")
        named = algorithm != "auto"
        if algorithm == "auto" and codec is not None:
            asked = collective, codec, wide or dtype, count, lost, prefer
            if far:
                algorithm, codec = coded(self, route, alone, asked)
            else:
                algorithm, codec = (NODE, None) if here else self.prices.place(*asked)
        lost, fed = lost and codec is not None, fed and codec is not None
        nbytes = count * (wide or dtype).itemsize if codec is None else codec.nbytes(count)
        key, params = self.algorithm(algorithm, collective, nbytes, ordered, here and codec is None, params)
        if key == "hierarchical" and codec is None:
            params.setdefault("between", across(params.get("nodes", ()), nbytes))
        if ordered and root:
            raise ValueError(f"an operation that does not commute needs root 0, not {root}")
        pairs = tuple(sorted(params.items()))
        order = Order(collective, key, count, dtype, kernel, wide, root, pairs, codec, lost, fed)
        if alone and codec is not None:
            channel.agree(collective, f"{count} x {wide or dtype}", kernel, codec, key, *order.params, root)
        if far:
            order = placed(self, order, route, named, alone)
        elif alone and not lost and isinstance(kernel, str) and {dtype, wide or dtype} <= set(CODES):
            compiled = codec is None or kernels_of(codec, wide or dtype) is not None
            order = replace(order, inside=self.sharing_memory(params.get("nodes", ())) if compiled else ())
        return channel.plan(order), (send, recv), result

    def algorithm(
        self, name: str, collective: str, nbytes: int, ordered: bool, here: bool, params: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Resolve a name, "auto" and "node" included, and its parameters; `here`: whether the window can do it."""
        size = self.channel.size
        if name == NODE and not here:
            raise ValueError(
                "algorithm 'node' is for blocking calls of named operations on ranks of one node, in types of 64 bits "
                "at most, without a codec, with an MPI that we can call directly"
            )
        if name == NODE or (name == "auto" and here and not ordered):
            return NODE, {}
        if name == "auto":
            name = choose(collective, size, nbytes, ordered, self.sharing()).name
        key, params = parse(name, size, collective, **params)
        if ordered and not TABLE[key].ordered:
            fitting = [n for n in supporting(collective) if TABLE[n].ordered]
            raise ValueError(f"{key} does not keep rank order, and op does not commute; {', '.join(fitting)} do")
        if key.startswith("hierarchical") and "nodes" not in params and len(self.nodes) > 1:
            params["nodes"] = self.nodes
        return key, segmented(key, size, nbytes, params)

    @once
    def device_prices(self) -> Prices:
        """Of arrays on devices."""
        return DevicePrices(self.channel, self.sharing)

    @property
    def together(self) -> bool:
        """Whether all ranks share memory, and we can make use of it."""
        return self.channel.together and library() is not None

    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that share a link; collective on first use."""
        return () if self.channel.together else self.nodes

    def sharing_memory(self, groups: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
        """These groups of ranks, if each lies on one node and we can make use of it; else none."""
        nodes = tuple(tuple(group) for group in groups)
        if not nodes or library() is None or self.channel.size > MOST_BLOCKS:
            return ()
        return nodes if all(any(set(group) <= set(node) for node in self.nodes) for group in nodes) else ()

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of every node; collective on first use."""
        if not self._nodes:
            node = self.channel.comm.Split_type(MPI.COMM_TYPE_SHARED)
            leaders = np.full(self.channel.size, self.channel.rank)
            node.Bcast(leaders[:1])
            self.channel.comm.Allgather(leaders[:1].copy(), leaders)
            node.Free()
            self._nodes = tuple(tuple(np.flatnonzero(leaders == leader).tolist()) for leader in dict.fromkeys(leaders))
        return self._nodes


#: Engines of communicators that are not ours, by handle; each hangs on its communicator and goes with it.
_engines: dict[int, Engine] = {}
_keyval = MPI.KEYVAL_INVALID


def engine_of(comm: MPI.Intracomm | None) -> Engine:
    """The engine of a communicator, made on first use, which is collective."""
    if comm is None:
        comm = MPI.COMM_WORLD
    own = getattr(comm, "engine", None)
    if own is not None:
        return own
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm must be an intracommunicator, not {comm!r}")
    engine = _engines.get(comm.handle)
    return engine if engine is not None else _attach(comm)


def _attach(comm: MPI.Intracomm) -> Engine:
    global _keyval
    if _keyval == MPI.KEYVAL_INVALID:
        _keyval = MPI.Comm.Create_keyval(delete_fn=_detach)
    engine = _engines[comm.handle] = Engine(comm)
    comm.Set_attr(_keyval, engine)
    return engine


def _detach(comm: MPI.Comm, keyval: int, engine: Engine) -> None:
    _engines.pop(engine.handle, None)
    engine.channel.close()

"""What algorithm "auto" does with a codec or a method, in words."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from compress.codec import Codec
from compress.context import Context

from .buffers import as_array, as_codec, check_lossy
from .choice import CLOSE, Choice, Coder, choose_coded, pays
from .engine import Engine
from .execute.bound import NODE
from .execute.elements import CODES
from .methods import as_method

__all__ = ["explain"]


def explain(engine: Engine, sendbuf: Any, codec: Any) -> str:
    """What is taken for an all-reduce of an array, and why; collective.

    Raises
    ------
    TypeError, ValueError
        As `allreduce`.
    """
    send, method = as_array(sendbuf, "sendbuf"), as_method(engine, codec)
    if codec is None:
        here = engine.together and send.dtype in CODES
        name, _ = engine.algorithm("auto", "allreduce", send.nbytes, False, here, {})
        return f"{send.size} x {send.dtype} on {engine.channel.size} ranks\nauto takes {name}"
    if method is None:
        return _explain(engine, send, as_codec(codec, send.dtype, "sum"))
    check_lossy(method, send.dtype, "sum")
    told = [f"{method}: the all-reduces of a first step"]

    def asked(
        x: np.ndarray, codec: Codec | None = None, lost: Any = None, prefer: str = "auto", **others: Any
    ) -> np.ndarray:
        told.append(_explain(engine, x, codec, lost is not None, prefer))
        return x

    forgetful = copy.copy(method)
    vars(forgetful).update(memory={}, spare={})
    forgetful.reduce(send, asked, "", Context(0, 0, engine.channel.rank, engine.channel.size))
    return "\n".join(told)


def _explain(engine: Engine, x: np.ndarray, codec: Codec | None, fed_back: bool = False, prefer: str = "auto") -> str:
    """One all-reduce with a codec; what it loses may be sent later, and its algorithm be preferred."""
    what, prices = f"{x.size} x {x.dtype} on {engine.channel.size} ranks", engine.prices
    if codec is None:
        return f"{what}, without a codec"
    plain, ways = prices.compare("allreduce", codec, x.dtype, x.size, prefer)
    link, coder = prices.link, prices.coder(codec, x.dtype)
    taken = _taken(codec, plain, ways, fed_back, bool(prices.sharing()))
    if engine.together and x.dtype in CODES:
        taken = f"no codec: shared memory is faster, algorithm {NODE}"
    encode, decode, add = (1e9 * seconds for seconds in coder[:3])
    lines = [
        f"{what}; {1e6 * link.alpha:.1f} us a message, {1e9 * link.beta:.2f} ns a byte",
        f"{codec}: {_length(codec, coder, x)}; ns a value: encode {encode:.2f}, decode {decode:.2f}, and add {add:.2f}",
        "        us  squares lost   x one encoding",
        f"{1e6 * plain.seconds:10.1f}          none  {'':15}  {plain.name}, by messages, without the codec",
    ]
    for way in ways:
        times = way.loss / (coder.loss or 1)
        lines.append(f"{1e6 * way.seconds:10.1f}  {way.loss:12.1e}  {times:15.2f}  {way.name}")
    return "\n".join([*lines, f"auto takes {taken}"])


def _length(codec: Codec, coder: Coder, x: np.ndarray) -> str:
    if codec.exact_size:
        return f"{codec.nbytes(x.size)} bytes for {x.nbytes}"
    which = f", {codec.share:.1%} of them not zero" if codec.share < 1 else ""
    return f"{coder.nbytes:.2f} bytes a value for {x.itemsize}, of normal values{which}"


def _taken(codec: Codec, plain: Choice, ways: Sequence[Choice], fed_back: bool, between_nodes: bool) -> str:
    best = choose_coded(ways, fed_back, between_nodes)
    if not pays(best, plain):
        return "no codec: it does not pay, for it would not save a tenth"
    if best.seconds > CLOSE * ways[0].seconds:
        return f"{best.name} with {codec}: what is faster loses too much"
    if best.loss > min(way.loss for way in ways if way.seconds <= CLOSE * ways[0].seconds):
        return f"{best.name} with {codec}: as fast as any, and what it loses is little"
    return f"{best.name} with {codec}: of what is as fast, but for a tenth, it loses least"

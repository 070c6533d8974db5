"""What codecs gain over the links of a job, beside the best all-reduce without one, in 32 bits and in 16."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import compress
from allreduce import Communicator, allreduce
from allreduce.algorithms import parse
from allreduce.choice import coding
from allreduce.costs import estimate
from allreduce.engine import Engine, engine_of
from allreduce.execute.plan import Order
from compress.method import Method
from compress.simulate import traffic

from .cells import alike
from .codec_speed import NBYTES
from .codecs import DEFAULT
from .environment import environment
from .inputs import Case, lossy, real
from .journal import opened

__all__ = ["over_links"]

BITS: tuple[np.dtype, np.dtype] = np.dtype(np.float32), np.dtype(np.float16)
FLOAT32 = BITS[0]
#: What is tried without a codec.
PLAIN = ("circulant", "direct", "ring", "rabenseifner")
ROUNDS = 5
#: Values a rank in the simulation that counts bytes.
COUNTED = 1 << 16
NOTES = """\
# bytes: sent without a codec over those sent with it; reached: how much of that the time shows
# encode, wire, decode: ms that each would take alone, by prices measured here; they overlap"""
HEAD = f"{'codec':34}{'by':20}{'ms':>8}{'/32 bit':>9}{'/16 bit':>9}{'bytes':>7}{'reached':>9}"


def over_links(texts: list[str] | None, nbytes: int = NBYTES, algorithm: str = "auto", json: str | None = None) -> int:
    """Print a table, of what an algorithm does with codecs, and write a file; 1 if a result was wrong. Collective."""
    size, rank, faults = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank, 0
    if algorithm != "auto":
        parse(algorithm, size)
    say: Callable[..., None] = partial(print, flush=True) if rank == 0 else lambda *words: None
    facts, journal = environment(MPI.COMM_WORLD), opened(json, False, MPI.COMM_WORLD)
    if journal:
        journal.write([{"record": "environment", **facts}])
    # none is repeated, which a codec would find
    values = np.random.default_rng(0).standard_normal(max(nbytes // 4, 1), dtype=FLOAT32)
    case = real(values, FLOAT32, "sum", nbytes // 4, rank, size, 0)
    say(f"# {size} ranks; {nbytes} bytes of float32 each; medians of {ROUNDS} calls, each after a barrier")
    best = [plain(case, dtype, PLAIN) for dtype in BITS]
    say("# best without a codec: " + ", ".join(f"{s * 1e3:.1f} ms {name}" for name, s in best) + " in float16")
    say(NOTES)
    say(f"{HEAD}{'encode':>9}{'wire':>8}{'decode':>8}{'#wrong':>8}")
    for text in texts or DEFAULT:
        found = measured(text, algorithm, case)
        say(line(found, *(seconds for _, seconds in best)))
        faults += found["wrong"]
        if journal:
            journal.write([{"record": "codec", "ranks": size, "nbytes": nbytes, "plain": best[0][1], **found}])
    again = [plain(case, dtype, [name])[1] for dtype, (name, _) in zip(BITS, best, strict=True)]
    say(f"# the best without a codec, at the end: {again[0] * 1e3:.1f} and {again[1] * 1e3:.1f} ms")
    return int(faults > 0)


def plain(case: Case, dtype: np.dtype, names: Sequence[str]) -> tuple[str, float]:
    """The best of these algorithms without a codec, and its seconds."""
    send, out = case.send.astype(dtype), np.empty(case.send.size, dtype)
    with closing(Communicator(MPI.COMM_WORLD)) as comm:
        times = {name: median(partial(allreduce, send, out, algorithm=name, comm=comm)) for name in names}
    return min(times.items(), key=lambda item: item[1])


def median(call: Callable[[], Any]) -> float:
    """Seconds on the slowest rank, after one call for nothing; the same number on all ranks."""
    samples = []
    for _ in range(1 + ROUNDS):
        MPI.COMM_WORLD.Barrier()
        begin = time.perf_counter()
        call()
        samples.append(MPI.COMM_WORLD.allreduce(time.perf_counter() - begin, MPI.MAX))
    return float(np.median(samples[1:]))


def measured(text: str, algorithm: str, case: Case) -> dict[str, Any]:
    """The time of an all-reduce and of its stages, None where they are not known; and wrong elements of all ranks."""
    made, out = compress.get(text), np.empty_like(case.send)
    with closing(Communicator(MPI.COMM_WORLD)) as comm:
        seconds = median(partial(allreduce, case.send, out, codec=text, key="bench", algorithm=algorithm, comm=comm))
        engine = engine_of(comm)
        orders = [order for order in engine.channel.plans if order.codec is not None]
        known = orders and MPI.COMM_WORLD.size > 1 and orders[-1].codec == getattr(made, "codec", made)
        stages = split(orders[-1], engine) if known else dict.fromkeys(("saved", "encode", "wire", "decode"))
    bounded = not isinstance(made, Method)
    wrong = lossy(case, made, FLOAT32, MPI.COMM_WORLD.size).wrong(out) if bounded else 0
    wrong = MPI.COMM_WORLD.allreduce(wrong) + (0 if alike(out, MPI.COMM_WORLD) else out.size)
    way = orders[-1].algorithm if orders else "no codec"
    return {"codec": text, "algorithm": way, "seconds": seconds, **stages, "wrong": wrong}


def line(found: dict[str, Any], best32: float, best16: float) -> str:
    """A row of the table."""
    seconds, saved = found["seconds"], found["saved"]
    facts = " " * 41
    if saved is not None:
        encode, wire, decode = (found[name] * 1e3 for name in ("encode", "wire", "decode"))
        facts = f"{saved:7.2f}{best32 / seconds / saved:9.0%}{encode:9.1f}{wire:8.1f}{decode:8.1f}"
    gains = f"{best32 / seconds:9.2f}{best16 / seconds:9.2f}"
    return f"{found['codec']:34}{found['algorithm']:20}{seconds * 1e3:8.1f}{gains}{facts}{found['wrong']:8}"


def split(order: Order, engine: Engine) -> dict[str, Any]:
    """How many times fewer bytes are sent, and the seconds of encoding, of the wire, and of decoding."""
    assert order.codec is not None
    name, size, count = order.algorithm, engine.channel.size, order.count
    rows = np.random.default_rng(1).standard_normal((size, COUNTED)).astype(order.dtype)
    saved = max(traffic("direct", list(rows))) / max(traffic(name, list(rows), order.codec))
    coder, link = engine.prices.coder(order.codec, order.dtype), engine.prices.link
    return {
        "saved": saved,
        "encode": coding(name, "allreduce", size, count, coder._replace(decode=0, add=0)),
        "wire": estimate(name, size, int(coder.nbytes * count), link.alpha, link.beta, 0),
        "decode": coding(name, "allreduce", size, count, coder._replace(encode=0, step=0)),
    }

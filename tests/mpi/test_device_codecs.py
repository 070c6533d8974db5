"""Codecs in all-reduces of arrays on a device, which is a fake: the bits of host memory, by every route of messages."""

from itertools import product

import cpu
import numpy as np
import pytest
from witness import HALF, RANK, SIZE, Verdict, rough

import allreduce
import compress
from allreduce.choice import Coder, Link
from compress.kernels_device.lookup import FAMILIES

pytestmark = [pytest.mark.mpi, cpu.needs_compiler]
slow = pytest.mark.skipif(SIZE > 3, reason="slow on the CPU: up to 3 ranks")

F, D = np.dtype("f"), np.dtype("d")
CODECS = [name for name, entry in compress.TABLE.items() if entry.module in FAMILIES]
#: One of every kind of message.
SOME = ["int4:block=32", "int3:rounding=stochastic", "topk:ratio=0.1", "randomk:ratio=0.2", "bounded:eb=0.02"]
BY_MESSAGES = pytest.mark.parametrize("route", ["staged", "aware"], indirect=True)


def check(verdict, fake, comm, count, codec, algorithm, dtype=F, op="sum", **wishes):
    """The same all-reduce of this rank's row on the host and on the device."""
    wishes |= {"codec": codec, "algorithm": algorithm, "op": op, "comm": comm}
    what, mine = (codec, algorithm, str(dtype), count, op), rough(dtype, count)[RANK]
    mine[: count // 9] = -0.0
    number = comm.engine.channel.counters[:1]
    begun = int(number[0])
    wanted = allreduce.allreduce(mine, **wishes)
    number[0] = begun  # random numbers are those of the operation
    send = fake.put(mine)
    result = fake.get(allreduce.allreduce(send, **wishes))
    verdict.check(result.tobytes() == wanted.tobytes(), *what, result[:4], wanted[:4])
    verdict.check(fake.get(send).tobytes() == mine.tobytes(), "changed sendbuf", *what)
    verdict.same(result, *what)


@slow
@BY_MESSAGES
def test_every_codec(fake, route, comm):
    with Verdict() as verdict:
        for i, codec in enumerate(CODECS):
            check(verdict, fake, comm, 700, codec, ("ring", "direct", "recursive_doubling")[i % 3])


@slow
@BY_MESSAGES
def test_every_algorithm(fake, route, comm):
    with Verdict() as verdict:
        for i, algorithm in enumerate(allreduce.algorithms()):
            for j, codec in enumerate(SOME):
                check(verdict, fake, comm, (0, 1, 33, 500)[(i + j) % 4], codec, algorithm, op=("sum", "avg")[i % 2])


@slow
@BY_MESSAGES
def test_every_dtype(fake, route, comm):
    with Verdict() as verdict:
        for dtype, codec in product((*HALF, D), ("int8", "topk:ratio=0.1", "bounded:eb=0.02")):
            check(verdict, fake, comm, 300, codec, "ring", dtype)
        check(verdict, fake, comm, 300, "int8", "direct", HALF[0], accumulate="float32")


@BY_MESSAGES
@pytest.mark.parametrize("codec", ["int8", "int4:block=32", "int3:block=32,rounding=stochastic"])
def test_what_a_ring_relays_is_decoded_added_and_encoded_by_one_kernel(fake, route, comm, codec):
    """And its last step leaves values: they are encoded for the others, and decoded as these do."""
    with Verdict() as verdict:
        check(verdict, fake, comm, 64 * SIZE, codec, "ring")
        relays = max(SIZE - 2, 0)
        begun = ["encode", *["hop"] * relays, "add", "encode", "decode"] if SIZE > 1 else []
        verdict.check(fake.coded == begun + ["decode"] * (SIZE - 1), fake.coded)


@pytest.mark.parametrize("codec", ["int8", "int4:block=32"])
@pytest.mark.parametrize("algorithm", ["rabenseifner", "recursive_doubling", "double_binary_tree"])
def test_what_others_relay(fake, comm, monkeypatch, codec, algorithm):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    with Verdict() as verdict:
        check(verdict, fake, comm, 64 * SIZE + 9, codec, algorithm)
        verdict.check(SIZE < 4 or comm.allreduce(fake.coded.count("hop")) > 0, "no hop")


def test_auto_takes_a_codec_where_it_pays(fake, comm, monkeypatch):
    """Never where ranks map each other's memory; else by what messages and kernels cost, measured on the device."""
    data, asked = rough(F, 100), []
    monkeypatch.setattr("allreduce.device_prices.best", lambda call: asked.append(call()) or 1e-3)
    for name, value in (("PROBES", (("recursive_doubling", 8), ("ring", 1 << 10))), ("MOST", 0), ("SAMPLE", 1 << 10)):
        monkeypatch.setattr(f"allreduce.measured.{name}", value)
    with Verdict() as verdict:
        allreduce.allreduce(fake.put(data[RANK]), codec="int8", comm=comm)
        orders = [order for order in comm.engine.channel.plans if order.route]
        if comm.engine.channel.together:
            verdict.check([order.codec for order in orders] == [None] and not asked, orders)
        monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
        allreduce.allreduce(fake.put(data[RANK]), codec="int8", comm=comm)
        verdict.check(len(asked) >= 3, "was not measured")
        prices, int8 = comm.engine.device_prices, compress.get("int8")
        prices.__dict__["link"] = Link(1e-9, 1e-6, 0.0)
        prices.coders[int8, F] = Coder(1e-12, 1e-12, 1e-12, 1.0, 1e-5)
        allreduce.allreduce(fake.put(data[RANK]), codec="int8", comm=comm)
        taken = [order.codec for order in comm.engine.channel.plans if order.route and order.count == 100]
        verdict.check((int8 in taken) == (SIZE > 1), taken)


def test_what_is_refused(fake, comm):
    array = fake.put(np.ones(4, F))
    for error, match, wishes in (
        (TypeError, "lossless.* has no kernels for a CUDA device; have float16", {"codec": "lossless"}),
        (ValueError, "route 'ipc' is for .*, no codec", {"codec": "int8", "route": "ipc", "algorithm": "direct"}),
    ):
        with pytest.raises(error, match=match):
            allreduce.allreduce(array, comm=comm, **wishes)

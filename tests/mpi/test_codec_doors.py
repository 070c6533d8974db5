"""Codecs and methods at the door: refused on every rank, with nothing sent and nothing changed."""

from dataclasses import dataclass

import numpy as np
import pytest
from witness import RANK, SIZE, Verdict, rough

import allreduce
import compress
from compress.codec import START, Codec

pytestmark = pytest.mark.mpi

F = np.dtype("f")
METHODS = [
    "feedback(topk:ratio=0.1):warmup=9", "dgc(topk:ratio=0.1)", "sparcml(topk:ratio=0.1)", "ef21(int8)",
    "powersgd:rank=1", "thc", "gtopk:ratio=0.1", "oktopk:ratio=0.1",
]  # fmt: skip


def error_of(call):
    """What a call raises, on this rank."""
    try:
        call()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"


@dataclass(frozen=True)
class Own(Codec):
    """float32 as it is, by a codec from outside of the package."""

    factor: int = 1

    def nbytes(self, n):
        return 4 * n

    def errors(self, x):
        return np.zeros(x.shape)

    def encode(self, x, out=None, at=START):
        room = np.empty(4 * x.size, np.uint8) if out is None else out[: 4 * x.size]
        room.view(F)[:] = x.reshape(-1)
        return room

    def decode(self, message, out, add=False):
        out.reshape(-1)[:] = message.view(F) + (out.reshape(-1) if add else 0)
        return out


@dataclass(frozen=True)
class Longer(Own):
    def nbytes(self, n):
        return 3 * n

    def encode(self, x, out=None, at=START):
        return super().encode(x)


@dataclass(frozen=True)
class Shorter(Own):
    def nbytes(self, n):
        return 5 * n


@dataclass(frozen=True)
class Elsewhere(Own):
    def encode(self, x, out=None, at=START):
        return super().encode(x)


@dataclass(frozen=True)
class Nowhere(Own):
    def decode(self, message, out, add=False):
        return message.view(F).copy()


@dataclass(frozen=True)
class Empty(Own):
    def nbytes(self, n):
        return 0


@dataclass(frozen=True)
class Broken(Own):
    def nbytes(self, n):
        return 4.0 * n


@dataclass(frozen=True)
class Unblocked(Own):
    block = 0


class Plain(Own):
    __hash__ = None


@dataclass(frozen=True)
class Quiet(Own):
    def decode(self, message, out, add=False):
        super().decode(message, out, add)


def test_a_codec_from_outside_of_the_package(comm):
    codec = Own()
    with Verdict() as verdict:
        for algorithm in allreduce.algorithms():
            for count in (0, 1, SIZE - 1, SIZE + 1, 1009):
                data = np.arange(SIZE * count, dtype=F).reshape(SIZE, count)
                out = allreduce.allreduce(data[RANK], comm=comm, codec=codec, algorithm=algorithm)
                verdict.check(np.array_equal(out, data.sum(0)), algorithm, count)
        assert "1009 x float32" in allreduce.explain(data[RANK], codec=codec, comm=comm)
        method = compress.get("feedback", codec=codec)
        out = allreduce.allreduce(data[RANK], comm=comm, codec=method, key="w", algorithm="ring")
        verdict.check(np.array_equal(out, data.sum(0)), "feedback")
        assert method.state_dict()["config"] == f"feedback({codec!r})"


@pytest.mark.parametrize(
    "codec, said",
    [
        (Longer(), "Longer(factor=1) makes 8 x uint8 of 2 values; it promises 6 bytes at most"),
        (Shorter(), "Shorter(factor=1) makes 8 bytes of 2 values; it promises 10"),
        (Elsewhere(), "Elsewhere(factor=1) does not write its message to `out`"),
        (Nowhere(), "Nowhere(factor=1) does not decode into `out`"),
        (Quiet(), "Quiet(factor=1) does not decode into `out`"),
        (Empty(), "nbytes of Empty(factor=1) is a whole number of bytes, not 0 for 1 values"),
        (Broken(), "nbytes of Broken(factor=1) is a whole number of bytes, not 4.0 for 1 values"),
        (Unblocked(), "block of Unblocked(factor=1) is a whole number from 1 on, not 0"),
        (Plain(), "a codec must be a frozen dataclass, which Plain is not"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_codec_that_does_not_keep_its_word_is_refused(codec, said, comm):
    x = np.ones(100, F)
    before = int(comm.engine.channel.counters[0])
    for call in (
        lambda: allreduce.allreduce(x, comm=comm, codec=codec, algorithm="ring"),
        lambda: allreduce.allreduce(x, comm=comm, codec=codec),
        lambda: allreduce.reduce(x, comm=comm, codec=codec),
        lambda: allreduce.explain(x, comm=comm, codec=codec),
    ):
        assert said in error_of(call)
    assert comm.engine.channel.counters[0] == before, "something was sent"


def test_what_only_allreduce_can_do(comm):
    x = np.ones(8, F)
    said = error_of(lambda: allreduce.reduce(x, codec="feedback(int8)", comm=comm))
    assert "codec feedback(int8) has a memory and makes several all-reduces; only allreduce(..., key=) takes it" in said
    assert "is for op 'sum' and 'avg', not 'your own'" in error_of(
        lambda: allreduce.allreduce(x, op=lambda a, b: a + b, codec="int8", comm=comm)
    )


@pytest.mark.parametrize("text", METHODS)
def test_what_is_refused_is_not_remembered(text, comm):
    method, x = compress.get(text), rough(F, 480)[RANK].reshape(24, 20)

    def call(x, algorithm="ring"):
        return error_of(lambda: allreduce.allreduce(x, comm=comm, codec=method, key="w", algorithm=algorithm))

    for algorithm, said in {"rign": "unknown algorithm 'rign'", "ring:radix=2": "no parameter 'radix'"}.items():
        assert said in call(x, algorithm)
        assert not method.memory, method.memory
    assert call(x) == "nothing raised"
    kept = {name: part.copy() for name, part in method.memory.get("w", {}).items()}
    assert text == "thc" or "has shape" in call(x[:12])
    assert method.memory.get("w", {}).keys() == kept.keys()
    assert all(np.array_equal(method.memory["w"][name], part) for name, part in kept.items())


@pytest.mark.parametrize("text", METHODS)
def test_buffers_of_other_shapes_and_orders(text, comm):
    """As without a codec: values go by their place in memory."""
    x = rough(F, 480)[RANK].reshape(24, 20)
    turned = np.asfortranarray(x)
    pairs = {"flat": (x, np.empty(480, F)), "tall": (x.reshape(-1), np.empty((24, 20), F)),
             "turned": (turned, np.empty_like(turned)), "turned and flat": (turned, np.empty(480, F))}  # fmt: skip
    with Verdict() as verdict:
        for name, (send, recv) in pairs.items():
            before = send.copy()
            out = allreduce.allreduce(send, recv, comm=comm, codec=text, key=name, algorithm="ring")
            verdict.check(out is recv and np.array_equal(send, before), name)
            verdict.same(recv.ravel(order="K"), name)
            exact = allreduce.allreduce(send, np.empty_like(recv))
            verdict.check("ef21" not in text or np.abs(recv - exact).max() <= 0.05 * SIZE, name)


def differing(comm, call):
    """Every rank is refused, and the communicator goes on."""
    said = error_of(call)
    with Verdict() as verdict:
        verdict.check(SIZE == 1 or f"ranks ask for different things; rank {RANK} for" in said, said)
        out = allreduce.allreduce(np.ones(500, F), comm=comm, codec="lossless", algorithm="ring")
        verdict.check((out == SIZE).all(), "the next call", out[:3])


@pytest.mark.parametrize("theirs", ["int4:block=32", "int8:rounding=stochastic", "fp8:block=64", "lossless", "topk"])
def test_ranks_with_different_codecs_are_refused(theirs, comm):
    codec = theirs if RANK == SIZE - 1 else "int8"
    for algorithm in ("ring", "direct", "recursive_doubling", "star"):
        differing(comm, lambda: allreduce.allreduce(np.ones(1000, F), comm=comm, codec=codec, algorithm=algorithm))  # noqa: B023


def test_ranks_with_different_lengths_keys_and_methods_are_refused(comm):
    last = RANK == SIZE - 1
    wishes = {"comm": comm, "algorithm": "direct"}
    x = np.ones(999 if last else 1000, F)
    differing(comm, lambda: allreduce.allreduce(x, codec="int8", **wishes))
    differing(comm, lambda: allreduce.allreduce(x, codec="feedback(int8)", key="w", **wishes))
    x = np.ones(1000, F)
    differing(comm, lambda: allreduce.allreduce(x, codec="feedback(int8)", key="a" if last else "b", **wishes))
    differing(comm, lambda: allreduce.allreduce(x, codec="thc" if last else "powersgd", key="w", **wishes))
    differing(comm, lambda: allreduce.allreduce(x, codec="int8", op="avg" if last else "sum",
                                                **wishes))  # fmt: skip
    kept = [method.memory for method in comm.engine.methods.values()]
    assert SIZE == 1 or not any(kept), "something was remembered"

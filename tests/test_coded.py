"""Tables with codecs, played on all ranks in one process, against what the rules say."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from ruled import ruled
from test_lowering import Player, order_of, play, shortened

import compress
from allreduce.algorithms import TABLE, supporting
from allreduce.execute.plan import lower
from allreduce.execute.reductions import difference, zeros
from allreduce.execute.table import CALL, HEAD, POLL, RECV, RESIDUAL, SEND, WAIT
from allreduce.execute.wire import STREAM, Wire, python_kernels
from compress import Context
from compress.simulate import simulate

F = np.dtype(np.float32)
#: Cut anywhere, cut at blocks, drawn at random, never cut, of a length that depends on the data, and that too but cut.
CODECS = [
    "float16", "int4:block=8", "int3:block=16,rounding=stochastic", "topk:ratio=0.3", "threshold:least=0.5", "bounded",
]  # fmt: skip


class CodedPlayer(Player):
    def sizes(self, kernel, count):
        codec, dtype = self.order.codec, self.order.accumulate or self.order.dtype
        values, message = count * dtype.itemsize, codec.nbytes(count)
        if kernel.address:
            fields = codec.kernels(dtype)._asdict() if codec.exact_size else {}
            name = next((name for name, known in fields.items() if known == kernel), None)
        else:
            name, message = kernel.call.__name__, HEAD + message
        if kernel in (difference(dtype), zeros(dtype)):
            return values, *((values, values) if kernel == difference(dtype) else (0, 0))
        sizes = {"encode": (message, values, 0), "decode": (values, message, 0)}
        sizes |= {name: (values, values, message) for name in ("add", "rest")}
        return sizes[name] if name else super().sizes(kernel, count)


def data(size, count, dtype=F, seed=0):
    return np.random.default_rng([size, count, seed]).standard_normal((size, count)).astype(dtype)


def check(name, size, count, codec, in_place=False, dtype=F, op="sum"):
    """An all-reduce: the bits that the rules say, on every rank, and the input as it was."""
    codec, values = compress.get(codec), data(size, count, dtype)
    sends = [row.copy() for row in values]
    recvs = sends if in_place else [np.full(count, 7, dtype) for _ in sends]
    order = order_of(name, size, count, dtype=dtype, op=op, codec=codec)
    players = play(order, sends, recvs, reverse=in_place, player=CodedPlayer)
    wanted, _ = ruled(name, values, codec, op=op)
    for rank in range(size):
        assert recvs[rank].tobytes() == wanted.tobytes(), f"{name} {codec} {count}: rank {rank} of {size}"
        assert in_place or sends[rank].tobytes() == values[rank].tobytes(), f"rank {rank} changed its sendbuf"
    return players


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", TABLE)
def test_every_algorithm_codec_and_length(name, codec, monkeypatch):
    block = compress.get(codec).block
    for i, (size, count) in enumerate(product(range(1, 9), (0, 1, block - 1, block, block + 1, 101))):
        check(name, size, count, codec, in_place=i % 2 == 0)
    shortened(monkeypatch)
    monkeypatch.setattr(compress.codec, "PART", 50)  # a message of several pieces
    for size in range(1, 9):
        check(name, size, 211, codec, in_place=size % 2 == 0)


@pytest.mark.parametrize("name", TABLE)
def test_averages_and_dtypes(name):
    dtypes = (np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
    wishes = ("int4:block=8", "avg"), ("threshold:least=0.5", "sum")
    for dtype, (codec, op), size in product(dtypes, wishes, (1, 3, 4)):
        check(name, size, 45, codec, in_place=size == 3, dtype=dtype, op=op)


@pytest.mark.parametrize("name", supporting("reduce"))
def test_reduce_for_every_root(name):
    for size, codec in product(range(1, 6), CODECS):
        for root in range(size):
            values = data(size, 70)
            sends, recvs = [row.copy() for row in values], [np.full(70, 7, F) for _ in values]
            bufs = [recvs[r] if r == root else sends[r] for r in range(size)]
            order = order_of(name, size, 70, "reduce", dtype=F, root=root, codec=compress.get(codec))
            play(order, sends, bufs, player=CodedPlayer)
            wanted, _ = ruled(name, values, compress.get(codec), collective="reduce", root=root)
            assert recvs[root].tobytes() == wanted.tobytes()
            assert all(np.array_equal(s, v) for s, v in zip(sends, values))


@pytest.mark.parametrize("name", TABLE)
def test_losses_are_those_of_the_simulator(name, monkeypatch):
    """They are left in sendbuf; with the result they add up to the inputs."""
    monkeypatch.setattr(compress.codec, "PART", 16)
    for size, codec in product(range(1, 9), (*CODECS, "sparse")):
        codec, values = compress.get(codec), data(size, 203)
        losts, sums = [row.copy() for row in values], [np.ones(203, F) for _ in values]
        order = order_of(name, size, 203, dtype=F, codec=codec, lost=True)
        play(order, losts, sums, player=CodedPlayer)
        wanted = [np.zeros(203, F) for _ in values]
        results = simulate(name, values, codec, lost=wanted)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(sums, results)), f"{name} {codec}: {size} ranks"
        assert all(a.tobytes() == b.tobytes() for a, b in zip(losts, wanted)), f"{name} {codec}: {size} ranks"
        assert np.allclose(sums[0] + np.sum(losts, axis=0), values.sum(axis=0), atol=1e-5)


def fed(table):
    """How many values are added to their residuals."""
    return sum(row[9] for row in table.rows if row[0] == CALL and row[7] == RESIDUAL)


@pytest.mark.parametrize("name", TABLE)
def test_residuals_are_added_before_anything_is_read(name, monkeypatch):
    """Part by part, and once; they and the input are left as they are."""
    monkeypatch.setattr(compress.codec, "PART", 16)
    shortened(monkeypatch)
    count = 203
    for size, codec in product((1, 2, 3, 5, 8), CODECS):
        codec, values, residuals = compress.get(codec), data(size, count), data(size, count, seed=1)
        given = [values.copy(), residuals.copy()]
        losts, sums = [np.full(count, np.nan, F) for _ in values], [np.ones(count, F) for _ in values]
        order = order_of(name, size, count, dtype=F, codec=codec, lost=True, fed=True)
        players = play(order, list(values), sums, list(residuals), losts, player=CodedPlayer)
        assert all(fed(player.table) == count for player in players)
        wanted = [np.zeros(count, F) for _ in values]
        results = simulate(name, values + residuals, codec, lost=wanted)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(sums, results)), f"{name} {codec}: {size} ranks"
        assert all(a.tobytes() == b.tobytes() for a, b in zip(losts, wanted)), f"{name} {codec}: {size} ranks"
        assert all(np.array_equal(a, b) for a, b in zip(given, (values, residuals)))


def test_half_precision_is_summed_in_float32_if_asked_for():
    codec, dtype = compress.get("int8"), np.dtype(np.float16)
    for name, in_place in product(TABLE, (False, True)):
        values = data(5, 101, dtype)
        sends = [row.copy() for row in values]
        recvs = sends if in_place else [np.zeros(101, dtype) for _ in sends]
        order = order_of(name, 5, 101, dtype=dtype, op="avg", accumulate=F, codec=codec)
        play(order, sends, recvs, player=CodedPlayer)
        wanted, _ = ruled(name, values.astype(F), codec, op="avg")
        assert all(recv.tobytes() == wanted.astype(dtype).tobytes() for recv in recvs), name


def test_a_strip_is_encoded_while_others_travel_and_added_as_it_comes(monkeypatch):
    shortened(monkeypatch, segment=24, pack=0)
    table = check("direct", 2, 128, "int4:block=8")[0].table
    kinds = "".join({SEND: "s", RECV: "r", WAIT: "w", CALL: "c", POLL: "p"}[row[0]] for row in table.rows)
    assert kinds == "rr" + "cspcs" + "wcwc" + "w" + "rr" + "ccspccs" + "wcwc" + "w"


@pytest.mark.parametrize("name", ["one_shot", "direct"])
def test_zeros_of_a_sparse_codec_are_made_before_its_messages_are_waited_for(name):
    table = check(name, 3, 64, "topk:ratio=0.3")[2].table
    kernels = [table.kernels[row[2]] if row[0] == CALL else None for row in table.rows]
    waits = [i for i, row in enumerate(table.rows) if row[0] == WAIT]
    assert kernels.index(zeros(F)) < (waits[0] if name == "one_shot" else waits[-1])


def test_pieces_between_nodes_are_as_short_as_asked_for():
    for codec, piece in ((None, 4096), (compress.get("int8"), 4096)):
        rows = lower(order_of("ring", 4, 100_000, dtype=F, codec=codec), 0, 4, 4096).rows
        longest = max(row[5] for row in rows if row[0] == SEND)
        assert piece / 2 < longest <= piece


def test_a_vector_is_encoded_once_for_all_peers():
    for name, encodings in (("one_shot", 1), ("recursive_multiplying", 1), ("direct", 4)):
        player = check(name, 4, 64, "int4:block=8")[0]
        encode = compress.get("int4:block=8").kernels(F).encode
        calls = [row for row in player.table.rows if row[0] == CALL and player.table.kernels[row[2]] == encode]
        assert len(calls) == encodings, name


@pytest.mark.parametrize("codec", ["int4:block=8", "topk:ratio=0.3"])
def test_places_and_lengths_beyond_32_bits(codec, monkeypatch):
    """Two ranks with 2**32 values and more: all are encoded, in one piece after the other, and as many bytes sent."""
    shortened(monkeypatch, segment=1 << 28)
    monkeypatch.setattr(compress.codec, "PART", 1 << 40)
    codec, n = compress.get(codec), 2**32 + 64
    table = lower(order_of("ring", 2, n, dtype=F, codec=codec), 0, 2)
    encode = table.kernels.index(codec.kernels(F).encode)
    pieces = sorted((row[8], row[9]) for row in table.rows if row[0] == CALL and row[2] == encode)
    assert [first for first, _ in pieces] == [0, *np.cumsum([count for _, count in pieces])[:-1]]
    assert sum(pieces[-1]) == n
    assert sum(row[5] for row in table.rows if row[0] == SEND) == 2 * codec.nbytes(n // 2)
    assert table.array().max() > 2**33


def test_noise_differs_between_operations_steps_and_ranks_but_not_among_equals():
    """One who holds the same sum as another must send the same message; all other noise is independent."""
    codec, numbers = compress.get("int3:rounding=stochastic"), {}
    for rank in range(8):
        table = lower(order_of("recursive_doubling", 8, 64, dtype=F, codec=codec), rank, 8)
        encode = table.kernels.index(codec.kernels(F).encode)
        numbers[rank] = [row[10] for row in table.rows if row[0] == CALL and row[2] == encode]
    rank_of = {rank: [n // 2**40 for n in found] for rank, found in numbers.items()}
    assert rank_of == {r: [r, r // 2 * 2, r // 4 * 4] for r in range(8)}
    assert all([n % 2**40 for n in found] == [0, 1, 2] for found in numbers.values())


class Watched:
    """A codec that says where it was told to stand."""

    block, exact_size, seen = 1, False, ()

    def nbytes(self, n):
        return n

    def encode(self, x, out=None, at=None):
        self.seen = *self.seen, at
        return np.zeros(x.size, np.uint8) if out is None else out[: x.size]


def test_a_codec_in_python_is_told_where_its_values_stand():
    codec, values, room = Watched(), np.zeros(5, F), np.zeros(HEAD + 5, np.uint8)
    python_kernels(codec, F, 9).encode.call(room.ctypes.data, values.ctypes.data, 1000, 5, 3 * STREAM + 77)
    assert codec.seen[-1] == Context(step=77, offset=1000, rank=3, size=9)


def test_a_length_that_cannot_be_is_refused():
    codec = compress.get("threshold:least=0.5")
    kernels, room = python_kernels(codec, F, 2), np.zeros(HEAD + codec.nbytes(5), np.uint8)
    values = np.ones(5, F)
    kernels.encode.call(room.ctypes.data, values.ctypes.data, 0, 5, 0)
    room[1] = 1
    with pytest.raises(ValueError, match="message of 5 values cannot have 296 bytes"):
        kernels.decode.call(values.ctypes.data, room.ctypes.data, 0, 5, 0)


@pytest.mark.parametrize("codec", [*CODECS, "bounded", "lossless"])
def test_strips_fill_a_message(codec):
    """Also where the length of a code depends on the data, so that strips would need room for lengths of their own."""
    for count in (0, 1, 1009, 400_001):
        wire = Wire(compress.get(codec), F, count, 3, 2)
        for blocks in (range(1), range(3), range(1, 3)):
            strips = wire.strips(blocks)
            assert sum(strip.nbytes for strip in strips) == wire.length(blocks)
            assert sum(strip.length for strip in strips) == wire.firsts[blocks.stop] - wire.firsts[blocks.start]


def test_error_stays_within_the_bound():
    for name, codec in product(TABLE, ("int4:block=8", "float16", "topk:ratio=0.3")):
        values = data(8, 300, seed=3)
        result, bound = ruled(name, values, compress.get(codec))
        assert (np.abs(result - values.astype(float).sum(0)) <= bound).all(), (name, codec)
        assert codec != "float16" or bound.max() < 0.1

"""The tables, played on all ranks in one process: NumPy is the memory, and mail is delivered first in first out.

The player is as unkind as MPI may be: a message is received as late as its WAIT, and whoever writes to what is
still being sent, or touches what is still being received, is caught.
"""

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from allreduce.algorithms import TABLE, parse, supporting
from allreduce.execute import lowering, reductions
from allreduce.execute.elements import BFLOAT16
from allreduce.execute.plan import Order, lower
from allreduce.execute.table import CALL, COLUMNS, COPY, HEAD, PLAIN, POLL, RECV, SEND, WAIT

I64 = np.dtype("q")


class Player:
    """One rank's rows."""

    def __init__(self, order, rank, size, mail, send, recv, *fed):
        self.rank, self.mail = rank, mail
        self.table = lower(order, rank, size)
        self.rows = self.table.array()
        assert self.rows.shape == (len(self.table.rows), COLUMNS) and self.rows.dtype == np.int64
        room = np.zeros(self.table.scratch + 64, np.uint8)
        self.memory = [send, recv, room[-room.ctypes.data % 64 :][: self.table.scratch], None, *fed]
        self.order = order
        self.pending = {}  # request -> (kind, peer, place, number of the message)
        self.seen = defaultdict(int)  # messages asked for, per peer
        self.varying = set()  # requests of messages that may be shorter
        self.pc = 0

    def place(self, buffer, offset, nbytes):
        """Absolute addresses, so that buffers that are one are seen to be one."""
        memory = self.memory[buffer]
        assert 0 <= offset <= offset + nbytes <= memory.nbytes, f"outside buffer {buffer}"
        return memory.ctypes.data + offset, nbytes, memory[offset : offset + nbytes]

    def guard(self, place, writes):
        """No one touches what is being received, or writes what is being sent."""
        start, nbytes, _ = place
        for kind, peer, (other, length, _), _ in self.pending.values():
            if (kind == RECV or writes) and start < other + length and other < start + nbytes:
                verb = "receives from" if kind == RECV else "sends to"
                raise AssertionError(f"rank {self.rank}, row {self.pc}: touches what it still {verb} {peer}")

    def post(self, kind, peer, buffer, offset, nbytes, request, varies):
        assert nbytes > 0 and request not in self.pending and 0 <= request < self.table.requests
        assert peer != self.rank and buffer != PLAIN
        place = self.place(buffer, offset, nbytes)
        self.guard(place, writes=kind == RECV)
        self.pending[request] = kind, peer, place, self.seen[peer]
        self.varying = (self.varying | {request}) if varies else (self.varying - {request})
        if kind == SEND:
            length = HEAD + int.from_bytes(place[2][:HEAD].tobytes(), "little") if varies else nbytes
            self.mail[self.rank, peer].append(place[2][:length].copy())
        else:
            self.seen[peer] += 1

    def poll(self, request):
        assert self.pending[request][0] == SEND

    def wait(self, first, last):
        """Whether all have come; then they are done."""
        for request in range(first, last):
            kind, peer, _, number = self.pending[request]
            if kind == RECV and len(self.mail[peer, self.rank]) <= number:
                return False
        for request in range(first, last):
            kind, peer, (_, nbytes, memory), number = self.pending.pop(request)
            if kind == RECV:
                letter = self.mail[peer, self.rank][number]
                fits = len(letter) == nbytes or (len(letter) < nbytes and request in self.varying)
                assert fits, f"rank {self.rank} expects {nbytes} bytes from {peer}, gets {len(letter)}"
                memory[: len(letter)] = letter
        return True

    def copy(self, to, to_offset, from_, from_offset, nbytes):
        target, origin = self.place(to, to_offset, nbytes), self.place(from_, from_offset, nbytes)
        if target[0] == origin[0]:
            return  # as both interpreters do
        assert target[0] + nbytes <= origin[0] or origin[0] + nbytes <= target[0], "a copy onto itself"
        self.guard(target, writes=True)
        self.guard(origin, writes=False)
        target[2][:] = origin[2]

    def apply(self, kernel, *columns):
        kernel = self.table.kernels[kernel]
        *columns, count, number = columns[:8]
        sizes = self.sizes(kernel, count)
        places = []
        for i, (buffer, offset) in enumerate(zip(columns[::2], columns[1::2])):
            if buffer == PLAIN:
                places.append(offset)
                continue
            place = self.place(buffer, offset, sizes[i])
            self.guard(place, writes=i == 0)
            places.append(place[0])
        kernel.call(*places, count, number)

    def sizes(self, kernel, count):
        """Bytes of out, a and b."""
        out, operand = next(sizes for known, sizes in kernel_sizes(self.order) if known == kernel)
        return count * out, count * operand, count * operand

    def advance(self):
        """Go on until the end, or until something has not come; whether anything was done."""
        begun = self.pc
        while self.pc < len(self.rows):
            kind, _, *columns = self.rows[self.pc].tolist()
            if kind == WAIT and not self.wait(*columns[:2]):
                break
            if kind in (SEND, RECV):
                self.post(kind, *columns[:6])
            elif kind == POLL:
                self.poll(columns[0])
            elif kind == COPY:
                self.copy(*columns[:5])
            elif kind == CALL:
                self.apply(*columns)
            self.pc += 1
        return self.pc > begun


def kernel_sizes(order):
    """The kernels that an order may use, with the bytes of an element of out, and of a and b."""
    dtype, wide = order.dtype, order.accumulate or order.dtype
    kernel, elements = reductions.reduction(wide, order.op) if isinstance(order.op, str) else (order.op, 1)
    sizes = [(kernel, (wide.itemsize // elements,) * 2)]
    if order.op == "avg":
        kernel, elements = reductions.divide(wide)
        sizes.append((kernel, (wide.itemsize // elements,) * 2))
    if wide != dtype:
        sizes.append((reductions.cast(wide, dtype), (wide.itemsize, dtype.itemsize)))
        sizes.append((reductions.cast(dtype, wide), (dtype.itemsize, wide.itemsize)))
    return sizes


def play(order, sends, recvs, *fed, reverse=False, player=Player):
    """Run all ranks' tables; ranks take turns in either order. If `fed`, with all residuals and room for losses."""
    size, mail = len(sends), defaultdict(list)
    as_bytes = [[x.reshape(-1).view(np.uint8) for x in buffers] for buffers in zip(sends, recvs, *fed)]
    players = [player(order, rank, size, mail, *buffers) for rank, buffers in enumerate(as_bytes)]
    while any([player.advance() for player in (players[::-1] if reverse else players)]):
        pass
    for player in players:
        assert player.pc == len(player.rows), f"rank {player.rank} is stuck in row {player.pc}"
        assert not player.pending, "never waited for"
    for (source, rank), letters in mail.items():
        assert players[rank].seen[source] == len(letters), f"mail left from {source} to {rank}"
    return players


def order_of(name, size, count, collective="allreduce", **facts):
    key, params = parse(name, size, collective)
    return Order(collective, key, count, **{"dtype": I64, **facts}, params=tuple(sorted(params.items())))


def data(size, count, *seed):
    return np.random.default_rng([size, count, *seed]).integers(-(2**40), 2**40, (size, count))


def check(name, size, count, in_place, **facts):
    """An all-reduce with everything there is to see from outside."""
    values = data(size, count)
    sends = [row.copy() for row in values]
    recvs = sends if in_place else [np.full(count, -1) for _ in sends]
    players = play(order_of(name, size, count, **facts), sends, recvs, reverse=in_place)
    for rank in range(size):
        assert np.array_equal(recvs[rank], values.sum(0)), f"rank {rank}"
        assert in_place or np.array_equal(sends[rank], values[rank]), f"rank {rank} changed its sendbuf"
    return players


def shortened(monkeypatch, segment=64, pack=40):
    monkeypatch.setattr(lowering, "SEGMENT", segment)
    monkeypatch.setattr(lowering, "PACK", pack)


def rows_of(players, kind):
    return [row for player in players for row in player.table.rows if row[0] == kind]


@pytest.mark.parametrize("name", TABLE)
def test_every_algorithm_size_and_length(name):
    for size in range(1, 10):
        for i, count in enumerate(sorted({0, 1, size - 1, size, size + 1, 37})):
            check(name, size, count, in_place=i % 2 == 0)
            check(name, size, count, in_place=i % 2 == 1)


@pytest.mark.parametrize("name", TABLE)
def test_pieces_and_packets(name, monkeypatch):
    """As if buffers were long: segments of a few elements, and packets of fewer."""
    shortened(monkeypatch)
    for size, (in_place, count) in product(range(2, 10), ((True, 37), (False, 101))):
        players = check(name, size, count, in_place)
        sent = [row[5] for row in rows_of(players, SEND)]
        assert max(sent) <= 64
        if TABLE[name].owner == "all":
            assert len([b for b in sent if b == 64]) > size, "nothing was cut"


@pytest.mark.parametrize("segment, pack", [(8, 0), (8, 8), (24, 1 << 20), (1 << 20, 1 << 20), (1 << 20, 0), (7, 16)])
def test_any_limits(monkeypatch, segment, pack):
    shortened(monkeypatch, segment, pack)
    for name, size in product(TABLE, (3, 4, 6)):
        check(name, size, 41, in_place=size == 4)


def test_short_messages_to_one_peer_are_packed(monkeypatch):
    """A folded or relabelled schedule has several messages for one peer in a step."""
    unpacked = lambda: len(rows_of(check("circulant", 7, 70, False), SEND))  # noqa: E731
    shortened(monkeypatch, 1 << 18, 0)
    many = unpacked()
    shortened(monkeypatch, 1 << 18, 1 << 12)
    assert unpacked() < many


def test_a_piece_is_added_while_the_next_is_on_its_way(monkeypatch):
    shortened(monkeypatch)
    table = check("star", 2, 40, in_place=False)[0].table
    kinds = [row[0] for row in table.rows]
    first_add = kinds.index(CALL)
    assert kinds[:first_add].count(RECV) == 5 and kinds[:first_add].count(WAIT) == 1
    assert kinds[first_add:].count(CALL) == 5 and WAIT in kinds[first_add:]


def test_input_is_not_copied_without_need():
    for name in ("ring", "recursive_doubling", "star", "direct", "one_shot", "rabenseifner"):
        for player in check(name, 4, 40, in_place=False):
            assert not rows_of([player], COPY), name


def test_plans_depend_on_nothing_but_the_order():
    for name, size in product(TABLE, (3, 5)):
        order = order_of(name, size, 100)
        assert np.array_equal(lower(order, 1, size).array(), lower(order, 1, size).array())


@pytest.mark.parametrize("limits", [None, (64, 40)])
@pytest.mark.parametrize("name", supporting("reduce_scatter"))
def test_reduce_scatter(name, limits, monkeypatch):
    if limits:
        shortened(monkeypatch, *limits)
    for size, share in product(range(1, 10), (0, 1, 3, 19)):
        values = data(size, size * share)
        sends, recvs = [row.copy() for row in values], [np.full(share, -1) for _ in range(size)]
        play(order_of(name, size, size * share, "reduce_scatter"), sends, recvs)
        for rank in range(size):
            assert np.array_equal(recvs[rank], values.sum(0)[rank * share : (rank + 1) * share])
            assert np.array_equal(sends[rank], values[rank])
        play(order_of(name, size, size * share, "reduce_scatter"), sends, sends, reverse=True)
        for rank in range(size):
            assert np.array_equal(sends[rank][:share], values.sum(0)[rank * share : (rank + 1) * share])


@pytest.mark.parametrize("limits", [None, (64, 40)])
@pytest.mark.parametrize("name", supporting("allgather"))
def test_allgather(name, limits, monkeypatch):
    if limits:
        shortened(monkeypatch, *limits)
    for size, share in product(range(1, 10), (0, 1, 3, 19)):
        values = data(size, share)
        sends, recvs = [row.copy() for row in values], [np.full((size, share), -1) for _ in range(size)]
        play(order_of(name, size, size * share, "allgather"), sends, recvs)
        for rank in range(size):
            assert np.array_equal(recvs[rank], values) and np.array_equal(sends[rank], values[rank])
        recvs = [np.where(np.arange(size)[:, None] == rank, values, -1) for rank in range(size)]
        play(order_of(name, size, size * share, "allgather"), [r[i] for i, r in enumerate(recvs)], recvs)
        assert all(np.array_equal(recv, values) for recv in recvs)


@pytest.mark.parametrize("limits", [None, (64, 40)])
@pytest.mark.parametrize("name", supporting("reduce"))
def test_reduce_and_bcast_for_every_root(name, limits, monkeypatch):
    if limits:
        shortened(monkeypatch, *limits)
    for size in range(1, 10):
        for root, count in product(range(size), (0, 1, 29)):
            values = data(size, count)
            sends, recvs = [row.copy() for row in values], [np.full(count, -1) for _ in range(size)]
            bufs = [recvs[r] if r == root else sends[r] for r in range(size)]  # a rank that is no root has no recvbuf
            play(order_of(name, size, count, "reduce", root=root), sends, bufs)
            assert np.array_equal(recvs[root], values.sum(0))
            assert all(np.array_equal(sends[r], values[r]) for r in range(size))
            play(order_of(name, size, count, "reduce", root=root), sends, sends)
            assert np.array_equal(sends[root], values.sum(0))
            bufs = [row.copy() for row in values]
            play(order_of(name, size, count, "bcast", root=root), bufs, bufs)
            assert all(np.array_equal(buf, values[root]) for buf in bufs)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", TABLE)
def test_averages_and_wider_sums(name, in_place, monkeypatch):
    shortened(monkeypatch)
    for size, count in product((1, 2, 3, 6, 8), (1, 33)):
        for dtype, wide in ((np.dtype("e"), np.dtype("f")), (BFLOAT16, np.dtype("f")), (np.dtype("b"), np.dtype("i"))):
            for op in ("sum", "avg"):
                values = np.random.default_rng([size, count]).integers(-8, 9, (size, count)).astype(dtype)
                sends = [row.copy() for row in values]
                recvs = sends if in_place else [np.zeros(count, dtype) for _ in sends]
                play(order_of(name, size, count, dtype=dtype, op=op, accumulate=wide), sends, recvs)
                total = values.astype(wide).sum(0, dtype=wide)
                if op == "avg":
                    total = total // size if wide.kind == "i" else total / wide.type(size)
                assert all(recv.tobytes() == total.astype(dtype).tobytes() for recv in recvs)
                assert in_place or all(np.array_equal(s.view("b"), v.view("b")) for s, v in zip(sends, values))


def test_averages_of_complex_numbers_and_of_other_collectives():
    values = np.arange(24.0).reshape(4, 6) * (1 + 2j)
    for name in ("ring", "one_shot", "swing"):
        recvs = [np.empty(6, complex) for _ in range(4)]
        play(order_of(name, 4, 6, dtype=np.dtype("D"), op="avg"), [row.copy() for row in values], recvs)
        assert all(np.array_equal(recv, values.sum(0) / 4) for recv in recvs)
    values = data(3, 9)
    recvs = [np.empty(3, "q") for _ in range(3)]
    play(order_of("direct", 3, 9, "reduce_scatter", op="avg"), [row.copy() for row in values], recvs)
    assert np.array_equal(np.concatenate(recvs), values.sum(0) // 3)


def compose(a, b):
    """Pairs (m, c) of functions m*x + c, packed in halves of 64 bits: b first, then a."""
    m, c, n, d = (x & np.uint64(0xFFFFFFFF) for x in (a >> np.uint64(32), a, b >> np.uint64(32), b))
    return (m * n & np.uint64(0xFFFFFFFF)) << np.uint64(32) | (m * d + c & np.uint64(0xFFFFFFFF))


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].ordered])
def test_rank_order_is_kept(name, monkeypatch):
    shortened(monkeypatch)
    op = reductions.python_kernel(np.dtype(np.uint64), compose)
    for size, count in product(range(1, 10), (1, 31)):
        values = np.random.default_rng(size).integers(0, 2**63, (size, count), np.uint64)
        right = values[0]
        for row in values[1:]:
            right = compose(right, row)
        sends, recvs = [row.copy() for row in values], [np.zeros(count, np.uint64) for _ in range(size)]
        play(order_of(name, size, count, dtype=np.dtype(np.uint64), op=op), sends, recvs)
        assert all(np.array_equal(recv, right) for recv in recvs)


@pytest.mark.parametrize(
    "name, size",
    [
        ("torus:grid=2x3", 6), ("torus:grid=2x2x2", 8), ("torus_two_way:grid=3x2", 6),
        ("recursive_multiplying:radix=3", 8), ("kary_tree:radix=1", 5), ("pipelined_tree:segments=3", 7),
        ("double_binary_tree:segments=5", 6), ("multi_ring:rings=3", 7),
        ("multi_ring:orders=0.1.2.3+3.2.1.0+0.2.1.3", 4), ("hierarchical:nodes=1+4+2", 7),
        ("hierarchical:between=ring", 9), ("hierarchical_leaders:nodes=3+1+3", 7),
    ],
)  # fmt: skip
def test_parameters(name, size, monkeypatch):
    for count in (1, size, 53):
        check(name, size, count, in_place=False)
        check(name, size, count, in_place=True)
    shortened(monkeypatch)
    check(name, size, 53, in_place=False)
    check(name, size, 53, in_place=True)


# --- the player itself ----------------------------------------------------------------------------


def rogue(monkeypatch, rows, size=2):
    """Let rank 0 run these rows instead, with a message from and to rank 1."""
    from allreduce.execute.table import Table

    def lowered(order, rank, size):
        table = Table()
        table.requests, table.scratch = 4, 64
        table.rows = rows if rank == 0 else [(SEND, 0, 0, 0, 0, 8, 0), (RECV, 0, 0, 1, 0, 8, 1), (WAIT, 0, 0, 2)]
        return table

    monkeypatch.setattr(f"{__name__}.lower", lowered)
    bufs = [np.zeros(2, "q") for _ in range(4)]
    play(order_of("ring", 2, 2), bufs[:2], bufs[2:])


@pytest.mark.parametrize(
    "rows, words",
    [
        ([(RECV, 0, 1, 1, 0, 8, 0), (SEND, 0, 1, 0, 0, 8, 1), (WAIT, 0, 0, 2)], ""),
        ([(RECV, 0, 1, 1, 0, 8, 0), (COPY, 0, 1, 0, 0, 8, 8)], "still receives"),
        ([(RECV, 0, 1, 1, 0, 8, 0), (COPY, 0, 0, 0, 1, 0, 8)], "still receives"),
        ([(SEND, 0, 1, 0, 0, 8, 0), (COPY, 0, 0, 0, 1, 0, 8)], "still sends"),
        ([(SEND, 0, 1, 1, 0, 8, 0), (RECV, 0, 1, 1, 0, 8, 1)], "still sends"),
        ([(RECV, 0, 1, 1, 0, 16, 0), (SEND, 0, 1, 0, 0, 8, 1), (WAIT, 0, 0, 2)], "expects 16 bytes"),
        ([(RECV, 0, 1, 1, 0, 8, 0), (RECV, 0, 1, 1, 8, 8, 1), (WAIT, 0, 0, 2)], "stuck"),
        ([(RECV, 0, 1, 1, 0, 8, 0), (WAIT, 0, 0, 1)], "stuck"),
        ([(SEND, 0, 1, 0, 0, 8, 0), (WAIT, 0, 0, 1)], "mail left"),
        ([(SEND, 0, 1, 0, 8, 16, 0)], "outside"),
        ([(RECV, 0, 1, 1, 0, 8, 0), (SEND, 0, 1, 0, 0, 8, 1)], "never waited"),
    ],
)
def test_the_player_catches(rows, words, monkeypatch):
    if not words:
        return rogue(monkeypatch, rows)
    with pytest.raises(AssertionError, match=words):
        rogue(monkeypatch, rows)

"""Tables with a codec whose hop is one kernel, played on all ranks in one process: the bits are the same as without."""

from itertools import product

import numpy as np
import pytest
from ruled import ruled
from test_coded import CodedPlayer, F, data
from test_lowering import order_of, play, shortened

import compress
from allreduce.algorithms import TABLE
from allreduce.execute import plan
from allreduce.execute.elements import Kernel
from allreduce.execute.reductions import view
from allreduce.execute.relaying import relayed
from allreduce.execute.table import CALL
from allreduce.execute.wire import of_host
from allreduce.schedules import Recv, Send
from compress import Context
from compress.simulate import simulate

CODECS = ["float16", "int4:block=8", "int3:block=16,rounding=stochastic"]


def with_hop(codec, dtype, size):
    """The codes of the host, and a hop of numbers that are only there while it runs."""

    def hop(first, losing):
        def fused(out, a, b, count, step):
            values, received = view(a, count, dtype), view(b, codec.nbytes(count), np.dtype(np.uint8))
            total = codec.decode(received, values.copy(), add=True)
            message = codec.encode(total, at=Context(step, first))
            view(out, message.size, message.dtype)[:] = message
            if losing:
                values[:] = 0 + (total - codec.decode(message, np.empty_like(total)))

        return Kernel(0, fused)

    codes = of_host(codec, dtype, size)
    return codes._replace(kernels=codes.kernels._replace(hop=hop))


class RelayingPlayer(CodedPlayer):
    def sizes(self, kernel, count):
        values, message = count * self.order.dtype.itemsize, self.order.codec.nbytes(count)
        return super().sizes(kernel, count) if kernel.address else (message, values, message)

    def called(self):
        """How many kernels run, and how many of them are hops."""
        addresses = [self.table.kernels[row[2]].address for row in self.table.rows if row[0] == CALL]
        return len(addresses), addresses.count(0)


@pytest.fixture(autouse=True)
def fused(monkeypatch):
    monkeypatch.setattr(plan, "HOST", plan.HOST._replace(codes=with_hop))


def run(name, size, count, codec, **wishes):
    """All ranks of an all-reduce."""
    values = data(size, count)
    sends, recvs = [row.copy() for row in values], [np.full(count, np.nan, F) for _ in values]
    order = order_of(name, size, count, dtype=F, codec=codec, **wishes)
    players = play(order, sends, recvs, player=RelayingPlayer)
    return values, sends, recvs, players


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("name", TABLE)
def test_bits_are_those_of_the_rules(name, short, monkeypatch):
    """With messages of one piece, and of several."""
    if short:
        shortened(monkeypatch)
    for codec, size, count in product(map(compress.get, CODECS), range(1, 9), (9, 211)):
        op = "avg" if size == 5 else "sum"
        values, sends, recvs, _ = run(name, size, count, codec, op=op)
        wanted, _ = ruled(name, values, codec, op=op)
        assert all(recv.tobytes() == wanted.tobytes() for recv in recvs), f"{name} {codec}: {size} ranks"
        assert all(np.array_equal(send, row) for send, row in zip(sends, values))


@pytest.mark.parametrize("name", TABLE)
def test_losses_are_those_of_the_simulator(name):
    for codec, size in product(map(compress.get, CODECS), range(1, 9)):
        values, losts, sums, _ = run(name, size, 203, codec, lost=True)
        wanted = [np.zeros(203, F) for _ in values]
        results = simulate(name, values, codec, lost=wanted)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(sums, results)), f"{name} {codec}: {size} ranks"
        assert all(a.tobytes() == b.tobytes() for a, b in zip(losts, wanted)), f"{name} {codec}: {size} ranks"


@pytest.mark.parametrize("name", TABLE)
def test_residuals_are_added_before_a_hop_reads_them(name):
    for codec, size in product(map(compress.get, CODECS), (3, 5, 8)):
        values, residuals = data(size, 203), data(size, 203, seed=1)
        losts, sums = [np.full(203, np.nan, F) for _ in values], [np.ones(203, F) for _ in values]
        order = order_of(name, size, 203, dtype=F, codec=codec, lost=True, fed=True)
        play(order, list(values), sums, list(residuals), losts, player=RelayingPlayer)
        wanted = [np.zeros(203, F) for _ in values]
        results = simulate(name, values + residuals, codec, lost=wanted)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(sums, results)), f"{name} {codec}: {size} ranks"
        assert all(a.tobytes() == b.tobytes() for a, b in zip(losts, wanted)), f"{name} {codec}: {size} ranks"


@pytest.mark.parametrize("name, hops", [("ring", 6), ("two_way_ring", 12), ("recursive_doubling", 2)])
def test_a_hop_is_one_kernel_instead_of_two(name, hops, monkeypatch):
    codec = compress.get("int4:block=8")
    fused = [player.called() for player in run(name, 8, 512, codec)[3]]
    monkeypatch.setattr(plan, "HOST", plan.HOST._replace(codes=of_host))
    plain = [player.called() for player in run(name, 8, 512, codec)[3]]
    assert fused == [(calls - hops, hops) for calls, _ in plain]


def test_a_hop_that_leaves_what_is_lost_is_one_kernel_instead_of_six(monkeypatch):
    """Else the sum is made, our own value cleared, the sum encoded, decoded, subtracted, and the loss added to zero."""
    codec = compress.get("int4:block=8")
    fused = [player.called() for player in run("ring", 8, 512, codec, lost=True)[3]]
    monkeypatch.setattr(plan, "HOST", plan.HOST._replace(codes=of_host))
    plain = [player.called() for player in run("ring", 8, 512, codec, lost=True)[3]]
    assert fused == [(calls - 5 * 6, 6) for calls, _ in plain]


ONE, ALL = range(1), range(2)
COMES = (Recv(1, ONE, True),)


@pytest.mark.parametrize(
    "steps, found",
    [
        ([COMES, (Send(2, ONE),)], [[ONE], []]),
        ([(Recv(1, ALL, True),), (Send(2, ONE),)], [[ONE], []]),  # a half
        ([COMES, (Send(2, ONE), Send(3, ONE))], [[ONE], []]),  # one message for two
        ([COMES, (Send(2, ONE), Recv(2, ONE, True)), (Send(3, ONE),)], [[ONE], [ONE], []]),  # an exchange
        ([COMES], [[]]),  # held in the end
        ([COMES, (), (Send(2, ONE),)], [[], [], []]),  # not yet sent
        ([COMES, (Send(2, ONE),), (Send(3, ONE),)], [[], [], []]),  # values sent again, in another message
        ([COMES, (Send(2, ONE),), (Recv(3, ONE, True),)], [[], [], []]),  # added to again
        ([COMES, (Send(2, ONE), Send(3, ALL))], [[], []]),  # two messages
        ([COMES, (Send(2, ALL),)], [[], []]),  # only a part is added to
        ([(), (Send(2, ONE),)], [[], []]),  # our own value, which is not a sum
    ],
)
def test_only_what_is_needed_no_more_is_not_written(steps, found):
    assert relayed(steps) == found

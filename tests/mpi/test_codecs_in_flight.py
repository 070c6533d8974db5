"""Codecs in calls that do not block: the bits of the calls that do, however many are on their way."""

import numpy as np
import pytest
from mpi4py import MPI
from test_codecs import CODECS, F
from witness import RANK, SIZE, Verdict, rough

import allreduce
import compress
from allreduce.choice import Coder, Link

pytestmark = pytest.mark.mpi

COUNTS = (0, 1, 1009, 70_001)
CALLS = [(codec, COUNTS[i % 4]) for i, codec in enumerate([*CODECS, None, *CODECS[::-1]])]

#: As nothing is measured, nothing is sent for that, and all random numbers are the same.
PRICE = Coder(1e-12, 1e-12, 1e-12, 1.0, 0.01)


@pytest.fixture(params=["ring", "recursive_doubling", "direct", "auto"])
def pair(request):
    """Two communicators that draw the same random numbers; with "auto", both on a slow network."""
    with allreduce.Communicator(algorithm=request.param) as a, allreduce.Communicator(algorithm=request.param) as b:
        for comm in (a, b):
            comm.engine.channel.together = False
            comm.engine.prices.__dict__["link"] = Link(1e-9, 1e-6, 0.0)
            comm.engine.prices.coders = {(compress.get(codec), F): PRICE for codec, _ in CALLS if codec}
        yield a, b


def blocking(comm):
    """The result of every call, one after the other."""
    results = []
    for i, (codec, count) in enumerate(CALLS):
        results.append(np.empty(count, F))
        comm.Allreduce(rough(F, count, seed=i)[RANK], results[-1], codec=codec)
    return results


def compare(verdict, found, wanted):
    for (codec, count), one, other in zip(CALLS, found, wanted):
        verdict.check(one.tobytes() == other.tobytes(), codec, count)
        verdict.same(one, codec, count)


def test_many_in_flight_have_the_bits_of_blocking_calls(pair):
    a, b = pair
    wanted, found = blocking(a), [np.empty(count, F) for _, count in CALLS]
    sends = [rough(F, count, seed=i)[RANK] for i, (_, count) in enumerate(CALLS)]
    requests = [b.Iallreduce(send, recv, codec=codec) for send, recv, (codec, _) in zip(sends, found, CALLS)]
    for i in np.random.default_rng(RANK).permutation(len(CALLS)):
        requests[i].Wait()
    with Verdict() as verdict:
        compare(verdict, found, wanted)
        coded = {order.codec for order in b.engine.channel.plans}
        verdict.check(SIZE == 1 or len(coded) > len(CODECS) // 2, "little was encoded", coded)


def test_a_prepared_call_encodes_at_every_start(pair):
    a, b = pair
    x, y, wanted = np.empty(1009, F), np.empty(1009, F), np.empty(1009, F)
    for codec in ("int4:block=32", "int3:rounding=stochastic", "threshold:least=0.5"):
        request = b.Allreduce_init(x, y, codec=codec)
        with Verdict() as verdict:
            for step in range(3):
                x[:] = rough(F, 1009, seed=step)[RANK]
                a.Allreduce(x, wanted, codec=codec)
                request.Start()
                request.Wait()
                verdict.check(y.tobytes() == wanted.tobytes(), codec, step)
        request.Free()


def test_what_is_refused(comm):
    """By all three, by name, and never handed to MPI, which would not encode."""
    x, y, whole = np.ones(4, F), np.empty(4, F), np.ones(4, int)
    least = np.zeros(2, [("value", "d"), ("place", "i")])
    with allreduce.Communicator(algorithm="native") as native:
        for call in ("Allreduce", "Iallreduce", "Allreduce_init"):
            for words, args, codec in (
                ("feedback.* only allreduce", (x, y), "feedback(int8)"),
                ("gtopk has a memory", (x, y), compress.get("gtopk")),
                ("int8 is for .* not int32|int8 is for .* not int64", (whole, whole.copy()), "int8"),
                ("MAXLOC|datatype", ([least, MPI.DOUBLE_INT], [least.copy(), MPI.DOUBLE_INT], MPI.MAXLOC), "int8"),
                ("'max'", (x, y, MPI.MAX), "int8"),
                ("unknown codec 'in8'", (x, y), "in8"),
            ):
                with pytest.raises((TypeError, ValueError), match=words):
                    getattr(comm, call)(*args, codec=codec)
            with pytest.raises((TypeError, ValueError), match=r"native.* codec"):
                getattr(native, call)(x, y, codec="int8")
    comm.Allreduce(x, y)
    assert np.array_equal(y, SIZE * x)

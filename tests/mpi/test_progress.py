"""The thread that communicates behind the caller's back: several jobs at once, naps, failures, the end."""

import threading
import time

import numpy as np
import pytest
from witness import RANK, SIZE, Verdict, everyone_has

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")

from mpi4py import MPI  # noqa: E402

import allreduce  # noqa: E402
from allreduce.averaging import Averager  # noqa: E402
from allreduce.execute import requests  # noqa: E402
from allreduce.progress import MOST, Progress  # noqa: E402

pytestmark = pytest.mark.mpi
LIMIT = 30  # seconds after which a test that waits has failed


class Gate:
    """A request that ends when it is told to; its operation never moves."""

    def __init__(self):
        self.operation, self.opened, self.polls = self, threading.Event(), 0

    def Test(self):
        self.polls += 1
        return self.opened.is_set()

    def Wait(self):
        assert self.opened.wait(LIMIT)

    def row(self):
        return 0


class Bucket:
    """Numbers of this rank, and a job that sums them over the ranks, and ends when its gate opens."""

    def __init__(self, comm, count, log=None):
        self.comm, self.gate, self.log = comm, Gate(), log if log is not None else []
        self.array = np.full(count, RANK + 1, "f")

    def job(self):
        self.log.append(len(self.array))
        request = self.comm.Iallreduce(self.array.copy(), self.array)
        yield self.gate
        yield request

    def right(self):
        return bool((self.array == SIZE * (SIZE + 1) / 2).all())


@pytest.fixture
def thread():
    made = Progress()
    assert made.threaded
    yield made
    made.close()


def until(condition):
    """Wait until it holds; False if it never does."""
    end = time.monotonic() + LIMIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def test_jobs_under_way_end_in_any_order(comm, thread):
    """Ranks differ in which one ends first; one more begins only when one of the MOST has ended."""
    log = []
    counts = [10, 1000, 100000, *range(20, 20 + MOST - 3), 7]
    buckets = [Bucket(comm, count, log) for count in counts]
    order = np.roll(range(MOST), RANK)
    with Verdict() as verdict:
        futures = [thread.later(bucket.job, bucket) for bucket in buckets]
        verdict.check(until(lambda: len(log) == MOST), "began", log)
        polls = buckets[0].gate.polls
        verdict.check(until(lambda: buckets[0].gate.polls > polls + 5) and len(log) == MOST, "the last waits", log)
        for place, i in enumerate(order):
            buckets[i].gate.opened.set()
            verdict.check(until(futures[i].done), "ends alone", i)
            later = [j for j in order[place + 1 :] if futures[j].done()]
            verdict.check(not later, "others ended with it", later)
        verdict.check(until(lambda: len(log) == MOST + 1), "the last began", log)
        buckets[-1].gate.opened.set()
        verdict.check([future.wait() for future in futures] == buckets, "results")
        verdict.check(all(bucket.right() for bucket in buckets), *(bucket.array[:2] for bucket in buckets))
        verdict.check(log == counts, "in the order of the calls", log)


@pytest.mark.parametrize("when", ["at once", "under way", "exit"])
def test_a_job_that_fails_says_so_and_stops_no_other(comm, thread, when):
    before, after = Bucket(comm, 10), Bucket(comm, 1000)

    def failing():
        if when == "at once":
            raise ValueError("bucket 7 cannot be summed")
        gate = Gate()
        gate.opened.set()
        yield gate
        raise SystemExit("bucket 7") if when == "exit" else ValueError("bucket 7 cannot be summed")

    with Verdict() as verdict:
        futures = [thread.later(job, None) for job in (before.job, failing, after.job)]
        with pytest.raises(Exception, match="bucket 7"):
            futures[1].wait()
        verdict.check(not futures[0].done() and not futures[2].done(), "others go on")
        for bucket, future in ((after, futures[2]), (before, futures[0])):
            bucket.gate.opened.set()
            future.wait()
            verdict.check(bucket.right(), bucket.array[:2])


@pytest.mark.skipif(SIZE == 1, reason="nobody to wait for")
def test_a_rank_that_stays_away_is_named_by_all_that_wait(thread):
    """Of what is under way at once nothing waits for ever; what needs nobody else goes on."""
    comm, log = allreduce.Communicator(timeout=0.3), []
    if RANK == 0:
        buckets = [Bucket(comm, count) for count in (100, 1000)]
        for bucket in buckets:
            bucket.gate.opened.set()
        for future in [thread.later(bucket.job, None) for bucket in buckets]:
            with pytest.raises(Exception, match=r"no end after 0\.3 s, waiting in step \d+ of \d+ for \d+ bytes"):
                future.wait()
        thread.later(lambda: log.append("goes on"), None).wait()
    everyone_has("" if RANK or log else "does not go on")


def test_what_is_asked_now_comes_after_what_is_under_way(comm, thread):
    bucket, log = Bucket(comm, 100), []
    future = thread.later(bucket.job, None)
    threading.Timer(0.02, bucket.gate.opened.set).start()
    thread.now(lambda: log.append(future.done()))
    everyone_has("" if log == [True] and bucket.right() else f"{log}, {bucket.array[:2]}")


def test_a_job_asked_for_by_the_thread_itself_is_done_at_once(comm, thread):
    """As PowerSGD's callbacks do; the thread would wait for itself."""
    first, second = Bucket(comm, 10), Bucket(comm, 20)
    for bucket in (first, second):
        bucket.gate.opened.set()
    held = Gate()

    def job():
        yield held
        yield from first.job()

    chained = thread.later(job, None).then(lambda _: thread.later(second.job, second).value())
    held.opened.set()
    with Verdict() as verdict:
        verdict.check(chained.wait() is second, "result")
        verdict.check(first.right() and second.right(), first.array[:2], second.array[:2])


def test_the_end_waits_for_what_is_under_way(comm):
    made, bucket = Progress(), Bucket(comm, 100)
    future = made.later(bucket.job, None)
    threading.Timer(0.02, bucket.gate.opened.set).start()
    made.close()
    with pytest.raises(RuntimeError, match="shutdown"):
        made.later(bucket.job, None)
    everyone_has("" if future.done() and bucket.right() else f"{bucket.array[:2]}")


def test_it_naps_while_nothing_moves_and_wakes_at_once(thread, monkeypatch):
    """While no job is there it does not even poll; a gate that opens is seen within 5 ms, at the best of 20 times."""
    naps = []

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds):
            naps.append(seconds)
            time.sleep(seconds)

    monkeypatch.setattr(requests, "time", Clock)
    delays, gates = [], []
    for _ in range(20):
        gate, opened = Gate(), len(naps)
        gates.append(gate)
        future = thread.later(lambda gate=gate: iter([gate]), None)
        napped = until(lambda opened=opened: len(naps) > opened + 3)
        begin = time.perf_counter()
        gate.opened.set()
        future.wait()
        delays.append(time.perf_counter() - begin)
        assert napped
    idle = len(naps), sum(gate.polls for gate in gates)
    time.sleep(0.02)
    assert idle == (len(naps), sum(gate.polls for gate in gates))
    everyone_has("" if min(delays) < 0.005 and 0 < max(naps) <= requests.LONGEST else f"{min(delays)} {naps}")


def test_patience_begins_anew_with_every_move(monkeypatch):
    """The first nap comes when nothing has moved for a while; naps are a part of that while, but never long."""

    class Clock:
        now, naps = 100.0, ()

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.naps += (seconds,)

    clock, gate, patience = Clock(), Gate(), requests.Patience()
    monkeypatch.setattr(requests, "time", clock)
    awake, longest = requests.AWAKE, requests.LONGEST
    moves = (0, 0, 0), (0, 0.5, 0), (0, 0.6, 1.1), (0, 1, 2.1), (1, 9, 0), (1, 0.9, 0), (1, 0.2, 1.1)
    for row, passed, silence in moves:
        monkeypatch.setattr(gate, "row", lambda row=row: row)
        clock.now, clock.naps = clock.now + passed * awake, ()
        patience.rest([gate])
        assert clock.naps == pytest.approx([requests.SHARE * silence * awake] * (silence > 0), 1e-3), (row, passed)
    clock.now, clock.naps = clock.now + 1, ()
    patience.rest([gate])
    assert clock.naps == (longest,)


@pytest.mark.skipif(SIZE == 1, reason="nobody to wait for")
def test_a_method_that_waits_behind_training_naps(monkeypatch):
    """As all do who wait for messages there: the processor is for the backward pass, or for a late rank's."""
    naps = []
    monkeypatch.setattr(requests.Patience, "rest", lambda patience, operations: naps.append(list(operations)))
    made = Averager("feedback(topk:ratio=0.5)", algorithm="ring")
    gradient = torch.ones(100) * (RANK + 1)
    made.mean(gradient, {"w": gradient}).wait()  # from here on nothing is new
    MPI.COMM_WORLD.Barrier()
    before = len(naps)
    if RANK == 0:
        time.sleep(0.05)
    made.mean(gradient, {"w": gradient}).wait()
    everyone_has("" if RANK == 0 or len(naps) > before else "no nap")
    made.close()

"""What happens when a rank does not come: deadlines, and Ctrl-C."""

import gc
import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, WORLD, everyone_has

import allreduce
from allreduce.execute.requests import in_flight

pytestmark = pytest.mark.mpi(min_size=2)

TIMEOUT, GRACE = 0.4, 0.5
#: Seconds that a busy machine may take to notice.
LATE = 5
#: Buffers of collectives that were broken off: a message may still come.
KEPT = []


def arrays(count=1000):
    KEPT.append((np.full(count, RANK, "d"), np.full(count, -1.0)))
    return KEPT[-1]


def warm(comm, *found):
    """Make the plan, so that the call under test takes the shortest way."""
    for _ in range(2):
        comm.Allreduce(*found)


def timed_out(call, since=None):
    """The error of a call that must end by the deadline, and how long it took."""
    since = since or time.monotonic()
    try:
        call()
    except allreduce.CollectiveTimeout as error:
        return str(error), time.monotonic() - since
    return "", time.monotonic() - since


def absent_rank_0(comm, call, *words):
    """Rank 0 stays away; the others must say so in time, and all leave."""
    WORLD.Barrier()
    fault = ""
    if RANK == 0:
        time.sleep(TIMEOUT + GRACE)
    else:
        text, seconds = timed_out(call)
        if not text:
            fault = "no timeout"
        elif not TIMEOUT * 0.9 <= seconds <= TIMEOUT + LATE:
            fault = f"after {seconds:.2f} s"
        elif not all(re.search(word, text) for word in words):
            fault = f"{text!r} lacks one of {words}"
        else:
            again, more = text_of(lambda: comm.Allreduce(*arrays())), text_of(lambda: comm.Iallreduce(*arrays()))
            if "no end after" not in again or "no end after" not in more:
                fault = f"then {again!r}, {more!r}"
    everyone_has(fault)


def text_of(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "nothing raised"


@pytest.mark.parametrize(
    "algorithm, count",
    [("one_shot", 3), ("one_shot", 100_000), ("ring", 3), ("direct", 100_000), ("pipelined_tree", 3), ("node", 3)],
)
def test_a_missing_rank_is_named(algorithm, count):
    with allreduce.Communicator(timeout=TIMEOUT, algorithm=algorithm) as comm:
        found = arrays(count)
        if count == 3:
            warm(comm, *found)
        peer = {"one_shot": "[1-9]\\d* bytes from rank 0", "node": "other ranks"}
        absent_rank_0(
            comm, lambda: comm.Allreduce(*found),
            f"^allreduce by {algorithm} on rank {RANK} of {SIZE}:", rf"{TIMEOUT} s", r"step \d+ of \d+",
            peer.get(algorithm, r"[1-9]\d* bytes (from|to) rank \d"),
        )  # fmt: skip


def test_a_missing_rank_is_named_by_the_python_loop(python_loop):
    with allreduce.Communicator(timeout=TIMEOUT, algorithm="one_shot") as comm:
        found = arrays()
        absent_rank_0(comm, lambda: comm.Allreduce(*found), "one_shot", r"step 1 of 1", r"8000 bytes from rank 0")


def test_a_deadline_holds_for_what_is_in_flight():
    with allreduce.Communicator(timeout=TIMEOUT, algorithm="one_shot") as comm:
        found = arrays()
        absent_rank_0(comm, lambda: comm.Iallreduce(*found).Wait(), "rank 0")
    others_still_work()


def test_a_deadline_holds_while_testing():
    with allreduce.Communicator(timeout=TIMEOUT, algorithm="one_shot") as comm:
        found = arrays()

        def call():
            request, until = comm.Iallreduce(*found), time.monotonic() + 2 * TIMEOUT
            while not request.Test() and time.monotonic() < until:
                time.sleep(0)

        absent_rank_0(comm, call, "rank 0")
    others_still_work()


def test_a_deadline_holds_for_a_persistent_request():
    with allreduce.Communicator(timeout=TIMEOUT, algorithm="one_shot") as comm:
        prepared = comm.Allreduce_init(*arrays())

        def call():
            prepared.Start()
            prepared.Wait()

        absent_rank_0(comm, call, "rank 0")
    others_still_work()


def others_still_work():
    """What is broken off must neither slow down nor crash what follows."""
    fault = "" if not in_flight else f"still in flight: {in_flight}"
    del in_flight[:]  # so that the tests that follow are not disturbed
    with allreduce.Communicator() as comm:
        recv = np.empty(5)
        comm.Allreduce(np.ones(5), recv)
        assert (recv == SIZE).all()
    everyone_has(fault)


def test_late_is_not_too_late():
    with allreduce.Communicator(timeout=5) as comm:
        for _ in range(2):
            if RANK == 0:
                time.sleep(0.3)
            send, recv = arrays()
            comm.Allreduce(send, recv)
            assert (recv == SIZE * (SIZE - 1) / 2).all()


def test_deadlines_begin_anew_with_every_call():
    with allreduce.Communicator(timeout=TIMEOUT) as comm:
        until = time.monotonic() + 1.5 * TIMEOUT
        while not WORLD.bcast(time.monotonic() > until):
            comm.Allreduce(*arrays(10))


def test_a_late_message_does_no_harm():
    """A rank that comes after the deadline writes into buffers that must still be there."""
    with allreduce.Communicator(timeout=TIMEOUT, algorithm="one_shot") as comm:
        WORLD.Barrier()
        if RANK == 0:
            time.sleep(TIMEOUT + GRACE)
        text, _ = timed_out(lambda: comm.Allreduce(np.full(100_000, RANK, "d"), np.empty(100_000)))
        everyone_has("" if text or RANK == 0 else "no timeout")
        gc.collect()
        junk = [np.zeros(100_000) for _ in range(10)]
        WORLD.Barrier()
        time.sleep(0.1)
        assert not any(j.any() for j in junk)


# --- Ctrl-C ---------------------------------------------------------------------------------------


def interrupted(call, raise_it, after=0.3):
    """Seconds from the signal to the KeyboardInterrupt that ends a call; short of 0.1 s the loop is in no Python."""
    raised = []

    def handler(*_):
        raised.append(time.monotonic())
        raise KeyboardInterrupt

    number = signal.SIGALRM if raise_it == "alarm" else signal.SIGINT
    before = signal.signal(number, handler)
    child: threading.Timer | None = None
    sent = time.monotonic() + after
    try:
        if raise_it == "alarm":
            signal.setitimer(signal.ITIMER_REAL, after)
        else:
            child = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
            child.start()
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if child:
            child.join()
        signal.signal(number, before)
    return None


@pytest.mark.parametrize(
    "kind, way",
    [("first", "alarm"), ("shortest", "kill"), ("shortest", "alarm"), ("in flight", "alarm"), ("python", "kill"),
     ("function", "alarm")],
)  # fmt: skip
@pytest.mark.parametrize("after", [0.05, 0.3])
def test_ctrl_c_gets_out(kind, way, after, request):
    if kind == "python":
        request.getfixturevalue("python_loop")
    with allreduce.Communicator(algorithm="ring" if kind == "first" else "auto") as comm:
        found = arrays()
        call = {
            "in flight": lambda: comm.Iallreduce(*found).Wait(),
            "function": lambda: allreduce.allreduce(*found, "sum", comm=comm),
        }.get(kind, lambda: comm.Allreduce(*found))
        if kind in ("shortest", "function"):
            call()
            call()
        WORLD.Barrier()
        fault = ""
        if RANK == 0:
            time.sleep(0.3 + GRACE)
        else:
            seconds = interrupted(call, way, after)
            if seconds is None:
                fault = "not interrupted"
            elif seconds > LATE:
                fault = f"after {seconds:.2f} s"
            else:  # its messages are out: what follows would take them for its own
                said = text_of(lambda: comm.Allreduce(*arrays()))
                fault = "" if "KeyboardInterrupt" in said or "broken off" in said else f"then {said}"
        everyone_has(fault)
    others_still_work()


def test_ctrl_c_outside_a_wait_leaves_the_communicator_alone():
    with allreduce.Communicator() as comm:
        seconds = interrupted(lambda: time.sleep(5), "alarm")
        assert seconds is not None and seconds < LATE
        send, recv = arrays()
        comm.Allreduce(send, recv)
        assert (recv == SIZE * (SIZE - 1) / 2).all()
        assert MPI.Is_initialized()


# --- the very first call, which makes what all later ones use -------------------------------------


def test_a_deadline_holds_for_the_first_call():
    with allreduce.Communicator(timeout=TIMEOUT) as comm:
        found = arrays(3)
        absent_rank_0(comm, lambda: comm.Allreduce(*found), "rank 0|other ranks")
    others_still_work()


def test_ctrl_c_gets_out_of_the_first_call():
    with allreduce.Communicator() as comm:
        found = arrays()
        WORLD.Barrier()
        fault = ""
        if RANK == 0:
            time.sleep(0.3 + GRACE)
        else:
            seconds = interrupted(lambda: comm.Allreduce(*found), "alarm")
            fault = "not interrupted" if seconds is None else f"after {seconds:.2f} s" if seconds > LATE else ""
        everyone_has(fault)
    others_still_work()

"""The drop-in communicator: what it does itself, what it leaves to MPI, and how it comes and goes."""

import array
import gc
import threading
import time
import tracemalloc

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, WORLD, Verdict, exact, reduced

import allreduce
from allreduce import engine

pytestmark = pytest.mark.mpi

TRIANGLE = SIZE * (SIZE - 1) // 2


def numbers(count, seed=0):
    return exact(np.dtype("q"), "sum", count, seed=seed)


# --- blocking -------------------------------------------------------------------------------------


def test_allreduce_as_mpi4py_calls_it(comm):
    with Verdict() as verdict:
        for _ in range(3):
            data = numbers(10)
            send, wanted = data[RANK].copy(), reduced(data, "sum")
            for spec in (lambda a: a, lambda a: [a, MPI.INT64_T], lambda a: (a, 10, MPI.LONG), memoryview):
                recv = np.zeros(10, "q")
                verdict.check(comm.Allreduce(spec(send), spec(recv)) is None, "returns nothing")
                verdict.equal(recv, wanted, spec)
            verdict.equal(send, data[RANK], "sendbuf")
            comm.Allreduce(MPI.IN_PLACE, send)
            verdict.equal(send, wanted, "in place")
            comm.Allreduce(data[RANK].copy(), recv, op=MPI.MAX)
            verdict.equal(recv, data.max(0), "max")
            buffer = array.array("i", [RANK] * 3)
            comm.Allreduce(MPI.IN_PLACE, buffer, MPI.SUM)
            verdict.check(list(buffer) == [TRIANGLE] * 3, "array.array", buffer)


@pytest.mark.parametrize("algorithm", ["auto", "native", "torus", "recursive-multiplying:radix=3"])
def test_the_algorithm_is_the_communicators(algorithm):
    data = numbers(100)
    with allreduce.Communicator(algorithm=algorithm) as comm, Verdict() as verdict:
        recv = np.empty(100, "q")
        comm.Allreduce(data[RANK], recv)
        verdict.equal(recv, reduced(data, "sum"))
        comm.Iallreduce(data[RANK], recv, MPI.MIN).Wait()
        verdict.equal(recv, data.min(0))


@pytest.mark.parametrize("algorithm", ["auto", "ring", "native"])
def test_nobody_leaves_a_barrier_before_all_have_come(comm, algorithm):
    for late in range(SIZE):
        if late == RANK:
            time.sleep(0.01)
        come = time.monotonic()
        if algorithm == "auto":
            comm.Barrier()
        else:
            allreduce.barrier(comm, algorithm=algorithm)
        left = time.monotonic()
        assert WORLD.allreduce(come, MPI.MAX) <= WORLD.allreduce(left, MPI.MIN)


def test_reduce_scatter_block_and_allgather(comm):
    data = numbers(3 * SIZE)
    with Verdict() as verdict:
        recv = np.empty(3, "q")
        comm.Reduce_scatter_block(data[RANK], recv)
        verdict.equal(recv, reduced(data, "sum")[3 * RANK : 3 * RANK + 3])
        whole = np.empty((SIZE, 3), "q")
        comm.Allgather(recv, whole)
        verdict.equal(whole.reshape(-1), reduced(data, "sum"))
        comm.Reduce_scatter_block(MPI.IN_PLACE, mine := data[RANK].copy(), MPI.MAX)
        verdict.equal(mine[:3], data.max(0)[3 * RANK : 3 * RANK + 3])
        whole[...] = 0
        whole[RANK] = recv
        comm.Allgather(MPI.IN_PLACE, whole)
        verdict.equal(whole.reshape(-1), reduced(data, "sum"))


def test_what_is_not_ours_goes_to_mpi(comm):
    pairs = np.zeros(3, np.dtype([("value", "d"), ("rank", "i")], align=True))
    pairs["value"], pairs["rank"] = [RANK, -RANK, 5], RANK
    least = np.zeros_like(pairs)
    comm.Allreduce([pairs, MPI.DOUBLE_INT], [least, MPI.DOUBLE_INT], MPI.MINLOC)
    assert least["value"].tolist() == [0, 1 - SIZE, 5] and least["rank"].tolist() == [0, SIZE - 1, 0]
    request = comm.Iallreduce([pairs, MPI.DOUBLE_INT], [least, MPI.DOUBLE_INT], MPI.MAXLOC)
    request.Wait()
    assert least["value"].tolist() == [SIZE - 1, 0, 5] and least["rank"].tolist() == [SIZE - 1, 0, 0]
    # a vector of every other element: mpi4py knows, we need not
    strided = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()
    recv = np.zeros((SIZE, 3))
    comm.Allgather([np.arange(6.0) + RANK, 1, strided], [recv, 3, MPI.DOUBLE])
    assert (recv == np.arange(0, 6, 2) + np.arange(SIZE)[:, None]).all()
    strided.Free()
    assert comm.allreduce(RANK) == TRIANGLE  # pickled objects
    assert comm.Get_size() == SIZE and comm.rank == RANK


# --- in flight ------------------------------------------------------------------------------------


def test_many_in_flight_are_waited_for_in_any_order(comm):
    """Of equal and of growing lengths: a plan that is running is neither shared nor moved."""
    with Verdict() as verdict:
        for turn in range(3):
            shapes = [5, 5, 5, 100, 1, 20001, 70001, 0, 5, 20001, 200003]
            data = [numbers(n, seed=i) for i, n in enumerate(shapes)]
            recvs = [np.empty(n, "q") for n in shapes]
            requests = []
            for d, recv in zip(data, recvs):
                requests.append(comm.Iallreduce(d[RANK], recv))
                if len(requests) % 4 == 0:  # a blocking one in between
                    total = np.array([RANK])
                    comm.Allreduce(MPI.IN_PLACE, total)
                    verdict.check(total[0] == TRIANGLE, "blocking in between")
            order = np.random.default_rng([turn, RANK]).permutation(len(requests))
            for i in order:
                verdict.check(requests[i].Wait() is True, "Wait is True")
                verdict.equal(recvs[i], reduced(data[i], "sum"), "turn", turn, "request", int(i), shapes[i])
            verdict.check(allreduce.waitall(requests)[0] is recvs[0], "waitall once more")


def test_a_plan_made_while_others_run_leaves_them_alone(comm):
    """Ever larger ones, each made while all before are under way and waiting for a slow rank."""
    with Verdict() as verdict:
        shapes = [1000 * 3**i for i in range(5)]
        data = [numbers(n) for n in shapes]
        recvs = [np.empty(n, "q") for n in shapes]
        if RANK == SIZE - 1:
            time.sleep(0.1)
        requests = [comm.Iallreduce(d[RANK], recv) for d, recv in zip(data, recvs)]
        while not requests[0].Test():
            pass
        allreduce.waitall(requests[::-1])
        for recv, d in zip(recvs, data):
            verdict.equal(recv, reduced(d, "sum"), len(recv))


def test_test_moves_on(comm):
    data = numbers(30000)
    request = comm.Iallreduce(data[RANK], recv := np.empty(30000, "q"))
    until = time.monotonic() + 20
    while not request.Test():
        assert time.monotonic() < until
        time.sleep(0)
    assert request.Test() and request.Wait() and request.wait() is recv
    assert np.array_equal(recv, reduced(data, "sum"))


def test_two_communicators_in_opposite_order(comm):
    data = numbers(5000)
    with allreduce.Communicator() as a, allreduce.Communicator() as b, Verdict() as verdict:
        first, second = (a, b) if RANK % 2 else (b, a)
        for _ in range(5):
            x, y = np.empty(5000, "q"), np.empty(5000, "q")
            begun = [first.Iallreduce(data[RANK], x), second.Iallreduce(data[RANK], y)]
            begun[1].Wait()
            begun[0].Wait()
            verdict.equal(x, reduced(data, "sum"))
            verdict.equal(y, reduced(data, "sum"))
            # blocked in a third, a rank must still help these along
            begun = [first.Iallreduce(data[RANK], x, MPI.MAX), second.Iallreduce(data[RANK], y, MPI.MAX)]
            total = np.array([1])
            comm.Allreduce(MPI.IN_PLACE, total)
            allreduce.waitall(begun[::-1])
            verdict.equal(x, data.max(0))
            verdict.equal(y, data.max(0))


def test_another_thread_may_wait():
    """While the one that began it makes calls, which keep all that it began moving."""
    with allreduce.Communicator(timeout=20) as comm, allreduce.Communicator(timeout=20) as other, Verdict() as verdict:
        for turn in range(40):
            data, total = numbers(40000, seed=turn), np.empty(3000)
            request = comm.Iallreduce(data[RANK], recv := np.empty(40000, "q"))
            waiting = threading.Thread(target=request.Wait)
            waiting.start()
            for _ in range(5):
                other.Allreduce(np.ones(3000), total)
            waiting.join()
            verdict.equal(recv, reduced(data, "sum"), turn)
            verdict.check((total == SIZE).all(), "meanwhile", turn)


def test_waitall_takes_mpis_requests_too(comm):
    recv, total = np.empty(4), np.empty(4)
    requests = [comm.Iallreduce(np.ones(4), recv), WORLD.Iallreduce(np.ones(4), total)]
    assert allreduce.waitall(requests)[0] is recv
    assert (recv == SIZE).all() and (total == SIZE).all()


def test_buffers_live_as_long_as_the_request(comm):
    requests = [comm.Iallreduce(np.full(50000, RANK), np.empty(50000, int)) for _ in range(4)]
    gc.collect()
    junk = [np.full(50000, -1) for _ in range(8)]
    assert all((result == TRIANGLE).all() for result in allreduce.waitall(requests)), len(junk)


# --- persistent -----------------------------------------------------------------------------------


def test_persistent_requests_start_again_and_again(comm):
    send, recv, other = np.zeros(700, int), np.empty(700, int), np.empty(700, int)
    prepared = comm.Allreduce_init(send, recv)
    second = comm.Allreduce_init(send, other, MPI.MAX)
    for turn in range(4):
        send[:] = RANK + turn
        prepared.Start()
        second.Start()
        while not prepared.Test():
            pass
        assert second.Wait() and (recv == TRIANGLE + SIZE * turn).all() and (other == SIZE - 1 + turn).all()
        total = np.array([1])
        comm.Allreduce(MPI.IN_PLACE, total)
        assert total[0] == SIZE
    assert prepared.Wait() and prepared.Test()
    prepared.Free()
    second.Free()
    with pytest.raises(RuntimeError, match="freed"):
        prepared.Start()


def test_a_running_persistent_request_does_not_start(comm):
    prepared = comm.Allreduce_init(MPI.IN_PLACE, x := np.ones(3))
    prepared.Start()
    with pytest.raises(RuntimeError, match="already started"):
        prepared.Start()
    prepared.Wait()
    assert (x == SIZE).all()
    prepared.Start()
    prepared.Wait()
    assert (x == SIZE**2).all()
    prepared.Free()


def test_a_persistent_request_that_never_started_is_done(comm):
    prepared = comm.Allreduce_init(np.ones(3), np.empty(3))
    assert prepared.Wait() and prepared.Test()
    prepared.Free()


# --- coming and going -----------------------------------------------------------------------------


def works(comm):
    recv = np.empty(2, int)
    comm.Allreduce(np.array([1, comm.rank]), recv)
    return recv.tolist() == [comm.size, comm.size * (comm.size - 1) // 2]


def test_children_are_ours():
    with allreduce.Communicator(timeout=50, algorithm="one_shot") as comm:
        group = comm.Get_group()
        children = [
            comm.Dup(), comm.Clone(), comm.Split(RANK % 2, -RANK), comm.Split_type(MPI.COMM_TYPE_SHARED),
            comm.Create(group), comm.Create_group(group),
        ]  # fmt: skip
        group.Free()
        for child in children:
            assert type(child) is allreduce.Communicator, child
            assert works(child)
            assert child.engine.channel.timeout == 50 and child.algorithm == "one_shot"
            child.close()
            child.close()
            assert child == MPI.COMM_NULL
        assert works(comm)
    assert comm != MPI.COMM_NULL  # the caller's own stays


@pytest.mark.parametrize("way", ["Dup_with_info", "Idup", "Idup_with_info"])
def test_the_other_duplicates_work_too(comm, way):
    made = getattr(comm, way)() if way == "Idup" else getattr(comm, way)(MPI.INFO_NULL)
    child, request = made if isinstance(made, tuple) else (made, MPI.REQUEST_NULL)
    request.Wait()
    try:
        assert works(child)  # ours or MPI's
    finally:
        (child.close if hasattr(child, "engine") else MPI.Intracomm(child).Free)()


def test_undefined_colours_give_no_communicator(comm):
    child = comm.Split(MPI.UNDEFINED if RANK == 0 else 7)
    assert (child == MPI.COMM_NULL) == (RANK == 0)
    if RANK:
        assert child.size == SIZE - 1 and works(child)
        child.close()
    group = comm.Get_group()
    mine = group.Incl([0])
    child = comm.Create(mine)
    assert (child == MPI.COMM_NULL) == (RANK != 0)
    if RANK == 0:
        assert works(child)
        child.close()
    mine.Free()
    group.Free()


def test_subclasses_stay_what_they_are():
    class Mine(allreduce.Communicator):
        pass

    with Mine() as comm, comm.Dup() as child:
        assert type(child) is Mine and works(child)


def test_contexts_are_given_back(comm):
    """MPI libraries have some thousands of contexts; each child takes two."""
    until, cycles = time.monotonic() + 8, 0
    while cycles < 3000:
        child = comm.Split(0, RANK)
        if cycles % 100 == 0:
            assert works(child)
        child.close()
        cycles += 1
        if cycles % 50 == 0 and WORLD.bcast(time.monotonic() > until):
            break
    assert works(comm) and cycles >= 50


def test_close_and_free():
    comm = allreduce.Communicator(WORLD.Dup())
    assert works(comm)
    comm.close()
    for call in (
        lambda: comm.Allreduce(np.ones(2), np.empty(2)),
        lambda: comm.Iallreduce(np.ones(2), np.empty(2)),
        lambda: comm.Allreduce_init(np.ones(2), np.empty(2)),
        lambda: comm.Reduce_scatter_block(np.ones(SIZE), np.empty(1)),
        lambda: comm.Allgather(np.ones(1), np.empty(SIZE)),
        lambda: allreduce.allreduce(np.ones(2), comm=comm),
        lambda: allreduce.allreduce(np.ones(2), comm=comm, algorithm="native"),
        lambda: allreduce.bcast(np.ones(2), comm=comm),
        comm.Barrier,
        comm.barrier,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert comm.allreduce(1) == SIZE  # MPI's own still work
    comm.Free()
    assert comm == MPI.COMM_NULL
    other = allreduce.Communicator(WORLD.Dup())
    prepared = other.Allreduce_init(np.ones(2), np.empty(2))
    other.Free()
    assert other == MPI.COMM_NULL
    with pytest.raises(RuntimeError, match="closed"):
        prepared.Start()


def test_with_closes():
    with allreduce.Communicator() as comm:
        assert works(comm)
    with pytest.raises(RuntimeError, match="closed"):
        comm.Allreduce(np.ones(2), np.empty(2))
    with pytest.raises(ZeroDivisionError), allreduce.Communicator() as comm:
        _ = 1 / 0
    assert comm.engine.channel.broken


def test_engines_of_raw_communicators_go_with_them():
    """Handles are used again, and the new owner must not meet the old one's engine."""
    before = set(engine._engines)
    for size in [SIZE, max(1, SIZE - 1)] * 10:
        raw = WORLD.Split(0 if size > RANK else 1, RANK)
        total = allreduce.allreduce(np.array([1]), comm=raw)
        assert total[0] == raw.size
        mine = engine._engines[raw.handle]
        assert mine.channel.size == raw.size and allreduce.allreduce(np.array([2]), comm=raw)[0] == 2 * raw.size
        raw.Free()
        assert mine.channel.comm == MPI.COMM_NULL and mine.channel.broken
    assert set(engine._engines) <= before


def test_kinds_of_communicators():
    assert allreduce.allreduce(np.array([3.0]), comm=MPI.COMM_SELF)[0] == 3
    cart = WORLD.Create_cart([SIZE])
    assert allreduce.allreduce(np.array([1]), comm=cart)[0] == SIZE
    with allreduce.Communicator(cart) as comm:
        assert works(comm)
    cart.Free()


# --- plans ----------------------------------------------------------------------------------------


def test_a_second_call_finds_its_plan(comm):
    send, recv = np.ones(1000), np.empty(1000)
    for _ in range(3):
        comm.Allreduce(send, recv)
    plans = dict(comm.engine.channel.plans)
    operations = [len(plan.operations) for plan in plans.values()]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(200):
        comm.Allreduce(send, recv)
        allreduce.allreduce(send, recv, comm=comm)
    grown = [s for s in tracemalloc.take_snapshot().compare_to(before, "filename") if "allreduce" in str(s.traceback)]
    tracemalloc.stop()
    assert comm.engine.channel.plans == plans
    assert [len(plan.operations) for plan in plans.values()] == operations
    assert sum(s.size_diff for s in grown) < 2000, grown


def test_in_flight_operations_are_used_again(comm):
    for _ in range(5):
        allreduce.waitall([comm.Iallreduce(np.ones(10), np.empty(10)) for _ in range(3)])
    (plan,) = comm.engine.channel.plans.values()
    assert len(plan.operations) <= 3


def test_old_plans_go(comm):
    for count in range(1, 700):
        comm.Allreduce(MPI.IN_PLACE, np.ones(count, np.int8))
    channel = comm.engine.channel
    assert len(channel.plans) < 600 and len(channel.fast) <= len(channel.plans)
    assert works(comm)


def test_a_plan_that_runs_survives_being_forgotten(comm):
    request = comm.Iallreduce(np.full(3000, RANK), recv := np.empty(3000, int))
    for count in range(1, 600):
        comm.Allreduce(MPI.IN_PLACE, np.ones(count, np.int8))
    request.Wait()
    assert (recv == TRIANGLE).all()


def test_own_operations_leave_nothing_behind(comm):
    """A lambda made for every call must not be kept for ever."""
    import weakref

    kept = []
    for _ in range(600):
        function = lambda a, b: np.maximum(a, b)  # noqa: E731
        kept.append(weakref.ref(function))
        allreduce.allreduce(np.ones(2), op=function, comm=comm)
    del function
    gc.collect()
    assert sum(ref() is not None for ref in kept) < 600


def test_arrays_of_one_dtype_under_two_names(comm):
    """int64 is long and long long: equal, yet two objects."""
    for _ in range(3):
        for a, b in (("l", "q"), ("q", "l"), ("l", "l")):
            recv = np.empty(5, b)
            comm.Allreduce(np.full(5, RANK, a), recv)
            assert (recv == TRIANGLE).all()

"""Shared memory: the window keeps the same promises as messages, whatever the timing."""

import os
import threading
import time
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import allreduce
from allreduce.execute.elements import CODES
from allreduce.execute.layout import AREA
from allreduce.execute.loop import STALE
from allreduce.execute.reductions import allowed_ops
from allreduce.execute.shared import ONE_SHOT, ONE_SLOT
from allreduce.execute.table import FAR, NEAR

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(scope="module")
def comm():
    """One communicator of ours for the whole file."""
    with allreduce.Communicator(COMM, timeout=60) as ours:
        yield ours


def everywhere(true: bool) -> bool:
    """Whether it is true on all ranks."""
    return COMM.allreduce(bool(true), MPI.LAND)


def values(dtype: np.dtype, count: int, rank: int, seed: int = 0) -> np.ndarray:
    """Small whole numbers, so that sums are exact."""
    return ((np.arange(count) * 7 + rank * 3 + seed) % 5).astype(dtype)


def reference(dtype: np.dtype, op: str, count: int, seed: int = 0) -> np.ndarray:
    """The reduction over all ranks."""
    ufunc = {
        "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
        "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
        "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    }[op]  # fmt: skip
    wide = dtype if dtype.kind in "iubc" else np.dtype(np.float64)
    total = values(dtype, count, 0, seed).astype(wide)
    for rank in range(1, SIZE):
        total = ufunc(total, values(dtype, count, rank, seed).astype(wide))
    if op == "avg" and dtype.kind in "iu":
        total //= total.dtype.type(SIZE)
    elif op == "avg":  # part by part: NumPy's complex division rounds more than once
        total = (total.view(total.real.dtype) / SIZE).view(total.dtype)
    return total.astype(dtype)


def groups() -> list[str]:
    """Ways to make nodes of our ranks."""
    half = SIZE // 2
    ways = [f"{half}+{SIZE - half}", f"1+{SIZE - 1}", str(SIZE), "+".join("1" * SIZE), f"{half}+{SIZE - half - 1}+1"]
    return [way for way in dict.fromkeys(ways) if "0" not in way.split("+")]


@pytest.mark.parametrize("dtype", CODES, ids=str)
def test_all_operations_at_all_sizes(comm, dtype):
    counts = {0, 1, SIZE - 1, SIZE, SIZE + 1, 7, 8, 1009, ONE_SHOT // dtype.itemsize + 1}
    for op, count in product(allowed_ops(dtype), sorted(counts)):
        send = values(dtype, count, RANK)
        guarded = np.ones(count + 2, dtype)
        allreduce.allreduce(send, guarded[1:-1], op, comm=comm, algorithm="node")
        expected = reference(dtype, op, count)
        one = np.ones(1, dtype)
        right = np.array_equal(guarded, np.concatenate([one, expected, one]))
        right = right and np.array_equal(send, values(dtype, count, RANK))
        assert everywhere(right), (op, count, guarded[1:-1], expected)
        inplace = send.copy()
        allreduce.allreduce(MPI.IN_PLACE, inplace, op, comm=comm, algorithm="node")
        assert everywhere(np.array_equal(inplace, expected)), (op, count, "in place")


@pytest.mark.parametrize("nbytes", [ONE_SHOT, ONE_SLOT, ONE_SLOT + 4, AREA + 4, 7 * AREA + 12, 8 << 20])
def test_around_every_boundary(comm, nbytes):
    dtype, count = np.dtype(np.float32), nbytes // 4
    for seed in range(3):
        result = allreduce.allreduce(values(dtype, count, RANK, seed), comm=comm, algorithm="node")
        assert everywhere(np.array_equal(result, reference(dtype, "sum", count, seed)))


@pytest.mark.parametrize("mode", [NEAR, FAR])
def test_all_ways_of_publishing(comm, mode):
    """With ordinary stores and past the caches, in one shot and in two, whatever the calibration has chosen."""
    counts = [1, 700, 5000, 60_001, 300_001]
    for count in counts:  # plans are made, and calibrate, before we choose
        allreduce.allreduce(values(np.dtype("f4"), count, RANK), comm=comm, algorithm="node")
    comm.engine.channel.counters[4] = mode
    for count in counts:
        result = allreduce.allreduce(values(np.dtype("f4"), count, RANK), comm=comm, algorithm="node")
        assert everywhere(np.array_equal(result, reference(np.dtype("f4"), "sum", count)))
        part = allreduce.reduce_scatter(np.full(count * SIZE, RANK, np.int32), comm=comm, algorithm="node")
        assert everywhere((part == SIZE * (SIZE - 1) // 2).all())


@pytest.mark.parametrize("mode", [NEAR, FAR])
@pytest.mark.parametrize("dtype", ["i1", "f2", "f4", "c16"])
def test_long_results_go_past_the_caches(monkeypatch, dtype, mode):
    """Wherever the result begins, and nothing beside it is touched; shared arrays and other collectives as well."""
    monkeypatch.setattr(allreduce.execute.shared, "CACHE", 0)
    dtype, count = np.dtype(dtype), 2 * AREA // np.dtype(dtype).itemsize + 5
    expected = reference(dtype, "sum", count)
    with allreduce.Communicator(COMM, timeout=60) as comm:
        shared = allreduce.empty_shared(count + 2, dtype, comm)
        allreduce.allreduce(values(dtype, count, RANK), comm=comm, algorithm="node")  # calibrates
        comm.engine.channel.counters[4] = mode
        for guarded in (np.ones(count + 2, dtype), shared):
            guarded[:] = 1
            result = guarded[1:-1]
            allreduce.allreduce(values(dtype, count, RANK), result, comm=comm, algorithm="node")
            right = np.array_equal(result, expected) and guarded[0] == guarded[-1] == 1
            result[:] = values(dtype, count, RANK)
            allreduce.allreduce(MPI.IN_PLACE, result, comm=comm, algorithm="node")
            assert everywhere(right and np.array_equal(result, expected) and guarded[0] == guarded[-1] == 1)
        gathered = allreduce.allgather(np.full(count, RANK, dtype), comm=comm, algorithm="node")
        assert everywhere(np.array_equal(gathered.ravel(), np.repeat(np.arange(SIZE), count).astype(dtype)))


@pytest.mark.parametrize("count", [5, 5000, 100_003, 1_000_003])
def test_shared_arrays(comm, count):
    """All inputs and outputs shared, only inputs, only outputs, in place, and only some ranks' arrays."""
    dtype = np.dtype(np.float32)
    x, y = (allreduce.empty_shared(count, dtype, comm) for _ in range(2))
    private = np.empty(count, dtype)
    some = x if RANK % 2 else private
    for seed in range(2):
        expected = reference(dtype, "sum", count, seed)
        for send, recv in ((x, y), (x, private), (private, y), (x, x), (some, y), (x, some if some is private else y)):
            send[:] = values(dtype, count, RANK, seed)
            allreduce.allreduce(send, recv, comm=comm, algorithm="node")
            right = np.array_equal(recv, expected)
            send[:] = -1  # what others still had to read would now be wrong
            assert everywhere(right)
            COMM.Barrier()


def test_a_reduce_scatter_in_place_of_a_shared_array(comm):
    """A rank's result lies where the first rank still has to read."""
    part, dtype = 300_000, np.dtype(np.int64)
    x, expected = allreduce.empty_shared(part * SIZE, dtype, comm), reference(dtype, "sum", part * SIZE)
    for _ in range(10):
        x[:] = values(dtype, part * SIZE, RANK)
        allreduce.reduce_scatter(MPI.IN_PLACE, x, comm=comm, algorithm="node")
        assert everywhere(np.array_equal(x[:part], expected[RANK * part :][:part]))
        COMM.Barrier()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("part", [1, 1000, 200_000])
def test_other_collectives(comm, shared, part):
    make = (lambda n: allreduce.empty_shared(n, np.float64, comm)) if shared else (lambda n: np.empty(n))
    whole, total, mine, root = make(part * SIZE), reference(np.dtype("f8"), "sum", part * SIZE), make(part), SIZE - 1
    whole[:] = values(np.dtype("f8"), part * SIZE, RANK)
    allreduce.reduce_scatter(whole, mine, comm=comm, algorithm="node")
    whole[:] = values(np.dtype("f8"), part * SIZE, RANK)
    assert everywhere(np.array_equal(mine, total[RANK * part : (RANK + 1) * part]))
    reduced = allreduce.reduce(whole, root=root, comm=comm, algorithm="node")
    assert everywhere(reduced is None if root != RANK else np.array_equal(reduced, total))
    gathered = allreduce.allgather(mine, comm=comm, algorithm="node")
    mine[:] = -1
    assert everywhere(np.array_equal(gathered.reshape(-1), total))
    whole[:] = RANK
    allreduce.bcast(whole, root, comm=comm, algorithm="node")
    assert everywhere((whole == root).all())


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_half_precision_rounds_once(comm, dtype):
    """Summed in float32, and rounded to 16 bits once, whatever the number of ranks."""
    for count in (100, 50_000):
        inputs = [np.random.default_rng(r).standard_normal(count).astype(dtype) for r in range(SIZE)]
        total = np.zeros(count, np.float32)
        for each in inputs:
            total = total + each.astype(np.float32) if each is not inputs[0] else each.astype(np.float32)
        result = allreduce.allreduce(inputs[RANK], comm=comm, algorithm="node")
        assert everywhere(np.array_equal(result.view(np.uint16), total.astype(dtype).view(np.uint16)))


def test_special_values_are_the_same_everywhere(comm):
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    send = special[np.random.default_rng(RANK).integers(0, len(special), 2000)]
    for op in ("sum", "min", "max", "prod"):
        for count in (5, 2000):
            result = allreduce.allreduce(send[:count], op=op, comm=comm, algorithm="node")
            assert len(set(COMM.allgather(result.tobytes()))) == 1
            if op in ("min", "max"):
                lost = np.isnan(np.array(COMM.allgather(send[:count]))).any(axis=0)
                assert np.array_equal(np.isnan(result), lost)


def test_stress_random_sizes_and_delays(comm):
    """Ranks that come late, sizes and algorithms on all paths in any order; STRESS=100000 for the long run."""
    ways = ["node", *(f"hierarchical:nodes={way}" for way in groups())]
    calls = int(os.environ.get("STRESS", "1500"))
    rng, mine = np.random.default_rng(7), np.random.default_rng(RANK + 100)
    most = 1 << 18
    ramp, wrong = np.arange(most) % 11, 0
    send, recv = np.empty(most, np.float32), np.empty(most, np.float32)
    shared = allreduce.empty_shared(most, np.float32, comm)
    for number in range(calls):
        count = int(2 ** rng.uniform(0, 17.99))
        source = shared if rng.random() < 0.2 else send
        source[:count] = ramp[:count] + RANK + number % 7
        if mine.random() < 0.02:
            time.sleep(mine.uniform(0, 1e-3))
        way = ways[rng.integers(len(ways))] if rng.random() < 0.2 else "node"
        allreduce.allreduce(source[:count], recv[:count], comm=comm, algorithm=way)
        expected = ramp[:count] * SIZE + SIZE * (SIZE - 1) // 2 + SIZE * (number % 7)
        wrong += np.count_nonzero(recv[:count] != expected)
    assert everywhere(wrong == 0)


def test_communicators_are_independent():
    """Two communicators in two threads of every rank."""
    ours = [allreduce.Communicator(COMM) for _ in range(2)]
    results: dict[int, bool] = {}

    def work(which: int) -> None:
        right = True
        for number in range(50):
            count = 10 ** (number % 5)
            result = allreduce.allreduce(np.full(count, RANK + which), comm=ours[which], algorithm="node")
            right = right and (result == SIZE * (SIZE - 1) // 2 + SIZE * which).all()
        results[which] = bool(right)

    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        work(0)
        work(1)
    assert everywhere(results == {0: True, 1: True})
    for each in ours:
        each.close()


def test_array_outlives_the_communicator():
    with allreduce.Communicator(COMM) as ours:
        array = allreduce.empty_shared((3, 5), np.float64, ours)
        array[:] = RANK
        allreduce.allreduce(array, array, comm=ours)
    array += 1
    assert array.shape == (3, 5) and (array == SIZE * (SIZE - 1) / 2 + 1).all()


@pytest.mark.parametrize("without", ["memory without a name", "files", "room"])
def test_where_memory_has_a_name(monkeypatch, without):
    """MPI's own windows must do; what rank 0 cannot make must not leave the others waiting."""

    def full(*_):
        raise OSError

    if without == "memory without a name":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, {"files": "memfd_create", "room": "ftruncate"}[without], full)
    before = len(os.listdir("/proc/self/fd"))
    with allreduce.Communicator(COMM, timeout=60) as ours:
        array = allreduce.empty_shared(300_000, np.float64, ours)
        array[:] = RANK
        allreduce.allreduce(array, array, comm=ours, algorithm="node")
        assert everywhere(SIZE == 1 or ours.engine.channel.window.windows)
    array += 1
    assert everywhere((array == SIZE * (SIZE - 1) / 2 + 1).all())
    assert without != "room" or len(os.listdir("/proc/self/fd")) <= before + 2 * SIZE


@pytest.mark.skipif(SIZE == 1, reason="nobody to open it")
def test_a_file_of_another_process_is_not_taken_for_ours(monkeypatch, tmp_path):
    """As where ranks are in containers that number processes anew."""
    other, getpid = tmp_path / "other", os.getpid
    other.write_bytes(bytes(1 << 26))
    with other.open("r+b") as file, allreduce.Communicator(COMM, timeout=60) as ours:
        opened = os.open
        monkeypatch.setattr(os, "open", lambda path, flags: opened(f"/proc/{getpid()}/fd/{file.fileno()}", flags))
        array = allreduce.empty_shared(1000, np.float64, ours)
        array[:] = RANK
        allreduce.allreduce(array, array, comm=ours, algorithm="node")
        assert everywhere((array == SIZE * (SIZE - 1) / 2).all())
    assert not any(other.read_bytes())


@pytest.mark.parametrize(
    "shape, dtype, error, said",
    [
        ((3, -1), "d", ValueError, "at least 0, not -1"),
        (2.5, "d", TypeError, "at least 0, not 2.5"),
        (3, object, TypeError, "object"),
        ((1 << 40, 1 << 40), "d", ValueError, "can address"),
        (1 << 60, "b", ValueError, "can address"),
    ],
)
def test_no_such_shared_array(comm, shape, dtype, error, said):
    """Refused by each rank alone; the next is made by all."""
    if RANK == 0:
        with pytest.raises(error, match=said):
            allreduce.empty_shared(shape, dtype, comm)
    assert allreduce.empty_shared(3, comm=comm).shape == (3,)


@pytest.mark.skipif(SIZE == 1, reason="nobody to differ from")
def test_ranks_must_ask_for_shared_arrays_of_one_length(comm):
    with pytest.raises(ValueError, match="different lengths"):
        allreduce.empty_shared(1000 + 1000 * (RANK == 1), comm=comm)
    assert allreduce.empty_shared(3, comm=comm).shape == (3,)


def test_memory_has_no_name_that_could_be_left_behind():
    """However the ranks end, killed ones too."""

    def file_at(address: int) -> str:
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return line
        return ""

    with allreduce.Communicator(COMM) as ours:
        array = allreduce.empty_shared(1000, np.float64, ours)
        for address in (*ours.engine.channel.window.parts, array.ctypes.data):
            assert "memfd:" in file_at(address)


def test_finds_out_again_how_to_publish(comm):
    """Cores that were near may be far later: every so many bytes, on all ranks at the same call."""
    data, result = np.ones(20_000), np.empty(20_000)
    allreduce.allreduce(data, result, comm=comm, algorithm="node")
    channel = comm.engine.channel
    if channel.cores < SIZE:  # then nobody spins, and it would not matter
        assert channel.counters[3] == STALE
        return
    channel.counters[3] = STALE - 2 * data.nbytes
    published = []
    for _ in range(4):
        allreduce.allreduce(data, result, comm=comm, algorithm="node")
        assert (result == SIZE).all()
        published.append(int(channel.counters[3]))
    assert published[0] < published[1] == STALE > published[2] < published[3]


@pytest.mark.parametrize("name", ["hierarchical", "hierarchical_leaders"])
def test_inside_nodes_through_memory(comm, name):
    f2, f4, i4 = np.dtype("f2"), np.dtype("f4"), np.dtype("i4")
    cases = [(f4, "sum"), (i4, "avg"), (f4, "max"), (f2, "sum"), (np.dtype("c8"), "prod"), (BFLOAT16, "avg")]
    for way, (dtype, op) in product(groups(), cases):
        for count in (0, 1, SIZE - 1, SIZE + 1, 1000, 300_001):
            send, result = values(dtype, count, RANK), np.empty(count, dtype)
            for _ in range(2):
                allreduce.allreduce(send, result, op, comm=comm, algorithm=f"{name}:nodes={way}")
                wanted = reference(dtype, op, count)
                assert everywhere(result.tobytes() == wanted.tobytes()), (way, dtype, op, count)
            assert np.array_equal(send, values(dtype, count, RANK))
            allreduce.allreduce(MPI.IN_PLACE, send, op, comm=comm, algorithm=f"{name}:nodes={way}")
            assert everywhere(send.tobytes() == wanted.tobytes()), (way, dtype, op, count)
        half = np.full(5, 2048 - RANK, f2)
        wide = allreduce.allreduce(half, comm=comm, algorithm=f"{name}:nodes={way}", accumulate="f4")
        assert everywhere((wide == np.float16(2048 * SIZE - SIZE * (SIZE - 1) // 2)).all())
    plans = [plan for order, plan in comm.engine.channel.plans.items() if order.algorithm == name]
    assert any(plan.table.signals for plan in plans) == (SIZE > 1)


@pytest.mark.parametrize("codec", ["float16", "int8", "int4:block=32", "topk:ratio=1.0", "lossless"])
def test_codecs_between_nodes_and_plain_values_inside(comm, codec):
    f4 = np.dtype("f4")
    loose = {"int8": 1 / 127, "int4:block=32": 1 / 7}.get(codec, 0)  # the others keep small whole numbers
    for way, count in product(groups(), (0, 1, 33, 1000, 300_001)):
        send, nodes = values(f4, count, RANK), way.count("+") + 1
        result = allreduce.allreduce(send, comm=comm, algorithm=f"hierarchical:nodes={way}", codec=codec)
        assert len({hash(each) for each in COMM.allgather(result.tobytes())}) == 1, (way, count)
        error = np.abs(result - reference(f4, "sum", count))
        assert (error <= loose * nodes * 5 * SIZE).all(), (way, count)
    plans = [plan for order, plan in comm.engine.channel.plans.items() if order.codec and str(order.codec) in codec]
    assert any(plan.table.signals for plan in plans) == (SIZE > 1 and codec != "lossless")


def test_what_nodes_use_is_freed_with_the_communicator():
    with allreduce.Communicator(COMM) as ours:
        allreduce.allreduce(np.ones(9), comm=ours, algorithm=f"hierarchical:nodes={SIZE}")
        (node,) = ours.engine.channel.nodes.values()
    assert node.comm == MPI.COMM_NULL
    assert SIZE == 1 or not node.window.maps  # one rank alone has made none


def test_deadline_in_shared_memory():
    with allreduce.Communicator(COMM, timeout=0.4) as ours:
        allreduce.allreduce(np.ones(3), comm=ours, algorithm="node")
        COMM.Barrier()
        if RANK < SIZE - 1:
            with pytest.raises(allreduce.CollectiveTimeout, match=r"node.*ranks of this node"):
                allreduce.allreduce(np.ones(3), comm=ours, algorithm="node")
        COMM.Barrier()  # where the last rank waits for those that give up


def test_refused_where_it_cannot_be(comm):
    with pytest.raises(ValueError, match="'node' is for blocking calls"):
        allreduce.allreduce(np.ones(3), op=lambda a, b: a + b, comm=comm, algorithm="node")
    with pytest.raises(ValueError, match="'node' is for blocking calls"):
        allreduce.allreduce(np.ones(3, np.longdouble), comm=comm, algorithm="node")
    COMM.Barrier()

"""Arrays on a device, which is a fake: every algorithm by every route, and who waits for whom."""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from witness import HALF, RANK, SIZE, Verdict, counts, exact, reduced

sys.path.append(str(Path(__file__).parents[1] / "device"))
import cpu
from clocks import Array, OrderError

import allreduce
from allreduce import device_prices, routes
from allreduce.engine import engine_of
from allreduce.execute import aware, device_arrays, plan
from bench.devices import devices

pytestmark = [pytest.mark.mpi, cpu.needs_compiler]

F, I32 = np.dtype(np.float32), np.dtype(np.int32)
CASES = [(F, "sum"), (HALF[0], "sum"), (I32, "avg"), (HALF[1], "max"), (F, "avg"), (np.dtype(bool), "lor"), (F, "prod")]
LONG = 1501
together = engine_of(MPI.COMM_WORLD).channel.together


def algorithms(route):
    return routes.BY_IPC if route == "ipc" else allreduce.algorithms()


def run(fake, comm, data, way, **wishes):
    """One all-reduce of this rank's row; whether the input is as before, and the result."""
    send = fake.put(data[RANK])
    if way == "same":
        assert allreduce.allreduce(send, send, comm=comm, **wishes) is send
        return fake.get(send)
    recv = Array(fake, send.shape, send.dtype) if way == "apart" else None
    result = allreduce.allreduce(send, recv, comm=comm, **wishes)
    assert recv is None or result is recv
    assert fake.get(send).tobytes() == data[RANK].tobytes()
    return fake.get(result)


def test_every_algorithm(fake, route, comm):
    with Verdict() as verdict:
        for i, algorithm in enumerate(algorithms(route)):
            for j, (dtype, op) in enumerate(CASES):
                count, way = counts()[(i + j) % 6], ("apart", "same", "made")[(i + j // 2) % 3]
                what, data = (route, algorithm, str(dtype), op, count, way), exact(dtype, op, count)
                result = run(fake, comm, data, way, op=op, algorithm=algorithm)
                verdict.equal(result, reduced(data, op), *what)
                verdict.same(result, *what)


def test_long_vectors(fake, route, comm):
    """In pieces, of which several are under way, and in segments."""
    with Verdict() as verdict:
        for algorithm in algorithms(route):
            data = exact(F, "sum", LONG)
            result = run(fake, comm, data, "apart", algorithm=algorithm)
            verdict.equal(result, reduced(data, "sum"), route, algorithm)


def test_sums_in_a_wider_type(fake, route, comm):
    data = np.full((SIZE, 9), 2048, HALF[0])
    data[1:] = 1  # of which none is left in float16, one by one
    with Verdict() as verdict:
        result = run(fake, comm, data, "apart", accumulate="float32", algorithm="direct")
        verdict.equal(result, data.astype("f").sum(0).astype(HALF[0]), route)


def test_other_collectives(fake, route, comm):
    data, root = exact(F, "sum", 12 * SIZE), SIZE - 1
    total, mine = reduced(data, "sum"), data[RANK]
    with Verdict() as verdict:
        scattered = allreduce.reduce_scatter(fake.put(mine), comm=comm)
        verdict.equal(fake.get(scattered), total.reshape(SIZE, 12)[RANK], "reduce_scatter")
        gathered = allreduce.allgather(fake.put(mine), comm=comm)
        verdict.equal(fake.get(gathered), data, "allgather")
        rooted = allreduce.reduce(fake.put(mine), root=root, comm=comm)
        verdict.check((rooted is None) == (root != RANK), "reduce")
        if rooted is not None:
            verdict.equal(fake.get(rooted), total, "reduce")
        given = fake.put(mine)
        allreduce.bcast(given, root, comm=comm)
        verdict.equal(fake.get(given), data[root], "bcast")
        comm.Allreduce(MPI.IN_PLACE, given)
        verdict.equal(fake.get(given), data[root] * F.type(SIZE), "Allreduce")


def test_streams_are_waited_for(fake, route, comm):
    """The current one, the one that is named, those that the arrays name."""
    data = exact(F, "sum", 1009)
    one, other = fake.stream(), fake.stream()
    with Verdict() as verdict:

        def check(send, recv, reader, *what, **wishes):
            allreduce.allreduce(send, recv, algorithm="direct", comm=comm, **wishes)
            verdict.equal(fake.get(recv, reader), reduced(data, "sum"), *what)

        room = Array(fake, (1009,), F)
        with fake.on(one):
            check(fake.put(data[RANK]), room, one, "current")
        room = Array(fake, (1009,), F)
        check(fake.put(data[RANK], one), room, one, "a handle", stream=one.handle)
        room = fake.put(data[RANK], other, stream=other.handle)
        check(fake.put(data[RANK], one, stream=one.handle), room, one, "named by arrays")
        fake.get(room, other)


def test_a_stream_that_is_not_waited_for_is_found(fake, route, monkeypatch):
    monkeypatch.setattr(device_arrays.OnDevice, "streams", lambda self: [])
    with allreduce.Communicator(MPI.COMM_WORLD) as comm, pytest.raises(OrderError, match="read without waiting"):
        allreduce.allreduce(fake.put(np.ones(100, F)), algorithm="one_shot", comm=comm)


@pytest.mark.filterwarnings("ignore:this MPI takes no messages")
def test_several_in_flight(fake, comm):
    data = [exact(F, "sum", count, seed=count) for count in (5, 300, 1009)]
    with Verdict() as verdict:
        rooms = [Array(fake, (d.shape[1],), F) for d in data]
        requests = [comm.Iallreduce(fake.put(d[RANK]), room) for d, room in zip(data, rooms)]
        for d, room, request in reversed(list(zip(data, rooms, requests))):
            request.Wait()
            verdict.equal(fake.get(room), reduced(d, "sum"), "in flight", d.shape)
        array = fake.put(data[0][RANK])
        persistent = comm.Allreduce_init(MPI.IN_PLACE, array)
        for turn in range(1, 3):
            persistent.Start()
            persistent.Wait()
            verdict.equal(fake.get(array), reduced(data[0], "sum") * F.type(SIZE) ** (turn - 1), "persistent")


@pytest.mark.mpi(min_size=2)
def test_ranks_may_wait_in_any_order(fake, monkeypatch):
    """Long messages of one operation, which MPI does not buffer; nobody receives them before those of the other."""
    monkeypatch.setattr(plan, "DEVICE", plan.DEVICE._replace(segment=1 << 14))
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    data = [exact(F, "sum", 5 << 12, seed=seed) for seed in range(2)]
    rooms = [Array(fake, d.shape[1:], F) for d in data]
    with allreduce.Communicator(MPI.COMM_WORLD, timeout=60, algorithm="one_shot") as comm, Verdict() as verdict:
        requests = [comm.Iallreduce(fake.put(d[RANK]), room) for d, room in zip(data, rooms)]
        for which in (0, 1) if RANK else (1, 0):
            requests[which].Wait()
            verdict.equal(fake.get(rooms[which]), reduced(data[which], "sum"), which)


def test_all_memory_is_given_back(fake, route):
    with allreduce.Communicator(MPI.COMM_WORLD) as comm:
        for count in (10, 1000):
            for algorithm in ("one_shot", "direct"):
                run(fake, comm, exact(F, "sum", count), "same", algorithm=algorithm)
        assert len(fake.memories) > 0 or SIZE == 1
    assert not fake.memories


def test_what_the_environment_shows(fake, comm):
    found, short, _ = devices(comm.engine, "580")
    assert found == "CUDA, NVIDIA driver 580; one for each rank"
    assert ("by ipc" in short) == together


@pytest.mark.mpi(min_size=2)
def test_ranks_with_one_device_are_named(fake, monkeypatch):
    monkeypatch.setattr(fake, "name", b"one device 16 bt")
    everyone = ", ".join(map(str, range(SIZE)))
    with allreduce.Communicator(MPI.COMM_WORLD) as comm, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert everyone in devices(comm.engine, None)[0]
    assert any("bind_device" in str(warning.message) for warning in said) == (RANK == 0)


def test_which_route(fake, comm, monkeypatch):
    """Those who share memory map it; else MPI is asked once, and rank 0 says so if it will not do."""
    order, engine = plan.Order("allreduce", "ring", 100, F), comm.engine
    assert (routes.placed(engine, order, "auto", False, True).inside != ()) == together
    monkeypatch.setattr(device_prices, "is_aware", lambda comm: False)
    with pytest.warns(RuntimeWarning, match="through the host") if RANK == 0 else pytest.MonkeyPatch.context():
        assert routes.placed(engine, order, "auto", True, True).route == "staged"
    engine.channel.device.direct_from = 400
    assert [device_prices.messages(engine.channel, n) for n in (399, 400)] == ["staged", "aware"]
    monkeypatch.setenv("ALLREDUCE_ROUTE", "aware")
    assert routes.placed(engine, order, "auto", True, True).route == "aware"
    assert routes.placed(engine, order, "staged", True, True).route == "staged"


def test_without_ipc_messages_are_sent(fake, comm, monkeypatch):
    """One rank that cannot map the others' memory is enough."""
    def refused(handle):
        raise RuntimeError("cudaErrorPeerAccessUnsupported")

    if RANK == SIZE - 1:
        monkeypatch.setattr(fake, "open", refused)
    monkeypatch.setattr(routes, "messages", lambda channel, nbytes: "staged")
    data = exact(F, "sum", 100)
    with Verdict() as verdict:
        verdict.equal(run(fake, comm, data, "apart"), reduced(data, "sum"))
        if SIZE > 1:
            with pytest.raises(ValueError, match="cannot map"):
                run(fake, comm, data, "apart", route="ipc")


def test_what_is_refused(fake, comm):
    array, host = fake.put(np.ones(4, F)), np.ones(4, F)

    def refused(error, match, *buffers, call=allreduce.allreduce, **wishes):
        with pytest.raises(error, match=match):
            call(*buffers, comm=comm, **wishes)

    refused(TypeError, "sendbuf lies on a device, recvbuf on the host", array, host)
    refused(TypeError, "sendbuf lies on the host, recvbuf on a device", host, array)
    refused(ValueError, "no MPI is trusted to reduce", array, algorithm="native")
    refused(TypeError, "operation of your own", array, op=lambda a, b: a + b)
    refused(TypeError, "lossless.* has no kernels for a CUDA device; have float16", array, codec="lossless")
    refused(TypeError, "host memory", array, codec="sparcml(topk)", key="a")
    refused(ValueError, "unknown route 'air'; have auto, aware, staged, ipc", array, route="air")
    refused(ValueError, "route 'ipc' is for", array, route="ipc", algorithm="ring")
    refused(ValueError, "route and stream are for arrays on a device", host, route="staged")
    refused(ValueError, "overlap in part", array[:3], array[1:])
    refused(ValueError, "read-only", array, fake.put(np.ones(4, F), read_only=True))
    refused(ValueError, "not contiguous", fake.put(np.ones(4, F), strides=(8,)))
    with pytest.raises(TypeError, match=r"MPI.MAXLOC|MAXLOC"):
        comm.Allreduce(array, array, MPI.MAXLOC)


@pytest.mark.parametrize("cupy", ["need CuPy: pip install", "finds no CUDA device"])
def test_without_cuda(cupy, comm, monkeypatch):
    """Arrays of the host need none; an array on a device says what is missing."""
    there = SimpleNamespace(is_available=lambda: False, __version__="14.2.0")
    monkeypatch.setitem(sys.modules, "cupy", there if "device" in cupy else None)

    class Somewhere:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (16, False), "version": 3}  # noqa: RUF012

    assert allreduce.allreduce(np.ones(4), comm=comm)[0] == SIZE
    with pytest.raises(RuntimeError, match=cupy):
        allreduce.allreduce(Somewhere(), comm=comm)
    assert allreduce.allreduce(np.ones(4), comm=comm)[0] == SIZE


#: As the one that tries messages from devices, in memory of the host.
TRIAL = aware.TRIAL.replace("import cupy", "import numpy as cupy").replace("cupy.cuda.Device().synchronize()", "")


def test_a_trial_can_begin_mpi_under_any_launcher():
    text = TRIAL.replace("a.data.ptr", "a.ctypes.data")
    assert aware.tried(text)
    assert not aware.tried(text.replace("a.ctypes.data", "16"))


def test_what_is_said_of_mpi(monkeypatch):
    """The variable, and else one rank of each node."""
    tries = []
    monkeypatch.setattr(aware, "kept", lambda trial: tries.append(trial) is None)
    monkeypatch.delenv(aware.VARIABLE, raising=False)
    assert aware.is_aware(MPI.COMM_WORLD)
    assert len(tries) <= 1
    assert MPI.COMM_WORLD.allreduce(len(tries)) >= 1
    for value, answer in (("0", False), ("1", True)):
        monkeypatch.setenv(aware.VARIABLE, value)
        assert aware.is_aware(MPI.COMM_WORLD) is answer
    monkeypatch.setenv(aware.VARIABLE, "yes")
    with pytest.raises(ValueError, match="have 0, 1"):
        aware.is_aware(MPI.COMM_WORLD)

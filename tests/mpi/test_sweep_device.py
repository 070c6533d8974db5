"""Sweeps over arrays on a fake device: by every route, beside MPI's own and NCCL, which are fakes, too, or absent."""

import ctypes
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

sys.path.append(str(Path(__file__).parents[1] / "device"))
import cpu
from clocks import Stream

import allreduce
from allreduce import engine
from allreduce.execute import aware
from bench import memory, nccl, requests
from bench.__main__ import main
from bench.devices import REDUCTION
from bench.journal import load, records
from bench.plan import Group
from bench.starts import Barrier
from bench.timers import DeviceTimer

pytestmark = [
    pytest.mark.mpi, cpu.needs_compiler, pytest.mark.filterwarnings("ignore:this MPI takes no messages"),
    pytest.mark.skipif(MPI.COMM_WORLD.size > 3, reason="slow on the CPU: up to 3 ranks"),
]  # fmt: skip
COMM = MPI.COMM_WORLD
QUICK = ["sweep", "--device", "cuda", "--sizes", "1K", "--seconds", "0.001", "--batch", "2"]
together = engine.engine_of(COMM).channel.together


@pytest.fixture
def path(tmp_path):
    return COMM.bcast(str(tmp_path / "rows.jsonl"))


@pytest.fixture
def sweep(fake, monkeypatch, path):
    """Runs one; returns its code and, on rank 0, its first record and its rows."""
    monkeypatch.setattr(allreduce, "bind_device", lambda: 0)
    monkeypatch.setattr(memory, "FLUSHED", 1 << 10)
    monkeypatch.setattr("bench.rounds.FEWEST", 2)
    monkeypatch.setattr("bench.nccl._pytorchs", lambda: False)  # which would take its time to import

    def run(*words):
        code = main([*QUICK, *words, "--json", path])
        COMM.Barrier()
        if COMM.rank or code == 2:
            return code, None, []
        return code, next(records(Path(path))), load([Path(path)])[1]

    forget()
    yield run
    forget()


def forget():
    """The engine of all ranks goes, and the device that it knows."""
    if COMM.handle in engine._engines:
        COMM.Delete_attr(engine._keyval)


def names(rows):
    return {row.algorithm for row in rows}


def test_ours_by_every_route_there_is(sweep, capfd):
    """What is not there is named: this MPI takes nothing from devices."""
    words = ["--algorithms", "ring", "direct", "auto", "copy", "--route", "auto", "staged", "aware", "ipc"]
    code, facts, rows = sweep(*words, "--place", "out", "in", "--rewrite")
    said = capfd.readouterr().out
    assert code == 0
    if COMM.rank == 0:
        mapped = {"direct@ipc", "auto@ipc"} if together else set()
        routed = {f"{name}{route}" for name in ("ring", "direct", "auto") for route in ("", "@staged")}
        assert names(rows) == {"copy", *routed, *mapped}
        assert {(row.buffers, row.predicted, row.wrong, row.complete) for row in rows} == {("cuda", None, 0, True)}
        assert facts["missing"].keys() >= {"native", "nccl", "aware"} and "events" in facts["clock"]
        for missing in facts["missing"]:
            assert f"# no {missing}: " in said
        assert "all correct" in said


def test_codecs_cold_caches_and_calls_that_return_early(sweep):
    calls = ["blocking", "nonblocking", "overlapped"]
    code, _, rows = sweep("--algorithms", "ring", "--codec", "int8", "--cold", "--call", *calls, "--dtype", "bfloat16")
    assert code == 0
    if COMM.rank == 0:
        assert {(row.algorithm, row.codec, row.call, row.cache) for row in rows} == {
            ("ring", codec, call, "cold") for codec in (None, "int8") for call in calls
        }


def test_persistent_requests(sweep):
    code, _, rows = sweep("--algorithms", "ring", "--call", "persistent", "--sizes", "64", "--batch", "1")
    assert code == 0
    assert COMM.rank or names(rows) == {"ring"}


def test_a_wrong_result_on_one_rank_is_counted(sweep, fake, monkeypatch):
    right = allreduce.allreduce

    def wrong(send, recv, **wishes):
        right(send, recv, **wishes)
        if COMM.rank == COMM.size - 1:
            fake.upload(recv.address, np.full(1, 99, "f"))

    monkeypatch.setattr(allreduce, "allreduce", wrong)
    assert sweep("--algorithms", "ring")[0] == 1


class Nccl:
    """As cupy.cuda.nccl: what it is asked, in order; the sum is MPI's, on memory that the fake watches."""

    available, seconds = True, 1000

    def __init__(self, fake):
        self.fake, self.calls = fake, []

    def get_unique_id(self):
        self.calls.append("id")
        return tuple(range(-64, 64))

    def NcclCommunicator(self, *facts):
        self.calls.append(facts)
        return SimpleNamespace(allReduce=self.all_reduce, destroy=lambda: None)

    def all_reduce(self, send, recv, count, dtype, op, stream):
        self.calls.append((count, dtype, op, stream))
        fake, stream, nbytes = self.fake, self.fake.stream_at(stream), 4 * count
        with fake.open_for(stream):
            fake.touch(stream, send, nbytes, False)
            fake.touch(stream, recv, nbytes, True)
            a, b = (np.ctypeslib.as_array((ctypes.c_float * count).from_address(at)) for at in (send, recv))
            COMM.Allreduce(a.copy(), b)
            fake.busy(stream, self.seconds)


def test_nccl_is_asked_on_the_current_stream(sweep, fake, monkeypatch, capfd):
    cupys = Nccl(fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nccl=cupys))
    monkeypatch.setattr(Stream, "ptr", property(lambda stream: stream.handle), raising=False)
    monkeypatch.setattr("bench.nccl._made", {})
    code, facts, rows = sweep("--algorithms", "ring", "--place", "out", "in", "--sizes", "64", "1K")
    assert code == 0
    first = ["id"] * (COMM.rank == 0) + [(COMM.size, tuple(range(-64, 64)), COMM.rank)]
    assert cupys.calls[: len(first)] == first
    assert set(cupys.calls[len(first) :]) == {(count, 7, 0, fake.default.handle) for count in (16, 256)}
    if COMM.rank == 0:
        assert {"nccl", "ring"} == names(rows) and "nccl" not in facts["missing"]
        assert {row.algorithm for row in rows if row.time.median > 500} == {"nccl"}
    assert (COMM.rank == 0) == ("# no native: " in capfd.readouterr().out)


@pytest.mark.parametrize(("op", "name"), [("sum", "SUM"), ("prod", "PRODUCT")])
def test_nccl_of_pytorch_is_the_second_choice(op, name, monkeypatch):
    """Here over memory of the host, which PyTorch is made to take for a device's."""
    torch = pytest.importorskip("torch")
    dist = torch.distributed

    def as_tensor(array, device):
        assert device == "cuda" and array.dtype == np.uint8
        return torch.from_numpy(np.ctypeslib.as_array((ctypes.c_uint8 * array.nbytes).from_address(array.address)))

    def all_reduce(tensor, asked):
        assert asked == getattr(dist.ReduceOp, name) and tensor.dtype == torch.float32
        COMM.Allreduce(MPI.IN_PLACE, tensor.numpy(), {"SUM": MPI.SUM, "PRODUCT": MPI.PROD}[name])

    begun = []
    for where, what, instead in (
        ("bench.nccl", "whose", lambda comm: "torch"), ("bench.nccl", "_cuda", lambda comm: SimpleNamespace(number=0)),
        ("bench.gloo", "begin", lambda comm, backend: begun.append(backend)), ("torch", "as_tensor", as_tensor),
        ("torch.cuda", "set_device", begun.append), ("torch.distributed", "all_reduce", all_reduce),
    ):  # fmt: skip
        monkeypatch.setattr(f"{where}.{what}", instead)
    buffers = [np.full(16, COMM.rank + 2, "f"), np.zeros(16, "f")]
    send, recv = (
        memory.Placed(SimpleNamespace(__cuda_array_interface__={"data": (b.ctypes.data, False)}), 0, 16, b.dtype)
        for b in buffers
    )
    call = nccl.start(COMM, Group(np.dtype("f"), op, 64))
    assert begun == [0, "nccl"]
    everyone = np.arange(2, COMM.size + 2)
    for result, array in ((buffers[1], recv), (buffers[0], send)):  # in place the second time
        call(send, array)
        assert (result == getattr(everyone, op)()).all()


def test_nccl_of_one_rank_is_none(sweep, fake, monkeypatch):
    if COMM.rank:
        monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nccl=Nccl(fake)))
    code, facts, _ = sweep("--algorithms", "ring")
    assert code == 0
    assert COMM.rank or facts["missing"]["nccl"] == "neither CuPy nor PyTorch has it here"


@pytest.mark.parametrize("route", ["aware"], indirect=True)
def test_an_mpi_that_knows_devices(sweep, route, fake, monkeypatch):
    """Its own all-reduce is a row, if it can reduce there, and messages come from the device."""
    right = requests.call_of

    def watched(label, *facts):
        call = right(label, *facts)

        def told(send, recv):
            call(send, recv)
            fake.host.tick(fake.host)
            fake.touch(fake.host, recv.address, recv.nbytes, True)

        return told if label.algorithm == "native" else call

    monkeypatch.setattr(requests, "call_of", watched)
    monkeypatch.setenv("ALLREDUCE_GPU_AWARE", "1")
    monkeypatch.delenv("ALLREDUCE_ROUTE")
    monkeypatch.setattr("bench.devices.kept", lambda trial: True)
    code, facts, rows = sweep("--algorithms", "ring", "--route", "aware", "--place", "out", "in")
    assert code == 0
    if COMM.rank == 0:
        assert names(rows) == {"ring@aware", "native"} and facts["missing"].keys() == {"nccl"}
        assert all(row.ratio for row in rows)


def test_whether_mpi_reduces_is_tried_in_a_process_of_its_own():
    """In memory of the host, what it is asked there is right."""
    text = REDUCTION.replace("import cupy", "import numpy as cupy").replace("cupy.cuda.Device().synchronize()", "")
    text = text.replace("a.data.ptr", "a.ctypes.data")
    assert aware.tried(text)
    assert not aware.tried(text.replace("MPI.SUM", "MPI.MAX"))
    assert not aware.tried(text.replace("a.ctypes.data", "16"))


def test_ranks_with_one_device_are_marked(sweep, fake, monkeypatch):
    monkeypatch.setattr(fake, "name", b"one device 16 bt")
    with pytest.warns(RuntimeWarning) if COMM.rank == 0 and COMM.size > 1 else pytest.MonkeyPatch.context():
        code, facts, rows = sweep("--algorithms", "ring")
    assert code == 0
    if COMM.rank == 0 and COMM.size > 1:
        assert facts["missing"]["nccl"] == "ranks have one device together"
        assert all("one-device" in row.marks for row in rows)


@pytest.mark.parametrize("nbytes", ["64", "4K"])
def test_time_is_until_the_device_is_done(sweep, fake, monkeypatch, nbytes):
    """Of the slowest rank, and of each of a batch of short calls; what we ask is the caller's stream, which waits."""
    right = allreduce.allreduce

    def slow(send, recv, **wishes):
        fake.busy(engine.engine_of(COMM).channel.device.work, 1000 * (COMM.rank + 1))
        right(send, recv, **wishes)

    monkeypatch.setattr(allreduce, "allreduce", slow)
    monkeypatch.setattr("bench.timing.BATCH_SECONDS", 1e6)
    code, _, rows = sweep("--algorithms", "ring", "direct", "--sizes", nbytes, "--route", "auto", "staged")
    assert code == 0
    for row in rows:
        assert row.batch == (2 if nbytes == "64" else 1)
        assert all(1000 * COMM.size <= seconds < 1000 * COMM.size + 100 for seconds in row.valid)


def test_what_time_is_between(sweep, fake, monkeypatch):
    """It begins after the barrier, with nothing left to do; waiting for the end is not in it."""
    done, right = [], allreduce.allreduce

    def noted(place, name, word):
        before = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *facts: (done.append(word), before(*facts))[1])

    for place, name, word in (
        (fake, "synchronize", "idle"), (Barrier, "wait", "begun"), (fake, "record", "event"), (fake, "seconds", "told"),
    ):  # fmt: skip
        noted(place, name, word)
    monkeypatch.setattr(allreduce, "allreduce", lambda *a, **wishes: (right(*a, **wishes), done.append("called")))
    assert sweep("--algorithms", "ring", "--sizes", "64", "--batch", "1")[0] == 0
    begun, called = done.index("begun"), done.index("called")
    assert done[begun - 1 :][:3] == ["idle", "begun", "event"]
    assert done[called:][:4] == ["called", "event", "idle", "told"]


def test_a_late_start_counts_for_nothing(fake):
    timer = DeviceTimer(fake)
    begin = timer.begin(SimpleNamespace(wait=lambda: -np.inf))
    assert timer.seconds(begin, timer.end()) == np.inf


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithms", "node"], "algorithm 'node' is for --device host"),
        (["--algorithms", "guidelines"], "'reduce.bcast' is for --device host"),
        (["--buffers", "shared"], "--buffers shared is for --device host"),
        (["--codec", "lossless"], "lossless.* has no kernels"),
        (["--dtype", "longdouble"], "longdouble|float128"),
    ],
)
def test_what_is_refused(sweep, words, said, capfd):
    assert sweep(*words)[0] == 2
    assert COMM.rank or re.search(said, capfd.readouterr().err)


def test_where_there_is_no_device(capfd, monkeypatch, path):
    """One error, on rank 0, also if others have one."""
    def bound():
        if COMM.rank == COMM.size - 1:
            raise RuntimeError("CuPy 14.2.0 finds no CUDA device or no driver")

    monkeypatch.setattr(allreduce, "bind_device", bound)
    assert main([*QUICK, "--json", path]) == 2
    error = capfd.readouterr().err
    assert error == ("" if COMM.rank else "bench: --device cuda: CuPy 14.2.0 finds no CUDA device or no driver\n")
    assert not Path(path).exists()

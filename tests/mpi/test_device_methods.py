"""Methods that reduce arrays on a device, which is a fake: the bits of host memory, step after step."""

import copy

import cpu
import numpy as np
import pytest
from clocks import Array
from witness import HALF, RANK, SIZE, Verdict, rough

import allreduce
import compress
from allreduce.execute.device_arrays import OnDevice, on_device
from allreduce.methods import average_together

pytestmark = [pytest.mark.mpi, cpu.needs_compiler]
slow = pytest.mark.skipif(SIZE > 3, reason="slow on the CPU: up to 3 ranks")

F, D = np.dtype("f"), np.dtype("d")
METHODS = [
    "feedback(topk:ratio=0.05)", "feedback(int4:block=32)", "feedback(threshold:least=1)",
    "feedback(int3:rounding=stochastic)", "feedback(topk:ratio=0.05):warmup=2",
    "feedback(randomk:ratio=0.1,unbiased=False)", "feedback(bounded:eb=0.02)", "gtopk:ratio=0.05", "thc:block=32",
    "ef21(topk:ratio=0.05)", "diana(int4:rounding=stochastic):alpha=0.3", "oktopk:ratio=0.05", "oktopk:warmup=2",
    "dgc(topk:ratio=0.05)", "dgc(int3:rounding=stochastic):momentum=0.3", "dgc(sampled:ratio=0.01):warmup=2",
]  # fmt: skip
BY_MESSAGES = pytest.mark.parametrize("route", ["staged", "aware"], indirect=True)


class Both:
    """The same method on the host and on the device."""

    def __init__(self, fake, comm, text, algorithm):
        self.fake, self.comm = fake, comm
        self.host, self.device = compress.get(text), compress.get(text)
        self.wishes = {"comm": comm, "algorithm": algorithm}

    def turn(self, call):
        """The same random numbers for both."""
        number = self.comm.engine.channel.counters[:1]
        begun = int(number[0])
        result = call()
        number[0] = begun
        return result

    def step(self, verdict, values, *what, key="weight", op="sum"):
        wishes = self.wishes | {"op": op, "key": key}
        wanted = self.turn(lambda: allreduce.allreduce(values, codec=self.host, **wishes))
        send, room = self.fake.put(values), Array(self.fake, values.shape, values.dtype)
        assert allreduce.allreduce(send, room, codec=self.device, **wishes) is room
        result, wanted = self.fake.get(room).reshape(-1), wanted.reshape(-1)
        verdict.check(result.tobytes() == wanted.tobytes(), str(self.host), *what, result[:4], wanted[:4])
        verdict.check(self.fake.get(send).tobytes() == values.tobytes(), "changed sendbuf", *what)
        verdict.same(result, str(self.host), *what)

    def remember_alike(self, verdict, *what):
        host, device = (method.state_dict()["memory"] for method in (self.host, self.device))
        verdict.check(host.keys() == device.keys(), *what, host.keys(), device.keys())
        for key, parts in host.items():
            for name, part in parts.items():
                verdict.check(part.tobytes() == device[key][name].tobytes(), str(self.host), key, name, *what)


def steps(dtype, count, many=3):
    return [rough(dtype, count, seed=step)[RANK] for step in range(many)]


@slow
@BY_MESSAGES
def test_every_method(fake, route, comm):
    with Verdict() as verdict:
        for i, text in enumerate(METHODS):
            both = Both(fake, comm, text, ("ring", "direct", "recursive_doubling", "one_shot")[i % 4])
            for values in steps(F, 700):
                both.step(verdict, values, op=("sum", "avg")[i % 2])
            both.remember_alike(verdict)
            kept = both.device.memory.get("weight", {})
            verdict.check(all(isinstance(part, OnDevice) for name, part in kept.items() if name != "step"), text)


@slow
@pytest.mark.parametrize(
    "text", ["feedback(topk:ratio=0.1)", "feedback(int8)", "thc", "diana(int8)", "dgc(topk:ratio=0.1)", "oktopk"]
)
def test_every_dtype_and_shape(fake, comm, monkeypatch, text):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    with Verdict() as verdict:
        for dtype in (*HALF, D):
            both = Both(fake, comm, text, "ring")
            for values in steps(dtype, 2051):
                both.step(verdict, values.reshape(7, 293), str(dtype), op="avg")
            both.step(verdict, np.zeros(0, dtype), key="none")
            both.step(verdict, np.ones((), dtype), key="one")
            both.remember_alike(verdict, str(dtype))


@pytest.mark.parametrize("text", ["feedback(int8)", "feedback(int4:block=32)"])
def test_one_kernel_relays_what_comes_to_a_ring_and_keeps_what_that_loses(fake, comm, monkeypatch, text):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    both = Both(fake, comm, text, "ring")
    with Verdict() as verdict:
        for step, values in enumerate(steps(F, 64 * SIZE)):
            values[:9] = -0.0
            both.step(verdict, values, step)
            both.remember_alike(verdict, step)
        hops = 3 * max(SIZE - 2, 0)
        verdict.check(fake.coded.count("hop") == hops and fake.coded.count("add") == 3 * (SIZE > 1), fake.coded)


def test_regions_that_are_not_full_end_with_zeros(fake, comm, monkeypatch):
    """And with no value that would be sent in another's place."""
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    both = Both(fake, comm, "oktopk:ratio=0.05", "direct")
    with Verdict() as verdict:
        for count in (SIZE - 1, SIZE + 1, 20 * SIZE + 1):
            values = rough(F, count)[RANK]
            values[:1] = 1000
            both.step(verdict, values, count, key=str(count))
        both.remember_alike(verdict)


@slow
@pytest.mark.parametrize("text", ["feedback(topk:ratio=0.1)", "dgc(topk:ratio=0.1)", "oktopk:ratio=0.1"])
def test_a_step_that_is_not_finite_leaves_no_trace(fake, comm, monkeypatch, text):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    both = Both(fake, comm, text, "ring")
    with Verdict() as verdict:
        for step, values in enumerate(steps(F, 3000, 4)):
            if step == 1:
                values[2900] = np.inf if RANK else np.nan
                before = both.device.memory["weight"]["residual"].copy().tobytes()
            if step == 2:
                verdict.check(SIZE > 1 or both.device.memory["weight"]["residual"].copy().tobytes() == before)
            values[:7] = -0.0
            both.step(verdict, values, step)
            both.remember_alike(verdict, step)


@slow
def test_tensors_on_the_way_between_host_and_device(fake, comm, monkeypatch):
    """A checkpoint is of the host; what is remembered goes where the tensor is."""
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    both = Both(fake, comm, "feedback(topk:ratio=0.1)", "ring")
    first, second, third, fourth = steps(F, 500, 4)
    with Verdict() as verdict:
        both.step(verdict, first)
        state = both.device.state_dict()
        verdict.check(type(state["memory"]["weight"]["residual"]) is np.ndarray)
        both.device = compress.get("feedback(topk:ratio=0.1)")
        both.device.load_state_dict(state)
        both.step(verdict, second)
        both.turn(lambda: allreduce.allreduce(third, codec=both.host, key="weight", **both.wishes))
        allreduce.allreduce(third, codec=both.device, key="weight", **both.wishes)
        verdict.check(type(both.device.memory["weight"]["residual"]) is np.ndarray)
        both.remember_alike(verdict, "on the host")
        both.step(verdict, fourth)
        both.remember_alike(verdict, "and back")
        copied = copy.deepcopy(both.device.memory["weight"])
        verdict.equal(copied["residual"], both.host.memory["weight"]["residual"])


@slow
@pytest.mark.parametrize(
    "text", ["feedback(topk:ratio=0.05)", "gtopk:ratio=0.05", "thc", "ef21(int8)", "diana(int8)", "oktopk", "dgc(topk)"]
)
@pytest.mark.parametrize("dtype", [F, HALF[1]], ids=str)
def test_several_tensors_together(fake, comm, monkeypatch, text, dtype):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    both = Both(fake, comm, text, "direct")
    with Verdict() as verdict:
        for step in range(3):
            values = {key: rough(dtype, n, seed=step)[RANK] for key, n in (("a", 5), ("b", 0), ("c", 4099), ("d", 31))}
            if step == 1:
                values["d"][3] = np.nan
            arrays = {key: fake.put(x) for key, x in values.items()}
            views = {key: on_device(array, key) for key, array in arrays.items()}
            both.turn(lambda: average_together(both.host, comm.engine, values, "direct"))  # noqa: B023
            average_together(both.device, comm.engine, views, "direct")
            for key, array in arrays.items():
                verdict.equal(fake.get(array), values[key], text, key, step)
        both.remember_alike(verdict)


def test_streams_are_waited_for(fake, comm, monkeypatch):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    data, one = rough(F, 300), fake.stream()
    with Verdict() as verdict:
        for method in map(compress.get, ("feedback(int8)", "diana(int8)", "thc", "oktopk", "dgc(int8)", "powersgd")):
            send, room = fake.put(data[RANK], one), Array(fake, (300,), F)
            allreduce.allreduce(send, room, codec=method, key="w", stream=one.handle, algorithm="ring", comm=comm)
            verdict.same(fake.get(room, one), str(method))
            verdict.check(method.state_dict()["config"] == str(method))  # read by another stream, which did not wait


def test_where_no_codec_pays_nothing_is_lost(fake, comm):
    """Ranks that map each other's memory."""
    data = rough(F, 300)
    with Verdict() as verdict:
        method, room = compress.get("feedback(topk)"), Array(fake, (300,), F)
        allreduce.allreduce(fake.put(data[RANK]), room, codec=method, key="w", comm=comm)
        verdict.equal(fake.get(room), allreduce.allreduce(data[RANK], comm=comm))
        verdict.check(not comm.engine.channel.together or not method.residual("w").any())


def test_what_is_refused(fake, comm):
    array, turned = fake.put(np.ones(4, F)), fake.put(np.ones((2, 3), F), strides=(4, 8))
    for error, match, send, codec in (
        (TypeError, "sparcml.* is for .* host memory; .* are feedback, gtopk, oktopk, dgc, .*", array, "sparcml(topk)"),
        (TypeError, "elias.* has no kernels for a CUDA device; have .*qsgd", array, "feedback(elias)"),
        (ValueError, "in C order on a device", turned, "feedback(int8)"),
    ):
        with pytest.raises(error, match=match):
            allreduce.allreduce(send, send, codec=codec, key="a", comm=comm)
    with pytest.raises(ValueError, match="route and stream are for arrays on a device"):
        allreduce.allreduce(np.ones(4, F), codec="feedback(int8)", key="a", route="staged", comm=comm)


def test_memory_is_given_back(fake):
    method = compress.get("feedback(int8)")
    with allreduce.Communicator() as comm:
        wishes = {"route": "staged", "algorithm": "ring", "comm": comm}
        allreduce.allreduce(fake.put(np.ones(40, F)), codec=method, key="a", **wishes)
    assert len(fake.memories) == 1
    method.reset()
    assert not fake.memories

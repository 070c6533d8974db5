"""PowerSGD on a device, which is a fake: nearly the sums of host memory, and on all ranks the same."""

import cpu
import numpy as np
import pytest
from test_device_methods import Both, D, F
from witness import HALF, RANK, SIZE, Verdict, rough

import allreduce
import compress
from allreduce.execute.device_arrays import on_device
from allreduce.methods import average_together

UNIT = {F: 2.0**-24, D: 2.0**-53, HALF[0]: 2.0**-11, HALF[1]: 2.0**-8}  # what rounding once may add, relatively
pytestmark = [pytest.mark.mpi, cpu.needs_compiler]


@pytest.mark.parametrize("dtype", [F, D, *HALF], ids=str)
def test_low_rank(fake, comm, monkeypatch, dtype):
    """Nearly the host's sums, the same on all ranks; nothing is lost; what is sent whole has the host's bits."""
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    shapes = {"bias": (30,), "wide": (40, 300), "none": (0, 4), "deep": (270, 3, 11), "one": ()}
    both, near = Both(fake, comm, "powersgd:rank=2", "ring"), 2e-2 if dtype in HALF else 1e-3
    sums, rounded = {key: np.zeros(shape) for key, shape in shapes.items()}, dict.fromkeys(shapes, 0.0)
    with Verdict() as verdict:
        for step in range(3):
            values = {key: rough(dtype, int(np.prod(s)), seed=step)[RANK].reshape(s) for key, s in shapes.items()}
            for key, x in values.items():
                sums[key] += x.astype(float)
            arrays = {key: fake.put(x) for key, x in values.items()}
            views = {key: on_device(array, key) for key, array in arrays.items()}
            both.turn(lambda: average_together(both.host, comm.engine, values, "ring"))  # noqa: B023
            average_together(both.device, comm.engine, views, "ring")
            for key, wanted in values.items():
                result = fake.get(arrays[key])
                verdict.same(result, key, step)
                far = np.abs(result.astype(float) - wanted.astype(float)).max(initial=0)
                whole = key not in ("wide", "deep")
                verdict.check(far <= (0 if whole else near), key, step, far)
                sums[key] -= result.astype(float)
                rounded[key] += SIZE * UNIT[dtype] * np.abs(result.astype(float)).max(initial=0)
        host, device = (method.state_dict()["memory"] for method in (both.host, both.device))
        verdict.check(host.keys() == device.keys() == {"wide", "deep"}, device.keys())
        for key, parts in device.items():
            verdict.check(parts["q"].shape == host[key]["q"].shape)
            verdict.same(parts["q"], key)
            left = allreduce.allreduce(sums[key] - parts["residual"], comm=comm)
            verdict.check(np.abs(left).max() < 1e-3 + rounded[key], key, "is lost", np.abs(left).max(), rounded[key])
        both.host.load_state_dict(both.device.state_dict())


def test_low_rank_goes_on_in_another_dtype(fake, comm, monkeypatch):
    """Factors that are remembered as float32 are not read as float64, nor the other way."""
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    method, exact = compress.get("powersgd"), np.outer(np.arange(1, 41), np.arange(-9, 51))
    with Verdict() as verdict:
        for dtype in (F, D, F):
            send = fake.put(exact.astype(dtype))
            result = fake.get(allreduce.allreduce(send, codec=method, key="w", algorithm="ring", comm=comm))
            verdict.same(result, str(dtype))
            verdict.check(np.allclose(result, SIZE * exact, rtol=1e-4, atol=1e-2), str(dtype), result[:2, :3])
            verdict.check({part.dtype for part in method.memory["w"].values()} == {dtype}, str(dtype))


def test_low_rank_is_exact_where_it_can_be_and_forgets_what_is_not_finite(fake, comm, monkeypatch):
    """After zeros there is no direction to begin with: what is not sent at once is sent next."""
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    method, results, exact = compress.get("powersgd"), [], np.outer(np.arange(1, 41), np.arange(-9, 51)).astype(F)
    with Verdict() as verdict:
        for step, factor in enumerate((1, np.inf, 1, 0, 1, 0)):
            before = {name: part.copy() for name, part in method.memory.get("weight", {}).items()}
            values = exact * F.type(factor)
            result = allreduce.allreduce(fake.put(values), codec=method, key="weight", algorithm="ring", comm=comm)
            results.append(fake.get(result))
            verdict.same(results[-1], step)
            if step == 1:
                verdict.check(not np.isfinite(results[-1]).all())
                for name, part in before.items():
                    verdict.check(method.memory["weight"][name].copy().tobytes() == part.tobytes(), name)
        for found in (results[0], results[2], sum(results[3:])):
            verdict.check(np.allclose(found, SIZE * exact, rtol=1e-4, atol=1e-2), found[:3, :4])

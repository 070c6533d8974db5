"""The kernels of methods with a memory for a GPU, run on the CPU: of many tensors as one vector, with NumPy's bits."""

import cpu
import numpy as np
import pytest
from data import DTYPES, bits, gradients
from memory import guarded

from allreduce.execute.device_kernels import launcher
from compress.kernels_device.memory import THREADS, TILE, rows, source_of, tiles_of
from compress.method import working

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu", "quiet")]
#: With nothing at the ends and between, and around the ends of runs and tiles.
SIZES = (0, 1, TILE, 0, 7, TILE - 1, 8, 9, TILE + 1, 3 * TILE + 5, 0)


@pytest.fixture
def quiet():
    with np.errstate(all="ignore"):
        yield


def at(array):
    return array.ctypes.data


class Launch:
    """All kernels on tensors of a dtype that lie at odd places."""

    def __init__(self, dtype):
        self.dtype, self.wide, kinds = dtype, working(np.empty(0, dtype)), ("gaussian", "mixed", "denormal", "largest")
        self.tensors = [gradients(n, n)[kinds[k % 4]].astype(dtype) for k, n in enumerate(SIZES)]
        self.residuals = [gradients(n, n + 1)["gaussian"].astype(self.wide) for n in SIZES]
        for k in (5, 8):
            self.tensors[k][3:7] = np.nan, -np.nan, np.inf, -0.0
            self.residuals[k][6] = -0.0
        self.x = [guarded(x, k % 3) for k, x in enumerate(self.tensors)]
        self.kept = [guarded(x, k % 2) for k, x in enumerate(self.residuals)]
        self.outs = [guarded(np.zeros_like(x), k % 3) for k, x in enumerate(self.tensors)]
        self.table = guarded(rows(self.x, self.kept, self.outs))

    def run(self, name, *arguments, last=()):
        facts, text = (at(self.table), len(SIZES)), source_of("feedback", self.dtype)
        launcher(text, name, THREADS)(tiles_of(self.table), *map(at, arguments), *facts, *last)

    def vector(self, seed):
        return gradients(sum(SIZES), seed)["gaussian"].astype(self.wide)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_plus_residuals(dtype):
    launch = Launch(dtype)
    values = guarded(np.zeros(sum(SIZES), launch.wide))
    launch.run("wanted", values)
    right = np.concatenate([np.add(x, y, dtype=launch.wide) for x, y in zip(launch.tensors, launch.residuals)])
    assert np.array_equal(bits(values), bits(right))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place, value", [(0, 0.0), (np.cumsum(SIZES)[5] - 1, -np.inf), (sum(SIZES) - 1, np.nan)])
def test_results_are_rounded_and_only_what_is_finite_is_kept(dtype, place, value):
    launch, bad = Launch(dtype), not np.isfinite(value)
    total, lost = launch.vector(1), launch.vector(2)
    lost[place] = value
    sums, left, odd = guarded(total), guarded(lost), guarded(np.zeros(len(SIZES), np.uint64))
    launch.run("finish", sums, left, odd, last=(1,))
    assert odd.tolist() == [bad] * len(SIZES)
    with np.errstate(all="ignore"):
        rounded = total.astype(dtype)
        wanted = lost + (total - rounded.astype(launch.wide)) if dtype != launch.wide else lost
    assert np.array_equal(bits(np.concatenate(launch.outs)), bits(rounded))
    assert np.array_equal(bits(left), bits(wanted))
    odd[3] = 1  # as where tensors are remembered one by one
    launch.run("keep", left, odd)
    parts = np.split(left, np.cumsum(SIZES)[:-1])
    for k, (kept, before, part) in enumerate(zip(launch.kept, launch.residuals, parts)):
        assert np.array_equal(kept, before if bad or k == 3 else part), k

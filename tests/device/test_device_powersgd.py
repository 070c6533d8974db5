"""The kernels of PowerSGD for a GPU, run on the CPU, against NumPy in float64: of many matrices at once."""

import cpu
import numpy as np
import pytest
from data import DTYPES, bits, gradients
from memory import guarded

from compress.kernels_device.powersgd import launches, rooms_of, source_of, table_of
from compress.method import working

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu")]
#: Around the ends of tiles of rows, of patches, and of warps.
SIZES = [(9, 8), (6, 33), (257, 31), (6, 300), (256, 32), (513, 65)]


def parts_of(vector, sizes):
    return [part.reshape(size) for part, size in zip(np.split(vector, np.cumsum(list(map(np.prod, sizes)))), sizes)]


class Launch:
    """All kernels, on matrices of a dtype, with what they work on at odd places."""

    def __init__(self, dtype, rank, sizes=SIZES, seed=0):
        self.dtype, self.rank, self.sizes, wide = dtype, rank, sizes, working(np.empty(0, dtype))
        self.vectors = [guarded(np.full(count, np.nan, wide), k) for k, count in enumerate(rooms_of(sizes, rank))]
        rights = [(columns, rank) for _, columns in sizes]
        values, _, own, total = self.vectors
        self.ms, self.own, self.total = parts_of(values, sizes), parts_of(own, rights), parts_of(total, rights)
        for k, m in enumerate(self.ms):
            m[...] = gradients(m.size, seed + k)["gaussian"].reshape(m.shape)
        rng = np.random.default_rng(seed)
        self.ps = [guarded(rng.standard_normal((rows, rank)).astype(wide), 1) for rows, _ in sizes]
        self.qs = [guarded(rng.standard_normal(right).astype(wide), 1) for right in rights]
        self.outs = [guarded(np.zeros(size, dtype), 1) for size in sizes]
        facts, blocks = table_of(sizes, rank, self.vectors, self.ps, self.qs, self.outs)
        self.table, self.odd = guarded(facts), guarded(np.zeros(len(sizes), np.uint64))
        self.run = launches(source_of(dtype, rank), blocks, self.table, len(sizes))
        self.close = {"rtol": 0, "atol": 3000 * float(np.finfo(wide).eps)}


def exact(*arrays):
    return [array.astype(np.float64) for array in arrays]


@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_step(dtype, rank):
    launch = Launch(dtype, rank)
    launch.run("multiply")
    for m, p, q in zip(launch.ms, launch.ps, launch.qs):
        wide_m, wide_q = exact(m, q)
        assert np.allclose(p, wide_m @ wide_q, **launch.close)
    before = exact(*launch.ps)
    launch.run("orthonormalise")
    for p, first in zip(exact(*launch.ps), before):
        assert np.allclose(p.T @ p, np.eye(rank), **launch.close)
        assert np.allclose(p @ (p.T @ first), first, **launch.close), "of the same columns"
    launch.run("multiply_turned")
    launch.run("add_parts")
    for m, p, own, total in zip(launch.ms, launch.ps, launch.own, launch.total):
        wide_m, wide_p = exact(m, p)
        assert np.allclose(own, wide_m.T @ wide_p, **launch.close)
        assert np.array_equal(bits(own), bits(total))
        total *= 3  # of three ranks that have the same
    before = exact(*launch.ms)
    launch.total[2][7, 0] = np.inf
    launch.ms[4][255, 31] = np.nan
    launch.run("approximate", launch.odd)
    assert launch.odd.tolist() == [0, 0, 1, 0, 1, 0]
    for k in np.flatnonzero(launch.odd == 0):
        p, own, total = exact(launch.ps[k], launch.own[k], launch.total[k])
        assert np.allclose(launch.ms[k], before[k] - p @ own.T, **launch.close)
        step = float(np.spacing(np.abs(launch.outs[k]).max())) + launch.close["atol"]
        assert np.allclose(launch.outs[k].astype(float), p @ total.T, rtol=0, atol=step)
    kept = [q.copy() for q in launch.qs]
    launch.run("keep_factors", launch.odd)
    for q, first, total, odd in zip(launch.qs, kept, launch.total, launch.odd):
        assert np.array_equal(q, first if odd else total)


def test_what_has_no_direction_of_its_own_gets_one():
    """Zeros, columns that are alike but for rounding, one value, values whose squares are none, too many of one."""
    rows, rank, tiny = 300, 3, np.float32(1e-42)
    u, v = np.random.default_rng(1).standard_normal((2, rows)).astype(np.float32)
    zero, first, third = np.zeros(rows, np.float32), np.eye(1, rows, dtype=np.float32)[0], np.zeros(rows, np.float32)
    third[2] = 2
    cases = [
        (zero, zero, zero), (u, 3 * u, u / 7), (first, zero, third), (u * tiny, v * 1e30, u * 1e30),
        (u, u + 1e-7 * v, v), (first, 5 * first, third),
    ]  # fmt: skip
    launch = Launch(np.dtype("f"), rank, [(rows, 8)] * len(cases))
    for p, columns in zip(launch.ps, cases):
        p[...] = np.stack(columns, 1)
    launch.run("orthonormalise")
    for case, (p, columns) in enumerate(zip(exact(*launch.ps), cases)):
        assert np.allclose(p.T @ p, np.eye(rank), atol=1e-5), case
        for column in exact(*columns):
            assert np.allclose(p @ (p.T @ column), column, atol=1e-5 * np.abs(column).max()), case


def test_what_is_no_number_stays_none():
    launch = Launch(np.dtype("f"), 2, [(40, 40)] * 2)
    launch.ps[0][3, 0], launch.ps[1][39, 1] = np.nan, np.inf
    launch.run("orthonormalise")
    assert np.isnan(launch.ps[0]).all() and np.isnan(launch.ps[1][:, 1]).all()


def test_bits_are_those_of_each_matrix_alone():
    whole = Launch(np.dtype("f"), 2)
    alone = [Launch(np.dtype("f"), 2, [size]) for size in SIZES]
    for k, one in enumerate(alone):
        for mine, theirs in ((one.ms[0], whole.ms[k]), (one.qs[0], whole.qs[k])):
            mine[...] = theirs
    for launch in (whole, *alone):
        for name in ("multiply", "orthonormalise", "multiply_turned", "add_parts"):
            launch.run(name)
        launch.run("approximate", launch.odd)
    for k, one in enumerate(alone):
        for name in ("ps", "own", "ms", "outs"):
            assert np.array_equal(bits(getattr(one, name)[0]), bits(getattr(whole, name)[k])), (name, k)

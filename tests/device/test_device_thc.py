"""The kernels of `thc` for a GPU, run on the CPU, against the method: the same peaks, codes and values."""

import cpu
import numpy as np
import pytest
from data import DTYPES, bits, gradients
from memory import guarded

import compress
from compress import Context
from compress.kernels_device.thc import thc_kernels

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu")]
#: Ranks are many where codes of 8 or 16 bits hold no sum.
CASES = [("thc", dtype, 1) for dtype in DTYPES] + [
    ("thc:width=8,block=8", DTYPES[0], 2),
    ("thc:width=2,block=2048,rounding=correlated", DTYPES[0], 64),
    ("thc:width=8,block=1024,seed=3", DTYPES[0], 1000),
]


def at(array):
    return array.ctypes.data


def inputs(block, dtype):
    """Around the ends of runs, blocks and tiles; with blocks of no numbers, of zeros and of too small steps."""
    tile = max(2048, block)
    for n in sorted({1, 7, 8, 9, block - 1, block, block + 1, tile - 1, tile, tile + 1, 2 * tile + block + 9}):
        kinds = gradients(n, seed=n)
        for name in ("gaussian", "mixed", "denormal"):
            yield kinds[name].astype(dtype)
    x = kinds["gaussian"].astype(dtype)
    x[3], x[tile], x[block + 1 : 2 * block] = np.nan, -np.inf, 0
    yield x


@pytest.mark.parametrize("text, dtype, size", CASES, ids=str)
@np.errstate(all="ignore")
def test_every_part_is_that_of_the_method(text, dtype, size):
    method = compress.get(text)
    kernels, place = thc_kernels(method, dtype, size), Context(step=5, offset=2**32 - 2**10, rank=3, size=size)
    for k, x in enumerate(inputs(method.block, dtype)):
        n, seen, shift = x.size, [], k % 3

        def allreduce(values, op="sum", seen=seen):
            """Of ranks that have the same peaks, and codes that fill what holds their sum."""
            seen.append(values)
            seen.append(values if op == "max" else values * values.dtype.type(min(size, 2)))
            return seen[-1]

        right = method.reduce(x, allreduce, "weight", place)
        peaks, _, codes, sums = seen
        assert codes.dtype == kernels.codes
        source, steps, out = guarded(x, shift), guarded(np.zeros_like(peaks), 1), guarded(np.zeros_like(codes), shift)
        kernels.peaks(at(steps), at(source), n)
        assert np.array_equal(bits(steps), bits(peaks))
        kernels.quantise(at(out), at(source), at(steps), place.offset, n, place.stream)
        assert np.array_equal(out, codes), (n, k)
        back, total = guarded(np.zeros_like(x), shift), guarded(sums, shift)
        kernels.restore(at(back), at(total), at(steps), n)
        assert np.array_equal(bits(back), bits(right)), (n, k)

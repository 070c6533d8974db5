"""How a GPU finds the largest values, run on the CPU, against the host: the same messages, the same bits back."""

import cpu
import numpy as np
import pytest
from data import DTYPES, bits, decoded, gradients
from memory import guarded

import compress
from allreduce.execute.device_kernels import launcher
from compress.kernels_device import selection
from compress.kernels_device.selection import SCRATCH, topk_kernels

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu", "quiet")]
TILE = selection.TILE


@pytest.fixture
def quiet():
    with np.errstate(all="ignore"):
        yield


def inputs(dtype):
    """Arrays of every kind, with many ties, of one value and of no numbers; around the ends of runs, tiles and all."""
    for k, n in enumerate((1, 7, 8, 9, TILE - 1, TILE, TILE + 1, 3 * TILE + 5)):
        kinds = gradients(n, seed=n)
        for x in list(kinds.values())[k % 3 :: 3]:
            yield x.astype(dtype)
        yield np.round(kinds["gaussian"]).astype(dtype)
    yield np.full(2 * TILE + 3, -2, dtype)
    x = kinds["gaussian"].astype(dtype)
    x[5::97], x[3::101], x[4] = np.nan, -np.inf, -0.0
    yield x


def at(array):
    return array.ctypes.data


@pytest.mark.parametrize("ratio", [0.01, 0.1, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_topk(dtype, ratio):
    codec = compress.get("topk", ratio=ratio)
    kernels = topk_kernels(codec, dtype)
    for k, x in enumerate(inputs(dtype)):
        n, right = x.size, codec.encode(x)
        message, scratch = guarded(np.zeros_like(right)), guarded(np.full(SCRATCH, 0xA5, np.uint8))
        source = guarded(x, k % 3)
        kernels.encode(at(message), at(source), n, at(scratch))
        assert message.tobytes() == right.tobytes(), (n, k)
        back, start = guarded(np.zeros_like(x)), gradients(n, seed=1)["gaussian"].astype(dtype)
        kernels.decode.call(at(back), at(message), 0, n, 0)
        assert np.array_equal(bits(back), bits(decoded(codec, right, x)))
        total, term, out = codec.decode(right, start.copy(), add=True), guarded(start), guarded(np.zeros_like(x), 1)
        for target in (out, term):
            kernels.add.call(at(target), at(term), at(message), n, 0)
            assert np.array_equal(bits(target), bits(total))

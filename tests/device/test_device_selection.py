"""How a GPU finds the largest values, run on the CPU, against the host: the same messages, the same bits back."""

import ctypes

import cpu
import numpy as np
import pytest
from data import DTYPES, bits, decoded, gradients
from memory import guarded

import compress
from compress.kernels_device import selection
from compress.kernels_device.selection import SCRATCH, spread
from compress.kernels_device.sparse import encode, topk_kernels

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


@pytest.mark.parametrize("dtype, ratio", [*((d, 0.01) for d in DTYPES), (DTYPES[0], 0.1), (DTYPES[2], 1)], ids=str)
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


@pytest.mark.parametrize("text", ["threshold:least=0.5", "sampled:ratio=0.05", "sampled:ratio=0.002"])
def test_codecs_of_varying_length(text):
    codec, taken = compress.get(text), set()
    for x in inputs(np.dtype(np.float32)):
        n, right = x.size, codec.encode(x)
        message, scratch = guarded(np.zeros(codec.nbytes(n), np.uint8)), guarded(np.zeros(SCRATCH, np.uint8))
        nbytes = encode(codec, x.dtype, at(message), at(x), n, at(scratch), ctypes.string_at)
        assert message[:nbytes].tobytes() == right.tobytes()
        taken.add(nbytes // 8)
        total, out = gradients(n, seed=1)["gaussian"], guarded(np.zeros_like(x))
        spread(x.dtype, at(out), at(total), at(message), nbytes // 8, n)
        assert np.array_equal(bits(out), bits(codec.decode(right, total.copy(), add=True)))
    assert len(taken) > 4


def test_long_arrays(monkeypatch):
    """Few blocks, of many tiles each; and indices of eight bytes."""
    x, codec = gradients(7 * TILE + 11)["gaussian"], compress.get("topk:ratio=0.1")
    kernels, right, k = topk_kernels(codec, x.dtype), codec.encode(x), codec.nbytes(x.size) // 8
    scratch, message, wide = np.zeros(SCRATCH, np.uint8), np.zeros(8 * k, np.uint8), np.zeros(12 * k, np.uint8)
    monkeypatch.setattr(selection, "MOST_BLOCKS", 3)
    kernels.encode(at(message), at(x), x.size, at(scratch))
    assert message.tobytes() == right.tobytes()
    monkeypatch.setattr(selection, "WIDE", 1000)
    kernels.encode(at(wide), at(x), x.size, at(scratch))
    assert (wide[: 8 * k].view(np.uint64) == right[: 4 * k].view(np.uint32)).all()
    assert (wide[8 * k :] == right[4 * k :]).all()
    back = np.zeros_like(x)
    kernels.decode.call(at(back), at(wide), 0, x.size, 0)
    assert (back == decoded(codec, right, x)).all()


def test_damaged_indices_write_nothing():
    codec = compress.get("topk:ratio=0.5")
    message = codec.encode(np.arange(8, dtype=np.float32))
    message[:16].view(np.uint32)[:] = [8, 2**31, 2**32 - 1, 3]
    out = guarded(np.zeros(8, np.float32))
    topk_kernels(codec, out.dtype).decode.call(at(out), at(message), 0, 8, 0)
    assert out.tolist() == [0, 0, 0, 7, 0, 0, 0, 0]

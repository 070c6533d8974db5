"""Codecs of single values, and of single blocks, for a GPU, run on the CPU, against the host: the same bits."""

import ctypes

import cpu
import numpy as np
import pytest
from data import DTYPES, bits, decoded, gradients
from memory import guarded

import compress
from allreduce.execute import reductions
from compress import Context
from compress.kernels_device import bounded, selection
from compress.kernels_device.lookup import coding

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu", "quiet")]
TILE = selection.TILE
AT = Context(step=5, offset=2**32 - 2**20, rank=3, size=4)
CASES = [
    *(("topk:ratio=0.01", dtype) for dtype in DTYPES), ("topk:ratio=0.1", DTYPES[0]), ("topk:ratio=1", DTYPES[2]),
    *(("blocktopk:ratio=0.3,block=16", dtype) for dtype in DTYPES), ("blocktopk:ratio=0.01,block=256", DTYPES[0]),
    ("blocktopk:ratio=0.4,block=8192", DTYPES[0]),
    *(("randomk:ratio=0.2", dtype) for dtype in DTYPES), ("randomk:ratio=0.003,unbiased=False", DTYPES[0]),
    ("randomk:ratio=1", DTYPES[0]), ("randomk:ratio=0.02,seed=7", DTYPES[2]),
]  # fmt: skip


@pytest.fixture
def quiet():
    with np.errstate(all="ignore"):
        yield


def inputs(dtype):
    """Arrays of every kind, with many ties, of one value and of no numbers; around the ends of runs, tiles and all."""
    yield np.empty(0, dtype)
    for k, n in enumerate((1, 7, 8, 9, 257, TILE - 1, TILE, TILE + 1, 3 * TILE + 5)):
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


def placed(kernels, message):
    """A copy of a message, aligned as it must be."""
    return guarded(message, shift=-message.size % kernels.alignment)


def scratch_of(kernels, count):
    return guarded(np.full(-(-kernels.scratch(count) // 8), -1))


def encoded(codec, x, nbytes, shift=0):
    """A message as the device makes it, of values that lie at an odd place."""
    kernels = coding(codec, x.dtype)
    message = placed(kernels, np.zeros(nbytes, np.uint8))
    scratch, source = scratch_of(kernels, x.size), guarded(x, shift)
    taken = kernels.encode(at(message), at(source), x.size, AT, at(scratch), ctypes.string_at)
    return message[:taken]


def check(codec, x, right, shift=0):
    """The message is that of the host, and so is what it decodes to."""
    kernels, n = coding(codec, x.dtype), x.size
    message, scratch = placed(kernels, encoded(codec, x, codec.nbytes(n), shift)), scratch_of(kernels, n)
    assert message.tobytes() == right.tobytes(), n
    back, start = guarded(np.zeros_like(x)), gradients(n, seed=1)["gaussian"].astype(x.dtype)
    kernels.decode(at(back), 0, at(message), message.size, n, at(scratch))
    assert np.array_equal(bits(back), bits(decoded(codec, right, x)))
    total, term, out = codec.decode(right, start.copy(), add=True), guarded(start), guarded(np.zeros_like(x), 1)
    for target in (out, term):
        kernels.decode(at(target), at(term), at(message), message.size, n, at(scratch))
        assert np.array_equal(bits(target), bits(total))
    if kernels.rest:
        left, source = guarded(np.zeros_like(x)), guarded(x, 1)
        for target in (left, source):
            kernels.rest(at(target), at(source), at(message), message.size, n, at(scratch))
            assert np.array_equal(bits(target), bits(rest(codec, right, x)))


def rest(codec, message, x):
    """What a message lacks of values, by the host's own way or else by decoding."""
    left, own = np.zeros_like(x), codec.kernels(x.dtype)
    if own and own.rest:
        own.rest.call(at(left), at(x), at(message), x.size, 0)
    else:
        back = decoded(codec, message, x)
        reductions.difference(x.dtype).call(at(left), at(x), at(back), x.size, 0)
    return left


@pytest.mark.parametrize("text, dtype", CASES, ids=str)
def test_messages_and_values_are_those_of_the_host(text, dtype):
    codec = compress.get(text)
    for k, x in enumerate(inputs(dtype)):
        check(codec, x, codec.encode(x, at=AT), shift=k % 3)


VARYING = [(text, DTYPES[0]) for text in ("threshold:least=0.5", "sampled:ratio=0.05", "sampled:ratio=0.002")]
VARYING += [("bounded:eb=0.02", dtype) for dtype in DTYPES] + [("bounded:eb=1e-7", DTYPES[1])]


@pytest.mark.parametrize("text, dtype", VARYING, ids=str)
def test_codecs_of_varying_length(text, dtype):
    codec, lengths = compress.get(text), set()
    for x in inputs(dtype):
        right = codec.encode(x)
        check(codec, x, right)
        lengths.add(right.size)
    assert len(lengths) > 4


@pytest.mark.parametrize("text", ["topk:ratio=0.1", "blocktopk:ratio=0.1,block=8", "randomk:ratio=0.1", "bounded"])
def test_long_arrays(text, monkeypatch):
    """Few blocks of threads, of many tiles each."""
    x, codec = gradients(7 * TILE + 11)["gaussian"], compress.get(text)
    monkeypatch.setattr(selection, "MOST_BLOCKS", 3)
    monkeypatch.setattr(bounded, "MOST_BLOCKS", 3)
    check(codec, x, codec.encode(x, at=AT))


def test_indices_of_eight_bytes(monkeypatch):
    x, codec = gradients(7 * TILE + 11)["gaussian"], compress.get("topk:ratio=0.1")
    right, k = codec.encode(x), codec.nbytes(x.size) // 8
    monkeypatch.setattr(selection, "WIDE", 1000)
    message = guarded(np.zeros(12 * k, np.uint8), shift=-12 * k % 8)
    back, scratch = np.zeros_like(x), np.zeros(selection.SCRATCH // 8)
    coding(codec, x.dtype).encode(at(message), at(x), x.size, AT, at(scratch), ctypes.string_at)
    assert (message[: 8 * k].view(np.uint64) == right[: 4 * k].view(np.uint32)).all()
    assert (message[8 * k :] == right[4 * k :]).all()
    selection.spread(x.dtype, at(back), 0, at(message), k, x.size)
    assert (back == decoded(codec, right, x)).all()


def test_damaged_indices_write_nothing():
    codec = compress.get("topk:ratio=0.5")
    message = codec.encode(np.arange(8, dtype=np.float32))
    message[:16].view(np.uint32)[:] = [8, 2**31, 2**32 - 1, 3]
    out = guarded(np.zeros(8, np.float32))
    coding(codec, out.dtype).decode(at(out), 0, at(message), message.size, 8, 0)
    assert out.tolist() == [0, 0, 0, 7, 0, 0, 0, 0]


def test_damaged_numbers_of_blocks_write_nothing():
    codec = compress.get("blocktopk:ratio=1,block=8")
    message = codec.encode(np.ones(32, np.float32))
    message[:16].view(np.uint32)[:] = [4, 2**31, 2**32 - 1, 1]
    out = guarded(np.zeros(32, np.float32))
    coding(codec, out.dtype).decode(at(out), 0, at(message), message.size, 32, 0)
    assert out.tolist() == [0] * 8 + [1] * 8 + [0] * 16


def test_damaged_records_write_nothing_elsewhere():
    codec, x = compress.get("bounded:eb=0.02"), gradients(4000)["gaussian"]
    kernels, right = coding(codec, x.dtype), codec.encode(x)
    rng = np.random.default_rng(0)
    for cut in (0, 1, 40, right.size // 2):
        message = placed(kernels, right[: right.size - cut])
        message[rng.integers(0, message.size, 3 * (cut % 2))] = rng.integers(0, 256, 3 * (cut % 2))
        out, scratch = guarded(np.zeros_like(x)), scratch_of(kernels, x.size)
        kernels.decode(at(out), 0, at(message), message.size, x.size, at(scratch))
        assert cut or np.array_equal(bits(out), bits(decoded(codec, right, x)))

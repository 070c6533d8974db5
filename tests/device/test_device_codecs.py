"""The kernels of codecs for a GPU, run on the CPU, against those of the host: the same messages, the same bits back."""

import cpu
import numpy as np
import pytest
from data import DTYPES, SOME, bits, decoded, gradients
from memory import guarded

import compress
from allreduce.execute import reductions
from compress import Context
from compress.kernels_device.blocks import block_kernels

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu", "quiet")]
CONFIGS = [
    "int8", "int6", "int5:block=8", "int4:block=32", "int3:rounding=stochastic", "int3:rounding=correlated", "int2",
    "terngrad", "qsgd:width=4", "qsgd:block=1024", "fp8", "fp8:format=e5m2,block=16", "mxfp8", "float16", "bfloat16",
    "sign:block=64", "sign", "natural", "dynamic", "dynamic:bits=3", "dynamic:bits=7.5",
    "spikes:width=3", "spikes:block=128,rounding=stochastic", "spikes:block=8",
    "eden:block=64", "eden:width=1,block=8", "eden:width=1,block=256", "eden:width=3,block=2048",
]  # fmt: skip
CASES = [(text, dtype) for text in CONFIGS for dtype in (DTYPES if text in SOME else DTYPES[:1])]
CASES += [("dynamic", DTYPES[2]), ("spikes:width=3", DTYPES[1]), ("spikes:width=3", DTYPES[2])]
EVERY = pytest.mark.parametrize("text, dtype", CASES, ids=str)
AT = Context(step=5, offset=2**32 - 2**20, rank=3, size=4)


@pytest.fixture
def quiet():
    with np.errstate(all="ignore"):
        yield


def sizes(codec):
    """Around the ends of a thread's run, of a block, and of a tile; and parts of a block, which leave threads idle."""
    block, tile = codec.strip, max(2048, codec.strip)
    ends = {block - 1, block, block + 1, tile - 1, tile, tile + 1, tile + block + 9}
    return sorted({0, 1, 7, 8, 9, 21, 51, 129, 300, *ends})


def inputs(codec, dtype):
    """Arrays of every kind in turn, at every size, and two that hold no numbers."""
    for k, n in enumerate(sizes(codec)):
        kinds = gradients(n, seed=n)
        for x in list(kinds.values())[k % 4 :: 4]:
            yield x.astype(dtype)
    for odd in (np.nan, np.inf):
        x = gradients(n)["gaussian"].astype(dtype)
        x[n // 2] = odd
        yield x


def at(array):
    return array.ctypes.data


@EVERY
def test_messages_and_values_are_those_of_the_host(text, dtype):
    codec = compress.get(text)
    kernels = block_kernels(codec, dtype)
    for k, x in enumerate(inputs(codec, dtype)):
        n, shift = x.size, k % 16
        right = codec.encode(x, at=AT)
        source, message = guarded(x, shift % 3), guarded(np.zeros_like(right), shift)
        kernels.encode.call(at(message), at(source), AT.offset, n, AT.stream)
        assert message.tobytes() == right.tobytes(), (n, k)
        back = guarded(np.zeros_like(x), shift % 2)
        kernels.decode.call(at(back), at(message), 0, n, 0)
        assert np.array_equal(bits(back), bits(decoded(codec, right, x)))
        start = gradients(n, seed=1)["gaussian"].astype(dtype)
        total = codec.decode(right, start.copy(), add=True)
        out, term = guarded(np.zeros_like(x)), guarded(start)
        for target in (out, term):
            kernels.add.call(at(target), at(term), at(message), n, 0)
            assert np.array_equal(bits(target), bits(total))


@EVERY
def test_what_a_message_lacks_is_left(text, dtype):
    """By a kernel of its own, or by that which encodes."""
    codec = compress.get(text)
    kernels, difference = block_kernels(codec, dtype), reductions.difference(np.dtype(dtype))
    for k, x in enumerate(list(inputs(codec, dtype))[1::2]):
        n, right = x.size, codec.encode(x, at=AT)
        left, back = np.zeros_like(x), decoded(codec, right, x)
        difference.call(at(left), at(x), at(back), n, 0)
        source, message, out = guarded(x, k % 3), guarded(right, k % 16), guarded(np.zeros_like(x), k % 2)
        kernels.rest.call(at(out), at(source), at(message), n, 0)
        assert np.array_equal(bits(out), bits(left)), (n, k)
        again = guarded(np.zeros_like(right), k % 5)
        kernels.losing.call(at(again), at(source), AT.offset, n, AT.stream)
        assert again.tobytes() == right.tobytes() and np.array_equal(bits(source), bits(left)), (n, k)


@EVERY
def test_a_hop_is_decode_add_encode_and_leaves_what_is_lost(text, dtype):
    codec = compress.get(text)
    kernels, difference = block_kernels(codec, dtype), reductions.difference(np.dtype(dtype))
    total_of, _ = reductions.reduction(np.dtype(dtype), "sum")
    for k, x in enumerate(list(inputs(codec, dtype))[::2]):
        n, place = x.size, (AT.offset, x.size, AT.stream)
        start = gradients(n, seed=1)["heavy-tailed"].astype(dtype)
        for same in (x, start):
            same[: n // 9] = -0.0
        received = codec.encode(x, at=AT)
        total = codec.decode(received, start.copy(), add=True)
        right = codec.encode(total, at=AT)
        left, back, nothing = np.zeros_like(x), decoded(codec, right, x), np.zeros_like(x)
        difference.call(at(left), at(total), at(back), n, 0)
        total_of.call(at(left), at(nothing), at(left), n, 0)  # there are several kernels on the host
        term, message = guarded(start, k % 3), guarded(received, k)
        for hop, values in ((kernels.hop, start), (kernels.hop_losing, left)):
            out = guarded(np.zeros_like(right), k % 5)
            hop(at(out), at(term), at(message), *place)
            assert out.tobytes() == right.tobytes(), (n, k)
            assert np.array_equal(bits(term), bits(values)), (n, k)

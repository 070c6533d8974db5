"""What every codec promises."""

import contextlib
from itertools import pairwise

import numpy as np
import pytest
from data import CODECS, DTYPES, SOME, bits, decoded, gradients

from compress import Context
from compress.eden import Eden
from compress.randomk import RandomK

EVERY = pytest.mark.parametrize("codec", CODECS.values(), ids=str)
#: Past the end of a message and of an array, which must stay as it was.
GUARD = 16
#: One of every kind that is not in SOME.
OTHERS = [
    "dynamic", "elias:levels=10,block=256", "spikes:width=3", "natural", "sampled:ratio=0.05",
    "blocktopk:ratio=0.3,block=16", "randomk:ratio=0.2", "eden:width=1,block=8",
]  # fmt: skip


def sizes(codec):
    b = max(codec.block, 2)
    return sorted({0, 1, 7, b - 1, b, b + 1, 3 * b + 5, 997})


@EVERY
def test_message_has_the_promised_size_and_nothing_else_is_written(codec):
    for n in sizes(codec):
        x = gradients(n)["gaussian"]
        room = np.full(codec.nbytes(n) + GUARD, 0xA5, np.uint8)
        message = codec.encode(x, out=room)
        assert message.size == codec.nbytes(n) if codec.exact_size else message.size <= codec.nbytes(n)
        assert (room[codec.nbytes(n) :] == 0xA5).all()
        assert np.shares_memory(message, room) or message.size == 0
        target = np.full(n + GUARD, 7, np.float32)
        assert codec.decode(message, target[:n]) is not None
        assert (target[n:] == 7).all()
        assert codec.encode(x).tobytes() == message.tobytes()


@EVERY
def test_bits_per_value_count_everything(codec):
    assert codec.bits == 8 * codec.nbytes(1 << 20) / (1 << 20)
    assert codec.nbytes(0) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", SOME)
def test_decode_and_add_is_decode_then_add(text, dtype):
    codec = CODECS[text]
    for n in sizes(codec):
        for x in gradients(n).values():
            with np.errstate(over="ignore"):
                x = x.astype(dtype)
            start = gradients(n, seed=1)["gaussian"].astype(dtype)
            message = codec.encode(x)
            with np.errstate(over="ignore"):
                expected = start + decoded(codec, message, x)
            assert np.array_equal(bits(codec.decode(message, start.copy(), add=True)), bits(expected))


@EVERY
def test_decode_and_add_is_decode_then_add_in_float32(codec):
    for n in sizes(codec):
        x, start = gradients(n)["mixed"], gradients(n, seed=1)["gaussian"]
        message = codec.encode(x)
        expected = start + decoded(codec, message, x)
        assert np.array_equal(bits(codec.decode(message, start.copy(), add=True)), bits(expected))


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("text", OTHERS)
def test_values_of_every_dtype_are_those_of_float32(text, dtype):
    """The message is that of the values in float32, and what it decodes to is rounded to the dtype."""
    codec = CODECS[text]
    x = gradients(codec.block + 37)["gaussian"].astype(dtype)
    message = codec.encode(x)
    assert message.tobytes() == codec.encode(x.astype(np.float32)).tobytes()
    wanted = decoded(codec, message, x.astype(np.float32)).astype(dtype)
    assert np.array_equal(bits(decoded(codec, message, x)), bits(wanted))
    error = np.abs(decoded(codec, message, x).astype(float) - x.astype(float))
    assert (error <= codec.bound(x)).all()


@EVERY
def test_bounds_hold_of_values_below_the_smallest_of_float32(codec):
    for exponent in range(-46, -36):
        x = np.random.default_rng(exponent + 99).standard_normal(codec.block + 37) * 10.0**exponent
        error = np.abs(decoded(codec, codec.encode(x), x) - x)
        assert (error <= codec.bound(x)).all(), exponent


def test_every_kind_of_codec_is_tried_with_every_dtype():
    assert {type(CODECS[text]) for text in (*SOME, *OTHERS)} == set(map(type, CODECS.values()))


@EVERY
def test_messages_of_parts_make_the_message_of_the_whole(codec):
    if not codec.chunkable:
        pytest.skip("chooses among all values of a call")
    b = codec.block
    x = gradients(5 * b + 3)["gaussian"]
    at = Context(step=5, offset=b * (2**32 // b - 1), rank=3, size=4)
    whole = codec.encode(x, at=at)
    for cuts in ([0, b, 3 * b, x.size], [0, 2 * b, 2 * b, 5 * b, x.size]):
        parts = [codec.encode(x[i:j], at=at._replace(offset=at.offset + i)).tobytes() for i, j in pairwise(cuts)]
        assert b"".join(parts) == whole.tobytes()


@EVERY
def test_random_numbers_depend_on_step_place_and_rank(codec):
    x = gradients(4 * codec.block + 64)["gaussian"]
    message = codec.encode(x, at=Context(step=1))
    for at in (Context(step=2), Context(step=1, offset=codec.block), Context(step=1, rank=1)):
        agreed = isinstance(codec, RandomK) and at.rank > 0  # all ranks send the same places
        assert (codec.encode(x, at=at).tobytes() != message.tobytes()) == (codec.random and not agreed)
    assert codec.encode(x, at=Context(step=1)).tobytes() == message.tobytes()


@EVERY
def test_zeros_are_exact(codec):
    for n in sizes(codec):
        for zero in (0.0, -0.0):
            x = np.full(n, zero, np.float32)
            assert not decoded(codec, codec.encode(x), x).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@EVERY
def test_what_is_not_finite_is_seen_and_stays_in_its_block(codec, bad):
    b = codec.block
    x = gradients(4 * b + 3)["gaussian"]
    clean = decoded(codec, codec.encode(x), x)
    for where in (0, b, 2 * b - 1, x.size - 1):
        y = x.copy()
        y[where] = bad
        out = decoded(codec, codec.encode(y), y)
        assert not np.isfinite(out if isinstance(codec, RandomK) else out[where]).all()
        others = np.arange(x.size) // b != where // b
        if codec.chunkable:
            assert np.array_equal(bits(out[others]), bits(clean[others]))
        assert np.isnan(out).sum() <= b


@EVERY
def test_error_is_within_the_bound(codec):
    for n in (1, 3 * codec.block + 5, 4099):
        for name, x in gradients(n).items():
            out = decoded(codec, codec.encode(x, at=Context(step=n)), x)
            assert np.isfinite(out).all(), name
            error, bound = np.abs(out.astype(np.float64) - x), codec.bound(x)
            assert (error <= bound).all(), (name, (error - bound).max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", SOME)
def test_error_is_within_the_bound_in_every_dtype(text, dtype):
    codec = CODECS[text]
    top = float(np.float32(3.0e38)) if dtype.itemsize != 2 or dtype.kind == "V" else 65504.0
    for name, x in gradients(3 * codec.block + 501).items():
        x = np.clip(x.astype(np.float64), -top, top).astype(dtype)
        out = decoded(codec, codec.encode(x), x)
        assert np.isfinite(out).all(), name
        assert (np.abs(out.astype(np.float64) - x.astype(np.float64)) <= codec.bound(x)).all(), name


@pytest.mark.parametrize("text", ["topk:ratio=0.1", "sampled:ratio=0.05"])
def test_the_largest_are_those_of_float32(text):
    x = 1 + np.arange(100) * 1e-12
    codec = CODECS[text]
    assert (np.abs(decoded(codec, codec.encode(x), x) - x) <= codec.bound(x)).all()


@EVERY
def test_the_bound_is_not_far_from_the_error(codec):
    x = gradients(20000)["gaussian"]
    error = np.abs(decoded(codec, codec.encode(x), x).astype(np.float64) - x)
    rotated = isinstance(codec, Eden)  # its bound holds for the worst rotation
    assert codec.lossless or rotated or error.max() > 0.4 * codec.bound(x).max()


@EVERY
def test_decoding_is_idempotent_where_promised(codec):
    many = 2000 * codec.block  # what happens to one block in hundreds is seen, too
    for n in (*sizes(codec), many) if codec.idempotent else ():
        for name, x in gradients(n).items():
            first = decoded(codec, codec.encode(x), x)
            again = decoded(codec, codec.encode(first, at=Context(step=9)), x)
            assert np.array_equal(bits(first), bits(again)), name


@EVERY
def test_the_mean_over_steps_is_the_value_where_promised(codec):
    x = np.concatenate([v[:160] for k, v in gradients(160).items() if k in ("gaussian", "heavy-tailed", "sparse")])
    x = np.tile(x, 1 + 2 * codec.block // x.size)
    steps = 1500
    outs = np.stack([decoded(codec, codec.encode(x, at=Context(step)), x) for step in range(steps)]).astype(np.float64)
    bias, sigma = outs.mean(axis=0) - x, outs.std(axis=0) / steps**0.5
    off = np.abs(bias)
    # 4 sigma in one place would fail now and then among so many; what is rare may not have happened, or too often
    allowed = 4.8 * sigma + 8 * codec.bound(x) / steps + 2e-5 * np.abs(x)
    assert (off <= allowed).all() == codec.unbiased or codec.lossless or codec.bits >= 16 or isinstance(codec, Eden)
    if codec.unbiased:  # all values up, all away from zero, or the large ones: each alone could hide it
        for weights in (np.ones(x.size), np.sign(x), x / np.abs(x).max()):
            rounding = 2e-5 * np.sum(np.abs(weights * x))
            assert abs(np.sum(weights * bias)) <= 4 * np.sqrt(np.sum((weights * sigma) ** 2)) + rounding


@EVERY
def test_kernels_called_by_address_are_the_methods(codec):
    kernels = codec.kernels(np.float32)
    if kernels is None:
        pytest.skip("runs in Python only")
    n = 2 * codec.block + 37
    x = gradients(n)["gaussian"]
    at = Context(step=3, offset=codec.block, rank=2, size=4)
    message = np.zeros(codec.nbytes(n), np.uint8)
    kernels.encode.call(message.ctypes.data, x.ctypes.data, at.offset, n, at.stream)
    assert message.tobytes() == codec.encode(x, at=at).tobytes()
    values, start, total = np.empty_like(x), gradients(n, seed=1)["gaussian"], np.empty_like(x)
    kernels.decode.call(values.ctypes.data, message.ctypes.data, 0, n, 0)
    assert values.tobytes() == decoded(codec, message, x).tobytes()
    kernels.add.call(total.ctypes.data, start.ctypes.data, message.ctypes.data, n, 0)
    assert total.tobytes() == (start + values).tobytes()
    assert kernels.encode.address and kernels.decode.address and kernels.add.address


@EVERY
def test_a_damaged_message_is_refused_or_harms_only_its_values(codec):
    rng = np.random.default_rng(0)
    for n in (1, 500, 3 * codec.block + 5):
        whole = codec.encode(gradients(n)["gaussian"])
        for kind in range(6):
            message = rng.integers(0, 256, whole.size, dtype=np.uint8) if kind % 2 else whole.copy()
            message[rng.integers(0, max(whole.size, 1), kind if whole.size else 0)] ^= np.uint8(255)
            room = np.full(n + 2 * GUARD, 7, np.float32)
            end = 0 if kind == 0 else message.size - (kind >= 4 and not codec.exact_size)
            with contextlib.suppress(ValueError):
                codec.decode(message[:end], room[GUARD : GUARD + n])
            assert (room[:GUARD] == 7).all() and (room[GUARD + n :] == 7).all()


def test_how_long_a_lossless_message_says_it_is_does_not_count():
    """A frame of Zstandard may say so itself; so much memory would be taken."""
    frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + bytes(9)
    with pytest.raises(ValueError, match="damaged"):
        CODECS["lossless"].decode(np.frombuffer(b"\1" + frame, np.uint8), np.empty(6, np.float32))


@EVERY
def test_arrays_of_any_shape(codec):
    x = gradients(60)["gaussian"].reshape(3, 4, 5)
    out = decoded(codec, codec.encode(x), x)
    assert out.shape == x.shape
    assert np.array_equal(bits(out.ravel()), bits(decoded(codec, codec.encode(x.ravel()), x.ravel())))
    assert codec.encode(x[:, ::2]).tobytes() == codec.encode(x[:, ::2].copy()).tobytes()
    assert codec.bound(x).shape == x.shape

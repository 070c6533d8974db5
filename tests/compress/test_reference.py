"""The kernels against slow, plain NumPy that shares nothing with them: the same bytes, and the same bits back."""

import ml_dtypes
import numpy as np
import pytest
from data import CODECS, bits, decoded, gradients

import compress
from compress import Context
from compress.linear import Linear

F = np.float32
TOP = np.finfo(F).max


def blocks(x, size):
    return [x[i : i + size] for i in range(0, x.size, size)]


def packed(codes, width):
    """Little-endian bits, filled up to eight codes."""
    codes = np.concatenate([codes, np.zeros(-len(codes) % 8, int)]).astype(int)
    return np.packbits((codes[:, None] >> np.arange(width) & 1).astype(np.uint8).ravel(), bitorder="little").tobytes()


def up16(value, most=TOP):
    """A scale: 9 significant bits, rounded up, as the integer of its 16 bits."""
    value, most = (int(np.array(v, F).view(np.uint32)) for v in (value, most))
    return min(-(-value >> 15), most >> 15)


def near16(value, most):
    """The same, rounded to nearest."""
    value, most = (int(np.array(v, F).view(np.uint32)) for v in (value, most))
    return min(value + (1 << 14) >> 15, most >> 15)


def scale(code):
    return np.array(code << 15, np.uint32).view(F)


def mix(x):
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


def random32(seed, stream, index, i):
    """Element i of the block that begins at a global index."""
    key = mix((seed + 0x9E3779B9) % 2**32)
    for word in (stream, stream >> 32, index >> 32):
        key = mix(key ^ word % 2**32)
    return mix((key + index + i) % 2**32)


def drawn(codec, at, first, i):
    """Correlated, the rank turns the bits; else it is part of what is hashed."""
    if codec.rounding == "correlated":
        return random32(codec.seed, at.step, first, i) ^ int(f"{at.rank:032b}"[::-1], 2)
    return random32(codec.seed, at.stream, first, i)


def halves(x, size):
    """The sum of x and of zeros up to so many, as a tree."""
    x = np.concatenate([x, np.zeros(size - x.size, F)])
    while x.size > 1:
        x = x[: x.size // 2] + x[x.size // 2 :]
    return x[0]


def linear(codec, x, at):
    top = F(2 ** (codec.width - 1) - 1)
    for k, b in enumerate(blocks(x, codec.block)):
        size = np.abs(b).max()
        if codec.norm == "l2" and np.isfinite(size):
            unit = F(2.0 ** (int(np.frexp(max(size, F(2.0**-126)))[1]) - 1))
            size = np.sqrt(halves((b / unit) ** 2, codec.block)) * unit
        step = size / top
        code = (up16 if codec.random else near16)(step, TOP / top) if step >= F(2.0**-126) else 0
        code = code if np.isfinite(b).all() else 0xFFFF
        q = np.zeros(b.size, int)
        if 0 < code < 0xFFFF:
            t = b * (F(1) / scale(code))
            if codec.random:
                first = at.offset + k * codec.block
                u = [drawn(codec, at, first, i) >> 16 for i in range(b.size)]
                t = t + ((np.array(u) - 32767.5) / 65536).astype(F)
            q = np.clip(np.rint(t).astype(int), -int(top), int(top))
        yield code.to_bytes(2, "little") + packed(q + int(top), codec.width), q.astype(F) * scale(code)


def sign(codec, x, at):
    for b in blocks(x, codec.block):
        size = max(8, 1 << (b.size - 1).bit_length())
        unit = F(0.5 / size)
        mean = halves(np.abs(b) * unit, size) / (F(b.size) * unit)
        code = up16(mean) if np.isfinite(b).all() else 0xFFFF
        yield code.to_bytes(2, "little") + packed(np.signbit(b), 1), np.copysign(scale(code), b)


def cast(codec, x, at):
    dtype = np.dtype(codec.to)
    top = F(ml_dtypes.finfo(dtype).max)
    with np.errstate(all="ignore"):
        y = np.where(np.isfinite(x), np.clip(x, -top, top), x).astype(dtype)
    yield y.tobytes(), y.astype(F)


def fp8(codec, x, at):
    dtype, top = {"e4m3": (ml_dtypes.float8_e4m3fn, 448), "e5m2": (ml_dtypes.float8_e5m2, 57344)}[codec.format]
    limit = F((2 - 0.5 ** (3 if top == 448 else 2)) * 2.0**127)
    for b in blocks(x, codec.block):
        if not np.isfinite(b).all():
            yield b"\xff" + bytes(b.size), np.full(b.size, np.nan, F)
            continue
        largest = float(np.abs(b).max())
        e = int(max(np.ceil(np.log2(largest / top)), -127)) if largest else -127
        e += largest > top * 2.0**e  # should the logarithm be off
        y = (np.clip(b, -limit, limit).astype(np.float64) * 2.0**-e).astype(F).astype(dtype)
        yield bytes([e + 127]) + y.tobytes(), (y.astype(np.float64) * 2.0**e).astype(F)


def natural(codec, x, at):
    for k, b in enumerate(blocks(x, codec.block)):
        exponents = []
        for i, raw in enumerate(np.abs(b).view(np.uint32).tolist()):
            carry = 2**22
            if codec.rounding == "stochastic":
                carry = random32(codec.seed, at.stream, at.offset + k * codec.block, i) >> 9
            exponents.append(min((raw + carry) >> 23, 254) if raw < 0x7F800000 else 255)
        e = np.array(exponents)
        values = np.where(e == 255, np.nan, np.where(e == 0, 0, 2.0 ** (e - 127.0))).astype(F)
        yield bytes(exponents) + packed(np.signbit(b), 1), np.copysign(values, b)


REFERENCES = {"Linear": linear, "Sign": sign, "Cast": cast, "Fp8": fp8, "Natural": natural}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("codec", [c for c in CODECS.values() if type(c).__name__ in REFERENCES], ids=str)
def test_same_bytes_and_same_values_as_numpy(codec):
    at = Context(step=2**33 + 7, offset=2**34 + 3 * codec.block, rank=5, size=8)
    for n in (1, 7, 3 * max(codec.block, 32) + 5):
        arrays = gradients(n)
        arrays["poisoned"] = arrays["gaussian"].copy()
        arrays["poisoned"][n // 2] = np.nan
        arrays["signed zeros"] = arrays["sparse"] * F(-1)
        for name, x in arrays.items():
            expected = list(REFERENCES[type(codec).__name__](codec, x, at))
            message = codec.encode(x, at=at)
            if not (type(codec).__name__ == "Cast" and name == "poisoned"):  # the bits of NaN
                assert message.tobytes() == b"".join(m for m, _ in expected), name
            values = np.concatenate([v for _, v in expected])
            assert np.array_equal(bits(decoded(codec, message, x)), bits(values)), name


def test_error_is_what_theory_says():
    """Mean squared error over mean square, of Gaussian values."""
    x = gradients(1 << 18)["gaussian"]

    def vnmse(text):
        codec = compress.get(text)
        return np.mean((decoded(codec, codec.encode(x), x) - x) ** 2) / np.mean(x**2)

    assert vnmse("sign") == pytest.approx(1 - 2 / np.pi, rel=0.01)
    assert vnmse("int8:block=64") == pytest.approx(3.5e-5, rel=0.05)
    assert vnmse("int4:block=64") == pytest.approx(1.15e-2, rel=0.05)
    assert vnmse("natural") == pytest.approx(0.0815, rel=0.02)


@pytest.mark.parametrize("width, error", [(1, 0.571), (2, 0.133), (3, 0.0358), (4, 0.0096)])
def test_eden_errs_as_published_and_less_over_ranks(width, error):
    codec = compress.get("eden", width=width)
    rng = np.random.default_rng(0)
    x = rng.laplace(size=1 << 16).astype(F) * np.exp2(rng.integers(0, 3, 1 << 16)).astype(F)
    outs = [decoded(codec, codec.encode(x, at=Context(rank=rank)), x) for rank in range(16)]
    assert np.mean((outs[0] - x) ** 2) / np.mean(x**2) == pytest.approx(error, rel=0.05)
    assert np.mean((np.mean(outs, axis=0) - x) ** 2) / np.mean(x**2) == pytest.approx(error / 16, rel=0.1)


def test_eden_rotates_as_numpy_does():
    """Signs, a Hadamard matrix and centres, written out; of a block and of a shorter one."""
    codec = compress.get("eden:width=3,block=32")
    at = Context(step=3, offset=64, rank=1)
    x = gradients(44)["gaussian"]
    half = np.array([0.2451, 0.7560, 1.3439, 2.1519])
    for b, out in zip(blocks(x, 32), blocks(decoded(codec, codec.encode(x, at=at), x), 32)):
        size = 32 if b.size == 32 else 16
        first = at.offset + (0 if b.size == 32 else 32)
        signs = np.array([1 - 2 * (random32(0, at.stream, first, i) >> 31) for i in range(size)])
        matrix = np.array([[(-1) ** bin(i & j).count("1") for i in range(size)] for j in range(size)])
        padded = np.concatenate([b, np.zeros(size - b.size)])
        t = matrix @ (signs * padded) / np.linalg.norm(b)
        c = np.sign(t) * half[np.abs(np.abs(t)[:, None] - half).argmin(axis=1)]
        expected = signs * (matrix @ c) * np.linalg.norm(b) / (c @ t)
        assert np.allclose(out, expected[: b.size], atol=1e-5)


@pytest.mark.parametrize("text", ["width=2", "width=3,rounding=stochastic", "width=2,norm=l2"])
def test_spikes_are_apart_and_the_rest_is_coded_without_them(text):
    codec, rest = compress.get(f"spikes:{text}"), Linear(**vars(compress.get(f"spikes:{text}")))
    at = Context(step=5, offset=128)
    for name, x in gradients(197).items():
        left, spikes = x.copy(), np.zeros(197, bool)
        for first in range(0, 197, 64):
            block = np.abs(x[first : first + 64])
            spikes[first + np.lexsort((np.arange(block.size), -block))[:2]] = True
        left[spikes] = 0
        expected = decoded(rest, rest.encode(left, at=at), x)
        top = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
        expected[spikes] = np.clip(x[spikes], -top, top).astype(ml_dtypes.bfloat16)
        assert np.array_equal(decoded(codec, codec.encode(x, at=at), x), expected), name  # -0 is 0


def test_elias_code_is_short_and_decodes_to_what_fixed_width_does():
    fixed, short = compress.get("qsgd:width=4,block=256"), compress.get("elias:levels=7,block=256")
    at = Context(step=2, offset=512, rank=3)
    for name, x in gradients(1003).items():
        out = decoded(short, short.encode(x, at=at), x)
        assert np.array_equal(bits(out), bits(decoded(fixed, fixed.encode(x, at=at), x))), name
    x, codec = gradients(1 << 16)["gaussian"], compress.get("elias:levels=32,block=1024")
    message = codec.encode(x)
    assert 8 * message.size < 2.8 * x.size + 32 * 64
    assert np.sum((decoded(codec, message, x) - x.astype(float)) ** 2) < np.sum(x.astype(float) ** 2)


def test_errors_of_alike_values_cancel_where_rounding_is_correlated():
    x = gradients(4096)["gaussian"]
    for text, ranks in (("int2", range(16)), ("int3", range(48, 64)), ("int3", range(8)), ("int3", range(5, 9))):
        errors = []
        for rounding in ("stochastic", "correlated"):
            codec = compress.get(f"{text}:rounding={rounding}")
            outs = [decoded(codec, codec.encode(x, at=Context(7, 0, rank)), x).astype(float) for rank in ranks]
            steps = np.repeat(np.abs(x.reshape(-1, 64)).max(axis=1), 64) / codec.levels
            errors.append(np.abs(np.sum(outs, axis=0) - len(ranks) * x.astype(float)) / steps)
        assert errors[1].max() < 1.02 + 0.02 * len(ranks) < errors[0].max()
        assert np.sqrt(np.mean(errors[1] ** 2)) < 0.75 * np.sqrt(np.mean(errors[0] ** 2))


@pytest.mark.parametrize("text", ["int8", "int6", "int5:block=8", "int4:block=32", "int3:rounding=correlated", "int2"])
def test_every_width_keeps_every_level(text):
    """Every level, and the largest in every block."""
    codec = CODECS[text]
    levels = np.arange(-codec.levels, codec.levels + 1).astype(F)
    x = np.full((levels.size, codec.block), levels[-1])
    for shift, block in enumerate(x):
        block[1:] = np.resize(np.roll(levels, shift), codec.block - 1)
    assert np.array_equal(decoded(codec, codec.encode(x), x), x)

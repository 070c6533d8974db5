"""What theory says of each kind of codec: the bytes of its messages, and the squared error of what they decode to."""

from math import ceil

import numpy as np
import pytest
from data import CODECS, decoded, gradients

from compress import Context, get, sparse, topk
from compress.simulate import run

F = np.float32
WIDE = 2**31  # from so many elements on an index takes eight bytes


def eden(c, n):
    rest = n % c.block
    tail = 8 + c.width * max(8, 1 << (rest - 1).bit_length()) // 8 if rest else 0
    return n // c.block * (8 + c.width * c.block // 8) + tail


def dynamic(c, n):
    """Two bytes of scale, one of spacing, three bits a group of 16; short blocks have no less than half a byte each."""
    groups = -(-(n % 1024) // 16)
    tail = int(2 * c.bits * groups) + max(3 + 3 * -(-groups // 8) - groups // 2, 0) if groups else 0
    return n // 1024 * int(128 * c.bits) + tail


def elias(c, n):
    """Every value of the highest level: a place of one bit, a sign, a magnitude; and one more place."""
    value = 2 + 2 * c.levels.bit_length() - 1
    most = [2 + (m * value + 2 * m.bit_length() + 7) // 8 if m else 0 for m in (c.block, n % c.block)]
    return n // c.block * most[0] + most[1]


#: Bytes of n values, by the class of the codec; of those whose messages vary, the most.
BYTES = {
    "Cast": lambda c, n: 2 * n,
    "Linear": lambda c, n: 2 * -(-n // c.block) + c.width * -(-n // 8),
    "Spikes": lambda c, n: 8 * -(-n // c.block) + c.width * -(-n // 8),
    "Sign": lambda c, n: 2 * -(-n // c.block) + -(-n // 8),
    "Fp8": lambda c, n: -(-n // c.block) + n,
    "Natural": lambda c, n: n + -(-n // 8),
    "Eden": eden,
    "Dynamic": dynamic,
    "Elias": elias,
    "TopK": lambda c, n: ceil(c.ratio * n) * (8 if n < WIDE else 12),
    "Sampled": lambda c, n: int(1.3 * ceil(c.ratio * n)) * (8 if n < WIDE else 12),
    "Threshold": lambda c, n: n * (8 if n < WIDE else 12),
    "RandomK": lambda c, n: 4 + 4 * ceil(c.ratio * n) if n else 0,
    "BlockTopK": lambda c, n: ceil(c.ratio * -(-n // c.block)) * (4 + 4 * c.block),
    "Bounded": lambda c, n: -(-n // 32) + 8 * n,
    "Lossless": lambda c, n: 1 + 8 * n if n else 0,
    "Nonzero": lambda c, n: 1 + 8 * n if n else 0,
}


def squares(x):
    return float(np.sum(np.square(x, dtype=np.float64)))


def mean_error(codec, x, steps):
    """The squared error in the mean over steps."""
    return np.mean([squares(decoded(codec, codec.encode(x, at=Context(s)), x) - x.astype(float)) for s in range(steps)])


@pytest.mark.parametrize("codec", CODECS.values(), ids=str)
def test_sizes_are_those_of_the_formulas(codec):
    formula, b = BYTES[type(codec).__name__], codec.block
    for n in (0, 1, 7, b - 1, b, b + 1, 3 * b + 5, 997, WIDE - 1, WIDE, 2**33 + 5):
        assert codec.nbytes(n) == formula(codec, n), n


@pytest.mark.parametrize("text", ["int3:rounding=stochastic", "int3:rounding=correlated", "terngrad"])
def test_rounding_at_random_has_the_variance_of_its_fractions(text):
    """s^2 f (1 - f) for a fraction f of a step s, no more than s^2 / 4; of terngrad that is m |v|_1 - |v|^2."""
    codec = CODECS[text]
    for name in ("gaussian", "heavy-tailed", "early"):
        x = gradients(1024)[name].astype(float)
        scales = codec.encode(x.astype(F)).reshape(-1, codec.record(codec.block))[:, :2].copy().view(np.uint16)
        s = np.repeat((scales.astype(np.uint32) << 15).view(F).astype(float), codec.block)
        f = np.abs(x) / np.maximum(s, 2.0**-126) % 1
        variance = np.sum(s**2 * f * (1 - f))
        sigma = np.sqrt(np.sum(s**4 * f * (1 - f) * (1 - 2 * f) ** 2) / 300)
        assert mean_error(codec, x.astype(F), 300) == pytest.approx(variance, rel=1e-3, abs=4 * sigma), name
        assert variance <= np.sum(s**2) / 4
        if text == "terngrad":
            m = np.abs(x).reshape(-1, 64)
            assert variance == pytest.approx(np.sum(m.max(axis=1) * m.sum(axis=1)) - squares(x), rel=0.02), name


@pytest.mark.parametrize("text", ["qsgd:width=4", "elias:levels=10,block=256"])
def test_qsgd_has_the_variance_that_was_published(text):
    """min(n / s^2, sqrt(n) / s) times the square of a block of n, on s levels."""
    codec = CODECS[text]
    n, s = codec.block, codec.levels
    for name in ("gaussian", "heavy-tailed", "sparse", "early", "late"):
        x = gradients(4 * n)[name]
        assert 0 < mean_error(codec, x, 30) <= min(n / s**2, n**0.5 / s) * squares(x), name


def test_powers_of_two_err_by_an_eighth_at_most():
    for name in ("gaussian", "heavy-tailed", "sparse", "constant", "early", "late"):
        x = gradients(2000)[name]
        assert mean_error(CODECS["natural"], x, 30) <= squares(x) / 8 * 1.02, name
    worst = np.full(2000, 4 / 3, F)
    assert mean_error(CODECS["natural"], worst, 30) == pytest.approx(squares(worst) / 8, rel=0.02)


@pytest.mark.parametrize("text, share", [("randomk:ratio=0.2", 4), ("randomk:ratio=0.2,unbiased=False", 0.8)])
def test_one_of_five_errs_by_four_times_the_square_or_four_fifths_of_it(text, share):
    for name in ("gaussian", "early"):
        x = gradients(1000)[name]
        assert mean_error(CODECS[text], x, 1500) == pytest.approx(share * squares(x), rel=0.05), name


@pytest.mark.parametrize("text, kept", [
    ("topk:ratio=0.1", 0.1), ("sampled:ratio=0.05", 0.8 * 0.05), ("blocktopk:ratio=0.3,block=16", 0.3),
])  # fmt: skip
def test_what_keeps_the_largest_contracts(text, kept):
    for name, x in gradients(4096).items():
        if name not in ("mixed", "nearly largest", "largest"):  # squares of which overflow
            assert mean_error(CODECS[text], x, 1) <= (1 - kept) * squares(x) * (1 + 1e-6), name


def test_signs_err_by_what_the_mean_magnitude_leaves():
    """1 - |v|_1^2 / (n |v|^2) of the square of a block of n; twice for a mean of 9 bits."""
    codec = CODECS["sign:block=64"]
    for name in ("gaussian", "heavy-tailed", "sparse", "constant", "early", "late"):
        x = gradients(1024)[name].reshape(-1, 64)
        means = np.abs(x).mean(axis=1, dtype=float)
        left = squares(x) - 64 * squares(means)
        assert left - 1e-9 <= mean_error(codec, x.reshape(-1), 1) <= left + 64 * squares(means * 2.0**-8) + 1e-9, name


def test_powersgd_errs_by_what_is_not_in_its_columns():
    """|M - P P^T M|^2 = |M|^2 - |P P^T M|^2, for orthonormal P."""
    m = gradients(1200)["early"].reshape(40, 30)
    out = run(1, lambda rank, allreduce: get("powersgd:rank=3").reduce(m, allreduce, "w"))[0]
    assert squares(m - out) == pytest.approx(squares(m) - squares(out), rel=1e-4)
    assert 0 < squares(out) < squares(m)


@pytest.mark.parametrize("text", ["topk:ratio=0.1", "threshold:least=0.5"])
def test_indices_of_eight_bytes(text, monkeypatch):
    """As if an array of a hundred elements were of more than 2**31."""
    codec, x = CODECS[text], gradients(100)["gaussian"]
    short, wanted = codec.encode(x), decoded(codec, codec.encode(x), x)
    for module in (sparse, topk):
        monkeypatch.setattr(module, "WIDE", 100)
    message = codec.encode(x)
    k = short.size // 8
    assert message.size == 12 * k and message.size <= codec.nbytes(100)
    assert np.array_equal(message[: 8 * k].view(np.uint64), short[: 4 * k].view(np.uint32))
    assert np.array_equal(decoded(codec, message, x), wanted)
    assert np.array_equal(codec.decode(message, x.copy(), add=True), x + wanted)


@pytest.mark.parametrize("text", ["topk:ratio=1e-9", "threshold:least=1"])
def test_values_beyond_32_bits_of_index(text, tmp_path):
    """A file of 4 GB, of which a few pages are touched."""
    n, places = WIDE + 8, np.array([0, 5, WIDE + 3], np.uint64)
    message = np.concatenate([places.view(np.uint8), F([1, 2, 3]).view(np.uint8)])
    out = np.memmap(tmp_path / "many", np.float16, "w+", shape=(n,))
    out[WIDE + 3] = 4
    codec = get(text)
    assert codec.nbytes(n) >= message.size
    codec.decode(message, out, add=True)
    assert out[[0, 1, 5, 6, WIDE + 2, WIDE + 3, WIDE + 4]].tolist() == [1, 0, 2, 0, 0, 7, 0]

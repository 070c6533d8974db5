"""Groups of different widths: the format, read by plain NumPy, and the error that it is for."""

import numpy as np
import pytest
from data import STORED, decoded, gradients

import compress
from compress.allocation import LEVELS, WIDTHS
from compress.simulate import simulate, traffic

F = np.float32


def read(message, place, bits, count):
    """So many numbers from a place on, the first in the lowest bits."""
    whole = int.from_bytes(message[place : place + bits * count // 8].tobytes(), "little")
    return np.array([whole >> bits * i & (1 << bits) - 1 for i in range(count)])


def widths(classes, spacing, budget):
    """Bytes per group: always to the class whose mean squared error falls most for a byte."""
    worth = [0.1, *(1 / (12.0 * levels**2) for levels in LEVELS[1:])]
    grades, present = dict.fromkeys(range(7), 0), {c: np.flatnonzero(classes == c) for c in range(7) if c in classes}
    chosen = np.zeros(classes.size, int)
    while True:
        prices = {}
        for c in present:
            if grades[c] < 12:
                gain = (worth[grades[c]] - worth[grades[c] + 1]) / (WIDTHS[grades[c] + 1] - WIDTHS[grades[c]])
                prices[c] = c * spacing + np.rint(-8 * np.log2(gain))
        if not prices:
            return chosen
        c = min(prices, key=lambda c: (prices[c], c))
        cost = WIDTHS[grades[c] + 1] - WIDTHS[grades[c]]
        able = present[c][: budget // cost]
        chosen[able] += cost
        budget -= cost * len(able)
        grades[c] += 1
        if len(able) < len(present[c]):
            return chosen


def values(message, n, nbytes):
    groups = -(-n // 16)
    unit = np.array(int(message[0]) << 15 | int(message[1]) << 23, np.uint32).view(F)
    classes, place = read(message, 3, 3, -(-groups // 8) * 8)[:groups], 3 + 3 * -(-groups // 8)
    out = np.zeros((groups, 16))
    for g, width in enumerate(widths(classes, int(message[2]), nbytes - place).tolist()):
        if width:
            scale = unit * 2.0 ** (-int(message[2]) * classes[g] / 16)
            levels = int((2 ** (width / 2) - 1) // 2)
            pairs = read(message, place, min(width, 8), 8)
            if width > 8:
                pairs = pairs + 256 * read(message, place + 8, width - 8, 8)
            q = np.concatenate([pairs % (2 * levels + 1), pairs // (2 * levels + 1)]) - levels
            out[g] = q * (np.abs(q) + 2 * levels) * scale / (3 * levels**2)
        place += width
    return out.reshape(-1)[:n]


@pytest.mark.parametrize("bits", [3, 5, 5.25, 8])
@pytest.mark.parametrize("n", [1, 16, 100, 1024])
def test_a_message_is_what_its_documentation_says(n, bits):
    codec = compress.get("dynamic", bits=bits)
    for name in ("gaussian", "heavy-tailed", "sparse", "constant", "early", "late"):
        x = gradients(n, seed=5)[name]
        message = codec.encode(x)
        assert np.allclose(decoded(codec, message, x), values(message, n, codec.nbytes(n)), rtol=1e-5, atol=0), name


def test_values_decode_to_the_nearest_level():
    codec = compress.get("dynamic:bits=3")
    x = gradients(1024)["gaussian"]
    out = decoded(codec, codec.encode(x), x)
    for group, got in zip(x.reshape(-1, 16), out.reshape(-1, 16)):
        nearest = np.abs(group[:, None] - got).min(axis=1)
        assert (np.abs(group - got) <= nearest * (1 + 1e-5) + 1e-7).all()


LAPLACE = np.random.default_rng(0).laplace(size=(8, 1 << 15)).astype(F)


@pytest.mark.parametrize("name, ours, other", [
    ("early", "dynamic:bits=5", "int5"), ("late", "dynamic:bits=5", "int5"), ("laplace", "dynamic:bits=5.25", "int5"),
    *((name, "dynamic:bits=5", "int5:block=1024") for name in ("early", "late", "laplace")),
])  # fmt: skip
def test_half_the_error_of_int5_in_no_more_bytes(name, ours, other):
    """Of the sum of eight ranks in two shots, and of all that travels for it."""
    arrays = STORED.get(name, LAPLACE)
    ours, other = compress.get(ours), compress.get(other)
    assert ours.bits <= other.bits and sum(traffic("direct", arrays, ours)) <= sum(traffic("direct", arrays, other))
    exact = arrays.sum(axis=0, dtype=np.float64)
    errors = [np.sum((simulate("direct", arrays, codec)[0] - exact) ** 2) for codec in (ours, other)]
    assert errors[0] <= 0.5 * errors[1]

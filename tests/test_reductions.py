"""The kernels, one by one, against NumPy."""

from itertools import product

import numpy as np
import pytest
from numba import njit

from allreduce.execute import half, reductions
from allreduce.execute.elements import BFLOAT16, CODES, LONG, OPS
from allreduce.execute.reductions import allowed_ops, cast, check, divide, reduction

DTYPES = CODES + LONG
HALF = (np.dtype(np.float16), BFLOAT16)
PAIRS = [(dtype, op) for dtype in DTYPES for op in allowed_ops(dtype)]
UFUNCS = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip
OF_BOOLEANS = {"sum": np.logical_or, "prod": np.logical_and, "min": np.logical_and, "max": np.logical_or}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def name(value):
    return str(value)


def is_float(dtype):
    return dtype.kind == "f" or dtype == BFLOAT16


def numbers(dtype, count, rng):
    """Of all magnitudes, with zeros, infinities and NaNs of both signs among them."""
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, count, dtype.type, endpoint=True).view(dtype)
        values[::3] = rng.choice(np.array([0, 1, limits.min, limits.max]).astype(dtype), len(values[::3]))
        return values
    if dtype.kind == "c":
        part = np.empty(0, dtype).real.dtype
        both = np.stack([numbers(part, count, rng), numbers(part, count, rng)], -1)
        return np.ascontiguousarray(both).view(dtype)[:, 0]
    values = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(dtype)
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-7, 6e4, -1e-7]).astype(dtype)
    values[::3] = rng.choice(odd, len(values[::3]))
    return rng.permutation(values)


def call(kernel, out, a, b, count):
    kernel.call(out.ctypes.data, a.ctypes.data, b if isinstance(b, int) else b.ctypes.data, count, 0)
    return out


def bits(array):
    raw = array.reshape(-1).view(np.uint8)
    padded = array.dtype in LONG and np.finfo(np.longdouble).nmant == 63
    return raw.reshape(-1, 16)[:, :10].tobytes() if padded else raw.tobytes()


def wanted(a, b, op):
    """By NumPy; half precision in float32, rounded once."""
    dtype = a.dtype
    if dtype.kind == "b":
        return OF_BOOLEANS.get(op, UFUNCS[op])(a, b)
    if dtype.kind == "c" and op == "prod":
        x, y = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
        return np.ascontiguousarray(np.stack([x, y], -1)).view(dtype)[:, 0]
    wide = (lambda x: x.astype("f")) if dtype in HALF else (lambda x: x)
    result = UFUNCS[op](wide(a), wide(b)).astype(dtype)
    if op in ("min", "max") and is_float(dtype):  # NumPy takes whichever zero it likes
        zeros = (wide(a) == 0) & (wide(b) == 0)
        least = np.signbit(wide(a)) | np.signbit(wide(b))
        most = np.signbit(wide(a)) & np.signbit(wide(b))
        signed = np.where(least if op == "min" else most, -0.0, 0.0).astype(dtype)
        result[zeros] = signed[zeros]
    return result


def parts(array):
    """Real numbers, wide enough for NumPy to know them."""
    array = array.astype("f") if array.dtype in HALF else array
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def assert_same(got, right):
    got, right = parts(got), parts(right)
    assert got.dtype == right.dtype
    good = (got == right) | ((got != got) & (right != right))
    assert good.all(), (got[~good][:4], right[~good][:4])
    if got.dtype.kind == "f":
        signs = np.signbit(got) == np.signbit(right)
        assert signs[~np.isnan(right)].all()


@pytest.mark.parametrize("count", [0, 1, 3, 64, 1003])
@pytest.mark.parametrize("dtype, op", PAIRS, ids=name)
def test_every_kernel(dtype, op, count):
    rng = np.random.default_rng([DTYPES.index(dtype), OPS.index(op), count])
    a, b = numbers(dtype, count, rng), numbers(dtype, count, rng)
    kept = bits(a), bits(b)
    kernel, elements = reduction(dtype, op)
    whole = np.full(count + 2, 7).astype(dtype)
    out = whole[1:-1]
    call(kernel, out, a, b, count * elements)
    assert (bits(a), bits(b)) == kept, "operands changed"
    assert bits(whole[:1]) == bits(whole[-1:]) == bits(np.full(1, 7).astype(dtype)), "wrote beside"
    assert_same(out, wanted(a, b, op))
    # the output may be one of the operands
    assert bits(call(kernel, x := a.copy(), x, b, count * elements)) == bits(out)
    assert bits(call(kernel, y := b.copy(), a, y, count * elements)) == bits(out)
    # commutative to the bit
    assert bits(call(kernel, np.empty(count, dtype), b, a, count * elements)) == bits(out)
    # one with itself
    same = call(kernel, z := a.copy(), z, z, count * elements)
    assert_same(same, wanted(a, a, op))


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if is_float(d)], ids=name)
def test_there_is_one_nan(dtype, op):
    """Whatever NaNs come in, one and the same comes out; else bits would depend on the order."""
    kernel, elements = reduction(dtype, op)
    values = np.array([np.nan, -np.nan, 1.0, np.inf, -np.inf, 0.0, -0.0]).astype(dtype)
    if dtype.itemsize <= 8:  # other bits in the payload
        raw = values[:2].copy().view(f"u{dtype.itemsize}")
        values = np.concatenate([values, (raw | raw.dtype.type(1)).view(dtype), (raw ^ raw.dtype.type(3)).view(dtype)])
    a, b = (np.array(x).astype(dtype) for x in zip(*product(values, values)))
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if dtype.itemsize <= 8:  # pairs of Python numbers would lose the payload
        index = np.array(list(product(range(len(values)), repeat=2)))
        a, b = values[index[:, 0]], values[index[:, 1]]
    out = call(kernel, np.empty(a.size, dtype), a, b, a.size * elements)
    nan = np.isnan(parts(out))
    either = np.isnan(parts(a)) | np.isnan(parts(b))
    assert nan[either].all(), "NaN wins"
    assert len({bits(x) for x in out[nan]}) == 1


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind == "c"], ids=name)
def test_parts_of_complex_numbers_have_one_nan(dtype):
    rng = np.random.default_rng(5)
    a, b = numbers(dtype, 999, rng), numbers(dtype, 999, rng)
    for op in ("sum", "prod"):
        kernel, elements = reduction(dtype, op)
        out = call(kernel, np.empty(999, dtype), a, b, 999 * elements)
        flat = out.view(out.real.dtype)
        assert len({bits(x) for x in flat[np.isnan(flat)]}) == 1


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "b"], ids=name)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 100])
def test_divide(dtype, divisor):
    rng = np.random.default_rng(divisor)
    a = numbers(dtype, 1003, rng)
    kernel, elements = divide(dtype)
    out = call(kernel, np.empty(1003, dtype), a, divisor, 1003 * elements)
    if dtype.kind in "iu":
        right = a // np.asarray(divisor, dtype)
    elif dtype.kind == "c":
        right = (parts(a) / parts(a).dtype.type(divisor)).view(dtype)
        if dtype in LONG:  # by NumPy, through a reciprocal
            finite = np.isfinite(right)
            assert np.allclose(out[finite], right[finite], rtol=1e-18, atol=0)
            return
    else:
        right = (parts(a) / parts(a).dtype.type(divisor)).astype(dtype)
    assert_same(out, right)
    assert bits(call(kernel, a, a, divisor, 1003 * elements)) == bits(out), "in place"


def test_averages_of_negative_integers_round_down():
    a = np.array([-7, -1, 0, 1, 7], "i")
    kernel, _ = divide(a.dtype)
    assert call(kernel, np.empty(5, "i"), a, 2, 5).tolist() == [-4, -1, 0, 0, 3]


def test_large_unsigned_integers_are_not_divided_as_floats():
    a = np.array([2**64 - 1, 2**63 + 1], np.uint64)
    kernel, _ = divide(a.dtype)
    assert call(kernel, np.empty(2, np.uint64), a, 3, 2).tolist() == [(2**64 - 1) // 3, (2**63 + 1) // 3]


# --- half precision -------------------------------------------------------------------------------

EVERY = np.arange(65536, dtype=np.uint16)


def floats():
    """What rounds to halves, near halves, between them, and far away."""
    rng = np.random.default_rng(3)
    halves = [EVERY.view(w).astype("f") for w in HALF]
    near = [np.nextafter(h, np.float32(s)) for h in halves for s in (np.inf, -np.inf)]
    between = [h * np.float32(1 + f) for h in halves for f in (2.0**-11, 2.0**-12, 2.0**-8, 2.0**-9)]
    middle = [(np.sort(h[np.isfinite(h)])[:-1] / 2 + np.sort(h[np.isfinite(h)])[1:] / 2) for h in halves]
    spread = [rng.standard_normal(30000).astype("f") * np.float32(s) for s in (1e-8, 1e-5, 1, 1e4, 1e5, 1e38)]
    patterns = rng.integers(0, 2**32, 300000, np.uint32).view("f")
    return np.concatenate([*halves, *near, *between, *middle, *spread, patterns]).astype("f")


@njit
def widen_by_bits(x, out):
    for i in range(x.size):
        out[i] = half.half_to_float_by_bits(x[i])


@njit
def narrow_by_bits(x, out):
    for i in range(x.size):
        out[i] = half.float_to_half_by_bits(x[i])


@pytest.mark.parametrize("dtype", HALF, ids=name)
def test_widening_every_half(dtype):
    halves = EVERY.view(dtype)
    out = call(cast(np.dtype("f"), dtype), np.empty(65536, "f"), halves, 0, 65536)
    assert_same(out, halves.astype("f"))


@pytest.mark.parametrize("dtype", HALF, ids=name)
def test_narrowing_rounds_to_nearest_even(dtype):
    x = floats()
    out = call(cast(dtype, np.dtype("f")), np.empty(x.size, dtype), x, 0, x.size)
    right = x.astype(dtype)
    number = ~np.isnan(x)
    assert (out.view("u2") == right.view("u2"))[number].all()
    assert np.isnan(out.astype("f"))[~number].all()


def test_bit_twiddling_agrees_with_the_hardware():
    """The other version of the two conversions, whichever of them the kernels use here."""
    wide = np.empty(65536, "f")
    widen_by_bits(EVERY, wide)
    assert_same(wide, EVERY.view("e").astype("f"))
    x = floats()
    out = np.empty(x.size, "u2")
    narrow_by_bits(x, out)
    number = ~np.isnan(x)
    assert (out == x.astype("e").view("u2"))[number].all()
    assert np.isnan(out.view("e"))[~number].all()


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", HALF, ids=name)
def test_every_half_with_some_others(dtype, op):
    kernel, _ = reduction(dtype, op)
    a = EVERY.view(dtype)
    others = (0, 1, 0xFF, 0x400, 0x3C00, 0x3C01, 0x3F80, 0x7BFF, 0x7C00, 0x7E00, 0x7F7F, 0x8000, 0xBC00, 0xFC00)
    for bits_of_b in others:
        b = np.full(65536, bits_of_b, np.uint16).view(dtype)
        assert_same(call(kernel, np.empty(65536, dtype), a, b, 65536), wanted(a, b, op))


# --- casts, checks --------------------------------------------------------------------------------

WIDER = [
    (to, from_)
    for to, from_ in product(CODES, CODES)
    if to.itemsize > from_.itemsize
    and ((is_float(to) and is_float(from_)) or (to.kind == from_.kind and to.kind in "iu"))
]


@pytest.mark.parametrize("to, from_", WIDER, ids=name)
def test_casts_there_and_back(to, from_):
    a = numbers(from_, 1003, np.random.default_rng(1))
    there = call(cast(to, from_), np.empty(1003, to), a, 0, 1003)
    assert_same(there, a.astype(to))
    if to.kind in "iu":
        many = numbers(to, 1003, np.random.default_rng(2))  # wraps
    else:
        many = np.random.default_rng(2).standard_normal(1003).astype(to)
    back = call(cast(from_, to), np.empty(1003, from_), many, 0, 1003)
    if from_ in HALF and to == np.dtype("d"):
        many = many.astype("f")
    assert_same(back, many.astype(from_))


def test_what_is_refused():
    with pytest.raises(ValueError, match="unknown op 'mean'; have sum, prod"):
        check(np.dtype("f"), "mean")
    with pytest.raises(TypeError, match="cannot reduce dtype <U3; have int8"):
        check(np.dtype("U3"), "sum")
    for dtype, op in (("?", "avg"), ("F", "min"), ("D", "land"), ("f", "band"), ("g", "lor"), ("G", "max")):
        with pytest.raises(TypeError, match=f"op '{op}' is not defined for dtype {np.dtype(dtype)}; have"):
            check(np.dtype(dtype), op)
    for dtype, op in PAIRS:
        check(dtype, op)
    assert allowed_ops(np.dtype("M8[s]")) == () and allowed_ops(np.dtype(object)) == ()


def test_python_kernels_see_arrays():
    kernel = reductions.python_kernel(np.dtype("d"), lambda a, b: a - b)
    a, b = np.arange(5.0), np.ones(5)
    assert kernel.address == 0
    assert call(kernel, np.empty(5), a, b, 5).tolist() == [-1, 0, 1, 2, 3]
    assert call(kernel, b, a, b, 5).tolist() == [-1, 0, 1, 2, 3]

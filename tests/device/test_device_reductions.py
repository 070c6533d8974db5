"""The kernels of reductions for a GPU, run on the CPU, against NumPy: the same bits."""

from functools import reduce

import cpu
import numpy as np
import pytest
from memory import guarded
from test_reductions import HALF, floats, numbers, parts, wanted

from allreduce.execute import device_kernels
from allreduce.execute.device_reductions import cast, difference, divide, fused, reduction
from allreduce.execute.elements import CODES, LONG
from allreduce.execute.reductions import allowed_ops

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu", "quiet")]
EVERY = pytest.mark.parametrize("dtype", dict.fromkeys(d for d in CODES if d.char not in "lL"), ids=str)


@pytest.fixture
def quiet():
    with np.errstate(all="ignore"):
        yield


def counts(dtype):
    """Around the ends of a run of 16 bytes, and of a block of threads."""
    run = 16 // dtype.itemsize
    block = run * device_kernels.THREADS
    return sorted({0, 1, run - 1, run, run + 1, 2 * run + 1, block - 1, block, block + 1, block + run + 1})


def raw(array):
    """Bytes, after making all NaNs that of the kernels."""
    array = array.copy()
    real = array.view(array.real.dtype) if array.dtype.kind == "c" else array
    if real.dtype.kind not in "iub":
        real[np.isnan(parts(real))] = np.nan
    return array.tobytes()


def call(kernel, out, a, b, count):
    kernel.call(out.ctypes.data, a.ctypes.data, b if isinstance(b, int) else b.ctypes.data, count, 0)
    return out


def folded(terms, op):
    """The reduction of several arrays; half precision in float32, rounded once."""
    dtype = terms[0].dtype
    if op not in ("sum", "avg", "prod") or dtype.kind == "b":
        return reduce(lambda a, b: wanted(a, b, op), terms)
    total = reduce(lambda a, b: wanted(a, b, op), [t.astype("f") if dtype in HALF else t for t in terms])
    if op == "avg":
        divisor = np.asarray(len(terms), dtype if dtype.kind in "iu" else parts(total).dtype)
        total = total // divisor if dtype.kind in "iu" else (parts(total) / divisor).view(total.dtype)
    return total.astype(dtype)


@EVERY
def test_every_reduction(dtype):
    for op in allowed_ops(dtype):
        kernel, elements = reduction(dtype, op)
        for count in counts(dtype):
            rng = np.random.default_rng([CODES.index(dtype), count])
            a, b = numbers(dtype, count, rng), numbers(dtype, count, rng)
            right = raw(wanted(a, b, op))
            for shift in (0, 1):
                x, y, out = guarded(a), guarded(b, shift), guarded(np.zeros_like(a), 3)
                assert call(kernel, out, x, y, count * elements).tobytes() == right, (op, count)
                assert (x.tobytes(), y.tobytes()) == (a.tobytes(), b.tobytes()), "operands changed"
                assert call(kernel, y, x, y, count * elements).tobytes() == right, "in place"
                y[...] = b
                assert call(kernel, x, x, y, count * elements).tobytes() == right, "in place"
        # a plan may pass the elements of another kind of zero, or of NaN, to either side
        assert raw(wanted(b, a, op)) == call(kernel, np.empty_like(a), b, a, count * elements).tobytes()


@EVERY
def test_every_fused_reduction(dtype):
    for op in allowed_ops(dtype):
        kernel, elements = fused(dtype, op)
        for size in (1, 2, 3, 5):
            rng = np.random.default_rng(size)
            count = int(rng.choice(counts(dtype)))
            terms = [guarded(numbers(dtype, count, rng), shift=size // 5) for _ in range(size)]
            out, also = guarded(np.zeros_like(terms[0])), guarded(np.zeros_like(terms[0]))
            addresses = np.array([t.ctypes.data for t in terms])
            right = raw(folded(terms, op))
            for second in (0, also.ctypes.data):
                kernel.call(out.ctypes.data, addresses.ctypes.data, size, count * elements, second)
                got = raw(out) if size == 1 else out.tobytes()  # nothing was computed: a NaN is what it was
                assert got == right, (op, size, count)
            assert also.tobytes() == out.tobytes()


@EVERY
def test_divide(dtype):
    if dtype.kind == "b":
        return
    kernel, elements = divide(dtype)
    for divisor in (1, 2, 3, 7, 100):
        a = numbers(dtype, 1003, np.random.default_rng(divisor))
        real = parts(a)
        right = a // np.asarray(divisor, dtype) if dtype.kind in "iu" else real / real.dtype.type(divisor)
        right = right.view(dtype) if dtype.kind == "c" else right.astype(dtype)
        assert call(kernel, guarded(a), a, divisor, 1003 * elements).tobytes() == raw(right)


def test_averages_of_negative_integers_round_down():
    a = np.array([-7, -1, 0, 1, 7], "i")
    kernel, _ = divide(a.dtype)
    assert call(kernel, np.empty(5, "i"), a, 2, 5).tolist() == [-4, -1, 0, 0, 3]


@pytest.mark.parametrize("dtype", [np.dtype("f"), np.dtype("d"), *HALF], ids=str)
def test_difference(dtype):
    kernel = difference(dtype)
    for count in counts(dtype):
        out, a, b = (np.random.default_rng(seed).standard_normal(count).astype(dtype) for seed in range(3))
        wide = [parts(x) for x in (out, a, b)]
        right = (wide[1] - wide[2]).astype(dtype)
        assert call(kernel, guarded(out), guarded(a), guarded(b, 1), count).tobytes() == right.tobytes()


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_halves_are_widened_and_rounded_as_numpy_does(dtype):
    halves, x = np.arange(65536, dtype=np.uint16).view(dtype), floats()
    wide = call(cast(np.dtype("f"), dtype), np.empty(65536, "f"), halves, 0, 65536)
    assert raw(wide) == raw(halves.astype("f"))
    assert call(cast(dtype, np.dtype("f")), np.empty(x.size, dtype), x, 0, x.size).tobytes() == raw(x.astype(dtype))


@pytest.mark.parametrize("to, from_", ["de", "dE", "ed", "Ed", "qb", "bq", "fd", "df"], ids=lambda pair: pair)
def test_casts(to, from_):
    to, from_ = (HALF[1] if c == "E" else np.dtype(c) for c in (to, from_))
    kernel = cast(to, from_)
    for count in (0, 1, 7, 8, 9, 16 * device_kernels.THREADS + 5):
        x = numbers(from_, count, np.random.default_rng(count))
        right = (x.astype("f") if to in HALF or from_ in HALF else x).astype(to)  # by way of float32
        for shift in (0, 1):
            assert raw(call(kernel, guarded(np.zeros(count, to)), guarded(x, shift), 0, count)) == raw(right)


def test_fewer_threads_than_runs(monkeypatch):
    monkeypatch.setattr(device_kernels, "MOST_BLOCKS", 2)
    a = np.arange(9001, dtype=np.int32)
    kernel, _ = reduction(a.dtype, "sum")
    assert (call(kernel, np.zeros_like(a), a, a, a.size) == 2 * a).all()


def test_long_doubles_are_refused():
    with pytest.raises(TypeError, match="a CUDA device has no"):
        reduction(LONG[0], "sum")
    with pytest.raises(TypeError, match="a CUDA device has no"):
        reduction(LONG[1], "prod")

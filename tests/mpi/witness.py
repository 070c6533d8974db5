"""What a collective should give, worked out from all ranks' numbers in another way; and how ranks compare notes.

Every rank makes the numbers of all ranks from one seed, so that nobody need be asked what the answer is.
"""

import sys
import zlib
from hashlib import blake2b

import numpy as np
from mpi4py import MPI

from allreduce.execute.elements import BFLOAT16, CODES, LONG

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
DTYPES = CODES + LONG
HALF = (np.dtype(np.float16), BFLOAT16)
FLOATS = (*HALF, np.dtype("f"), np.dtype("d"), LONG[0])
COMPLEX = tuple(d for d in DTYPES if d.kind == "c")
NAMES = {
    "sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "land": MPI.LAND, "lor": MPI.LOR,
    "lxor": MPI.LXOR, "band": MPI.BAND, "bor": MPI.BOR, "bxor": MPI.BXOR,
}  # fmt: skip


def counts(size=SIZE):
    """Lengths that leave ranks with nothing, with one element, with unequal shares."""
    return (0, 1, size - 1, size, size + 1, 1009)


def native_can(dtype, op):
    """What every MPI library can do itself."""
    return dtype not in HALF and (dtype.kind != "b" or op in ("land", "lor", "lxor"))


def seeded(*facts):
    """A generator that is the same on all ranks."""
    return np.random.default_rng(zlib.crc32(repr(facts).encode()))


def exact(dtype, op, count, size=SIZE, seed=0, small=False):
    """Numbers of all ranks, shape (size, count), for which the operation makes no rounding error in any order.

    Integers are of any magnitude, and their sums wrap, unless small ones are asked for.
    """
    rng, shape = seeded(str(dtype), op, count, size, seed), (size, count)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        if small:
            return rng.integers(0, 3, shape).astype(dtype).view(dtype)
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, shape, dtype.type, endpoint=True).view(dtype)
        logical = op in ("land", "lor", "lxor")
        return np.where(rng.integers(0, 2, shape) > 0, values, 0).astype(dtype) if logical else values
    if op in ("min", "max"):
        return rng.standard_normal(shape).astype(dtype)
    if op == "prod":
        units = [1, -1, 2, 0.5, *((1j, -1j) if dtype.kind == "c" else ())]
        return np.array(units)[rng.integers(0, len(units), shape)].astype(dtype)
    values = rng.integers(-8, 9, shape)
    return (values + 1j * rng.integers(-8, 9, shape) if dtype.kind == "c" else values).astype(dtype)


def rough(dtype, count, size=SIZE, seed=0):
    """Random numbers of all ranks, whose sums round."""
    rng, shape = seeded(str(dtype), count, size, seed), (size, count)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype.kind == "c" else values).astype(dtype)


UFUNCS = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip
OF_BOOLEANS = {"sum": np.logical_or, "prod": np.logical_and, "min": np.logical_and, "max": np.logical_or}


def divided(total, size):
    """Each part rounded once; NumPy's own division of complex numbers rounds twice."""
    parts = total.view(total.real.dtype)
    return (parts / parts.dtype.type(size)).view(total.dtype)


def reduced(data, op):
    """The reduction of `exact` numbers, by NumPy."""
    dtype, size = data.dtype, len(data)
    if size == 1:  # nothing is combined, so that even logical operations leave numbers as they are, as in MPI
        return data[0].copy()
    if dtype.kind == "b":
        return OF_BOOLEANS.get(op, UFUNCS[op]).reduce(data, axis=0)
    wide = data.astype("f") if dtype in HALF else data
    with np.errstate(all="ignore"):
        total = UFUNCS[op].reduce(wide, axis=0, dtype=None if op[0] == "l" else wide.dtype)
        if op == "avg":
            total = total // np.asarray(size, dtype) if dtype.kind in "iu" else divided(total, size)
        return total.astype(dtype)


def epsilon(dtype):
    """The distance from 1 to the next number."""
    return 2.0**-7 if dtype == BFLOAT16 else float(np.finfo(dtype).eps)


def precise(data):
    """The numbers in a type that adds them with much less error."""
    long = np.clongdouble if data.dtype.kind == "c" else np.longdouble
    return data.astype("f8").astype(long) if data.dtype in HALF else data.astype(long)


def significant(array):
    """The bytes that count: an x87 long double has 10 in 16, and what the others hold is nobody's business."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    padded = array.dtype in LONG and np.finfo(np.longdouble).nmant == 63
    return raw.reshape(-1, 16)[:, :10].tobytes() if padded else raw.tobytes()


class Guarded:
    """An array between two zones that nobody may write to."""

    ZONE, MARK = 64, 0xA5

    def __init__(self, dtype, count, values=None):
        nbytes = count * dtype.itemsize
        self.raw = np.full(nbytes + 2 * self.ZONE, self.MARK, np.uint8)
        self.array = self.raw[self.ZONE : self.ZONE + nbytes].view(dtype)
        if values is not None:
            self.array[...] = values

    def intact(self):
        return (self.raw[: self.ZONE] == self.MARK).all() and (self.raw[-self.ZONE :] == self.MARK).all()


class Verdict:
    """What this rank found, told to the others at the end: a rank that fails alone leaves the others waiting."""

    def __init__(self):
        self.faults, self.digests = [], []

    def check(self, good, *what):
        if not good:
            self.faults.append(what)

    def equal(self, got, wanted, *what, ulps=0):
        """The same numbers, or nearly; NaN is NaN."""
        good = got.dtype == wanted.dtype and got.shape == wanted.shape
        wide = (lambda x: x.astype("f")) if got.dtype in HALF else (lambda x: x)
        if ulps:
            good = good and (np.abs(got - wanted) <= ulps * epsilon(got.dtype) * np.abs(wanted)).all()
        else:
            good = good and np.array_equal(wide(got), wide(wanted), equal_nan=got.dtype.kind not in "biu")
        self.check(good, *what, "got", got.reshape(-1)[:4], "wanted", wanted.reshape(-1)[:4])

    def same(self, array, *what):
        """The same bits as on the other ranks."""
        self.digests.append((str(what), blake2b(significant(array), digest_size=8).digest()))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            return
        everyone = WORLD.allgather((self.faults, self.digests))
        alone = [f"rank {r}: {fault}" for r, (faults, _) in enumerate(everyone) for fault in faults[:3]]
        assert not alone, "\n".join(alone[:6])
        for mine, theirs in zip(everyone[0][1], everyone[-1][1], strict=True):
            assert mine[0] == theirs[0], "ranks ran different tests"
        for case, *found in zip(*(digests for _, digests in everyone)):
            assert len({digest for _, digest in (case, *found)}) == 1, f"ranks differ in bits: {case[0]}"


def everyone_has(error):
    """All ranks learn of the others' errors, and fail together."""
    found = {rank: text for rank, text in enumerate(WORLD.allgather(error)) if text}
    assert not found, found


def modules_with(name, value):
    """The package's modules that know a function by this name."""
    ours = [m for key, m in sys.modules.items() if key.startswith(("allreduce", "compress"))]
    return [m for m in ours if getattr(m, name, None) is value]

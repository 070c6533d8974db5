"""Every algorithm, operation, dtype, length and way to pass buffers, against NumPy.

The whole product would take minutes, for a plan is made per shape: for every algorithm all pairs of dtype and
operation are run (for node, a quarter of them), with lengths and buffers dealt out in turn. So every pair of
(algorithm, dtype), (algorithm, operation), (algorithm, length), (algorithm, buffers) and every triple of (algorithm,
dtype, operation) appears.
"""

import array
import functools
import time
from itertools import product
from math import prod

import numpy as np
import pytest
from mpi4py import MPI
from witness import (
    COMPLEX,
    DTYPES,
    FLOATS,
    HALF,
    NAMES,
    RANK,
    SIZE,
    UFUNCS,
    Guarded,
    Verdict,
    counts,
    epsilon,
    exact,
    native_can,
    precise,
    reduced,
    rough,
    seeded,
    significant,
)

import allreduce
from allreduce.algorithms import TABLE
from allreduce.choice import across, choose
from allreduce.engine import engine_of
from allreduce.execute.elements import BFLOAT16, LONG
from allreduce.execute.mpi_abi import library
from allreduce.execute.reductions import allowed_ops

pytestmark = pytest.mark.mpi

OURS = allreduce.algorithms()
#: What runs through shared memory, where all ranks are on one node; and MPI's own.
OTHERS = ["node", "native"]
ALL = [*OURS, *OTHERS]
PAIRS = [(dtype, op) for dtype in DTYPES for op in allowed_ops(dtype)]
WAYS = ("apart", "in place", "same", "made")
#: More than one piece of 256 KiB, and no multiple of it.
LARGE = 70001


@pytest.fixture(autouse=True)
def node_is_one(request):
    """Ranks on several nodes have no memory to share."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if params.get("algorithm") == "node" and not shares_memory():
        pytest.skip("ranks that do not share memory")


def shares_memory():
    return engine_of(MPI.COMM_WORLD).channel.together and library() is not None


def can(algorithm, dtype, op):
    """Whether an algorithm takes a dtype and an operation."""
    return native_can(dtype, op) if algorithm == "native" else algorithm != "node" or dtype not in LONG


def run(verdict, data, way, *what, **wishes):
    """One all-reduce of this rank's row: checks all but the numbers, and returns them."""
    mine = data[RANK]
    send = Guarded(mine.dtype, mine.size, mine)
    if way == "apart":
        recv = Guarded(mine.dtype, mine.size)
        result = allreduce.allreduce(send.array, recv.array, **wishes)
        verdict.check(result is recv.array, "returns recvbuf", *what)
        verdict.check(recv.intact(), "wrote beside recvbuf", *what)
    elif way == "made":
        result = allreduce.allreduce(send.array, **wishes)
    elif way == "same":
        result = allreduce.allreduce(send.array, send.array, **wishes)
    else:
        result = allreduce.allreduce(MPI.IN_PLACE, send.array, **wishes)
    if way in ("apart", "made"):
        verdict.check(significant(send.array) == significant(mine), "changed sendbuf", *what)
    else:
        verdict.check(result is send.array, "returns the buffer", *what)
    verdict.check(send.intact(), "wrote beside sendbuf", *what)
    verdict.same(result, *what)
    return result


@pytest.mark.parametrize("algorithm", ALL)
def test_grid(algorithm):
    shift = ALL.index(algorithm)
    with Verdict() as verdict:
        for i, (dtype, op) in enumerate(PAIRS):
            if algorithm == "node" and i % 4 and op != "sum":
                continue  # it has kernels of its own, each of which takes every rank a while to load
            count = counts()[(i + shift) % 6]
            way = WAYS[(i // 6 + i + shift) % 4]
            if not can(algorithm, dtype, op):
                continue
            # Open MPI's sums of 8 and 16 bits stick at the limits instead of wrapping
            data = exact(dtype, op, count, small=algorithm == "native")
            what = algorithm, str(dtype), op, count, way
            result = run(verdict, data, way, *what, op=op, algorithm=algorithm)
            # NumPy, behind long double and native, divides a complex number by way of a reciprocal
            verdict.equal(result, reduced(data, op), *what, ulps=2 * (dtype.kind == "c" and op == "avg"))


@pytest.mark.parametrize("algorithm", ALL)
def test_every_length_every_way(algorithm):
    with Verdict() as verdict:
        for count, way in product(counts(), WAYS):
            data = exact(np.dtype("i"), "sum", count)
            what = algorithm, count, way
            for _ in range(2):  # made, then found
                verdict.equal(run(verdict, data, way, *what, algorithm=algorithm), reduced(data, "sum"), *what)


@pytest.mark.parametrize("algorithm", ALL)
def test_long_buffers_travel_in_pieces(algorithm):
    with Verdict() as verdict:
        for i, (dtype, op) in enumerate((("d", "sum"), ("F", "prod"), ("e", "sum"), ("b", "max"), ("d", "avg"))):
            dtype = np.dtype(dtype)
            if not can(algorithm, dtype, op):
                continue
            data = exact(dtype, op, LARGE * (8 if dtype.itemsize == 1 else 1))
            what = algorithm, str(dtype), op
            way = WAYS[(i + ALL.index(algorithm)) % 4]
            verdict.equal(run(verdict, data, way, *what, op=op, algorithm=algorithm), reduced(data, op), *what)


@pytest.mark.parametrize("algorithm", [*OURS, "node"])
def test_rounding_is_bounded_and_bits_are_the_same(algorithm):
    """(p-1)*eps*sum|x| from the precise sum; a half is rounded on every hop."""
    with Verdict() as verdict:
        for (i, dtype), op in product(enumerate((*FLOATS, *COMPLEX)), ("sum", "avg")):
            if not can(algorithm, dtype, op):
                continue
            for count in (SIZE + 1, 1009):
                data, what = rough(dtype, count), (algorithm, str(dtype), op, count)
                result = run(verdict, data, WAYS[i % 4], *what, op=op, algorithm=algorithm)
                values = precise(data)
                size = np.abs(values).sum(0)
                wanted, bound = values.sum(0), (SIZE - 1) * epsilon(dtype) * size
                if op == "avg":
                    wanted, bound = wanted / SIZE, bound / SIZE + epsilon(dtype) * size / SIZE * (SIZE > 1)
                error = np.abs(precise(result) - wanted)
                verdict.check((error <= bound).all(), *what, "error", error.max(), "bound", bound.max())
        for dtype in (np.dtype("f"), np.dtype("D")):
            data = rough(dtype, 1009) + 1
            result = run(verdict, data, "apart", algorithm, str(dtype), op="prod", algorithm=algorithm)
            wanted = np.multiply.reduce(precise(data), axis=0)
            bound = 3 * (SIZE - 1) * epsilon(dtype) * np.multiply.reduce(np.abs(precise(data)), axis=0)
            verdict.check((np.abs(precise(result) - wanted) <= bound).all(), algorithm, str(dtype), "prod")


def specials(dtype, count):
    """NaN of both signs and other bits, infinities and zeros of both signs, among small numbers."""
    rng = seeded(str(dtype), count, SIZE)
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 0.0, -0.0, -0.0, 1.0, -1.0, 2.0], "d").astype(dtype)
    data = odd[rng.integers(0, len(odd), (SIZE, count))]
    zeros = odd[4:6][rng.integers(0, 2, (SIZE, count))]
    data = np.where(np.arange(count) % 3 == 0, zeros, data)
    data[:, 1] = -0.0
    if dtype in HALF:  # NaNs with other bits than NumPy's
        bits = data.view(np.uint16)
        bits[np.isnan(data.astype("f"))] |= rng.integers(0, 8, np.isnan(data.astype("f")).sum()).astype(np.uint16)
    return data


@pytest.mark.parametrize("algorithm", [*OURS, "node"])
def test_nan_wins_and_minus_zero_is_less_than_zero(algorithm):
    with Verdict() as verdict:
        for dtype, op in product(FLOATS, ("sum", "prod", "min", "max", "avg")):
            if not can(algorithm, dtype, op):
                continue
            data, what = specials(dtype, 211), (algorithm, str(dtype), op)
            result = run(verdict, data, "apart", *what, op=op, algorithm=algorithm)
            wide = data if dtype in LONG else data.astype("d")
            wanted = functools.reduce(UFUNCS[op], wide)  # NumPy's own reduce begins with +0
            if op == "avg":
                wanted = wanted / SIZE
            if op in ("min", "max"):
                signs = np.signbit(wide)
                zero = (wide == 0).any(0) & (wanted == 0)
                negative = (signs & (wide == 0)).any(0) if op == "min" else ~(~signs & (wide == 0)).any(0)
                wanted = np.where(zero, np.where(negative, -0.0, 0.0), wanted)
            verdict.equal(result, wanted.astype(dtype), *what)
            finite = ~np.isnan(wanted)
            got = result.astype("d")
            verdict.check((np.signbit(got) == np.signbit(wanted))[finite].all(), *what, "signs")
            if SIZE > 1:
                bits = {significant(x) for x in result[np.isnan(got)]}
                verdict.check(len(bits) <= 1, *what, "more than one NaN", bits)


def test_shared_memory_in_any_mixture_of_lengths():
    """Slots and areas are used in turn, by short and long vectors after each other, with ranks out of step."""
    if not shares_memory():
        pytest.skip("ranks that do not share memory")
    rng, slow = seeded("mixture"), np.random.default_rng(RANK)
    lengths = [1, 5, 7, 8, 9, 1000, 2048, 2049, 30000, 32768, 32769, 90001, 200003]
    data = {n: exact(np.dtype("q"), "sum", n) for n in lengths}
    wanted = {n: reduced(data[n], "sum") for n in lengths}
    with allreduce.Communicator() as comm, Verdict() as verdict:
        shared = [allreduce.empty_shared(max(lengths), "q", comm=comm) for _ in range(2)]
        for i in range(150):
            n, way = int(rng.choice(lengths)), int(rng.integers(4))
            if slow.integers(10) == 0:
                time.sleep(0.001)
            send = shared[0][:n] if way & 1 else np.empty(n, "q")
            recv = shared[1][:n] if way & 2 else np.empty(n, "q")
            send[:] = data[n][RANK]
            allreduce.allreduce(send, recv, comm=comm, algorithm="node")
            verdict.equal(recv, wanted[n], i, n, way)
            verdict.equal(send, data[n][RANK], i, n, way, "sendbuf")
            if way == 3:
                allreduce.allreduce(MPI.IN_PLACE, send, comm=comm, algorithm="node")
                verdict.equal(send, wanted[n], i, n, "in place")


# --- accumulate, averages, booleans ---------------------------------------------------------------


@pytest.mark.parametrize("algorithm", OURS)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_accumulate_rounds_a_half_once(algorithm, dtype):
    with Verdict() as verdict:
        for count, op, way in zip((0, 1, SIZE + 1, 1009, LARGE), ("sum", "avg", "sum", "avg", "sum"), (*WAYS, "apart")):
            data, what = rough(dtype, count), (algorithm, str(dtype), op, count, way)
            result = run(verdict, data, way, *what, op=op, algorithm=algorithm, accumulate="float32")
            values = precise(data)
            size, wanted = np.abs(values).sum(0), values.sum(0)
            if op == "avg":
                size, wanted = size / SIZE, wanted / SIZE
            # rounded to nearest: half a unit in the last place, and beside that only what float32 errs
            bound = epsilon(dtype) / 2 * np.abs(wanted) + SIZE * 2.0**-23 * size + 2.0**-25 * (dtype != BFLOAT16)
            error = np.abs(precise(result) - wanted)
            verdict.check((error <= bound).all(), *what, "error", error, "bound", bound)


def test_accumulate_takes_other_types_and_collectives():
    with Verdict() as verdict:
        data = np.full((SIZE, 2 * SIZE), 100, np.int8)
        for algorithm in ("ring", "direct", "binomial_tree"):
            result = allreduce.allreduce(data[RANK], op="avg", accumulate=np.int32, algorithm=algorithm)
            verdict.equal(result, data[0], algorithm, "avg of int8 in int32")
        values = rough(np.dtype("e"), 3 * SIZE)
        wide = values.astype("f").sum(0)
        for wish in ("float32", np.float32, np.dtype("f")):
            got = allreduce.reduce_scatter(values[RANK], accumulate=wish)
            verdict.check(np.allclose(got, wide.reshape(SIZE, 3)[RANK], rtol=2**-10, atol=1e-4), "reduce_scatter", wish)
            for root in range(SIZE):
                got = allreduce.reduce(values[RANK], root=root, accumulate=wish)
                verdict.check((got is None) == (root != RANK), "reduce", root)
                verdict.check(got is None or np.allclose(got, wide, rtol=2**-10, atol=1e-4), "reduce", root, wish)


def test_accumulate_takes_every_name_of_the_sum():
    values = rough(np.dtype("e"), 2 * SIZE)
    with Verdict() as verdict:
        for op, function in product(
            ("sum", MPI.SUM, np.add), (allreduce.allreduce, allreduce.reduce_scatter, allreduce.reduce)
        ):
            try:
                function(values[RANK], op=op, accumulate="float32")
            except ValueError as error:  # at the door, on all ranks
                verdict.check(False, function.__name__, str(error))


@pytest.mark.parametrize("algorithm", ALL)
def test_averages_and_booleans(algorithm):
    with Verdict() as verdict:
        odd = np.array([-1, -7, 7, 1, 0], np.int32)
        data = np.stack([odd if r == SIZE - 1 else odd * 0 for r in range(SIZE)])
        result = allreduce.allreduce(data[RANK], op="avg", algorithm=algorithm)
        verdict.equal(result, odd // SIZE, algorithm, "averages of integers round down")
        halves = np.arange(SIZE * 4.0).reshape(SIZE, 4)
        result = allreduce.allreduce(halves[RANK], op="avg", algorithm=algorithm)
        verdict.equal(result, halves.sum(0) / SIZE, algorithm, "averages of floats do not")
        if algorithm != "native":
            truth = np.arange(SIZE)[:, None] == np.array([0, SIZE - 1, SIZE])
            verdict.equal(allreduce.allreduce(truth[RANK], algorithm=algorithm), np.array([True, True, False]), "any")
            result = allreduce.allreduce(~truth[RANK], op="prod", algorithm=algorithm)
            verdict.equal(result, np.array([False, False, True]), "all")


def test_names_mpi_ops_and_ufuncs_are_one():
    with Verdict() as verdict:
        for op in NAMES:
            data = exact(np.dtype("i"), op, 17)
            for name in (op, NAMES[op], UFUNCS[op]):
                verdict.equal(allreduce.allreduce(data[RANK], op=name), reduced(data, op), op, repr(name))


# --- operations of the caller's own ---------------------------------------------------------------

U64 = np.dtype(np.uint64)
LOW = np.uint64(0xFFFFFFFF)


def affine(a, b):
    """First b, then a, of functions x -> m*x + c modulo 2^32, packed as m and c: order matters, grouping does not."""
    m, c = a >> np.uint64(32), a & LOW
    n, d = b >> np.uint64(32), b & LOW
    return (m * n & LOW) << np.uint64(32) | (m * d + c & LOW)


def matrices(a, b):
    """Products of 2x2 matrices, structured."""
    out = np.empty_like(a)
    for i, j in product("xy", "xy"):
        out[i + j] = a[i + "x"] * b["x" + j] + a[i + "y"] * b["y" + j]
    return out


MATRIX = np.dtype([(i + j, np.int64) for i in "xy" for j in "xy"])


def in_order(function, data):
    return functools.reduce(function, data)


def as_mpi(function, dtype, commute):
    def reduce(a, b, datatype):
        out = np.frombuffer(b, dtype)
        out[...] = function(np.frombuffer(a, dtype), out)

    return MPI.Op.Create(reduce, commute=commute)


def packed(count):
    return seeded("packed", count).integers(0, 2**63, (SIZE, count), U64.type)


@pytest.mark.parametrize("algorithm", [*OURS, "auto", "native"])
def test_operations_that_do_not_commute_keep_rank_order(algorithm):
    mpi_op = as_mpi(affine, U64, commute=False)
    ordered = algorithm in ("auto", "native") or TABLE[algorithm].ordered
    with Verdict() as verdict:
        for op, count, way in product((affine, mpi_op), (1, SIZE + 1, 300), ("apart", "in place")):
            data, what = packed(count), (algorithm, type(op).__name__, count, way)
            if op is affine and algorithm == "native":
                continue
            if ordered:
                result = run(verdict, data, way, *what, op=op, algorithm=algorithm)
                verdict.equal(result, in_order(affine, data), *what)
            else:
                with pytest.raises(ValueError, match=f"{algorithm} does not keep rank order.*binomial_tree"):
                    allreduce.allreduce(data[RANK], op=op, algorithm=algorithm)
        if ordered and algorithm != "native":
            data = seeded("matrices").integers(-9, 9, (SIZE, 5, 4)).view(MATRIX)[..., 0]
            result = allreduce.allreduce(data[RANK], op=matrices, algorithm=algorithm)
            verdict.check(result.tolist() == in_order(matrices, data).tolist(), algorithm, "matrices", result)
    mpi_op.Free()


def both(a, b):
    """Commutes."""
    return a + b + a * b


both.commutative = True


@pytest.mark.parametrize("algorithm", [*OURS, "native"])
def test_operations_that_commute_run_on_every_algorithm(algorithm):
    mpi_op = as_mpi(both, U64, commute=True)
    with Verdict() as verdict:
        for op in (both, mpi_op):
            if op is both and algorithm == "native":
                continue
            data = packed(SIZE + 3)
            result = run(verdict, data, "apart", algorithm, op=op, algorithm=algorithm)
            verdict.equal(result, in_order(both, data), algorithm, repr(op))
    mpi_op.Free()


def test_order_is_kept_by_the_other_collectives():
    mpi_op = as_mpi(affine, U64, commute=False)
    data = packed(3 * SIZE)
    wanted = in_order(affine, data)
    with Verdict() as verdict:
        for op in (affine, mpi_op):
            got = allreduce.reduce_scatter(data[RANK], op=op)
            verdict.equal(got, wanted.reshape(SIZE, 3)[RANK], "reduce_scatter", repr(op))
            got = allreduce.reduce(data[RANK], op=op)
            verdict.check(RANK > 0 or np.array_equal(got, wanted), "reduce", repr(op))
            if SIZE > 1:
                with pytest.raises(ValueError, match="root 0"):
                    allreduce.reduce(data[RANK], op=op, root=SIZE - 1)
    mpi_op.Free()


# --- buffers of all kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "direct", "binomial_tree", *OTHERS])
def test_shapes(algorithm):
    with Verdict() as verdict:
        for make in (
            lambda: np.array(float(RANK)),
            lambda: np.arange(6.0).reshape(2, 3) + RANK,
            lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3) + RANK),
            lambda: np.arange(24.0).reshape(2, 3, 4)[1] + RANK,
            lambda: np.ones((3, 0)) + RANK,
            lambda: np.arange(24.0).reshape(2, 3, 4).T + RANK,
        ):
            mine = make()
            wanted = mine * SIZE + SIZE * (SIZE - 1) / 2 - RANK * SIZE
            what = algorithm, mine.shape, mine.strides
            kept = mine.copy(order="K")
            verdict.equal(np.asarray(allreduce.allreduce(mine, algorithm=algorithm)), wanted, *what, "made")
            recv = np.full_like(mine, -1)
            allreduce.allreduce(mine, recv, algorithm=algorithm)
            verdict.equal(recv, wanted, *what, "apart")
            verdict.equal(mine, kept, *what, "sendbuf")
            allreduce.allreduce(MPI.IN_PLACE, mine, algorithm=algorithm)
            verdict.equal(mine, wanted, *what, "in place")


def test_made_results_look_like_what_was_sent():
    mine = np.asfortranarray(np.ones((2, 3), np.float32))
    made = allreduce.allreduce(mine)
    assert made.shape == (2, 3) and made.dtype == np.float32 and made.flags.f_contiguous
    assert allreduce.allreduce(np.array(1.0)).shape == ()


def test_other_shapes_of_one_size_are_one_buffer():
    recv = np.empty((3, 4))
    allreduce.allreduce(np.ones(12), recv)
    assert (recv == SIZE).all()


def test_buffers_that_are_no_arrays():
    with Verdict() as verdict:
        for _ in range(2):
            recv = array.array("d", [0, 0])
            result = allreduce.allreduce(array.array("d", [RANK, 1]), recv)
            verdict.check(result is recv and list(recv) == [SIZE * (SIZE - 1) / 2, SIZE], "array.array", recv)
            memory = memoryview(bytearray(range(6)))
            allreduce.allreduce(MPI.IN_PLACE, memory, op="max")
            verdict.check(bytes(memory) == bytes(range(6)), "memoryview", bytes(memory))
            allreduce.allreduce(bytes([RANK]), memory[:1], op=MPI.MAX)
            verdict.check(memory[0] == SIZE - 1, "bytes", memory[0])
            made = allreduce.allreduce(array.array("i", [1, 2]))
            verdict.check(list(made) == [SIZE, 2 * SIZE], "made", made)


def test_messages_as_mpi4py_has_them():
    with Verdict() as verdict:
        send, recv = np.full(4, RANK, "f"), np.zeros(4, "f")
        for spec in (
            lambda a: [a, MPI.FLOAT],
            lambda a: (a, MPI.FLOAT),
            lambda a: [a, 4, MPI.FLOAT],
            lambda a: [a, 4],
            lambda a: [a, "f"],
            lambda a: [a],
        ):
            recv[:] = 0
            allreduce.allreduce(spec(send), spec(recv))
            verdict.check((recv == SIZE * (SIZE - 1) / 2).all(), spec(send))
        recv[:] = -1
        allreduce.allreduce([send, 3, MPI.FLOAT], [recv, 3, MPI.FLOAT])
        verdict.check((recv[:3] == SIZE * (SIZE - 1) / 2).all() and recv[3] == -1, "three of four", recv)


# --- the other collectives ------------------------------------------------------------------------


def test_auto_takes_long_vectors_over_every_link_once():
    alone, pairs = tuple((r,) for r in range(8)), tuple((r, r + 1) for r in range(0, 8, 2))
    assert choose("allreduce", 8, 1 << 24, nodes=pairs).name == "hierarchical"
    assert choose("allreduce", 8, 1 << 24, nodes=alone).name == "rabenseifner"  # and not a circulant of the same price
    assert choose("allreduce", 5, 1 << 24, nodes=alone[:5]).name == "ring"
    for nbytes, ordered, nodes in ((64, False, pairs), (1 << 24, True, pairs), (1 << 12, False, alone)):
        assert choose("allreduce", 8, nbytes, ordered, nodes).name == choose("allreduce", 8, nbytes, ordered).name
    assert choose("reduce_scatter", 8, 1 << 24, nodes=pairs).name != "hierarchical"


def test_long_vectors_go_round_a_ring_of_nodes():
    pairs = tuple((r, r + 1) for r in range(0, 8, 2))
    assert [across(pairs, n) for n in (1 << 20, 1 << 22)] == ["circulant", "ring"]
    assert across(((0, 1), (2, 3)), 1 << 30) == across((), 1 << 30) == "circulant"
    assert across(tuple((r,) for r in range(1000)), 1 << 22) == "circulant"


def test_the_engine_asks_that_where_there_is_no_codec():
    nodes = "+".join("1" * SIZE)
    with allreduce.Communicator(MPI.COMM_WORLD) as comm:
        for n, codec in ((1 << 10, None), (1 << 20, None), (1 << 20, "int8")):
            x = np.ones(n, np.float32)
            result = allreduce.allreduce(x, comm=comm, algorithm=f"hierarchical:nodes={nodes}", codec=codec)
            assert np.allclose(result, SIZE, rtol=0.1)
        ways = {(o.count, o.codec is None): dict(o.params).get("between") for o in comm.engine.channel.plans}
    short, long = (across(tuple((r,) for r in range(SIZE)), 4 * n) for n in (1 << 10, 1 << 20))
    assert (ways[1 << 10, True], ways[1 << 20, True], ways[1 << 20, False]) == (short, long, None)


@pytest.mark.parametrize("algorithm", [*allreduce.algorithms("reduce_scatter"), "auto", *OTHERS])
def test_reduce_scatter(algorithm):
    with Verdict() as verdict:
        for dtype, op, share in (
            ("i", "sum", 0), ("i", "sum", 1), ("q", "max", 3), ("d", "avg", 5), ("F", "prod", 7), ("f", "min", 303),
            ("d", "sum", 9001),
        ):  # fmt: skip
            data, what = exact(np.dtype(dtype), op, share * SIZE), (algorithm, dtype, op, share)
            wanted = reduced(data, op)[RANK * share : (RANK + 1) * share]
            send = Guarded(data.dtype, share * SIZE, data[RANK])
            made = allreduce.reduce_scatter(send.array, op=op, algorithm=algorithm)
            verdict.equal(made, wanted, *what, "made")
            recv = Guarded(data.dtype, share)
            allreduce.reduce_scatter(send.array, recv.array, op=op, algorithm=algorithm)
            verdict.equal(recv.array, wanted, *what, "apart")
            verdict.check(recv.intact() and send.intact(), *what, "zones")
            verdict.check(np.array_equal(send.array, data[RANK]), *what, "changed sendbuf")
            allreduce.reduce_scatter(MPI.IN_PLACE, send.array, op=op, algorithm=algorithm)
            verdict.equal(send.array[:share], wanted, *what, "in place")
            verdict.check(send.intact(), *what, "zones in place")


@pytest.mark.parametrize("algorithm", [*allreduce.algorithms("allgather"), "auto", *OTHERS])
def test_allgather(algorithm):
    with Verdict() as verdict:
        for dtype, share in (("i", 0), ("i", 1), ("F", 3), ("?", 17), ("d", 1009), ("g", 5), ("b", 300001)):
            if not can(algorithm, np.dtype(dtype), "max"):
                continue
            data, what = exact(np.dtype(dtype), "max", share), (algorithm, dtype, share)
            send = Guarded(data.dtype, share, data[RANK])
            made = allreduce.allgather(send.array, algorithm=algorithm)
            verdict.equal(made, data, *what, "made")
            recv = Guarded(data.dtype, share * SIZE)
            allreduce.allgather(send.array, recv.array, algorithm=algorithm)
            verdict.equal(recv.array, data.reshape(-1), *what, "apart")
            verdict.check(np.array_equal(send.array, data[RANK]), *what, "changed sendbuf")
            recv.array[:] = 0
            recv.array[RANK * share : (RANK + 1) * share] = data[RANK]
            allreduce.allgather(MPI.IN_PLACE, recv.array, algorithm=algorithm)
            verdict.equal(recv.array, data.reshape(-1), *what, "in place")
            verdict.check(recv.intact() and send.intact(), *what, "zones")


def test_allgather_of_fortran_arrays_stacks_them():
    data = np.arange(SIZE * 6.0).reshape(SIZE, 2, 3)
    with Verdict() as verdict:
        try:
            got = allreduce.allgather(np.asfortranarray(data[RANK]))
        except ValueError:  # refused at the door is as good
            return
        verdict.equal(got, data, "fortran")


@pytest.mark.parametrize("algorithm", ["auto", "ring", "native"])
def test_fortran_arrays_in_place(algorithm):
    """A share is a run of memory, here a column."""
    data, whole = np.arange(6.0 * SIZE).reshape(SIZE, 6), np.zeros((6, SIZE), order="F")
    with Verdict() as verdict:
        whole[:, RANK] = data[RANK]
        allreduce.allgather(MPI.IN_PLACE, whole, algorithm=algorithm)
        verdict.equal(whole, data.T, algorithm, "allgather")
        mean = allreduce.allreduce(np.full((2, 3), 2.0 * RANK, order="F"), op="avg", algorithm=algorithm)
        verdict.equal(mean, np.full((2, 3), SIZE - 1.0), algorithm, "avg")


@pytest.mark.parametrize("algorithm", [*allreduce.algorithms("reduce"), "auto", *OTHERS])
def test_reduce(algorithm):
    with Verdict() as verdict:
        for root in range(SIZE):
            for dtype, op, count in (
                ("i", "sum", 1), ("d", "avg", SIZE + 1), ("e", "max", 300), ("D", "prod", 20001)
            ):  # fmt: skip
                if not can(algorithm, np.dtype(dtype), op):
                    continue
                data, what = exact(np.dtype(dtype), op, count), (algorithm, dtype, op, count, "root", root)
                wishes, wanted = {"op": op, "root": root, "algorithm": algorithm}, reduced(data, op)
                send, recv = Guarded(data.dtype, count, data[RANK]), Guarded(data.dtype, count)
                blank = recv.raw.copy()
                result = allreduce.reduce(send.array, recv.array, **wishes)
                verdict.check((result is recv.array) if root == RANK else result is None, *what, "returns", result)
                if root == RANK:
                    verdict.equal(recv.array, wanted, *what)
                else:
                    verdict.check(np.array_equal(recv.raw, blank), *what, "wrote to a buffer that is not the root's")
                verdict.check(np.array_equal(send.array, data[RANK]), *what, "changed sendbuf")
                verdict.check(recv.intact() and send.intact(), *what, "zones")
                made = allreduce.reduce(send.array, **wishes)
                verdict.check((made is None) == (root != RANK), *what, "made")
                if root == RANK:
                    verdict.equal(made, wanted, *what, "made")
                    allreduce.reduce(MPI.IN_PLACE, send.array, **wishes)
                    verdict.equal(send.array, wanted, *what, "in place")
                else:
                    allreduce.reduce(send.array, **wishes)
                    verdict.check(np.array_equal(send.array, data[RANK]), *what, "changed sendbuf")


@pytest.mark.parametrize("algorithm", [*allreduce.algorithms("bcast"), "auto", *OTHERS])
def test_bcast(algorithm):
    with Verdict() as verdict:
        for root in range(SIZE):
            for dtype, count in (("i", 0), ("i", 1), ("e", SIZE + 1), ("D", 300), ("b", 300001), ("g", 3)):
                if not can(algorithm, np.dtype(dtype), "max"):
                    continue
                data, what = exact(np.dtype(dtype), "max", count), (algorithm, dtype, count, "root", root)
                buf = Guarded(data.dtype, count, data[RANK])
                if root == RANK:
                    buf.array.flags.writeable = False
                result = allreduce.bcast(buf.array, root, algorithm=algorithm)
                verdict.check(result is buf.array and buf.intact(), *what)
                verdict.equal(buf.array, data[root], *what)


# --- parameters -----------------------------------------------------------------------------------


def factors(size, dimensions):
    """All grids of so many dimensions."""
    if dimensions == 1:
        return [(size,)]
    return [(d, *rest) for d in range(1, size + 1) if size % d == 0 for rest in factors(size // d, dimensions - 1)]


def nodes_of(size):
    """Nodes of unequal numbers of ranks, as text."""
    splits = {(size,), (1,) * size}
    if size > 1:
        splits |= {(1, size - 1), (size - 1, 1)}
    if size > 3:
        splits |= {(2, 1, size - 3), (size - 2, 2)}
    return ["+".join(map(str, split)) for split in sorted(splits)]


STEPS = ".".join(map(str, range(SIZE)))
NAMED = [
    *(f"torus:grid={'x'.join(map(str, grid))}" for d in (1, 2, 3) for grid in factors(SIZE, d)),
    *(f"2d-torus:grid={a}x{b}" for a, b in factors(SIZE, 2)),
    *(f"torus-two-way:grid={a}x{b}" for a, b in factors(SIZE, 2)),
    *(f"recursive_multiplying:radix={k}" for k in (2, 3, 5, 9)),
    *(f"kary_tree:radix={k}" for k in (1, 2, 3, 9)),
    *(f"{name}:segments={s}" for name in ("pipelined_tree", "double_binary_tree") for s in (1, 3, 17)),
    *(f"multi_ring:rings={n}" for n in (1, 2, 9)),
    f"multi_ring:orders={STEPS}+{STEPS[::-1]}",
    *(f"{name}: nodes={nodes}" for name in ("hierarchical", "Hierarchical-Leaders") for nodes in nodes_of(SIZE)),
    "tree", "halving-doubling", "two_shot", "parameter_server", "recursive-doubling", "double-tree", "traeff",
]  # fmt: skip


def test_parameters_and_aliases():
    with Verdict() as verdict:
        for i, name in enumerate(NAMED):
            for j, count in enumerate((1, SIZE + 1, 1009)):
                data = exact(np.dtype("q"), "sum", count)
                way = WAYS[(i + j) % 4]
                what = name, count, way
                verdict.equal(run(verdict, data, way, *what, algorithm=name), reduced(data, "sum"), *what)


def test_parameters_of_the_other_collectives():
    with Verdict() as verdict:
        data = exact(np.dtype("q"), "sum", 6 * SIZE)
        wanted = reduced(data, "sum")
        for name in ("pipelined_tree:segments=3", "kary_tree:radix=2", "kary_tree:radix=1"):
            for root in range(SIZE):
                got = allreduce.reduce(data[RANK], root=root, algorithm=name)
                verdict.check(root != RANK or np.array_equal(got, wanted), name, "reduce", root)
                got = allreduce.bcast(data[RANK].copy(), root, algorithm=name)
                verdict.equal(got, data[root], name, "bcast", root)
        for name in ("multi_ring:rings=3", f"multi_ring:orders={STEPS}+{STEPS[::-1]}"):
            verdict.equal(allreduce.reduce_scatter(data[RANK], algorithm=name), np.split(wanted, SIZE)[RANK], name)
            verdict.equal(allreduce.allgather(data[RANK], algorithm=name), data, name)


def test_parameters_are_told_apart():
    """Plans of one algorithm with other parameters are other plans."""
    grids = factors(SIZE, 2)
    data = exact(np.dtype("i"), "sum", 50)
    with allreduce.Communicator() as comm:
        for a, b in grids:
            allreduce.allreduce(data[RANK], comm=comm, algorithm=f"torus:grid={a}x{b}")
        assert len(comm.engine.channel.plans) == len(grids) and prod(grids[0]) == SIZE


# --- both interpreters ----------------------------------------------------------------------------


def results(algorithm, comm):
    """A bit of everything, with numbers that round."""
    found = []
    for dtype, op, count in (
        ("f", "sum", 1009), ("d", "avg", SIZE + 1), ("e", "sum", 300), (BFLOAT16, "avg", 300), ("D", "prod", 77),
        ("i", "bxor", 1), ("?", "lxor", SIZE), ("g", "sum", 40), ("f", "max", 0), ("f", "sum", 2 * LARGE),
    ):  # fmt: skip
        dtype = np.dtype(dtype)
        data = exact(dtype, op, count) if dtype.kind in "biu" else rough(dtype, count)
        found.append(allreduce.allreduce(data[RANK], op=op, comm=comm, algorithm=algorithm))
        same = data[RANK].copy()
        found.append(allreduce.allreduce(MPI.IN_PLACE, same, op=op, comm=comm, algorithm=algorithm))
    data = rough(np.dtype("e"), 5 * SIZE)
    found.append(allreduce.allreduce(data[RANK], comm=comm, algorithm=algorithm, accumulate="float32"))
    if TABLE[algorithm].owner == "rank":
        found.append(allreduce.reduce_scatter(data[RANK], comm=comm, algorithm=algorithm))
        found.append(allreduce.allgather(data[RANK], comm=comm, algorithm=algorithm))
    if TABLE[algorithm].owner == "root":
        made = allreduce.reduce(data[RANK], comm=comm, root=SIZE - 1, algorithm=algorithm)
        found.append(data[RANK] if made is None else made)
        found.append(allreduce.bcast(data[RANK].copy(), SIZE - 1, comm=comm, algorithm=algorithm))
    return [significant(array) for array in found]


def compiled_plans(comm):
    """Whether the compiled loop runs the plans; it gives each the address of a state."""
    return {plan.state != 0 for plan in comm.engine.channel.plans.values() if plan.order.dtype != LONG[0]}


@pytest.mark.parametrize("algorithm", OURS)
def test_both_interpreters_give_the_same_bits(algorithm, comm, request):
    compiled = results(algorithm, comm)
    assert compiled_plans(comm) == {True}
    request.getfixturevalue("python_loop")
    with allreduce.Communicator() as other, Verdict() as verdict:
        interpreted = results(algorithm, other)
        verdict.check(compiled_plans(other) == {False}, "does not run the Python loop")
        verdict.check(interpreted == compiled, algorithm, [a == b for a, b in zip(interpreted, compiled)])


def test_the_python_loop_runs_many_at_once(python_loop):
    with allreduce.Communicator() as comm, Verdict() as verdict:
        data = [exact(np.dtype("i"), "sum", 100 + i, seed=i) for i in range(6)]
        requests = [comm.Iallreduce(d[RANK], np.empty(100 + i, "i")) for i, d in enumerate(data)]
        for i in np.random.default_rng(RANK).permutation(6):
            requests[i].Wait()
        for request, d in zip(requests, data):
            verdict.equal(request.result, reduced(d, "sum"), "in flight")

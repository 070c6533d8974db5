"""Codecs inside the all-reduce, against what the rules say: every algorithm and codec, the same bytes on all ranks."""

from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI
from ruled import ruled
from witness import RANK, SIZE, WORLD, Guarded, Verdict, rough, seeded

import allreduce
import compress
from allreduce.algorithms import TABLE
from allreduce.costs import segmented
from allreduce.engine import engine_of

pytestmark = pytest.mark.mpi

OURS = allreduce.algorithms()
F = np.dtype("f")
#: One of every kind of message, of every way to round; the last three run in Python.
CODECS = [
    "float16", "int8", "int4:block=32", "int3:rounding=stochastic", "sign:block=64", "eden:block=64",
    "topk:ratio=0.1", "randomk:ratio=0.2", "threshold:least=0.5", "bounded:eb=0.02", "lossless",
]  # fmt: skip
PYTHON = CODECS[-3:]
METHODS = {
    "feedback": "feedback(topk:ratio=0.25):warmup=4", "dgc": "dgc(topk:ratio=0.25):momentum=0.1",
    "ef21": "ef21(topk:ratio=0.25)", "diana": "diana(int8)", "powersgd": "powersgd:rank=4", "thc": "thc:width=6",
    "sparcml": "sparcml(topk:ratio=0.25)", "gtopk": "gtopk:ratio=0.25", "oktopk": "oktopk:ratio=0.25",
}  # fmt: skip
#: What feeds back the losses of every hop.
LOSING = ["feedback(int4)", "gtopk:ratio=0.02", "oktopk:ratio=0.02"]
#: Gradients of a small model, a row per rank; ../data/make_gradients.py made them.
STORED = {path.stem: np.load(path, allow_pickle=False) for path in Path(__file__).parents[1].glob("data/*.npy")}
WAYS = ("apart", "in place", "same", "made")


def some(algorithm):
    """Every third codec, dealt out among the algorithms."""
    return CODECS[OURS.index(algorithm) % 3 :: 3]


def expected(algorithm, data, codec, number, op="sum", **facts):
    """What the rules say, for as many segments as the engine takes for so many bytes on the wire."""
    codec = compress.get(codec)
    params = segmented(algorithm, SIZE, codec.nbytes(data.shape[1]), {})
    return ruled(algorithm, data, codec, number, op, **facts, **params)


def run(verdict, data, algorithm, codec, way="apart", comm=None, op="sum", **wishes):
    """One all-reduce of this rank's row, checked against the rules, and its error against the bound."""
    what, mine = (algorithm, codec, data.dtype, data.shape[1], way, op), data[RANK]
    wishes |= {"algorithm": algorithm, "codec": codec, "comm": comm, "op": op}
    number = int(engine_of(comm).channel.counters[0])
    send, recv = Guarded(mine.dtype, mine.size, mine), Guarded(mine.dtype, mine.size)
    if way == "in place":
        result = allreduce.allreduce(MPI.IN_PLACE, send.array, **wishes)
    elif way == "same":
        result = allreduce.allreduce(send.array, send.array, **wishes)
    else:
        result = allreduce.allreduce(send.array, recv.array if way == "apart" else None, **wishes)
        verdict.check(send.array.tobytes() == mine.tobytes(), "changed sendbuf", *what)
    verdict.check(send.intact() and recv.intact(), "wrote beside a buffer", *what)
    verdict.same(result, *what)
    wanted, bound = expected(algorithm, data, codec, number, op)
    verdict.check(result.tobytes() == wanted.tobytes(), *what, result[:4], wanted[:4])
    exact = data.astype("d").sum(0) / (SIZE if op == "avg" else 1)
    if np.isfinite(exact).all():
        error = np.abs(result.astype("d") - exact)
        verdict.check((error <= bound * (1 + 1e-9)).all(), *what, "error", error[:4], "bound", bound[:4])
    return result


@pytest.mark.parametrize("algorithm", OURS)
def test_every_codec_and_length(algorithm):
    with Verdict() as verdict:
        for i, codec in enumerate(some(algorithm) if SIZE > 4 else CODECS):
            block = max(compress.get(codec).block, 8)
            for j, count in enumerate((0, 1, block - 1, block, block + 1, 1009)):
                run(verdict, rough(F, count), algorithm, codec, WAYS[(i + j) % 4])


@pytest.mark.parametrize("algorithm", OURS)
def test_every_dtype(algorithm):
    with Verdict() as verdict:
        dtypes = np.dtype("e"), np.dtype(ml_dtypes.bfloat16), np.dtype("d")
        for dtype, codec, (op, way) in product(dtypes, ("int4:block=32", "bounded:eb=0.02"), zip(("sum", "avg"), WAYS)):
            run(verdict, rough(dtype, 333), algorithm, codec, way, op=op)


@pytest.mark.parametrize("algorithm", OURS)
def test_long_messages_travel_in_strips(algorithm):
    with Verdict() as verdict:
        for codec, count in (("int8", 400007), ("topk:ratio=0.1", 400001), ("lossless", 70001)):
            run(verdict, rough(F, count), algorithm, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_data_of_every_kind(codec):
    rng, n = seeded(codec), 500
    gauss = rng.standard_normal((SIZE, n)).astype(F)
    kinds = {
        "heavy-tailed": rng.standard_cauchy((SIZE, n)).astype(F),
        "sparse": gauss * (rng.random((SIZE, n)) < 0.02).astype(F),
        "constant": np.full((SIZE, n), -0.3, F),
        "denormal": gauss * F.type(2.0**-64) * F.type(2.0**-72),
        "zero": np.zeros((SIZE, n), F),
        **{name: rows[:SIZE, :n] for name, rows in STORED.items()},
        "poisoned": np.where(rng.random((SIZE, n)) < 0.02, rng.choice([np.nan, np.inf, -np.inf], (SIZE, n)), gauss),
    }
    with Verdict() as verdict:
        for data, algorithm in product(kinds.values(), ("ring", "direct", "recursive_doubling", "double_binary_tree")):
            run(verdict, data.astype(F), algorithm, codec)


@pytest.mark.parametrize("algorithm", OURS)
def test_real_gradients_in_four_bits(algorithm):
    with Verdict() as verdict:
        for rows in STORED.values():
            run(verdict, rows[:SIZE], algorithm, "int4:block=32")


def test_lossless_changes_nothing():
    with Verdict() as verdict:
        for algorithm, dtype in product(OURS, (F, np.dtype("e"))):
            data = rough(dtype, 1009)
            plain = allreduce.allreduce(data[RANK], algorithm=algorithm)
            if TABLE[algorithm].owner not in ("rank", "some"):  # there blocks are cut alike
                result = allreduce.allreduce(data[RANK], algorithm=algorithm, codec="lossless")
                verdict.check(result.tobytes() == plain.tobytes(), algorithm, dtype)


def test_half_precision_summed_in_float32():
    with Verdict() as verdict:
        for algorithm in OURS:
            data = rough(np.dtype("e"), 777)
            number = int(engine_of(None).channel.counters[0])
            result = allreduce.allreduce(data[RANK], algorithm=algorithm, codec="int8", accumulate="float32")
            wanted, _ = expected(algorithm, data.astype(F), "int8", number)
            verdict.check(result.tobytes() == wanted.astype("e").tobytes(), algorithm)


def test_reduce():
    with Verdict() as verdict:
        for algorithm, codec, root in product(allreduce.algorithms("reduce"), ("int8", "bounded"), range(SIZE)):
            data = rough(F, 300)
            number = int(engine_of(None).channel.counters[0])
            result = allreduce.reduce(data[RANK], root=root, algorithm=algorithm, codec=codec)
            wanted, _ = expected(algorithm, data, codec, number, collective="reduce", root=root)
            verdict.check((result is None) == (root != RANK), algorithm, codec, root, "returns", result)
            verdict.check(result is None or result.tobytes() == wanted.tobytes(), algorithm, codec, root)


def test_the_compiled_loop_runs_what_has_kernels_and_the_shortest_way_leads_there(comm):
    data = rough(F, 500)
    with Verdict() as verdict:
        for codec in CODECS:
            results = [run(verdict, data, "ring", codec, comm=comm) for _ in range(3)]
            random = compress.get(codec).random and SIZE > 1
            verdict.check(len({r.tobytes() for r in results}) == (3 if random else 1), codec, "noise of operations")
        plans, slow = comm.engine.channel.plans, PYTHON if SIZE > 1 else []  # alone, one encodes nothing
        interpreted = {order.codec for order, plan in plans.items() if not plan.state}
        verdict.check(interpreted == set(map(compress.get, slow)), interpreted)
        fast = {key[-1] for key in comm.engine.channel.fast}
        verdict.check(fast == set(CODECS) - set(slow), fast)


def test_the_python_loop_gives_the_same_bits(python_loop):
    with allreduce.Communicator() as comm, Verdict() as verdict:
        for algorithm in OURS:
            for codec in some(algorithm):
                run(verdict, rough(F, 300), algorithm, codec, comm=comm)
        verdict.check({plan.state for plan in comm.engine.channel.plans.values()} == {0}, "ran the compiled loop")


def test_many_in_flight_at_once(comm):
    data = {codec: rough(F, 400, seed=i) for i, codec in enumerate(CODECS)}
    requests = {
        codec: (
            int(comm.engine.channel.counters[0]),
            comm.engine.request("allreduce", data[codec][RANK], None, algorithm="circulant", codec=codec),
        )
        for codec in CODECS
    }
    with Verdict() as verdict:
        for i in np.random.default_rng(RANK).permutation(len(CODECS)):
            number, request = requests[CODECS[i]]
            wanted, _ = expected("circulant", data[CODECS[i]], CODECS[i], number)
            verdict.check(request.wait().tobytes() == wanted.tobytes(), CODECS[i])


def test_every_codec_of_the_table():
    with Verdict() as verdict:
        for name in compress.TABLE:
            if name not in METHODS:
                for algorithm in ("ring", "recursive_doubling", "binomial_tree"):
                    run(verdict, rough(F, 1009), algorithm, name)


# --- methods --------------------------------------------------------------------------------------


def test_a_method_has_a_memory_per_communicator_and_tensor(comm):
    """What came out and what remains is what was given."""
    method = compress.get("feedback(threshold:least=0.7)")
    total, given = np.zeros(300), np.zeros(300)
    with Verdict() as verdict:
        for step in range(5):
            data = rough(F, 300, seed=step)
            before = data[RANK].copy()
            for key in ("a", "b"):
                out = allreduce.allreduce(data[RANK], comm=comm, codec=method, key=key, algorithm="star", op="avg")
                verdict.same(out, step, key)
            verdict.check(np.array_equal(before, data[RANK]), "changed sendbuf")
            total, given = total + out, given + data.sum(0, dtype="d") / SIZE
        verdict.check(set(method.memory) == {"a", "b"}, method.memory.keys())
        left = WORLD.allreduce(method.residual("a").astype("d")) / SIZE
        verdict.check(np.allclose(total + left, given, atol=1e-5), np.abs(total + left - given).max())
        for key in ("a", "b"):
            allreduce.allreduce(data[RANK], comm=comm, codec="feedback(topk:ratio=0.1)", key=key)
        kept = comm.engine.methods
        verdict.check(list(kept) == ["feedback(topk:ratio=0.1)"], kept)
        verdict.check(set(kept["feedback(topk:ratio=0.1)"].memory) == {"a", "b"}, "one memory")
        verdict.check(not engine_of(None).methods, "another communicator's memory")


@pytest.mark.parametrize("text", [*LOSING, "sparcml(sampled:ratio=0.1)"])
def test_what_any_hop_loses_is_the_residual_of_the_rank_that_encodes(text, comm):
    for algorithm in ("auto", "direct", "recursive_doubling", "double_binary_tree"):
        method, total, given = compress.get(text), np.zeros((30, 10)), np.zeros((30, 10))
        with Verdict() as verdict:
            for step in range(4):
                data = rough(F, 300, seed=step).reshape(SIZE, 30, 10)
                before = data[RANK].copy()
                out = allreduce.allreduce(data[RANK], comm=comm, codec=method, key="w", algorithm=algorithm)
                verdict.same(out, text, algorithm, step)
                verdict.check(np.array_equal(before, data[RANK]), "changed sendbuf")
                total, given = total + out, given + data.sum(0, dtype="d")
            left = WORLD.allreduce(method.memory["w"]["residual"].astype("d"))
            verdict.check(np.allclose(total + left, given, atol=1e-4), text, algorithm, total + left - given)
            may = SIZE == 1 or (algorithm == "auto" and not text.startswith("sparcml"))  # by memory, which is faster
            verdict.check(may or np.any(left), text, algorithm, "nothing was lost")


@pytest.mark.parametrize("text", LOSING)
def test_losses_in_long_messages(text, comm):
    """In strips, by the compiled loop, as in Python."""
    data = rough(F, 200_003)
    out = allreduce.allreduce(data[RANK], comm=comm, codec=(method := compress.get(text)), key="w", algorithm="ring")
    left = WORLD.allreduce(method.memory["w"]["residual"].astype("d"))
    with Verdict() as verdict:
        verdict.check(np.allclose(out + left, data.sum(0, dtype="d"), atol=1e-4), text)
        verdict.check(all(plan.state for plan in comm.engine.channel.plans.values() if plan.order.lost), "not compiled")


@pytest.mark.parametrize("algorithm", ["auto", "ring", "recursive_doubling"])
def test_methods_of_matrices_and_of_whole_numbers(algorithm):
    rng = seeded("low rank")
    parts = (rng.standard_normal((SIZE, 40, 1)) @ rng.standard_normal((1, 30))).astype(F)
    exact = parts.astype("d").sum(0)
    with allreduce.Communicator() as comm, Verdict() as verdict:
        wishes = {"comm": comm, "algorithm": algorithm, "key": "weight"}
        out = np.zeros((40, 30), F)
        result = allreduce.allreduce(parts[RANK], out, codec="powersgd:rank=2", **wishes)
        verdict.check(result is out and np.allclose(out, exact, atol=1e-3), "powersgd")
        verdict.same(out, "powersgd")
        mine = parts[RANK].copy()
        allreduce.allreduce(MPI.IN_PLACE, mine, codec="thc:width=8", **wishes)
        step = np.abs(parts).max() / 127
        verdict.check((np.abs(mine - exact) <= SIZE * step * (1 + 1e-5)).all(), "thc", np.abs(mine - exact).max())
        verdict.same(mine, "thc")


@pytest.mark.parametrize("text", METHODS.values())
def test_every_method_of_the_table(text, comm):
    """The same bits on all ranks, over steps, in the direction of the sum; a checkpoint goes on as if nothing was."""
    size, total, given = 24 * 20, np.zeros((24, 20)), np.zeros((24, 20))
    with Verdict() as verdict:
        method, other = compress.get(text), compress.get(text)
        for step in range(8):
            data = (rough(F, size) + rough(F, size, seed=1 + step) / 8).reshape(SIZE, 24, 20)
            out = allreduce.allreduce(data[RANK], comm=comm, codec=method, key="weight", algorithm="ring")
            verdict.same(out, text, step)
            verdict.check(np.isfinite(out).all() and out.shape == (24, 20), text, step)
            if step == 6:
                other.load_state_dict(method.state_dict())
            total, given = total + out, given + data.sum(0)
        if "warmup" in text:
            verdict.check(method.memory["weight"]["step"] == 8, text, method.memory["weight"]["step"])
        again = allreduce.allreduce(data[RANK], comm=comm, codec=other, key="weight", algorithm="ring")
        verdict.check(again.tobytes() == out.tobytes() or text.startswith("thc"), text, "resumed, with other noise")
        found = np.vdot(total, given) / np.vdot(given, given)
        verdict.check(0.3 < found < 1.7, text, "keeps of the sum", found)


@pytest.mark.parametrize("codec", ["topk:ratio=0.1", "randomk:ratio=0.1,unbiased=False", "threshold:least=0.5", "int4"])
def test_with_feedback_nothing_is_lost_on_the_way(codec, comm):
    """By the algorithm that "auto" takes, all that was given is sent by the end, or still held back somewhere."""
    method, total, given = compress.get(f"feedback({codec})"), np.zeros(1000), np.zeros(1000)
    for step in range(10):
        data = rough(F, 1000, seed=step)
        total = total + allreduce.allreduce(data[RANK], comm=comm, codec=method, key="w")
        given = given + data.sum(0, dtype="d")
    lost = np.abs(total + WORLD.allreduce(method.residual("w").astype("d")) - given)
    with Verdict() as verdict:
        verdict.same(total, codec)
        bound = 10 * 0.5 * SIZE if codec == "int4" else 1e-3  # its partial sums are rounded
        verdict.check((lost <= bound).all(), codec, lost.max())


def refused(kind, words, *args, **wishes):
    """Every rank is refused alike, before anything is sent."""
    with pytest.raises(kind, match=words):
        allreduce.allreduce(*args, **wishes)


def test_what_is_refused():
    x = np.ones(8, F)
    refused(ValueError, "unknown codec 'in8'; have float16", x, codec="in8")
    refused(ValueError, "int8 has no parameter 'blok'; it has block", x, codec="int8:blok=3")
    refused(TypeError, "codec must be text such as 'int4:block=32', or a codec, not 8", x, codec=8)
    refused(TypeError, "codec int8 is for float16, bfloat16, float32, float64, not int32", x.astype("i"), codec="int8")
    for dtype in ("D", "?", "g"):
        refused(TypeError, "codec lossless is for", x.astype(dtype), codec="lossless")
    refused(ValueError, "codec int8 is for op 'sum' and 'avg', not 'max'", x, op="max", codec="int8")
    refused(ValueError, "codec int8 is for op 'sum' and 'avg'", x, op=lambda a, b: a + b, codec="int8")
    refused(ValueError, "algorithm 'native' cannot use codec int8", x, algorithm="native", codec="int8")
    refused(ValueError, "algorithm 'node' is for .* without a codec", x, algorithm="node", codec="int8")
    refused(ValueError, "codec thc has a memory per tensor; pass key=", x, codec="thc")
    refused(TypeError, "codec thc is for float16", x.astype("i"), codec="thc", key="w")
    refused(ValueError, "codec thc is for op 'sum' and 'avg', not 'min'", x, op="min", codec="thc", key="w")
    refused(ValueError, "thc cannot accumulate", x, accumulate="d", codec="thc", key="w")
    for algorithm in ("native", "node"):
        refused(ValueError, f"'{algorithm}' cannot use the codec of feedback", x, algorithm=algorithm, key="w",
                codec="feedback(int8)")  # fmt: skip
    method = compress.get("feedback(int8)")
    allreduce.allreduce(x, codec=method, key="w")
    refused(ValueError, r"residual of 'w' has shape \(8,\), not \(4,\)", x[:4], codec=method, key="w")
    assert np.array_equal(allreduce.allreduce(x), SIZE * x)

"""The sparse all-reduces: what is lost where, how much travels, and the same bits on all ranks."""

import numpy as np
import pytest
from data import CODECS, bits, decoded, gradients

import compress
from allreduce.algorithms import TABLE
from compress import Context
from compress.oktopk import deal, regions_of
from compress.simulate import run, simulate, traffic

F = np.float32
METHODS = {"sparcml": "sparcml(topk:ratio=0.02)", "gtopk": "gtopk:ratio=0.02", "oktopk": "oktopk:ratio=0.02"}
LOSING = [*METHODS.values(), "feedback(int4)", "feedback(int3:rounding=stochastic)"]


def sparse(n, count, seed=0, dtype=F):
    """Zeros, but for so many values."""
    rng = np.random.default_rng([n, count, seed])
    x = np.zeros(n, dtype)
    x[rng.choice(n, count, replace=False)] = rng.standard_normal(count)
    return x


# --- the codec ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_places_take_the_fewest_bytes_and_all_values_travel_where_that_is_shorter(dtype):
    codec, n = compress.get("sparse"), 10_000
    itemsize, kinds = np.dtype(dtype).itemsize, set()
    for count in (0, 1, 50, 1000, 3000, 9000, 9700, 9900, n):
        x = sparse(n, count, dtype=dtype)
        gaps = np.diff(np.flatnonzero(x), prepend=-1) - 1
        distances = count * (1 + itemsize) + sum((gaps >= 128**i).sum() for i in (1, 2))
        wanted = min(n * itemsize, n // 8 + count * itemsize, distances)
        message = codec.encode(x)
        assert message.size == 1 + wanted, count
        assert decoded(codec, message, x).tobytes() == x.tobytes(), count
        kinds.add(int(message[0]))
    assert kinds == {0, 1, 2}


def test_distances_of_every_length():
    codec = compress.get("sparse")
    for gap, nbytes in ((0, 1), (127, 1), (128, 2), (16383, 2), (16384, 3), (2**21 - 1, 3), (2**21, 4)):
        x = np.zeros(2**21 + 7, F)
        x[gap] = -0.0
        message = codec.encode(x)
        assert message.size == 1 + nbytes + 4, gap
        assert decoded(codec, message, x).tobytes() == x.tobytes(), gap


def test_every_bit_pattern_survives():
    x = np.zeros(999, F)
    x.view(np.uint32)[[0, 3, 500, 998]] = [0x80000000, 0x7FC12345, 0xFF800001, 1]
    assert decoded(CODECS["sparse"], CODECS["sparse"].encode(x), x).tobytes() == x.tobytes()


@pytest.mark.parametrize(
    "body",
    [[], [3], [2, 128], [2, 10, 0, 0, 128, 63], [2, 5, 5, *8 * [1]], [2, *9 * [255], *4 * [1]], [2, *12 * [128], 1],
     [1, 255], [1, 1, 1, 1], [1, 0, 4, 1, 2, 3, 4], [0, 1, 2, 3, 4]],
)  # fmt: skip
def test_messages_that_make_no_sense_are_refused(body):
    room = np.full(42, 7, F)
    with pytest.raises(ValueError, match="does not fit 10 of float32"):
        CODECS["sparse"].decode(np.array(body, np.uint8), room[16:26])
    assert (room == 7).all()


# --- what is lost ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLE)
def test_result_and_losses_add_up_to_the_inputs(name):
    for size in (1, 2, 3, 5, 6, 8):
        for text in ("topk:ratio=0.05", "int3:rounding=stochastic", "threshold:least=1"):
            arrays = [gradients(211, seed)["gaussian"] for seed in range(size)]
            lost = [np.zeros(211, F) for _ in arrays]
            result = simulate(name, arrays, compress.get(text), number=7, lost=lost)[0]
            plain = simulate(name, arrays, compress.get(text), number=7)[0]
            assert result.tobytes() == plain.tobytes()
            assert np.allclose(result + np.sum(lost, axis=0), np.sum(arrays, axis=0), atol=1e-5), (size, text)
            assert size == 1 or any(array.any() for array in lost)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("text", LOSING)
def test_no_mass_leaks_over_steps_and_ranks(text, size):
    count, n = 6, 600

    def work(rank, allreduce):
        method, outs = compress.get(text), []
        for step in range(count):
            x = gradients(n, seed=10 * step + rank)["gaussian"].reshape(20, 30)
            before = x.copy()
            outs.append(method.reduce(x, allreduce, "w", Context(step, 0, rank, size)))
            assert np.array_equal(x, before) and outs[-1].shape == x.shape and outs[-1].dtype == x.dtype
            if step == 2:  # a checkpoint, and a new process
                state = method.state_dict()
                method = compress.get(text)
                method.load_state_dict(state)
        return np.stack(outs), method.memory["w"]["residual"]

    results = run(size, work)
    assert all(outs.tobytes() == results[0][0].tobytes() for outs, _ in results)
    given = sum(gradients(n, seed=10 * s + r)["gaussian"].astype(float) for s in range(count) for r in range(size))
    total = results[0][0].sum(axis=0, dtype=float) + sum(residual for _, residual in results)
    assert np.allclose(total.ravel(), given, atol=1e-4)
    assert size == 1 or all(residual.any() for _, residual in results)


def test_mass_that_another_ranks_value_would_hide_stays():
    """A value that is dropped in one half of the tree, while the other half's gets through."""
    parts = np.zeros((4, 8), F)
    parts[:, :3] = [[5, 0, 1], [5, 0, 0], [0, 3, 2], [0, 0, 2]]
    parts[2:, 2] = 2

    def work(rank, allreduce):
        method = compress.get("gtopk:ratio=0.125")
        out = method.reduce(parts[rank], allreduce, "w", Context(0, 0, rank, 4))
        return out, method.memory["w"]["residual"]

    results = run(4, work)
    assert results[0][0].tolist() == [10, 0, 0, 0, 0, 0, 0, 0]
    assert np.array_equal(results[0][0] + sum(residual for _, residual in results), parts.sum(axis=0))


def test_sparcml_is_the_sum_of_what_the_ranks_chose():
    parts = [gradients(999, seed)["heavy-tailed"] for seed in range(5)]
    codec = compress.get("topk:ratio=0.03")
    chosen = [decoded(codec, codec.encode(x), x) for x in parts]

    def work(rank, allreduce):
        return compress.get("sparcml(topk:ratio=0.03)").reduce(parts[rank], allreduce, "w", Context(0, 0, rank, 5))

    for name in TABLE:
        assert np.allclose(run(5, work, name)[0], np.sum(chosen, axis=0, dtype=float), rtol=1e-6, atol=1e-4), name


@pytest.mark.parametrize("text", LOSING)
def test_what_is_not_finite_is_seen_by_all_and_never_enters(text):
    good, bad = (np.stack([gradients(64, 9 * i + r)["gaussian"] for r in range(3)]) for i in range(2))
    bad[1, 5] = np.nan

    def work(rank, allreduce):
        method, at = compress.get(text), Context(0, 0, rank, 3)
        method.reduce(good[rank], allreduce, "w", at)
        kept = method.memory["w"]["residual"].copy()
        out = method.reduce(bad[rank], allreduce, "w", at._replace(step=1))
        return out, rank != 1 or np.array_equal(kept, method.memory["w"]["residual"]), method

    results = run(3, work)
    for out, kept, method in results:
        assert np.array_equal(bits(out), bits(results[0][0])) and np.isnan(out).any() and kept
        assert np.isfinite(method.memory["w"]["residual"]).all()
        with pytest.raises(ValueError, match=r"has shape \(64,\), not \(9,\)"):
            method.reduce(np.ones(9, F), None, "w", Context(2, 0, 0, 3))


@pytest.mark.parametrize("dtype", ["f2", "f8"])
@pytest.mark.parametrize("text", METHODS.values())
def test_dtypes_and_short_arrays(text, dtype):
    for n in (0, 1, 2, 7):
        parts = [gradients(n, seed)["gaussian"].astype(dtype) for seed in range(3)]

        def work(rank, allreduce, parts=parts):
            method = compress.get(text)
            out = method.reduce(parts[rank], allreduce, "w", Context(0, 0, rank, 3))
            return out, method.memory["w"]["residual"]

        results = run(3, work)
        total = results[0][0].astype(float) + sum(residual for _, residual in results)
        rounds = dtype == "f2" and text.startswith("sparcml")  # its sums are made in the dtype
        assert results[0][0].dtype == dtype
        assert np.allclose(total, np.sum(parts, axis=0, dtype=float), atol=4e-3 if rounds else 1e-6)


# --- what travels ---------------------------------------------------------------------------------


def given(text, parts, algorithm=""):
    """What a method gives to the all-reduce: algorithm, arrays and codec."""
    size, seen = len(parts), {}

    def work(rank, allreduce):
        def watched(x, codec=None, prefer="auto", **wishes):
            seen[rank] = x.copy(), codec, algorithm or prefer.replace("auto", "one_shot")
            return allreduce(x, codec=codec, prefer=prefer, **wishes)

        return compress.get(text).reduce(parts[rank], watched, "w", Context(0, 0, rank, size))

    run(size, work, algorithm)
    return seen[0][2], [seen[rank][0] for rank in range(size)], seen[0][1]


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_oktopk_sends_no_more_than_two_thirds_of_its_bound(size):
    """Wherever the large values are: 6 k (p - 1) / p words, or bytes over four."""
    n, k = 28_800, 288
    flat = [gradients(n, seed)["gaussian"] for seed in range(size)]
    skewed = [x * np.exp(-np.arange(n, dtype=F) / 500) for x in flat]
    for parts in (flat, skewed, [sparse(n, k)] * size):
        sent = traffic(*given("oktopk:ratio=0.01", parts))
        assert max(sent) == min(sent) == 4 * 4 * k * (size - 1) / size
        assert max(sent) <= 4 * 6 * k * (size - 1) / size


def test_oktopk_finds_what_is_large_wherever_it_is():
    """All of the largest values of a run, or of a column; a region's share alone would miss most of them."""
    for where in (slice(0, 200), slice(0, 8 * 200, 8), slice(3, 64 * 200, 64)):
        x = gradients(32_000)["gaussian"] * F(1e-3)
        x[where] = 1 + np.arange(200, dtype=F)
        out = run(8, lambda rank, reduce, x=x: compress.get("oktopk").reduce(x, reduce, "w", Context(0, 0, rank, 8)))[0]
        assert np.array_equal(out[where], 8 * x[where])


def test_dealing_is_undone():
    for n, size in ((0, 3), (1, 3), (1000, 7), (1001, 7), (64, 8), (3071, 3), (3072, 3), (9001, 7), (9000, 1)):
        *shape, run = regions_of(n, size)
        assert run == (16 if n > 3071 else 1) and shape[0] * shape[1] - n < size * run
        x, regions = np.arange(n, dtype=F), np.full(shape, -1, F)
        deal(x, regions, run, False)
        held = [set(row[row >= 0]) for row in regions]
        assert sorted(v for values in held for v in values) == x.tolist()
        again = np.zeros_like(x)
        deal(again, regions, run, True)
        assert np.array_equal(again, x)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_gtopk_sends_k_values_to_each_child_and_parent(size):
    parts = [gradients(10_000, seed)["gaussian"] for seed in range(size)]
    sent = traffic(*given("gtopk:ratio=0.01", parts))
    assert max(sent) == sent[0] == 8 * 100 * np.log2(size)
    assert sum(sent) == 2 * (size - 1) * 8 * 100


def test_sparcml_grows_with_the_union_and_never_beyond_dense():
    n, k = 10_000, 100
    apart = [np.roll(np.repeat(F([1, 0]), [k, n - k]), 120 * rank) for rank in range(8)]
    hop = [8 + 1 + many * k * (1 + 4) for many in (1, 2, 4)]  # a place is a byte, but for the first one
    text = "sparcml(topk:ratio=0.01)"
    assert all(0 <= sent - sum(hop) <= 3 for sent in traffic(*given(text, apart, "recursive_doubling")))
    assert given(text, apart)[0] == "recursive_doubling" and given("sparcml(topk:ratio=0.07)", apart)[0] == "one_shot"
    same = [apart[0]] * 8
    assert traffic(*given(text, same, "recursive_doubling")) == [3 * hop[0]] * 8
    full = [gradients(n, seed)["gaussian"] for seed in range(8)]
    sent = traffic(*given("sparcml(topk:ratio=0.9)", full, "recursive_doubling"))
    assert max(sent) <= 3 * (1 + 4 * n + 8) and min(sent) > 2.9 * 4 * n

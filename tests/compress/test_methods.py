"""What methods promise, over steps and over ranks."""

import pickle
from functools import partial
from itertools import combinations
from threading import Thread

import ml_dtypes
import numpy as np
import pytest
from data import gradients

import compress
from compress import Context
from compress.method import Method
from compress.simulate import run
from compress.vectors import parts_of

F = np.float32
CODECS = [
    "topk:ratio=0.05", "sign", "int2", "int4:rounding=stochastic", "blocktopk:ratio=0.1,block=16", "threshold:least=1",
    "randomk:ratio=0.1,unbiased=False", "float16",
]  # fmt: skip


def alone(x, op="sum", codec=None, out=None, lost=None, residual=None, prefer="auto"):
    """Of a rank that sends to itself."""
    if codec is None:
        return x
    x = x if residual is None else x + residual
    sent = codec.decode(codec.encode(x), np.empty_like(x))
    if lost is not None:
        lost[...] = x - sent
    return sent


def steps_of(n, count, dtype=F):
    return [gradients(n, seed)["gaussian"].astype(dtype) for seed in range(count)]


@pytest.mark.parametrize(
    "text, dtype",
    [(text, F) for text in CODECS] + [(CODECS[0], dtype) for dtype in (np.float64, np.float16, ml_dtypes.bfloat16)],
)
def test_feedback_loses_nothing(text, dtype):
    method = compress.get(f"feedback({text})")
    sent, given = np.zeros((30, 10)), np.zeros((30, 10))
    for step, gradient in enumerate(steps_of(300, 12, dtype)):
        gradient = gradient.reshape(30, 10)
        before = gradient.copy()
        out = method.reduce(gradient, alone, "w", Context(step))
        assert out.dtype == gradient.dtype and np.array_equal(gradient, before)
        sent += out
        given += gradient
        if step == 5:  # a checkpoint, and a new process
            state = pickle.loads(pickle.dumps(method.state_dict()))
            method = compress.get(f"feedback({text})")
            method.load_state_dict(state)
    assert np.allclose(sent + method.residual("w"), given, rtol=0, atol=1e-5)
    assert text == "float16" or np.abs(method.residual("w")).max() > 0.1


@pytest.mark.parametrize(
    "text", ["feedback(int4)", "sparcml(topk)", "gtopk", "oktopk", "dgc(topk)", "ef21(int4)", "thc"]
)
def test_memory_in_any_order(text):
    """A message is the same, whatever the order in which a matrix lies in memory."""
    x = gradients(600)["gaussian"].reshape(30, 20)
    results = [run(2, lambda rank, allreduce, y=y: compress.get(text).reduce(y, allreduce, "w", Context(0, 0, rank, 2)))
               for y in (x, np.asfortranarray(x))]  # fmt: skip
    assert np.array_equal(results[0], results[1])


EVERY = [
    "feedback(int4)", "feedback(topk:ratio=0.1):warmup=4", "sparcml(topk:ratio=0.1)", "gtopk:ratio=0.1",
    "oktopk:ratio=0.1", "dgc(topk:ratio=0.1):momentum=0.8", "powersgd:rank=2", "ef21(topk:ratio=0.1)",
    "diana(int4)", "thc:block=32",
]  # fmt: skip


def trained(text, keys, resumed, size=3, steps=6):
    """Each rank's results by key and what it remembers before every step and in the end, with a checkpoint or not."""

    def work(rank, allreduce):
        method, outs, kept = compress.get(text), {key: [] for key in keys}, []
        for step in range(steps):
            if resumed and step == 3:
                state = pickle.loads(pickle.dumps(method.state_dict()))
                method = compress.get(text)
                method.load_state_dict(state)
            kept.append(method.state_dict()["memory"])
            for key in keys:
                x = given(key, step, rank)
                outs[key].append(method.reduce(x, allreduce, key, Context(step, 0, rank, size)))
        return outs, [*kept, method.state_dict()["memory"]]

    return run(size, work)


def given(key, step, rank):
    return gradients(600, 100 * step + 10 * ord(key) + rank)["gaussian"].reshape(30, 20)


@pytest.mark.parametrize("text", EVERY)
def test_every_method_goes_on_after_a_checkpoint_and_keeps_tensors_apart(text):
    alone, resumed = trained(text, "a", False), trained(text, "ab", True)
    for (outs, _), (others, _) in zip(alone, resumed):
        assert np.array_equal(outs["a"], others["a"]) and not np.array_equal(others["a"], others["b"])
        assert np.array_equal(outs["a"], alone[0][0]["a"])


@pytest.mark.parametrize("text", EVERY)
def test_every_method_conserves_what_it_was_given_across_a_checkpoint(text):
    results = trained(text, "ab", True)
    for key in "ab":
        ends = [kept[-1].get(key, {}) for _, kept in results]
        if text.startswith("thc"):  # has no memory, for it is right in the mean
            assert not any(ends)
        elif "less" in ends[0]:  # all know the sum of all states
            assert np.allclose(-sum(end["less"] for end in ends), ends[0]["total"], atol=1e-4)
            assert all(np.array_equal(end["total"], ends[0]["total"]) for end in ends)
        else:
            inputs = np.zeros((30, 20))
            for rank, (_, kept) in enumerate(results):
                for step in range(6):
                    velocity = kept[step].get(key, {}).get("velocity", 0)
                    inputs += given(key, step, rank) + 0.8 * velocity
            total = np.sum(results[0][0][key], axis=0, dtype=float) + sum(end["residual"] for end in ends)
            assert np.allclose(total, inputs, atol=1e-3)


def test_two_threads_may_reduce_two_tensors_at_once():
    """With one method: the bits that each would give alone."""
    method, apart, steps = compress.get("feedback(topk:ratio=0.1)"), {}, range(40)
    outs = {key: [] for key in "ab"}

    def work(method, key, outs):
        outs.extend(method.reduce(given(key, step, 0), alone, key, Context(step)) for step in steps)

    threads = [Thread(target=work, args=(method, key, outs[key])) for key in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in outs:
        work(compress.get(str(method)), key, apart.setdefault(key, []))
        assert np.array_equal(outs[key], apart[key])


def test_feedback_over_ranks_is_the_sum_of_what_was_sent():
    size, count, n = 3, 6, 200

    def work(rank, allreduce):
        method = compress.get("feedback(int4)")
        total = np.zeros(n)
        for step in range(count):
            x = gradients(n, seed=10 * step + rank)["gaussian"]
            total += method.reduce(x, allreduce, "w", Context(step, 0, rank, size))
        return total, method.residual("w")

    results = run(size, work)
    given = sum(gradients(n, seed=10 * s + r)["gaussian"].astype(float) for s in range(count) for r in range(size))
    assert all(np.array_equal(total, results[0][0]) for total, _ in results)
    assert np.allclose(results[0][0] + sum(residual for _, residual in results), given, atol=1e-4)


def test_feedback_makes_a_biased_codec_converge():
    target = gradients(500)["gaussian"]

    def distance(method):
        w = np.zeros_like(target)
        for step in range(300):
            w -= 0.05 * method.reduce(w - target, alone, "w", Context(step))
        return np.linalg.norm(w - target) / np.linalg.norm(target)

    class Without(type(compress.get("feedback(sign)"))):
        def remember(self, key, **parts):
            pass

    assert distance(compress.get("feedback(topk:ratio=0.05)")) < 0.05
    assert distance(compress.get("feedback(sign)")) < 0.05 < distance(Without(compress.get("sign")))


def test_dgc_is_momentum_per_value_until_it_is_sent():
    method = compress.get("dgc(topk:ratio=0.1):momentum=0.8")
    velocity, wanted = np.zeros(200), np.zeros(200)
    for step, gradient in enumerate(steps_of(200, 30)):
        velocity = 0.8 * velocity + gradient
        wanted += velocity
        out = method.reduce(gradient, alone, "w", Context(step))
        largest = np.argsort(-np.abs(wanted))[:20]
        assert sorted(np.flatnonzero(out)) == sorted(largest)
        assert np.allclose(out[largest], wanted[largest], atol=1e-4)
        velocity[largest] = wanted[largest] = 0
        assert np.allclose(method.memory["w"]["residual"], wanted, atol=1e-4)
    assert np.array_equal(compress.get("dgc(topk:ratio=1)").reduce(gradient, alone, "w"), gradient)


@pytest.mark.parametrize("name", ["feedback", "dgc"])
def test_a_warm_up_sends_less_and_less(name):
    method = compress.get(f"{name}(topk:ratio=0.002):warmup=10")
    sent = [np.count_nonzero(method.reduce(x, alone, "w", Context(s))) for s, x in enumerate(steps_of(10_000, 12))]
    assert sent == [2500, 2500, 625, 625, 156, 156, 40, 40, 20, 20, 20, 20]


def test_memories_are_apart_and_what_is_not_finite_never_enters():
    method = compress.get("feedback(int2)")
    a, b = steps_of(64, 2)
    method.reduce(a, alone, "a")
    kept = method.residual("a").copy()
    method.reduce(b, alone, "b")
    assert np.array_equal(method.residual("a"), kept)
    assert not np.array_equal(method.residual("b"), kept)
    bad = a.copy()
    bad[3] = np.nan
    assert np.isnan(method.reduce(bad, alone, "a")).any()
    assert np.array_equal(method.residual("a"), kept)
    method.reset("a")
    assert list(method.memory) == ["b"]


def test_another_shape_or_configuration_is_reported():
    method = compress.get("feedback(int2)")
    method.reduce(np.ones(8, F), alone, "w")
    with pytest.raises(ValueError, match=r"residual of 'w' has shape \(8,\), not \(9,\); reset\('w'\) to forget it"):
        method.reduce(np.ones(9, F), alone, "w")
    with pytest.raises(ValueError, match=r"the state is one of feedback\(int2\), not of feedback\(int3\)"):
        compress.get("feedback(int3)").load_state_dict(method.state_dict())
    state, other = method.state_dict(), compress.get("feedback(int2)")
    other.load_state_dict(state)
    parts = [kept["w"]["residual"] for kept in (method.memory, state["memory"], other.memory)]
    assert not any(np.shares_memory(a, b) for a, b in combinations(parts, 2))
    method.reduce(np.ones(8, F) / 3, alone, "w")
    assert not np.array_equal(state["memory"]["w"]["residual"], method.residual("w"))


@pytest.mark.parametrize("text", ["feedback(int4)", "dgc(topk)", "sparcml(topk)", "ef21(int4)", "powersgd:rank=1"])
def test_a_state_that_is_damaged_is_refused_and_changes_nothing(text):
    method, x = compress.get(text), gradients(60)["gaussian"].reshape(6, 10)
    method.reduce(x, alone, "w")
    good, (part, *_) = method.state_dict(), method.memory["w"]
    for memory in ({"w": {part: [1, 2]}}, {"w": {part: np.array([None])}}, {"w": {part: np.full((6, 10), np.nan)}},
                   {"w": np.zeros(3)}, {3: {}}, [], None):  # fmt: skip
        with pytest.raises(ValueError, match="state"):
            method.load_state_dict({**good, "memory": memory})
    for state in ({}, None, {"memory": {}}, {"config": good["config"]}, {**good, "config": "feedback(int8)"}):
        with pytest.raises(ValueError, match="state"):
            method.load_state_dict(state)
    assert method.memory.keys() == good["memory"].keys()
    assert all(np.array_equal(method.memory["w"][name], kept) for name, kept in good["memory"]["w"].items())
    method.load_state_dict(good)


@pytest.mark.parametrize(
    "text", ["feedback(topk)", "dgc(topk)", "sparcml(topk)", "ef21(topk)", "powersgd:rank=1", "gtopk"]
)
def test_a_sum_that_fails_changes_nothing(text):
    """A rank is missing, or an argument is refused: what was not sent must not leave the memory."""
    method, x = compress.get(text), gradients(60)["gaussian"].reshape(6, 10)

    def failing(*args, **wishes):
        raise TimeoutError

    method.reduce(x, alone, "w")
    before = method.state_dict()["memory"]["w"]
    with pytest.raises(TimeoutError):
        method.reduce(x, failing, "w")
    assert all(np.array_equal(method.memory["w"][name], part) for name, part in before.items())


def test_powersgd_is_exact_for_low_rank_and_the_same_on_all_ranks():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((3, 40, 2)), rng.standard_normal((2, 30))
    parts = (left @ right).astype(F)  # every rank's of rank 2, in the same rows

    results = run(3, lambda rank, allreduce: compress.get("powersgd:rank=2").reduce(parts[rank], allreduce, "w"))
    assert all(np.array_equal(r, results[0]) for r in results)
    assert np.allclose(results[0], parts.sum(axis=0), atol=1e-4)


def test_powersgd_loses_nothing_and_is_that_of_the_sum():
    grads = np.stack([[gradients(1200, 7 * s + r)["gaussian"].reshape(40, 30) for r in range(3)] for s in range(8)])

    def work(rank, allreduce):
        method = compress.get("powersgd:rank=3")
        outs = [method.reduce(grads[step, rank], allreduce, "w", Context(step)) for step in range(8)]
        return outs, method.memory["w"]["residual"]

    results = run(3, work)
    one = compress.get("powersgd:rank=3")
    for step, out in enumerate(results[0][0]):
        assert np.allclose(out, one.reduce(grads[step].sum(axis=0), alone, "w"), atol=1e-3)
        assert np.linalg.matrix_rank(out, tol=1e-3) == 3
    total = sum(results[0][0]) + sum(residual for _, residual in results)
    assert np.allclose(total, grads.sum(axis=(0, 1)), atol=1e-3)


def test_powersgd_starts_from_where_it_ended():
    """Of a constant matrix the projection gets better with every step, without feedback; a checkpoint keeps it."""
    m = gradients(1200)["gaussian"].reshape(40, 30)
    u, s, v = np.linalg.svd(m)
    m = ((u[:, :30] * s**3) @ v).astype(F)
    method = compress.get("powersgd:rank=2")
    method.remember("w", residual=np.zeros_like(m))
    errors = []
    for _ in range(6):
        errors.append(np.linalg.norm(method.reduce(m, alone, "w") - m))
        method.memory["w"]["residual"][:] = 0
    best = np.linalg.norm((s**3)[2:])
    assert errors[0] > 1.05 * best
    assert errors[-1] < 1.02 * best
    other = compress.get("powersgd:rank=2")
    other.load_state_dict(method.state_dict())
    assert np.array_equal(other.reduce(m, alone, "w"), method.reduce(m, alone, "w"))


def test_powersgd_of_small_zero_and_poisoned_tensors():
    method = compress.get("powersgd")
    for x in (np.ones(7, F), np.ones((3, 2), F), F(2) * np.ones(()), np.ones((0, 4), F)):
        out = method.reduce(np.asarray(x), alone, "small")
        assert np.array_equal(out, x) and not np.shares_memory(out, x)
    assert not method.memory
    assert not method.reduce(np.zeros((20, 20), F), alone, "zero").any()
    bad = np.ones((20, 20), F)
    bad[3, 4] = np.nan
    assert np.isnan(method.reduce(bad, alone, "bad")).all()
    assert "bad" not in method.memory


@pytest.mark.parametrize("size, dtype", [(1, np.int8), (3, np.int8), (40, np.int16)])
def test_thc_is_the_sum_within_a_step_per_rank(size, dtype):
    seen = set()

    def work(rank, allreduce):
        def watched(x, op="sum", codec=None):
            if op == "sum":
                seen.add(x.dtype)
            return allreduce(x, op)

        return compress.get("thc:width=4,block=32").reduce(parts[rank], watched, "w", Context(3, 64, rank, size))

    for name in ("gaussian", "heavy-tailed", "sparse", "constant", "denormal"):
        parts = [gradients(333, seed)[name] for seed in range(size)]
        results = run(size, work)
        assert all(r.tobytes() == results[0].tobytes() for r in results)
        exact = np.sum(np.stack(parts).astype(float), axis=0)
        peaks = np.repeat(np.maximum.reduceat(np.abs(parts).max(axis=0), np.arange(0, 333, 32)), 32)[:333]
        step = np.maximum(peaks / 7.0, 2.0**-126)
        assert (np.abs(results[0] - exact) <= size * step * (1 + 1e-5)).all(), name
    assert seen == {np.dtype(dtype)}


def test_thc_of_a_step_that_is_too_small_is_zero():
    x = np.float32([1e-38, -1e-38, 3e-39, 0])
    with np.errstate(under="ignore"):
        assert not compress.get("thc:width=8").reduce(x, alone, "w").any()


def test_thc_errs_less_where_rounding_is_correlated():
    """Of gradients that are alike, by less than a step in all."""
    x = gradients(640)["gaussian"]

    def error(rounding):
        text = f"thc:width=3,block=64,rounding={rounding}"
        out = run(8, lambda rank, reduce: compress.get(text).reduce(x, reduce, "w", Context(0, 0, rank, 8)))[0]
        return np.abs(out - 8.0 * x) / np.repeat(np.abs(x).reshape(-1, 64).max(axis=1) / 3, 64)

    assert error("correlated").max() < 1.01 < error("stochastic").max()


def test_thc_is_unbiased_and_poisons_its_block_on_all_ranks():
    parts = [gradients(64, seed)["gaussian"] for seed in range(2)]

    def mean(rank, allreduce):
        method = compress.get("thc:width=3,block=32")
        return np.mean([method.reduce(parts[rank], allreduce, "w", Context(s, 0, rank, 2)) for s in range(800)], axis=0)

    step = np.repeat(np.abs(parts).max(axis=0).reshape(2, 32).max(axis=1), 32) / 3
    assert (np.abs(run(2, mean)[0] - sum(parts)) < 4.5 * step * (2 / 4 / 800) ** 0.5).all()

    parts[1][40] = np.inf
    outs = run(
        2,
        lambda rank, allreduce: compress.get("thc:block=32").reduce(
            parts[rank], allreduce, "w", Context(0, 0, rank, 2)
        ),
    )
    for out in outs:
        assert np.isfinite(out[:32]).all() and np.isnan(out[32:]).all()


@pytest.mark.parametrize("text", ["randomk:ratio=0.1", "terngrad", "int2:rounding=stochastic"])
@pytest.mark.parametrize("method", ["feedback", "dgc", "sparcml"])
def test_a_residual_that_would_grow_is_refused(method, text):
    with pytest.raises(ValueError, match=" would grow"):
        compress.get(f"{method}({text})")


def test_a_residual_that_shrinks_may_be_of_an_unbiased_codec():
    method, x = compress.get("feedback(int3:rounding=stochastic)"), gradients(1000, 0)["gaussian"]
    for step in range(50):
        method.reduce(x, alone, "w", Context(step))
    assert np.linalg.norm(method.residual("w")) < 2 * np.linalg.norm(x)


TOGETHER = [
    "feedback(topk:ratio=0.1)", "powersgd:rank=2", "dgc(topk:ratio=0.1)", "sparcml(topk:ratio=0.1)", "gtopk:ratio=0.1",
    "oktopk:ratio=0.1",
]  # fmt: skip


@pytest.mark.parametrize("text", TOGETHER)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tensors_that_go_together_lose_nothing_and_remember_each(text, dtype):
    """All results, plus what is left in the end, are all that was given; the bits are the same on all ranks."""
    rng = np.random.default_rng(1)
    shapes = {"matrix": (30, 20), "vector": (7,), "cube": (8, 5, 4), "number": ()}
    given = [[{k: rng.integers(-8, 8, s).astype(dtype) for k, s in shapes.items()} for _ in range(3)] for _ in range(2)]

    def work(rank, allreduce):
        method = compress.get(text)
        sums = (method.reduce_together(x, allreduce, Context(i, 0, rank, 2)) for i, x in enumerate(given[rank]))
        return [{key: total.copy() for key, total in totals.items()} for totals in sums], method

    (one, method), (other, _) = run(2, work)
    for key, shape in shapes.items():
        for mine, theirs in zip(one, other):
            assert mine[key].shape == shape and mine[key].dtype == dtype
            assert mine[key].tobytes() == theirs[key].tobytes()
    assert set(method.memory) >= {"matrix", "cube"}
    if "dgc" not in text:  # whose momentum adds to what it is given
        for key in shapes:
            left = sum(np.asarray(m.memory.get(key, {}).get("residual", 0.0)) for _, m in run(2, work))
            total = sum(step[key].astype(np.float64) for step in one) + left
            wanted = sum(x[key].astype(np.float64) for rank in given for x in rank)
            assert np.allclose(total, wanted, atol=1e-4 if dtype == np.float32 else 0.2), key


@pytest.mark.parametrize("text", [*TOGETHER, "ef21(int8)", "feedback(int4:block=32)", "thc:block=32"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("where", ["apart", "together", "in Fortran order"])
def test_tensors_may_change_their_company(text, dtype, where):
    """The results and the memory are those of a method that begins every step with a copy of what it remembers."""
    groups = ["ab", "ab", "ab", "a", "ab", "bc", "cb", "abc", "abc", "b", "abc", "ab", "abc"]
    shapes = {"a": (90, 80), "b": (11,), "c": (3, 40, 5)}

    def given(rank, step, where):
        like = {key: np.empty(shapes[key]) for key in groups[step]}
        whole = np.random.default_rng([rank, step]).standard_normal(sum(x.size for x in like.values())).astype(dtype)
        parts = parts_of(whole, like)
        if where == "in Fortran order" and "a" in parts:
            values = parts["a"].copy()
            parts["a"] = parts["a"].reshape(-1).reshape(shapes["a"], order="F")
            parts["a"][...] = values
        return parts if where != "apart" else {key: part.copy() for key, part in parts.items()}

    def work(rank, allreduce, where, anew=False):
        def in_place(x, out=None, **wishes):
            out = x if out is None else out
            out[...] = allreduce(x.copy(), **wishes)
            return out

        method, seen = compress.get(text), []
        for step in range(len(groups)):
            tensors = given(rank, step, where)
            if anew:
                before, method = method.state_dict(), compress.get(text)
                method.load_state_dict(before)
            sums = method.reduce_together(tensors, in_place, Context(step, 0, rank, 2))
            seen += [sums[key].tobytes() for key in groups[step]]
            assert all(np.array_equal(x, given(rank, step, where)[key]) for key, x in tensors.items())
        memory, kept = method.state_dict()["memory"], [key for key in method.spare if "\0" in key]
        assert set(memory) <= set(shapes) and kept in ([], ["a\0b\0c"])
        return seen, {(key, name): part.tobytes() for key, parts in memory.items() for name, part in parts.items()}

    assert run(2, partial(work, where=where)) == run(2, partial(work, where="apart", anew=True))


@pytest.mark.parametrize("keys", ["a", "ab"])
@pytest.mark.parametrize("key", ["a", None])
def test_what_is_forgotten_takes_no_memory(keys, key):
    method = compress.get("feedback(int8)")
    for step in range(2):
        method.reduce_together({name: np.ones(100, np.float32) for name in keys}, alone, Context(step))
    assert method.memory and method.spare
    method.reset(key)
    assert not method.spare and {*method.memory} == ({*keys} - {key} if key else set())


def test_a_method_that_names_no_parts_remembers_each_tensor():
    class Counting(Method):
        def reduce(self, x, allreduce, key, at, out=None):
            before = self.recall(key, "calls", ())
            self.remember(key, calls=np.array(1 if before is None else before + 1))
            return allreduce(x)

    method = Counting()
    for _ in range(2):
        method.reduce_together({"a": np.ones(2), "b": np.ones(3)}, lambda x: x)
    assert {key: int(parts["calls"]) for key, parts in method.memory.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("text", ["feedback(int8)", "dgc(topk)", "ef21(topk)", "gtopk", "oktopk", "sparcml(topk)"])
def test_tensors_that_stay_together_take_the_same_memory_in_all_steps(text):
    """The room of one part does not take that of another, or it would be made anew in every step."""
    method, used = compress.get(text), []

    def into(x, out=None, lost=None, **wishes):
        used[-1] += [array for array in (x, out, lost) if array is not None]
        out = x if out is None else out
        out[...] = alone(x, lost=lost, **wishes)
        return out

    for step in range(6):
        used.append([])
        method.reduce_together({name: np.ones(100, np.float32) for name in "ab"}, into, Context(step))
    places = [[array.ctypes.data for array in arrays] for arrays in used]
    assert places[2] == places[4] and places[3] == places[5]


def test_of_tensors_next_to_each_other_nothing_is_copied():
    """Neither of what is given, nor of what is remembered; the two vectors for that are used in turn."""
    method, whole = compress.get("feedback(topk:ratio=0.1)"), np.ones(100, np.float32)
    tensors = parts_of(whole, {"a": np.empty((3, 20)), "none": np.empty(0), "b": np.empty(40)})
    given, kept = [], []

    def watched(x, codec, out, lost, residual, prefer):
        given.append((x.ctypes.data, out.ctypes.data))
        kept.append((residual.ctypes.data, lost.ctypes.data))
        return alone(x, codec=codec, out=out, lost=lost, residual=residual)

    for step in range(5):
        method.reduce_together(tensors, watched, Context(step))
    assert {place for place, _ in given} == {whole.ctypes.data} and len(set(given)) == 1
    (_, one), (before, other), *_ = kept
    assert before == one and kept[1:] == [(one, other), (other, one)] * 2


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_thc_sums_tensors_that_go_together_as_one_by_one_in_two_all_reduces(dtype):
    rng = np.random.default_rng(1)
    shapes = {"matrix": (30, 20), "vector": (7,), "none": (0,), "number": ()}
    given = [{k: np.asarray(rng.standard_normal(s), dtype) for k, s in shapes.items()} for _ in range(2)]

    def work(rank, allreduce):
        calls = []

        def counted(x, **wishes):
            calls.append(wishes)
            return allreduce(x, **wishes)

        at, method = Context(3, 0, rank, 2), compress.get("thc:block=64")
        together = method.reduce_together(given[rank], counted, at)
        assert calls == [{"op": "max"}, {}]
        return together, {key: method.reduce(x, allreduce, key, at) for key, x in given[rank].items()}

    for together, alone_ in run(2, work):
        for key, shape in shapes.items():
            assert together[key].shape == shape and together[key].dtype == dtype
            assert together[key].tobytes() == alone_[key].tobytes(), key


@pytest.mark.parametrize("text", ["powersgd:rank=2", "thc"])
def test_an_all_reduce_may_work_in_place(text):
    """As the engine's does: what a method still needs is not what it gives away."""
    given = np.random.default_rng(1).standard_normal((2, 2, 12, 10)).astype(np.float32)

    def work(rank, allreduce):
        def in_place(x, **wishes):
            x[...] = allreduce(x.copy(), **wishes)
            return x

        ways = [(compress.get(text), reduce) for reduce in (allreduce, in_place)]
        return [
            [method.reduce(x, reduce, "w", Context(step, 0, rank, 2)) for step, x in enumerate(given[rank])]
            for method, reduce in ways
        ]

    for usual, other in run(2, work):
        assert np.array_equal(usual, other)

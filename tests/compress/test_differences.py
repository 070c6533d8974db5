"""Methods that send how a tensor differs from what was sent."""

from itertools import pairwise

import numpy as np
import pytest
from data import gradients

import compress
from compress import Context
from compress.simulate import run

F = np.float32


def states(text, arrays, steps):
    """Each rank's results and states after every step, of tensors that stay the same."""

    def work(rank, allreduce):
        method = compress.get(text)
        outs, own = [], []
        for step in steps:
            outs.append(method.reduce(arrays[rank], allreduce, "w", Context(step, 0, rank, 3)))
            own.append(-method.memory["w"]["less"])
        return outs, own

    return run(3, work, number=steps[0])


@pytest.mark.parametrize("codec, kept", [("topk:ratio=0.1", 0.1), ("sign:block=8192", 0.3)])
def test_ef21_comes_nearer_by_what_the_codec_keeps(codec, kept):
    arrays = [gradients(2000, seed)["gaussian"] for seed in range(3)]
    results = states(f"ef21({codec})", arrays, range(20))
    for (_, own), x in zip(results, arrays):
        errors = [np.sum((x - h) ** 2) for h in [np.zeros_like(x), *own]]
        if codec.startswith("topk"):
            assert all(later <= (1 - kept) * error for error, later in pairwise(errors))
        assert errors[20] < 0.05 * errors[0] if codec.startswith("sign") else errors[10] < 1e-6 * errors[0]
    for (outs, _), (others, _) in pairwise(results):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(outs, others))
    sums = sum(own[-1].astype(float) for _, own in results)
    assert np.allclose(results[0][0][-1], sums, atol=1e-5)


def test_diana_is_unbiased_and_its_variance_vanishes():
    arrays = [gradients(500, seed)["gaussian"] for seed in range(3)]
    exact = np.sum(arrays, axis=0, dtype=float)
    outs = states("diana(int3:rounding=stochastic):alpha=0.5", arrays, range(60))[0][0]
    errors = [np.sum((out - exact) ** 2) / np.sum(exact**2) for out in outs]
    assert max(errors[40:]) < 1e-6 < 0.05 < errors[0]
    firsts = [states("diana(int3:rounding=stochastic)", arrays, [step])[0][0][0] for step in range(60)]
    sigma = np.std(firsts, axis=0) / 60**0.5
    assert (np.abs(np.mean(firsts, axis=0) - exact) <= 5 * sigma + 1e-5).all()


def test_what_is_not_finite_on_one_rank_leaves_all_states_as_they_were():
    def work(rank, allreduce):
        method = compress.get("ef21(int4)")
        x = gradients(64, rank)["gaussian"]
        method.reduce(x, allreduce, "w")
        before = method.state_dict()["memory"]["w"]
        if rank == 1:
            x[3] = np.inf
        out = method.reduce(x, allreduce, "w")
        return np.isnan(out).any() and all(np.array_equal(before[k], method.memory["w"][k]) for k in before)

    assert all(run(2, work))


@pytest.mark.parametrize("dtype", [F, np.float64, np.float16])
@pytest.mark.parametrize("text", ["ef21(int4:block=32)", "diana(int4:block=32):alpha=0.3"])
def test_tensors_that_go_together_take_one_all_reduce_and_are_remembered_each(text, dtype):
    """Where one of them is not finite, all states stay; in every step their sum is what all ranks hold."""
    shapes = {"matrix": (8, 4), "none": (0,), "cube": (4, 8, 2), "number": ()}

    def work(rank, allreduce):
        def counted(x, **wishes):
            calls.append(wishes)
            return allreduce(x, **wishes)

        method, calls, rng = compress.get(text), [], np.random.default_rng(rank)
        given, results, kept = [], [], []
        for step in range(5):
            tensors = {key: rng.standard_normal(shape).astype(dtype) for key, shape in shapes.items()}
            if step == 2 and rank == 1:
                tensors["cube"][0, 0, 0] = np.nan
            given.append({key: x.copy() for key, x in tensors.items()})
            sums = method.reduce_together(tensors, counted, Context(step, 0, rank, 2))
            results.append({key: x.copy() for key, x in sums.items()})
            kept.append(method.state_dict()["memory"])
            assert all(np.array_equal(x, given[-1][key], equal_nan=True) for key, x in tensors.items())
        return given, results, kept, len(calls)

    ranks = run(2, work)
    assert [calls for *_, calls in ranks] == [5, 5]
    for step in range(5):
        for key, shape in shapes.items():
            inputs, results, states = ([rank[part][step][key] for rank in ranks] for part in (0, 1, 2))
            assert results[0].dtype == dtype and results[0].shape == shape
            assert results[0].tobytes() == results[1].tobytes()
            assert states[0]["total"].tobytes() == states[1]["total"].tobytes()
            assert np.allclose(states[0]["less"] + states[1]["less"], -states[0]["total"], atol=1e-5)
            lost = (key, step) == ("cube", 2)
            assert np.isnan(results[0]).any() == lost
            assert lost or np.abs(sum(inputs) - results[0]).max(initial=0) < 2
            if step:
                stayed = [states[r]["less"].tobytes() == ranks[r][2][step - 1][key]["less"].tobytes() for r in range(2)]
                assert stayed == [step == 2 or key == "none"] * 2


def test_how_far_the_state_follows_is_a_share():
    with pytest.raises(ValueError, match=r"alpha is a number above 0, up to 1, not 1\.5"):
        compress.get("diana(qsgd):alpha=1.5")
    with pytest.raises(ValueError, match=r"ef21 needs a codec: ef21\(int8\)"):
        compress.get("ef21")

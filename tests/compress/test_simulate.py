"""The reference for compressed all-reduces: the same bits on all ranks, the right sum, and what a ring does by hand."""

import numpy as np
import pytest
from data import CODECS, gradients
from ruled import ruled

import allreduce
from compress import Context
from compress.simulate import edges, run, simulate

#: Some that draw random numbers, vary in size, choose among all, or change what they encode again.
SOME = ["int4:block=32", "int3:rounding=stochastic", "topk:ratio=0.1", "lossless", "natural", "eden:block=64"]


def inputs(size, n=997):
    return [gradients(n, seed)["heavy-tailed"] for seed in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("algorithm", allreduce.algorithms())
def test_all_ranks_end_with_the_same_bits(algorithm, size):
    arrays = inputs(size)
    exact = np.sum(np.stack(arrays).astype(float), axis=0)
    for text in SOME:
        results = simulate(algorithm, arrays, CODECS[text], number=3)
        assert all(r.tobytes() == results[0].tobytes() for r in results), text
    plain = simulate(algorithm, arrays)
    assert np.allclose(plain[0], exact, rtol=1e-5, atol=1e-2)
    for result, expected in zip(simulate(algorithm, arrays, CODECS["lossless"]), plain):
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("text", SOME)
def test_a_ring_by_hand_gives_the_same_bits(text):
    size, codec = 5, CODECS[text]
    arrays = inputs(size)
    cuts = edges(997, size, codec.block)
    result = np.empty_like(arrays[0])
    for b in range(size):
        part = slice(cuts[b], cuts[b + 1])

        def through(x, t, rank, first=cuts[b]):
            at = Context(step=8 * 4096 + t, offset=first, rank=rank, size=size)
            return codec.decode(codec.encode(x, at=at), np.empty_like(x))

        first = next(r for r in range(size) if any(b in m.blocks for m in sends(r, size, 0)))
        total = arrays[first][part]
        for hop in range(1, size):
            sender = (first + hop - 1) % size
            total = arrays[(first + hop) % size][part] + through(total, hop - 1, sender)
        result[part] = through(total, size - 1, 0)
    assert all(r.tobytes() == result.tobytes() for r in simulate("ring", arrays, codec, number=8))


def sends(rank, size, step):
    return [m for m in allreduce.schedule("ring", rank, size).steps[step] if isinstance(m, allreduce.Send)]


@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("algorithm", ["ring", "rabenseifner", "direct", "recursive_doubling", "torus"])
def test_the_error_is_at_most_the_sum_of_the_bounds_of_all_encodings(algorithm, size):
    names = ["gaussian", "heavy-tailed", "sparse", "constant", "denormal", "early", "late"]
    for text in ("int4:block=32", "int3:rounding=stochastic", "dynamic", "fp8", "bounded:eb=0.02", "topk:ratio=0.1"):
        for name in names:
            arrays = [gradients(1500, seed)[name] for seed in range(size)]
            exact = np.sum(arrays, axis=0, dtype=float)
            result, bound = ruled(algorithm, arrays, CODECS[text], number=1)
            assert (np.abs(result - exact) <= bound).all(), (text, name)


def test_cuts_are_whole_blocks_of_the_codec():
    assert edges(100, 3, 32) == [0, 32, 64, 100]
    assert edges(5, 4, 8) == [0, 0, 0, 0, 5]
    assert edges(0, 2, 8) == [0, 0, 0]


def test_ranks_are_threads_that_meet():
    def work(rank, allreduce):
        first = allreduce(np.full(3, rank, np.float32), op="max")
        return first + allreduce(np.arange(3, dtype=np.int32))

    assert all(r.tolist() == [3, 7, 11] for r in run(4, work))
    with pytest.raises(ZeroDivisionError):
        run(2, lambda rank, allreduce: 1 / rank)

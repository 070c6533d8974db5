"""The codecs that send a part: which part, exactly."""

import numpy as np
import pytest
from data import bits, decoded, gradients

import compress
from compress import Context

F = np.float32


def largest(x, k):
    """The k first of an order by magnitude, NaN before all, then by place."""
    raw = np.abs(x).view(np.uint32).astype(np.int64)
    return np.sort(np.lexsort((np.arange(x.size), -raw))[:k])


def hard(n):
    """Arrays with many ties, at every digit of the radix selection."""
    rng = np.random.default_rng(n)
    few = rng.integers(-3, 4, n).astype(F)
    last_bit = (np.uint32(0x3F800000) + rng.integers(0, 2, n, dtype=np.uint32)).view(F)
    special = few.copy()
    special[:: max(n // 7, 1)] = np.nan
    special[1 :: max(n // 5, 1)] = -np.inf
    return {**gradients(n), "few": few, "last bit": last_bit, "special": special, "zeros": np.zeros(n, F)}


@pytest.mark.parametrize("ratio", [1e-9, 0.01, 0.3, 0.999, 1])
def test_topk_is_exact_and_ties_go_to_the_lower_index(ratio):
    codec = compress.get("topk", ratio=ratio)
    for n in (0, 1, 2, 100, 4999):
        for name, x in hard(n).items():
            k = min(n, int(np.ceil(ratio * n)))
            message = codec.encode(x)
            chosen = largest(x, k)
            assert np.array_equal(message[: 4 * k].view(np.uint32), chosen), name
            assert np.array_equal(bits(message[4 * k :].view(F)), bits(x[chosen])), name


def test_topk_keeps_the_true_largest():
    """A well-known library loses the 9: it cuts off by index."""
    x = np.array([5, 1, 2, 3, 4, 9], F)
    assert decoded(compress.get("topk:ratio=0.5"), compress.get("topk:ratio=0.5").encode(x), x).tolist() == [
        5,
        0,
        0,
        0,
        4,
        9,
    ]


def test_topk_contracts():
    for name, x in gradients(5000).items():
        x = x.astype(np.float64)
        if np.abs(x).max() < 1e38:
            out = decoded(compress.get("topk:ratio=0.1"), compress.get("topk:ratio=0.1").encode(x), x)
            assert np.sum((x - out) ** 2) <= 0.9 * np.sum(x**2) * (1 + 1e-6), name


def test_blocktopk_sends_the_blocks_of_largest_norm_and_contracts():
    codec = compress.get("blocktopk:ratio=0.2,block=16")
    for n in (1, 15, 16, 17, 1003):
        for name, x in gradients(n).items():
            whole = np.concatenate([x, np.zeros(-n % 16, F)]).reshape(-1, 16)
            with np.errstate(over="ignore"):
                norms = np.sqrt(np.sum(whole.astype(np.float64) ** 2, axis=1)).astype(F)
            chosen = largest(norms, int(np.ceil(0.2 * len(norms))))
            expected = np.zeros_like(whole)
            expected[chosen] = whole[chosen]
            assert np.array_equal(decoded(codec, codec.encode(x), x), expected.ravel()[:n]), name


def test_threshold_sends_all_that_reach_it_and_nan():
    x = np.array([1, -1, 0.999, np.nan, -np.inf, 0], F)
    codec = compress.get("threshold:least=1")
    assert codec.encode(x)[:16].view(np.uint32).tolist() == [0, 1, 3, 4]
    assert np.array_equal(bits(decoded(codec, codec.encode(x), x)), bits(np.array([1, -1, 0, np.nan, -np.inf, 0], F)))


@pytest.mark.parametrize("ratio", [0.002, 0.03, 0.5])
def test_sampled_sends_about_as_many_as_wished_and_only_the_largest(ratio):
    codec = compress.get("sampled", ratio=ratio)
    for n in (100, 4999, 200_000):
        k = int(np.ceil(ratio * n))
        for name, x in hard(n).items():
            message = codec.encode(x)
            chosen, raw = message[: message.size // 2].view(np.uint32), np.abs(x).view(np.uint32)
            assert (np.diff(chosen.astype(int)) > 0).all() and chosen.size <= 1.3 * k, name
            assert chosen.size >= min(0.8 * k, np.count_nonzero(raw)), name
            left = np.delete(raw, chosen)
            assert not left.size or not chosen.size or left.max() <= raw[chosen].min(), name


def test_sampled_of_what_is_sparse_already_is_exact():
    x = np.zeros(10_000, F)
    x[[5, 700, 9999]] = [1e-30, -2, np.nan]
    codec = compress.get("sampled:ratio=0.001")
    assert codec.encode(x)[:12].view(np.uint32).tolist() == [5, 700, 9999]
    assert codec.encode(np.zeros(10_000, F)).size == 0


def test_randomk_sends_one_of_every_run_and_what_it_is_worth():
    x = np.arange(1, 1001, dtype=F)
    codec = compress.get("randomk:ratio=0.013")
    seen = set()
    for step in range(50):
        message = codec.encode(x, at=Context(step, rank=step))
        out = decoded(codec, message, x)
        places = np.flatnonzero(out)
        assert message.size == 4 + 4 * 13
        edges = np.arange(14) * 1000 // 13
        assert np.array_equal(np.searchsorted(edges, places, side="right"), np.arange(1, 14))
        assert np.array_equal(out[places], x[places] * np.diff(edges).astype(F))
        seen |= set(places.tolist())
    assert len(seen) > 350
    values = decoded(compress.get("randomk:ratio=0.013,unbiased=False"), message, x)
    assert np.array_equal(values != 0, out != 0)


def test_a_damaged_index_writes_nothing_elsewhere():
    codec = compress.get("topk:ratio=0.5")
    room = np.zeros(64, F)
    message = codec.encode(np.arange(1, 9, dtype=F))
    message[:4] = 255
    codec.decode(message, room[16:24])
    assert not room[:16].any() and not room[24:].any()


def test_sizes_are_those_of_the_formulas_beyond_32_bits():
    n = 2**33 + 5
    assert compress.get("topk:ratio=0.25").nbytes(n) == 12 * -(-n // 4)
    assert compress.get("topk:ratio=0.25").nbytes(2**31 - 1) == 8 * 2**29
    assert compress.get("int8").nbytes(n) == 2**33 // 64 * 66 + 2 + 8
    assert compress.get("sign").nbytes(n) == 2**33 // 512 * 66 + 2 + 1

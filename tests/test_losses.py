"""What is thought to be lost by each schedule is what is lost, and what is chosen follows from that."""

from functools import cache

import numpy as np
import pytest

import compress
from allreduce.algorithms import TABLE, schedule, supporting
from allreduce.choice import Choice, Coder, Link, choose_coded, pays, ways
from allreduce.costs import segmented
from allreduce.losses import loss_of
from bench.codecs import EXPECTED, SCHEDULES
from compress.simulate import simulate

AUTO = [name for name in supporting("allreduce") if TABLE[name].auto]


def share(result, exact):
    """Squared error over squares."""
    return float(np.sum((result - exact) ** 2) / np.sum(exact**2))


@cache
def once(text):
    """What one encoding of normal values loses."""
    x, codec = np.random.default_rng(0).standard_normal(1 << 15).astype(np.float32), compress.get(text)
    return share(codec.decode(codec.encode(x), np.empty_like(x)), x.astype(float))


def measured(name, size, text, numbers=1):
    arrays = list(np.random.default_rng(size).standard_normal((size, 20_000)).astype(np.float32))
    exact = np.sum(arrays, axis=0, dtype=float)
    return np.mean([share(simulate(name, arrays, compress.get(text), number)[0], exact) for number in range(numbers)])


@pytest.mark.parametrize("name", TABLE)
def test_the_prediction_is_what_is_measured(name):
    for size in (1, 2, 3, 5, 8):
        for text in ("int8", "int4:block=32", "float16"):
            found, wanted = measured(name, size, text), loss_of(name, size, once(text))
            assert found == pytest.approx(wanted, rel=0.15, abs=1e-15), (name, size, text)


@pytest.mark.parametrize("text", EXPECTED)
def test_the_prediction_is_the_table(text):
    """Of 8 and 64 ranks, within a fifth; what is encoded again is longer by its own error."""
    for placement, wanted in EXPECTED[text].items():
        for size, error in wanted.items():
            assert loss_of(SCHEDULES[placement], size, once(f"{text}:block=64")) == pytest.approx(error, rel=0.2)


def test_large_losses_multiply():
    """As of an unbiased sparse code, which makes what was lost larger, too."""
    for name in ("one_shot", "direct", "ring"):
        wanted = loss_of(name, 4, once("randomk:ratio=0.5"))
        assert measured(name, 4, "randomk:ratio=0.5", 20) == pytest.approx(wanted, rel=0.15), name
    assert loss_of("ring", 4, 99.0) > 1e4 * loss_of("one_shot", 4, 99.0)


def test_more_ranks_than_are_played():
    for name in AUTO:
        assert loss_of(name, 100_000, 0.01) == loss_of(name, 64, 0.01)


# --- what is chosen -------------------------------------------------------------------------------

SLOW = Link(1e-9, 1e-6, 0.0)


def found(text, size, count=1_000_000, link=SLOW, prefer="auto", **facts):
    codec = compress.get(text)
    coder = Coder(1e-12, 1e-12, 1e-12, codec.nbytes(1 << 15) / (1 << 15), once(text))
    return choose_coded(ways("allreduce", size, count, codec, coder, (), link, prefer), **facts).name


def test_at_equal_bytes_what_loses_less():
    for size in (4, 5, 8, 64):
        assert found("int8", size) == "direct"
    for slower, name in ((0.05, "direct"), (0.2, "rabenseifner")):  # than the other, by its 114 further messages
        assert found("int8", 64, link=Link(slower * 2 / 114, 1e-6, 0.0)) == name


def test_what_loses_most_of_a_value_is_encoded_once():
    """On a chain an unbiased code would lose many times the sum, and a biased one nearly all of it."""
    for text in ("randomk:ratio=0.01", "topk:ratio=0.01", "sign", "int2"):
        for size in (2, 4, 8, 64):
            assert loss_of(found(text, size), size, 0.5) == 0.5, (text, size)
        assert found(text, 64, fed_back=True) != "one_shot"


def test_what_loses_a_little_more_may_send_much_less():
    assert {found("natural", size) for size in (4, 8)} == {"direct"}


def test_between_nodes_only_their_sums_are_encoded():
    nodes = tuple((4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3) for n in range(4))
    coder = Coder(1e-12, 1e-12, 1e-12, 1.0, 0.01)
    (way,) = [w for w in ways("allreduce", 16, 10**6, compress.get("int8"), coder, nodes, SLOW) if w.name[:4] == "hier"]
    assert way.loss == loss_of("circulant", 4, 0.01)


def test_between_nodes_what_is_steady_may_lose_a_little_more():
    for text, size, name in (
        ("int8", 4, "rabenseifner"), ("int8", 5, "ring"), ("bfloat16", 5, "ring"), ("int4", 4, "direct"),
    ):  # fmt: skip
        assert found(text, size, between_nodes=True) == name
        assert found(text, size) == "direct"


def test_what_saves_less_than_a_tenth_does_not_pay():
    plain = Choice("ring", 1.0)
    assert [pays(Choice("direct", seconds, 0.1), plain) for seconds in (0.9, 0.92, 1.0, 2.0)] == [True] + 3 * [False]


def test_what_steps_take_however_few_the_values_is_counted():
    codec, quick = compress.get("elias"), Coder(1e-12, 1e-12, 1e-12, 1.0, 0.01)
    rates = [ways("allreduce", 8, 1000, codec, quick._replace(step=step), (), SLOW) for step in (0.0, 1.0)]
    before, after = ({way.name: way.seconds for way in each} for each in rates)
    for name in before:
        steps = len(schedule(name, 0, 8, **segmented(name, 8, 1000, {})).steps)
        assert after[name] - before[name] == pytest.approx(steps), name
    assert after["one_shot"] == min(after.values())


def test_a_preferred_algorithm_is_the_only_way():
    assert found("topk:ratio=0.01", 8, prefer="binomial_tree") == "binomial_tree"

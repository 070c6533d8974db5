"""Where "auto" takes a codec, and by which algorithm; and what it says about that."""

from itertools import product

import numpy as np
import pytest
from test_codecs import F
from witness import RANK, SIZE, WORLD, Verdict, rough

import allreduce
import compress
from allreduce.choice import Link
from allreduce.losses import loss_of
from allreduce.measured import FEW

pytestmark = pytest.mark.mpi

SLOW, FAST, FAR = Link(1e-9, 1e-6, 0.0), Link(1e-9, 1e-15, 0.0), Link(1.0, 1e-15, 0.0)
#: Methods of sparse sums, and the algorithm that each prefers.
SPARSE = {
    "gtopk:ratio=0.02": "binomial_tree", "oktopk:ratio=0.02": "direct",
    "sparcml(topk:ratio=0.02)": "recursive_doubling",
}  # fmt: skip


@pytest.fixture
def distant():
    """A communicator whose ranks do not share memory, as far as it knows."""
    with allreduce.Communicator(WORLD) as ours:
        ours.engine.channel.together = False
        yield ours


def join(comm, link):
    comm.engine.prices.__dict__["link"] = link


def encoded(comm):
    """The orders of sums of float32 with a codec, but for those that a codec is tried out by."""
    plans = comm.engine.channel.plans
    return [order for order in plans if order.dtype == F and order.codec is not None and order.count != FEW]


def told(verdict, data, codec, comm):
    """What is explained, the same on all ranks."""
    text = allreduce.explain(data[RANK], codec=codec, comm=comm)
    verdict.same(np.frombuffer(text.encode(), np.uint8), codec)
    return text


@pytest.mark.parametrize("link", [SLOW, FAST])
def test_a_codec_is_taken_where_it_pays(distant, link):
    join(distant, link)
    codecs = "int8", "topk:ratio=0.01", "randomk:ratio=0.01", "sparse", "sparse:share=0.02"
    with Verdict() as verdict:
        for codec, count in product(codecs, (3000, 100_000)):
            data = rough(F, count)
            result = allreduce.allreduce(data[RANK], comm=distant, codec=codec)
            verdict.same(result, count, codec)
            text = told(verdict, data, codec, distant)
            taken = link is SLOW and SIZE > 1 and codec != "sparse"  # which may be as long as what it encodes
            verdict.check(("it does not pay" in text) == (not taken), text)
            verdict.check(f" with {compress.get(codec)}: " in text or not taken, text)
            last = [order for order in distant.engine.channel.plans if (order.dtype, order.count) == (F, count)][-1]
            verdict.check(taken or f"{last.algorithm}, by messages, without" in text, last, text)
        ways = [(order.codec, order.algorithm) for order in encoded(distant)]
        verdict.check(len(ways) == (8 if link is SLOW and SIZE > 1 else 0), ways)
        for codec, algorithm in ways:
            exact = codec.lossless or codec == compress.get("int8")
            verdict.check(exact or loss_of(algorithm, SIZE, 0.5) == 0.5, codec, algorithm)


def test_any_schedule_will_do_where_losses_are_fed_back(distant):
    join(distant, SLOW)
    data, method = rough(F, 100_000), compress.get("feedback(topk:ratio=0.01)")
    out = allreduce.allreduce(data[RANK], comm=distant, codec=method, key="w")
    left = WORLD.allreduce(method.residual("w").astype("d"))
    asked = {order.algorithm for order in distant.engine.channel.plans if order.lost}
    with Verdict() as verdict:
        verdict.same(out)
        verdict.check(np.allclose(out + left, data.sum(0, dtype="d"), atol=1e-5), "conserved")
        verdict.check(len(asked) == (SIZE > 1) and (SIZE < 3 or "one_shot" not in asked), asked)


def test_no_codec_is_taken_in_shared_memory(comm):
    data = rough(F, 3000)
    with Verdict() as verdict:
        plain = allreduce.allreduce(data[RANK], comm=comm)
        for codec in ("int8", *SPARSE):
            verdict.check("shared memory is faster" in told(verdict, data, codec, comm), codec)
            if not codec.startswith("sparcml"):  # which chooses all the same
                result = allreduce.allreduce(data[RANK], comm=comm, codec=codec, key="w")
                verdict.check(result.tobytes() == plain.tobytes(), codec)
        verdict.check(not encoded(comm), encoded(comm))


def test_what_is_explained_is_taken(comm, distant):
    with Verdict() as verdict:
        for each, count in product((comm, distant), (7, 100_003)):
            allreduce.allreduce(data := np.ones(count, F), comm=each)
            taken = [order.algorithm for order in each.engine.channel.plans if order.count == count]
            told = allreduce.explain(data, comm=each)
            verdict.check(taken == [told.split()[-1]], (told, taken))


@pytest.mark.parametrize("text", SPARSE)
def test_sparse_sums_are_made_where_they_pay(text, distant):
    """By the algorithm of the method; a message that takes a second is not sent more often for fewer bytes."""
    with Verdict() as verdict:
        for link, count in ((FAR, 40), (SLOW, 50_000)):
            join(distant, link)
            method, data = compress.get(text), rough(F, count)
            out = allreduce.allreduce(data[RANK], comm=distant, codec=method, key="w")
            verdict.same(out, text, link)
            left = WORLD.allreduce(method.memory["w"]["residual"].astype("d"))
            verdict.check(np.allclose(out + left, data.sum(0, dtype="d"), atol=1e-4), text, link, "conserved")
            ways, explained = {order.algorithm for order in encoded(distant)}, told(verdict, data, text, distant)
            taken = {SPARSE[text]} if link is SLOW and SIZE > 1 else set()
            verdict.check(ways == taken, text, link, ways)
            wanted = SPARSE[text] if taken else "no codec: it does not pay"
            verdict.check(f"auto takes {wanted}" in explained, explained)


def test_what_is_explained_was_measured(distant):
    with Verdict() as verdict:
        text = told(verdict, rough(F, 1000), "int8", distant)
        verdict.check(distant.engine.prices.link.alpha > 0 and distant.engine.prices.link.beta > 0, text)
        verdict.same(np.array(distant.engine.prices.link), "every rank has measured the same")
        verdict.check(f"{loss_of('ring', SIZE, 1e-9) / 1e-9:.2f}  ring" in text, text)
        verdict.check("2.0% of them not zero" in told(verdict, rough(F, 9), "sparse:share=0.02", distant))
        steps = [distant.engine.prices.coder(compress.get(codec), F).step for codec in ("int8", "lossless")]
        verdict.check(steps[0] == 0 and (steps[1] > 0) == (SIZE > 1), "only one in Python has a price", steps)
        verdict.same(np.array(steps), "every rank has measured the same")
        text = told(verdict, rough(F, 3000).reshape(SIZE, 60, 50), "powersgd", distant)
        verdict.check(text.count("without a codec") == 2, text)
        for bad in (lambda: allreduce.explain(np.ones(3, int), codec="int8", comm=distant),
                    lambda: allreduce.explain(np.ones(3, int), codec="feedback(int8)", comm=distant),
                    lambda: allreduce.explain(np.ones(3), codec="int9", comm=distant)):  # fmt: skip
            with pytest.raises((TypeError, ValueError), match="int"):
                bad()

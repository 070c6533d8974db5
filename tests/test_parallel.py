"""Orders of a pipeline, and who gets how much: without MPI."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from allreduce.parallel import orders
from allreduce.parallel.balance import balance, imbalance, shards
from allreduce.parallel.orders import ORDERS, Work, play, waiting

GRID = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 7, 16)]


@pytest.mark.parametrize("name", ORDERS)
def test_every_microbatch_goes_forward_once_and_then_backward_once_through_every_stage(name):
    for stages, microbatches in GRID:
        for stage in range(stages):
            order = ORDERS[name](stage, stages, microbatches)
            assert sorted(order) == sorted(Work(way, m) for way in (True, False) for m in range(microbatches))
            assert all(order.index(Work(True, m)) < order.index(Work(False, m)) for m in range(microbatches))


@pytest.mark.parametrize("name", ORDERS)
def test_no_stage_begins_before_its_neighbour_is_done(name):
    for stages, microbatches in GRID:
        for stage, (here, there) in enumerate(pairwise(play(name, stages, microbatches, 3, 5))):
            for m in range(microbatches):
                assert here[Work(True, m)] + 3 <= there[Work(True, m)], (stage, m)
                assert there[Work(False, m)] + 5 <= here[Work(False, m)], (stage, m)


def in_flight(order):
    return max(np.cumsum([1 if work.forward else -1 for work in order]))


def test_1f1b_holds_as_many_microbatches_as_there_are_stages_to_come_and_gpipe_all():
    for stages, microbatches in GRID:
        for stage in range(stages):
            assert in_flight(ORDERS["1f1b"](stage, stages, microbatches)) == min(stages - stage, microbatches)
            assert in_flight(ORDERS["gpipe"](stage, stages, microbatches)) == microbatches


@pytest.mark.parametrize("name", ORDERS)
def test_stages_wait_for_as_many_microbatches_as_there_are_other_stages(name):
    for stages, microbatches in GRID:
        assert waiting(name, stages, microbatches) == pytest.approx((stages - 1) / microbatches)


def test_an_order_that_comes_to_a_halt_is_refused(monkeypatch):
    def backwards(stage, stages, microbatches):
        return orders.gpipe(stage, stages, microbatches)[:: -1 if stage else 1]

    monkeypatch.setitem(ORDERS, "backwards", backwards)
    with pytest.raises(ValueError, match="backwards comes to a halt with 9 passes to go"):
        play("backwards", 2, 3)
    with pytest.raises(ValueError, match="unknown order 'pipedream'; have gpipe, 1f1b"):
        play("pipedream", 2, 3)


def test_balance_is_the_best_of_all_cuts():
    rng = np.random.default_rng(0)
    for layers in range(1, 9):
        costs = rng.integers(0, 20, layers).tolist()
        for parts in range(1, layers + 1):
            found = balance(costs, parts)
            assert [i for stage in found for i in stage] == list(range(layers)) and all(found) and len(found) == parts
            cuts = [(0, *inner, layers) for inner in combinations(range(1, layers), parts - 1)]
            best = min(max(sum(costs[a:b]) for a, b in pairwise(cut)) for cut in cuts)
            assert max(sum(costs[stage.start : stage.stop]) for stage in found) == best


def test_no_stage_is_left_without_a_layer():
    for parts in (0, 4):
        with pytest.raises(ValueError, match=f"cannot cut 3 layers into {parts} stages"):
            balance([1, 2, 3], parts)


def test_shards_are_within_a_third_of_the_best():
    rng = np.random.default_rng(1)
    for _ in range(200):
        sizes, parts = rng.integers(1, 100, rng.integers(1, 8)).tolist(), int(rng.integers(1, 4))
        owners = shards(sizes, parts)
        loads = [sum(s for s, owner in zip(sizes, owners) if owner == part) for part in range(parts)]
        best = min(
            max(np.bincount(np.unravel_index(way, (parts,) * len(sizes)), sizes, parts))
            for way in range(parts ** len(sizes))
        )
        assert sum(loads) == sum(sizes) and max(loads) <= 4 / 3 * best


def test_imbalance_is_the_largest_over_the_mean():
    assert imbalance([2, 2, 2]) == 0 == imbalance([0, 0])
    assert imbalance([3, 1]) == 0.5

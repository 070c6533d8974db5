"""The algorithms are proven here, without MPI; and the prover is shown to fail where it should."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allreduce import verifier
from allreduce.algorithms import ALIASES, COLLECTIVES, TABLE, Algorithm, parse, schedule, supporting
from allreduce.algorithms.doubling import recursive_doubling
from allreduce.algorithms.ring import ring
from allreduce.algorithms.tree import binomial_tree
from allreduce.schedules import (
    Recv,
    Schedule,
    Send,
    beside,
    cut,
    fold,
    idle,
    mirror,
    owned,
    padded,
    pipelined,
    ranges,
    refine,
    relabel,
    share,
    then,
    within,
)
from allreduce.verifier import ScheduleError, play, start, verify

#: The proof takes p^3 time and more where there are p steps or p messages a step; these stay at a second.
LARGEST = {
    "ring": 110, "two_way_ring": 80, "multi_ring": 80, "torus": 130, "torus_two_way": 110, "direct": 150,
    "one_shot": 150,
}  # fmt: skip

UNEVEN = (((0,), (1, 2, 3, 4), (5, 6)), ((0, 1, 2), (3, 4), (5,)), ((0, 1, 2, 3, 4), (5,)))
SCATTERED = (((0, 3, 6), (1, 4), (2, 5)), ((5, 1), (0, 2), (4, 3)), ((6, 0, 3), (5,), (1, 4, 2)))
VARIANTS = [
    *(("recursive_multiplying", 17, {"radix": k}) for k in (2, 3, 4, 5)),
    *(("kary_tree", 17, {"radix": k}) for k in (1, 2, 3, 4, 5, 10**18)),
    *(("pipelined_tree", 11, {"segments": s}) for s in (1, 2, 3, 4, 5)),
    *(("double_binary_tree", p, {"segments": s}) for s in (1, 2, 3, 4, 5) for p in (3, 8, 11)),
    *(("multi_ring", p, {"rings": n}) for n in (1, 2, 3, 5) for p in (6, 7, 12)),
    ("multi_ring", 4, {"orders": tuple(permutations(range(4)))[::5]}),
    ("multi_ring", 5, {"orders": ((0, 2, 1, 4, 3),)}),
    ("multi_ring", 5, {"orders": ((0, 1, 2, 3, 4), (0, 1, 3, 2, 4))}),  # rank 0 has the same neighbours twice
    *(("torus", 12, {"grid": g}) for g in ((12,), (1, 12), (12, 1), (2, 6), (4, 3), (2, 2, 3), (3, 1, 2, 2))),
    ("torus", 24, {"grid": (2, 3, 2, 2)}),
    *(("torus_two_way", 12, {"grid": g}) for g in ((1, 12), (12, 1), (2, 6), (3, 4), (4, 3))),
    *(
        (name, sum(map(len, nodes)), {"nodes": nodes})
        for name in ("hierarchical", "hierarchical_leaders")
        for nodes in (*UNEVEN, *SCATTERED, ((0, 1, 2, 3),), ((0,), (1,), (2,), (3,), (4,)))
    ),
    *(("hierarchical", sum(map(len, nodes)), {"nodes": nodes, "between": "ring"}) for nodes in (*UNEVEN, *SCATTERED)),
    *(("hierarchical", p, {"between": "ring"}) for p in range(1, 26)),
]


@pytest.mark.parametrize("name", TABLE)
def test_every_algorithm_is_proven(name):
    for size in range(1, 65):
        verify(name, size)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_proven_for_every_root(collective):
    for name in supporting(collective):
        for size in range(1, 17):
            for root in {0, size // 2, size - 1}:
                verify(name, size, collective, root)


@pytest.mark.parametrize("name, size, params", VARIANTS)
def test_every_parameter_is_proven(name, size, params):
    verify(name, size, **params)
    verify(name, size, root=size - 1, **params)


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(data=st.data())
def test_large_sizes_are_proven(name, data):
    verify(name, data.draw(st.integers(65, LARGEST.get(name, 300)), label="size"))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_nodes_are_proven(data):
    ranks = data.draw(st.permutations(range(data.draw(st.integers(1, 24)))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(ranks)))) | {0, len(ranks)})
    nodes = tuple(tuple(ranks[a:b]) for a, b in zip(cuts, cuts[1:]))  # noqa: RUF007
    verify("hierarchical", len(ranks), nodes=nodes, between=data.draw(st.sampled_from(["circulant", "ring"])))
    verify("hierarchical_leaders", len(ranks), nodes=nodes)


@pytest.mark.parametrize("name", supporting("reduce_scatter"))
def test_reduce_scatter_leaves_share_r_on_rank_r(name):
    for size in range(1, 17):
        schedules = [schedule(name, rank, size, "reduce_scatter") for rank in range(size)]
        held = start(size, schedules[0].blocks)
        play(schedules, held)
        for rank, s in enumerate(schedules):
            assert owned(s) == [share(s.blocks, size, rank)]
            assert (held.counts[rank, owned(s)[0]] == 1).all()


def test_schedules_are_plain_values():
    assert schedule("ring", 1, 4) == schedule("ring", 1, 4)
    assert hash(schedule("torus", 1, 6)) == hash(schedule("torus", 1, 6))


# --- with a codec ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, a in TABLE.items() if a.owner == "all"])
def test_a_rank_must_add_what_it_sends(name, monkeypatch):
    """Rule (b): else each of those that exchange adds its own value exactly, and the other's encoded."""
    monkeypatch.setattr(verifier, "own", lambda values, sent, t: values)
    for size in (2, 3, 5, 8):
        with pytest.raises(ScheduleError, match=rf"{name}: ranks 0 and \d differ in block 0 with a codec"):
            verify(name, size)


@pytest.mark.parametrize("name", TABLE)
def test_a_finished_block_must_be_replaced_by_what_its_code_decodes_to(name, monkeypatch):
    """Rule (c): else its owners keep it, and all others get it encoded; but where nothing is copied all have it."""
    monkeypatch.setattr(verifier, "finish", lambda held, rank, blocks, t: None)
    for size in (2, 3, 5, 8):
        if TABLE[name].owner == "all" and (size & (size - 1) == 0 or name == "one_shot"):
            verify(name, size)
        elif not (name == "recursive_multiplying" and size in (2, 3, 8)):
            with pytest.raises(ScheduleError, match=rf"{name}: ranks \d and \d differ in block \d with a codec"):
                verify(name, size)


def test_codes_must_be_forwarded_unchanged(monkeypatch):
    monkeypatch.setattr(verifier, "copied", lambda values, t: verifier.hop(values, t))
    for name in ("ring", "binomial_tree", "rabenseifner"):
        with pytest.raises(ScheduleError, match="with a codec"):
            verify(name, 4)


# --- transforms -----------------------------------------------------------------------------------

HALVES = [name for name, a in TABLE.items() if a.owner != "all"]


def proven(monkeypatch, function, owner="some", sizes=range(1, 14), **facts):
    monkeypatch.setitem(TABLE, "made", Algorithm(function, owner=owner, **facts))
    for size in sizes:
        verify("made", size)


@pytest.mark.parametrize("name", HALVES)
def test_mirror_twice_is_the_same_messages(name):
    for size in range(1, 10):
        for rank in range(size):
            half = TABLE[name].function(rank, size)
            steps = tuple(tuple(m._replace(add=False) if isinstance(m, Recv) else m for m in s) for s in half.steps)
            assert mirror(mirror(half)) == half._replace(steps=steps)


def test_refine_composes_and_keeps_the_proof(monkeypatch):
    s = ring(1, 5)
    assert refine(s, 1) == s
    assert refine(refine(s, 2), 3) == refine(s, 6)
    proven(monkeypatch, lambda rank, size: refine(ring(rank, size), 3), owner="rank", symmetric=True)


def test_then_concatenates_on_common_blocks(monkeypatch):
    a, b = refine(ring(0, 3), 2), binomial_tree(0, 3)
    both = then(a, b, a)
    assert both.blocks == 6
    assert both.steps == a.steps + refine(b, 6).steps + a.steps
    assert then(a) == a
    # a reduce to rank 0 and its mirror, put together by hand, are a whole all-reduce
    proven(monkeypatch, lambda r, p: then(binomial_tree(r, p), mirror(binomial_tree(r, p))), owner="all")


def test_beside_gives_each_its_share_of_the_buffer(monkeypatch):
    s = beside(ring(0, 2), binomial_tree(0, 2))
    assert s == Schedule(
        4,
        ((Send(1, range(1, 2)), Recv(1, range(0, 1), add=True), Recv(1, range(2, 4), add=True)),),
    )
    proven(monkeypatch, lambda r, p: beside(ring(r, p), binomial_tree(r, p), ring(r, p)))


def test_pipelined_segments_follow_one_step_apart(monkeypatch):
    s = binomial_tree(0, 8)
    assert pipelined(s, 1) == s
    three = pipelined(s, 3)
    assert (three.blocks, len(three.steps)) == (3, len(s.steps) + 2)
    segments = [[m.blocks[0] for m in step] for step in three.steps]
    assert [sorted(step) for step in segments] == [[0], [0, 1], [0, 1, 2], [1, 2], [2]]
    assert pipelined(binomial_tree(0, 1), 3) == Schedule(3, ())
    for segments in (1, 2, 3, 5):
        proven(monkeypatch, lambda rank, size: pipelined(ring(rank, size), segments))  # noqa: B023


def test_relabel_moves_owners_and_undoes(monkeypatch):
    order = [2, 0, 3, 1]
    there, back = relabel(ring(1, 4), order), [order.index(b) for b in range(4)]
    assert owned(there) == [range(order[1], order[1] + 1)]
    assert relabel(there, back) == ring(1, 4)
    assert relabel(Schedule(4, ((Send(1, range(4)),),)), order).steps == (
        (Send(1, range(2, 3)), Send(1, range(0, 1)), Send(1, range(3, 4)), Send(1, range(1, 2))),
    )
    proven(monkeypatch, lambda r, p: relabel(ring(r, p), list(range(p))[::-1]))


def test_padded_and_idle_keep_ranks_aligned(monkeypatch):
    s = ring(0, 3)
    assert padded(s, 5).steps == (*s.steps, (), (), ())
    assert padded(s, 2) == s
    assert idle(s) == Schedule(3, ((), ()))
    proven(monkeypatch, lambda r, p: padded(ring(r, p), p + 2), owner="rank")


def test_within_renames_peers_and_places_blocks():
    s = within(ring(0, 2), (5, 9).__getitem__, range(4, 8), 12)
    assert s == Schedule(12, ((Send(9, range(6, 8)), Recv(9, range(4, 6), add=True)),))


def test_fold_adds_groups_of_neighbours():
    for size in range(1, 20):
        for members in range(1, size + 1):
            schedules = [fold(rank, size, members) for rank in range(size)]
            held = start(size, 1)
            play(schedules, held)
            for i in range(members):
                group = share(size, members, i)
                assert held.counts[group[0], 0].tolist() == [rank in group for rank in range(size)]


@given(st.lists(st.integers(0, 30)))
@settings(deadline=None, derandomize=True)
def test_ranges_list_the_same_blocks_in_order(blocks):
    runs = ranges(blocks)
    assert [b for run in runs for b in run] == blocks
    assert all(a.stop != b.start for a, b in zip(runs, runs[1:]))  # noqa: RUF007


@given(st.integers(0, 200), st.integers(1, 40), st.integers(1, 9))
@settings(deadline=None, derandomize=True)
def test_shares_cover_and_nest(count, parts, factor):
    assert [i for k in range(parts) for i in share(count, parts, k)] == list(range(count))
    assert max(len(share(count, parts, k)) for k in range(parts)) <= -(-count // parts)
    assert all(cut(count, parts, k) == cut(count, parts * factor, k * factor) for k in range(parts + 1))


# --- the prover fails where it should -------------------------------------------------------------

ALL = range(1)


def broken(monkeypatch, function, owner="all", **facts):
    monkeypatch.setitem(TABLE, "broken", Algorithm(function, owner=owner, **facts))


def by_rank(*schedules):
    """An algorithm from the steps of each rank, written out."""
    return lambda rank, size: Schedule(1, schedules[rank])


def test_double_counting(monkeypatch):
    def pass_on_everything(rank, size):
        step = (Send((rank + 1) % size, ALL), Recv((rank - 1) % size, ALL, add=True))
        return Schedule(1, (step,) * (size - 1))

    broken(monkeypatch, pass_on_everything)
    verify("broken", 2)
    # everyone has arrived everywhere, and rank 2 on rank 0 twice
    with pytest.raises(ScheduleError, match=r"rank 0 ends with contributions \[1 1 2\] of block 0"):
        verify("broken", 3)


def test_missing_contribution(monkeypatch):
    broken(monkeypatch, lambda rank, size: recursive_doubling(rank, size)._replace(steps=()))
    with pytest.raises(ScheduleError, match=r"rank 0 ends with contributions \[1 0\] of block 0"):
        verify("broken", 2)
    broken(monkeypatch, lambda rank, size: Schedule(1, recursive_doubling(rank, size).steps[:-1]))
    with pytest.raises(ScheduleError, match=r"rank 0 ends with contributions \[1 1 0 0\]"):
        verify("broken", 4)


def test_allgather_that_sends_the_same_block_in_every_step(monkeypatch):
    """Passes on two ranks; a well-known library shipped it."""

    def forgetful(rank, size):
        left = (rank - 1) % size
        mine, theirs = range(rank, rank + 1), range(left, left + 1)
        step = (Send((rank + 1) % size, mine), Recv(left, theirs, add=False))
        return then(ring(rank, size), Schedule(size, (step,) * (size - 1)))

    broken(monkeypatch, forgetful)
    verify("broken", 2)
    with pytest.raises(ScheduleError, match=r"rank 2 ends with contributions \[0 1 1\] of block 0"):
        verify("broken", 3)


def test_same_values_added_in_another_order(monkeypatch):
    """Ranks 0 and 3 end with (0+1)+(2+3), ranks 1 and 2 with (0+2)+(1+3): all counts are one."""
    to, from_, last = [2, 0, 3, 1], [1, 3, 0, 2], [3, 2, 1, 0]

    def crossed(rank, size):
        first = (Send(to[rank], ALL), Recv(from_[rank], ALL, add=True))
        return Schedule(1, (first, (Send(last[rank], ALL), Recv(last[rank], ALL, add=True))))

    broken(monkeypatch, crossed)
    with pytest.raises(ScheduleError, match="ranks 0 and 1 add block 0 in different orders"):
        verify("broken", 4)


TAKE, GIVE = (Recv(1, ALL, add=True),), (Send(0, ALL),)


@pytest.mark.parametrize(
    "schedules, words",
    [
        (((TAKE, ()), (GIVE, GIVE)), r"step 1: rank 1 sends range\(0, 1\) to 0, which does not receive it"),
        (((TAKE,), ((Send(7, ALL),),)), "step 0: rank 0 waits for .*, which is never sent"),
        (((TAKE, TAKE), (GIVE, ())), "step 1: rank 0 waits for .*, which is never sent"),
        (((TAKE, ()), ((), GIVE)), "step 0: rank 0 waits for .*, which is never sent"),  # steps are aligned
        (((TAKE,), (GIVE, ())), "ranks differ in steps or blocks"),
    ],
)
def test_messages_without_counterpart(monkeypatch, schedules, words):
    broken(monkeypatch, by_rank(*schedules))
    with pytest.raises(ScheduleError, match=words):
        verify("broken", 2)


def test_ranks_differ_in_blocks(monkeypatch):
    broken(monkeypatch, lambda rank, size: Schedule(1 + rank, ()))
    with pytest.raises(ScheduleError, match="differ in steps or blocks"):
        verify("broken", 2)


def test_messages_of_a_pair_match_in_posting_order(monkeypatch):
    low, high = range(0, 1), range(1, 2)

    def swapped(rank, size):
        steps = [(Recv(1, low, add=True), Recv(1, high, add=True)), (Send(0, high), Send(0, low))]
        return Schedule(2, (steps[rank],))

    broken(monkeypatch, swapped)
    with pytest.raises(ScheduleError, match=r"rank 0 expects .*range\(0, 1\).* but gets range\(1, 2\)"):
        verify("broken", 2)


COPY = Recv(1, ALL, add=False)


@pytest.mark.parametrize(
    "first, second",
    [
        ((Send(1, ALL), COPY), (Recv(0, ALL, add=True), Send(0, ALL))),  # sent and overwritten
        ((TAKE[0], COPY), (Send(0, ALL), Send(0, ALL))),  # added to and overwritten
        ((COPY, COPY), (Send(0, ALL), Send(0, ALL))),  # overwritten twice
    ],
)
def test_overwriting_a_block_used_in_the_same_step(monkeypatch, first, second):
    broken(monkeypatch, by_rank((first,), (second,)))
    with pytest.raises(ScheduleError, match="step 0: rank 0 overwrites blocks it uses"):
        verify("broken", 2)


@pytest.mark.parametrize("blocks", [[range(0, 2)], [range(-1, 1)], [range(0, 1), range(1, 2)]])
def test_blocks_outside_the_buffer(monkeypatch, blocks):
    def outside(rank, size):
        return Schedule(1, tuple((Send(1 - rank, b), Recv(1 - rank, b, add=True)) for b in blocks))

    broken(monkeypatch, outside)
    with pytest.raises(ScheduleError, match=r"step \d: rank 0 .*range\(.*outside"):
        verify("broken", 2)


@pytest.mark.parametrize(
    "function, facts, words",
    [
        (lambda r, p: relabel(ring(r, p), [1, 2, 0]), {"owner": "rank"}, "the table says blocks rest on"),
        (ring, {"owner": "root"}, "the table says blocks rest on"),
        (lambda r, p: Schedule(1, ()), {"owner": "some"}, "block 0 rests on ranks 0 and 1"),
        (ring, {"owner": "rank", "ordered": True}, "adds block .* out of rank order"),
        (binomial_tree, {"owner": "root", "symmetric": True}, "said to be symmetric"),
    ],
)
def test_facts_in_the_table_are_checked(monkeypatch, function, facts, words):
    broken(monkeypatch, function, **facts)
    with pytest.raises(ScheduleError, match=words):
        verify("broken", 3)


# --- errors at the door ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, size, keywords, words",
    [
        ("rign", 4, {}, "unknown algorithm 'rign'; have ring, two_way_ring, "),
        ("rign:grid=2x2", 4, {}, "unknown algorithm 'rign'; have ring, "),
        ("", 4, {}, "unknown algorithm ''"),
        ("ring", 4, {"collective": ["reduce"]}, r"unknown collective \['reduce'\]"),
        ("ring", 4, {"collective": "scan"}, "unknown collective 'scan'; have allreduce, reduce_scatter, "),
        ("torus", 4, {"collective": "reduce_scatter"}, "torus cannot do reduce_scatter; ring, .*direct can"),
        ("ring", 4, {"collective": "bcast"}, "ring cannot do bcast; binomial_tree, "),
        ("one_shot", 4, {"collective": "reduce"}, "one_shot cannot do reduce"),
        ("torus", 6, {"grid": (2, 2)}, "grid 2x2 does not multiply to 6 ranks"),
        ("torus", 6, {"grid": (-2, -3)}, "grid -2x-3 does not multiply"),
        ("torus:grid=2x4", 6, {}, "grid 2x4 does not multiply to 6 ranks"),
        ("torus:grid=2y4", 8, {}, "cannot read grid='2y4'"),
        ("torus:grid", 8, {}, "cannot read grid=''"),
        ("torus_two_way", 8, {"grid": (2, 2, 2)}, "takes a grid of two dimensions, not 3"),
        ("hierarchical", 4, {"nodes": ((0, 1), (2,))}, "do not hold each of the 4 ranks once"),
        ("hierarchical", 4, {"nodes": ((0, 1), (1, 2, 3))}, "do not hold each of the 4 ranks once"),
        ("hierarchical", 4, {"nodes": ((0, 1, 2, 3), ())}, "do not hold each of the 4 ranks once"),
        ("hierarchical:nodes=3+2", 4, {}, "do not hold each of the 4 ranks once"),
        ("hierarchical:between=rign", 4, {}, "expected circulant or ring between nodes, not 'rign'"),
        ("hierarchical", 4, {"between": ["ring"]}, "cannot use between="),
        ("multi_ring", 3, {"orders": ((0, 1, 1),)}, r"order \(0, 1, 1\) is no permutation of the 3 ranks"),
        ("ring", 4, {"radix": 2}, "ring has no parameter 'radix'; it has none"),
        ("kary_tree:raddix=2", 4, {}, "kary_tree has no parameter 'raddix'; it has radix"),
        ("kary_tree", 4, {"radix": 0}, "at least 1, not 0"),
        ("pipelined_tree", 4, {"segments": 2.5}, "expected a whole number from 1 to 1024, not 2.5"),
        ("double_tree:segments=99999999999", 4, {}, "from 1 to 1024, not 99999999999"),
        ("kary_tree:radix=2, radix=3", 4, {}, "'radix' twice"),
        ("kary_tree:radix=2", 4, {"radix": 3}, "'radix' twice"),
        ("recursive_multiplying", 4, {"radix": 1}, "at least 2, not 1"),
    ],
)
def test_errors_at_the_door(name, size, keywords, words):
    with pytest.raises(ValueError, match=words):
        parse(name, size, **keywords)


@pytest.mark.parametrize("rank, size, root", [(0, 4, 4), (0, 4, -1), (4, 4, 0), (-1, 4, 0), (0, 0, 0)])
def test_ranks_and_roots_must_be_there(rank, size, root):
    allowed = r"(rank|root|size) must be a whole number (from 0 to 3|of at least 1), not (0|-1|4)"
    with pytest.raises(ValueError, match=allowed):
        schedule("binomial_tree", rank, size, root=root)


@pytest.mark.parametrize("keywords", [{"rank": 0.5}, {"rank": "a"}, {"size": 3.0}, {"size": None}, {"root": 1.5}])
def test_ranks_and_roots_are_whole_numbers(keywords):
    what, value = next(iter(keywords.items()))
    for name in ("binomial_tree", "ring"):
        with pytest.raises(TypeError, match=f"{what} must be a whole number .*, not {value!r}"):
            schedule(name, **{"rank": 0, "size": 3, **keywords})


@pytest.mark.parametrize("name", ["auto", "native", "node", "node:segments=2"])
def test_names_without_a_schedule(name):
    with pytest.raises(ValueError, match=f"'{name}' has neither a schedule nor parameters; have ring"):
        schedule(name, 0, 4)


def test_a_name_is_a_string():
    with pytest.raises(TypeError, match="named by a string"):
        parse(None, 4)


@pytest.mark.parametrize(
    "text, size, key, params",
    [
        ("ring", 8, "ring", {}),
        ("tree", 8, "binomial_tree", {}),
        ("2d-torus", 8, "torus", {}),
        ("Recursive-Doubling", 8, "recursive_doubling", {}),
        ("torus:grid=2x4", 8, "torus", {"grid": (2, 4)}),
        ("2d-torus:grid=2x2x2", 8, "torus", {"grid": (2, 2, 2)}),
        ("recursive_multiplying:radix=3", 8, "recursive_multiplying", {"radix": 3}),
        ("hierarchical:nodes=3+2", 5, "hierarchical", {"nodes": ((0, 1, 2), (3, 4))}),
        ("hierarchical: between = Ring", 5, "hierarchical", {"between": "ring"}),
        ("multi_ring:orders=0.1.2+2.1.0", 3, "multi_ring", {"orders": ((0, 1, 2), (2, 1, 0))}),
        ("double-tree: segments = 4", 8, "double_binary_tree", {"segments": 4}),
    ],
)
def test_names_with_parameters(text, size, key, params):
    assert parse(text, size) == (key, params)
    assert schedule(text, 1, size) == schedule(key, 1, size, **params)
    verify(text, size)


def test_aliases_lead_to_the_table():
    assert set(ALIASES.values()) <= set(TABLE)
    assert not set(ALIASES) & set(TABLE)

"""Predicted prices are those of the schedules, and every algorithm is described in the same way."""

import ast
import inspect
import re
from fractions import Fraction
from pathlib import Path

import pytest

import allreduce
from allreduce.algorithms import TABLE, schedule
from allreduce.choice import across
from allreduce.costs import Counted, cost, counted, estimate
from allreduce.schedules import Recv, Schedule, Send

VARIANTS = [
    *((name, None, {}) for name in TABLE),
    *(("recursive_multiplying", None, {"radix": k}) for k in (2, 3, 5)),
    *(("kary_tree", None, {"radix": k}) for k in (1, 2, 3, 5)),
    *(("pipelined_tree", None, {"segments": s}) for s in (1, 2, 3, 4, 5)),
    *(("double_binary_tree", None, {"segments": s}) for s in (1, 2, 3, 4, 5)),
    *(("multi_ring", None, {"rings": n}) for n in (1, 3)),
    ("multi_ring", (5,), {"orders": ((0, 1, 2, 3, 4), (0, 2, 4, 1, 3), (4, 3, 2, 1, 0))}),
    ("hierarchical", None, {"between": "ring"}),
    *(("torus", (12,), {"grid": g}) for g in ((12,), (1, 12), (6, 2), (2, 2, 3))),
    *(("torus_two_way", (12,), {"grid": g}) for g in ((1, 12), (6, 2), (3, 4))),
    *(
        (name, (7,), {"nodes": nodes})
        for name in ("hierarchical", "hierarchical_leaders")
        for nodes in (((0,), (1, 2, 3, 4), (5, 6)), ((0, 3, 6), (1, 4), (2, 5)), (tuple(range(7)),))
    ),
]


@pytest.mark.parametrize("name, sizes, params", VARIANTS)
def test_the_cost_line_is_the_counted_schedule(name, sizes, params):
    for size in sizes or range(1, 65):
        ranks = range(1 if TABLE[name].symmetric else size)  # as the proof for these sizes has shown
        c = counted(schedule(name, rank, size, **params) for rank in ranks)
        assert estimate(name, size, 1, 1, 0, 0, **params) == c.messages, size
        assert estimate(name, size, 1, 0, 1, 0, **params) == pytest.approx(float(c.sent), rel=1e-12), size
        assert estimate(name, size, 1, 0, 0, 1, **params) == pytest.approx(float(c.added), rel=1e-12), size


@pytest.mark.parametrize(
    "name, size, steps, messages, sent, added",
    [
        ("ring", 2, 2, 2, 1, "1/2"),
        ("ring", 8, 14, 14, "7/4", "7/8"),
        ("circulant", 5, 6, 6, "8/5", "4/5"),
        ("circulant", 8, 6, 6, "7/4", "7/8"),
        ("recursive_doubling", 8, 3, 3, 3, 3),
        ("recursive_doubling", 6, 4, 4, 4, 3),
        ("rabenseifner", 8, 6, 6, "7/4", "7/8"),
        ("binomial_tree", 8, 6, 6, 6, 3),
        ("one_shot", 4, 1, 3, 3, 3),
        ("direct", 4, 2, 6, "3/2", "3/4"),
        ("star", 4, 2, 6, 6, 3),
        ("torus:grid=2x3", 6, 6, 6, "5/3", "5/6"),
        ("ring", 1, 0, 0, 0, 0),
    ],
)
def test_known_closed_forms(name, size, steps, messages, sent, added):
    expected = Counted(steps, messages, Fraction(sent), Fraction(added))
    assert counted(schedule(name, rank, size) for rank in range(size)) == expected
    assert cost(name, size, 2**20, 3.0, 5.0, 7.0) == pytest.approx(
        3 * messages + 2**20 * (5 * float(Fraction(sent)) + 7 * float(Fraction(added)))
    )


def test_a_step_costs_the_most_that_any_rank_sends_or_receives():
    """Two messages to one peer travel as one; a rank that receives from two waits for both."""
    halves = range(0, 1), range(1, 2)
    schedules = [
        Schedule(2, ((*(Recv(1, h, add=True) for h in halves), Recv(2, halves[0], add=False)),)),
        Schedule(2, (tuple(Send(0, h) for h in halves),)),
        Schedule(2, ((Send(0, halves[0]),),)),
    ]
    assert counted(schedules) == Counted(1, 2, Fraction(3, 2), Fraction(1))
    assert counted(schedules[1:]) == Counted(1, 1, Fraction(1), Fraction(0))


@pytest.mark.parametrize("collective, added", [("reduce_scatter", 7 / 8), ("allgather", 0)])
def test_halves_cost_their_part(collective, added):
    assert cost("ring", 8, 1, 1, 0, 0, collective=collective) == 7
    assert cost("ring", 8, 1, 0, 1, 0, collective=collective) == 7 / 8
    assert cost("ring", 8, 1, 0, 0, 1, collective=collective) == added


@pytest.mark.parametrize("what", ["nbytes", "alpha", "beta", "gamma"])
@pytest.mark.parametrize("value, error", [(-1, ValueError), (float("nan"), ValueError), ("x", TypeError)])
def test_prices_of_nonsense(what, value, error):
    with pytest.raises(error, match=f"{what} must be a .*number.*, not {value!r}"):
        cost("ring", 4, **{"nbytes": 8, what: value})


def test_a_ring_of_100_000_ranks_has_a_price():
    assert cost("ring", 100_000, 10**9) == pytest.approx(estimate("ring", 100_000, 10**9))


@pytest.mark.parametrize("name", TABLE)
def test_the_symmetric_flag_is_set_exactly_where_rank_0_tells_all(name):
    tallies = [{counted([schedule(name, rank, size)]) for rank in range(size)} for size in range(1, 25)]
    assert TABLE[name].symmetric == all(len(tally) == 1 for tally in tallies)


# --- house style of the algorithms ----------------------------------------------------------------

FILES = sorted((Path(allreduce.__file__).parent / "algorithms").glob("[!_]*.py"))


@pytest.mark.parametrize("name", TABLE)
def test_docstring_and_length_of_an_algorithm(name):
    function = TABLE[name].function
    assert function.__name__ == name
    doc = inspect.getdoc(function)
    summary, *rest = doc.split("\n\n")
    assert summary.endswith(".") and not re.search(r"[^.]\.\s", summary), "the summary is one sentence"
    assert rest, "the idea comes next"
    heads = re.findall(r"^(?:>>> print\(draw\(|[A-Z]\w+: )", doc, re.M)
    assert heads == [">>> print(draw(", "Cost: ", "Needs: ", "See: "]
    assert f'>>> print(draw("{name}", ' in doc

    (definition,) = ast.parse(inspect.getsource(function)).body
    body = definition.body[1:]
    assert body[-1].end_lineno - body[0].lineno < 25


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_family_fits_on_a_page_or_two(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 120
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("hosts, shortest", [(3, 1 << 20), (4, 1 << 21), (8, 1 << 23)])
def test_between_nodes_long_vectors_go_round_a_ring(hosts, shortest):
    """On four hosts 4 MB came sooner by a ring and 1 MB later; of two hosts both ways are the same."""
    nodes = tuple((2 * i, 2 * i + 1) for i in range(hosts))
    assert across(nodes, shortest) == "ring" and across(nodes[:2], shortest) == "circulant"
    assert hosts == 3 or across(nodes, shortest // 2) == "circulant"

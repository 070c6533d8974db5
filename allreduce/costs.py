"""The price of a schedule in alpha, beta and gamma: counted from its steps, or computed from its Cost line.

A step costs alpha per peer, beta per byte and gamma per byte added, each the largest over the ranks, of what a
rank sends or of what it receives, whichever is more. Steps follow each other, so a schedule costs the sum.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from inspect import getdoc
from math import gcd
from types import CodeType
from typing import Any, NamedTuple

from .algorithms import TABLE, parse, schedule
from .algorithms.doubling import digits
from .algorithms.hierarchical import neighbours
from .algorithms.torus import squarest
from .checks import amount, parameters
from .schedules import Recv, Schedule, Send, Step

__all__ = ["ALPHA", "BETA", "GAMMA", "Counted", "cost", "counted", "estimate", "segmented"]

#: Shipped constants, of ranks on one ordinary machine: seconds per message, per byte, per byte added.
ALPHA, BETA, GAMMA = 1e-6, 1.5e-10, 5e-11
#: Numbers of segments to choose from.
SEGMENTS = tuple(2**i for i in range(9))


class Counted(NamedTuple):
    """What a schedule does: steps, messages, and the parts of the buffer sent and added, on the critical path."""

    steps: int
    messages: int
    sent: Fraction
    added: Fraction


def counted(schedules: Iterable[Schedule]) -> Counted:
    """Count the schedules of these ranks step by step, taking the largest over the ranks."""
    schedules = list(schedules)
    blocks = schedules[0].blocks
    messages = sent = added = 0
    for steps in zip(*(s.steps for s in schedules), strict=True):
        tallies = [_tally(step) for step in steps]
        messages += max(t[0] for t in tallies)
        sent += max(t[1] for t in tallies)
        added += max(t[2] for t in tallies)
    return Counted(len(schedules[0].steps), messages, Fraction(sent, blocks), Fraction(added, blocks))


def _tally(step: Step) -> tuple[int, int, int]:
    """Peers, blocks moved, blocks added; messages to one peer in one step travel as one."""
    sends = [m for m in step if isinstance(m, Send)]
    recvs = [m for m in step if isinstance(m, Recv)]
    return (
        max(len({m.peer for m in sends}), len({m.peer for m in recvs})),
        max(sum(len(m.blocks) for m in sends), sum(len(m.blocks) for m in recvs)),
        sum(len(m.blocks) for m in recvs if m.add),
    )


def cost(
    name: str,
    size: int,
    nbytes: int,
    alpha: float = ALPHA,
    beta: float = BETA,
    gamma: float = GAMMA,
    collective: str = "allreduce",
    root: int = 0,
    **params: Any,
) -> float:
    """Predict the time of a collective in seconds, exactly for the counted schedule.

    Symmetric algorithms are counted on rank 0 alone, which takes a ring of 100 000 ranks to about a second;
    the others on every rank.

    Parameters
    ----------
    name, collective, root, **params
        As in `schedule`.
    size : int
        Number of ranks.
    nbytes : int
        Length of the whole buffer in bytes.
    alpha, beta, gamma : float
        Seconds per message, per byte on the wire, per byte added.

    Raises
    ------
    ValueError, TypeError
        As `schedule`, or a number that is negative, not finite or none.

    Examples
    --------
    >>> f"{cost('ring', 8, 2**20, alpha=1e-6, beta=1e-9, gamma=0) * 1e3:.2f} ms"
    '1.85 ms'
    """
    key, params = parse(name, size, collective, **params)
    for what, value in {"nbytes": nbytes, "alpha": alpha, "beta": beta, "gamma": gamma}.items():
        amount(what, value)
    ranks = range(1) if TABLE[key].symmetric and not params.get("orders") else range(size)
    c = counted(schedule(key, rank, size, collective, root, **params) for rank in ranks)
    return c.messages * alpha + float(c.sent) * nbytes * beta + float(c.added) * nbytes * gamma


def estimate(
    name: str,
    size: int,
    nbytes: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    gamma: float = GAMMA,
    **params: Any,
) -> float:
    """The same price for an all-reduce from the Cost line in the algorithm's docstring, at once for any size.

    >>> estimate("ring", 8, 2**20) == cost("ring", 8, 2**20)
    True
    """
    key, params = parse(name, size, **params)
    function = TABLE[key].function
    defaults = {k: v.default for k, v in list(parameters(function).items())[2:]}
    facts = _facts(size, **{**defaults, **params})
    facts |= {"n": nbytes, "alpha": alpha, "beta": beta, "gamma": gamma}
    return eval(_cost_line(key), {"__builtins__": {}}, facts)


def segmented(key: str, size: int, nbytes: float, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an algorithm, with the number of segments that costs least where it has one and none is given.

    >>> segmented("pipelined_tree", 64, 1 << 24, {}), segmented("pipelined_tree", 64, 64, {})
    ({'segments': 128}, {'segments': 1})
    """
    if "segments" not in parameters(TABLE[key].function) or "segments" in params:
        return params
    found = min(SEGMENTS, key=lambda s: estimate(key, size, nbytes, segments=s, **params))
    return {**params, "segments": found}


@cache
def _cost_line(key: str) -> CodeType:
    doc = getdoc(TABLE[key].function) or ""
    line = next(line for line in doc.splitlines() if line.startswith("Cost: "))
    return compile(line.removeprefix("Cost: "), f"<Cost of {key}>", "eval")


def _facts(
    p: int,
    radix: int = 2,
    segments: int = 1,
    grid: tuple[int, ...] = (),
    nodes: Any = (),
    rings: int = 1,
    orders: Any = (),
    between: str = "",
) -> dict[str, Any]:
    """The letters that Cost lines use, as the docstrings define them."""
    factors = digits(p, radix) if radix > 1 else []
    m = 1
    for factor in factors:
        m *= factor
    sizes = [len(node) for node in nodes or neighbours(p)]
    return {
        "p": p, "k": radix, "S": segments, "grid": tuple(grid) or squarest(p),
        "L": lg(p), "l": p.bit_length() - 1, "f": int(p & (p - 1) > 0),
        "m": m, "i": factors.count(radix), "j": m // radix ** factors.count(radix), "g": -(-p // m),
        "R": len(orders) or min(rings, sum(gcd(s, p) == 1 for s in range(1, max(p, 2)))),
        "N": len(sizes), "s": max(sizes), "M": min(sizes), "T": len(sizes) - 1 if between == "ring" else lg(len(sizes)),
        "levels": lambda k, S=1: _levels(p, k, S), "two_trees": lambda S: _two_trees(p, S, 1),
        "both": lambda S: _two_trees(p, S, 2), "lg": lg, "min": min, "max": max, "sum": sum,
    }  # fmt: skip


def lg(x: int) -> int:
    """The logarithm to base 2, rounded up."""
    return (x - 1).bit_length()


def _levels(p: int, k: int, segments: int) -> int:
    """Messages on the critical path of a half along a k-ary tree: per step, the most that any level takes."""
    widths, above, width = [], 1, k
    while above < p:
        widths.append(min(k, p - above))
        above, width = above + width, width * k
    widths = widths[::-1]  # the deepest level goes first, `segments` steps long
    return sum(max(widths[max(0, t - segments + 1) : t + 1]) for t in range(len(widths) + segments - 1) if widths)


def _two_trees(p: int, segments: int, overlap: int) -> int:
    """Messages (overlap 1) or blocks (overlap 2) on the critical path of a half along two binary trees."""
    if p < 4:
        return {1: 0, 2: segments, 3: 2 + overlap * (segments - 1)}[p]
    return 2 * (lg(p) + segments) - 3 - (segments == 1 and (p - 1) & (p - 2) == 0)

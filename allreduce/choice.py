"""Which algorithm, and whether a codec pays: functions of values that are equal on all ranks."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from compress.codec import Codec

from .algorithms import TABLE, halves, supporting
from .costs import ALPHA, BETA, GAMMA, estimate, segmented
from .losses import loss_of
from .schedules import Recv, Send

__all__ = ["SHIPPED", "Choice", "Coder", "Link", "across", "choose", "choose_coded", "pays", "ways"]

#: Predicted times that are no further apart are taken to be equal.
CLOSE = 1.1
#: The share of the squares of a sum that may be lost where another way would lose less.
TOLERABLE = 0.2
#: Whose ranks exchange with one other in a step, or only ever send to the next one: the better first. A circulant, of
#: the same price, sends to one and receives from another: with Open MPI over TCP, on 8 hosts at 1 Gbit/s, 4 MB took
#: 100 ms by it, 75 by a ring, 70 by halving; at 250 Mbit/s 383, 299, 257; with MPICH on 4 hosts at 1 Gbit/s 59, 64, 59.
STEADY = ("rabenseifner", "ring")
#: A share that does not matter: between nodes what is STEADY may lose it.
LITTLE = 1e-3
#: What a message costs between nodes, in bytes: MPICH took 1 ms for one on four hosts at 1 Gbit/s.
MESSAGE = 125_000

#: The ranks of each node.
Nodes = tuple[tuple[int, ...], ...]
#: Prices take a millisecond to compute, and are asked for in every call that is not the shortest way.
remembered = lru_cache(maxsize=4096)


class Link(NamedTuple):
    """What messages between ranks cost: seconds for one, per byte, and per byte added."""

    alpha: float
    beta: float
    gamma: float


SHIPPED = Link(ALPHA, BETA, GAMMA)


class Coder(NamedTuple):
    """What a codec costs: seconds per value to encode, to decode, and to decode and add; bytes; and what it loses.

    Bytes per value, and the share of their squares that is lost, are of normal values, or of what the codec is for.
    A step takes so many seconds more however few its values: many, with a codec that runs in Python only.
    """

    encode: float
    decode: float
    add: float
    nbytes: float
    loss: float
    step: float = 0.0


class Choice(NamedTuple):
    """An algorithm, the seconds that it is thought to take, and the share of the squares of a sum that it may lose."""

    name: str
    seconds: float
    loss: float = 0.0


@remembered
def choose(
    collective: str,
    size: int,
    nbytes: int,
    ordered: bool = False,
    nodes: Nodes = (),
    link: Link = SHIPPED,
) -> Choice:
    """The algorithm that costs least.

    Ranks of one node share its link. `hierarchical` takes every byte over it once; its steps inside a node are
    priced as two messages. Between nodes those that are STEADY are taken if they are as fast.
    """
    names = [n for n in supporting(collective) if TABLE[n].auto and (TABLE[n].ordered or not ordered)]
    shared = link._replace(beta=sharing(nodes) * link.beta)
    prices = {name: estimate(name, size, nbytes, *shared) for name in names}
    if sharing(nodes) > 1 and collective == "allreduce" and not ordered:
        prices["hierarchical"] = estimate("circulant", len(nodes), nbytes, *link) + 2 * link.alpha
    best = cheapest(prices)
    steady = [Choice(n, prices[n]) for n in STEADY if nodes and n in prices and prices[n] <= CLOSE * best.seconds]
    return steady[0] if steady else best


@remembered
def ways(
    collective: str,
    size: int,
    count: int,
    codec: Codec,
    coder: Coder,
    nodes: Nodes,
    link: Link,
    prefer: str = "auto",
) -> tuple[Choice, ...]:
    """The algorithms for messages that a codec makes, or the one that is preferred; the fastest first."""
    nbytes = codec.nbytes(count) if codec.exact_size else coder.nbytes * count
    shared = link._replace(beta=sharing(nodes) * link.beta, gamma=0)
    names = [n for n in supporting(collective) if TABLE[n].auto] if prefer == "auto" else [prefer]
    work = {n: coding(n, collective, size, count, coder) for n in names}
    found = [
        Choice(n, estimate(n, size, nbytes, *shared) + work[n], loss_of(n, size, coder.loss, collective)) for n in names
    ]
    if sharing(nodes) > 1 and "circulant" in names and collective == "allreduce":
        seconds = estimate("circulant", len(nodes), nbytes, *link) + work["circulant"] + 2 * link.alpha
        found.append(Choice("hierarchical", seconds, loss_of("circulant", len(nodes), coder.loss)))
    return tuple(sorted(found, key=lambda way: way.seconds))


def choose_coded(ways: Sequence[Choice], fed_back: bool = False, between_nodes: bool = False) -> Choice:
    """Of the ways that are as fast as any, the one that loses least; `fed_back`: what it loses will be sent later.

    Between nodes what is STEADY and loses little comes first, as without a codec.

    Else a way is left out that loses so much that little of the sum arrives, if another loses less. Of sums of
    topk:ratio=0.05 with feedback of the first hop only, on 4 ranks, over 60 steps, 0.90 arrived by one_shot, 0.37 to
    0.40 by ring and direct; with that of all hops 0.91, and 0.88 by ring and direct.
    """
    most = max(TOLERABLE, min(way.loss for way in ways))
    ways = [way for way in ways if fed_back or way.loss <= most]
    fastest = min(way.seconds for way in ways)
    fast = [way for way in ways if way.seconds <= CLOSE * fastest]
    steady = [way for n in STEADY for way in fast if between_nodes and way.name == n and way.loss <= LITTLE]
    return steady[0] if steady else min(fast, key=lambda way: (way.loss, way.seconds))


def pays(coded: Choice, plain: Choice) -> bool:
    """Whether a codec saves enough time to be worth what it loses."""
    return CLOSE * coded.seconds < plain.seconds


def across(nodes: Nodes, nbytes: int) -> str:
    """What `hierarchical` does between nodes without a codec: a ring if it is as fast.

    On 4 hosts of 2 ranks at 1 Gbit/s, with Open MPI, 4 MB took 58.4 ms, half of the times between 58.1 and 59.2; by a
    circulant 62.5, between 59.5 and 67.8. With MPICH 4 MB take as long either way, and 1 MB a tenth longer by a ring.
    """
    if len(nodes) < 3:  # then they are the same
        return "circulant"
    ring, circulant = (estimate(name, len(nodes), nbytes, MESSAGE, 1, 0) for name in ("ring", "circulant"))
    return "ring" if ring <= CLOSE * circulant else "circulant"


def sharing(nodes: Nodes) -> int:
    """Ranks that use one link."""
    return max(map(len, nodes)) if len(nodes) > 1 else 1


def cheapest(prices: dict[str, float]) -> Choice:
    name = min(prices, key=lambda name: prices[name])
    return Choice(name, prices[name])


def coding(name: str, collective: str, size: int, count: int, coder: Coder) -> float:
    """Seconds that rank 0 spends on encoding and decoding."""
    half, back = halves(name, 0, size, collective, **segmented(name, size, count, {}))
    encoded = sum(len({b for m in step if isinstance(m, Send) for b in m.blocks}) for step in half.steps)
    added = sum(len(m.blocks) for step in half.steps for m in step if isinstance(m, Recv))
    finish = (coder.encode / size + coder.decode) if back.steps else 0.0
    values = count * ((encoded * coder.encode + added * coder.add) / half.blocks + finish)
    return values + (len(half.steps) + len(back.steps)) * coder.step

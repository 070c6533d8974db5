"""Which algorithm, and whether a codec pays: functions of values that are equal on all ranks."""

from functools import lru_cache
from typing import NamedTuple

from compress.codec import Codec

from .algorithms import TABLE, halves, supporting
from .costs import ALPHA, BETA, GAMMA, estimate, segmented
from .schedules import Recv, Send

__all__ = ["SHIPPED", "Choice", "Coder", "Link", "choose", "choose_coded"]


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
    """What a codec costs: seconds per value to encode, to decode, and to decode and add."""

    encode: float
    decode: float
    add: float


class Choice(NamedTuple):
    """An algorithm, and the seconds that it is thought to take."""

    name: str
    seconds: float


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
    priced as two messages.
    """
    names = [n for n in supporting(collective) if TABLE[n].auto and (TABLE[n].ordered or not ordered)]
    shared = link._replace(beta=sharing(nodes) * link.beta)
    prices = {name: estimate(name, size, nbytes, *shared) for name in names}
    if sharing(nodes) > 1 and collective == "allreduce" and not ordered:
        prices["hierarchical"] = estimate("circulant", len(nodes), nbytes, *link) + 2 * link.alpha
    return cheapest(prices)


@remembered
def choose_coded(
    collective: str,
    size: int,
    count: int,
    codec: Codec,
    coder: Coder,
    nodes: Nodes,
    link: Link,
    lost: bool = False,
) -> Choice:
    """The same for messages that a codec makes; `lost`: what it loses on any hop will be sent later.

    Else what drops values, and would drop most of a partial sum on every further hop, takes `one_shot` in an
    all-reduce: of sums of topk:ratio=0.05 with feedback of the first hop only, on 4 ranks, over 60 steps, 0.90
    arrived, 0.37 to 0.40 by ring and direct; with that of all hops 0.91, and 0.88 by ring and direct.
    """
    nbytes, shared = codec.nbytes(count), link._replace(beta=sharing(nodes) * link.beta, gamma=0)
    names = [n for n in supporting(collective) if TABLE[n].auto]
    if collective == "allreduce" and not codec.chunkable and not codec.lossless and not lost:
        names = ["one_shot"]
    prices = {n: estimate(n, size, nbytes, *shared) + coding(n, collective, size, count, coder) for n in names}
    if sharing(nodes) > 1 and "circulant" in prices and collective == "allreduce":
        work = coding("circulant", collective, size, count, coder)
        prices["hierarchical"] = estimate("circulant", len(nodes), nbytes, *link) + work + 2 * link.alpha
    return cheapest(prices)


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
    return count * ((encoded * coder.encode + added * coder.add) / half.blocks + finish)

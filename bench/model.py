"""What the cost model predicts, with prices of messages inside nodes and of those between them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from allreduce.algorithms import parse, schedule
from allreduce.choice import Nodes, across
from allreduce.costs import segmented
from allreduce.execute.lowering import PACK
from allreduce.schedules import Recv, Send, Step

__all__ = ["Price", "Prices", "Tally", "predict", "tally"]

Messages = Sequence[Send | Recv]
#: So many ranks, or those of one node, speak for all.
MANY = 32


class Price(NamedTuple):
    """Seconds at some numbers of bytes, between which lie straight lines.

    Lines, for MPI sends short messages and long ones in different ways, and caches end.
    """

    nbytes: tuple[float, ...] = (0.0, 1.0)
    seconds: tuple[float, ...] = (0.0, 0.0)

    def of(self, nbytes: np.ndarray) -> np.ndarray:
        """Seconds for bytes, shape (steps,); nothing for none."""
        rates = np.diff(self.seconds) / np.diff(self.nbytes)
        beyond = np.maximum(nbytes - self.nbytes[-1], 0) * (rates[-1] if rates.size else 0)  # of one element, one price
        found = np.interp(nbytes, *self) + beyond
        return np.where(nbytes > 0, found, 0)


class Prices(NamedTuple):
    """Of a message of so many bytes, from one vector that is as long as those of the sweep, and in its caches' state.

    Attributes
    ----------
    made, given, lone : Price
        Inside a node, all ranks to the next: of what the sender has just computed, of what it was given, and of what
        only every other rank sends.
    alone, together, answered : Price
        Between nodes, of one rank of each, of all of them, and of all of them to whom they receive from.
    added : Price
        Of adding bytes that have just come.
    """

    made: Price = Price()
    given: Price = Price()
    lone: Price = Price()
    alone: Price = Price()
    together: Price = Price()
    answered: Price = Price()
    added: Price = Price()


class Tally(NamedTuple):
    """Of one step, the most of any rank or node; numbers of messages, and blocks.

    Inside nodes of a rank: its peers, messages, blocks, those that it was given, and those that go both ways. To other
    nodes of all ranks of one: messages, blocks, and those that are answered by as many. Blocks that a rank adds.
    Of what is sent and what is received the more counts.
    """

    peers: Any = 0
    near: Any = 0
    here: Any = 0
    given: Any = 0
    both: Any = 0
    far: Any = 0
    there: Any = 0
    back: Any = 0
    added: Any = 0


#: Which of these are blocks.
BLOCKS = np.array([name not in ("peers", "near", "far") for name in Tally._fields])


def predict(name: str, nodes: Nodes, nbytes: int, prices: Prices) -> float:
    """Seconds by the model, for the parameters that the engine takes."""
    size = sum(map(len, nodes))
    key, params = parse(name, size)
    if key.startswith("hierarchical") and "nodes" not in params and len(nodes) > 1:
        params["nodes"] = nodes
    if key == "hierarchical":
        params.setdefault("between", across(params.get("nodes", ()), nbytes))
    params = segmented(key, size, nbytes, params)
    steps = Tally(*(counts(key, nodes, tuple(params.items())) * np.where(BLOCKS, nbytes, 1)).T)
    inside, between = _inside(steps, prices), _between(steps, max(map(len, nodes)), prices)
    return float(np.sum(np.maximum(inside, between) + prices.added.of(steps.added)))  # memory and links work at once


def _inside(steps: Tally, prices: Prices) -> np.ndarray:
    """Seconds of messages inside nodes; what goes to one peer is packed if it is short."""
    messages = np.maximum(np.where(steps.here <= PACK, steps.peers, steps.near), 1)
    each = steps.here / messages
    seconds = messages * prices.made.of(each)
    seconds = seconds * _scaled(prices.given, prices.made, each, steps.given / messages)
    return seconds * _scaled(prices.lone, prices.made, each, (steps.here - steps.both) / messages)


def _between(steps: Tally, ranks: int, prices: Prices) -> np.ndarray:
    """Seconds of messages between nodes, each of at most so many ranks."""
    senders = np.clip(steps.far, 1, ranks)
    each = steps.there / senders
    share = (senders - 1) / max(ranks - 1, 1)
    seconds = (1 - share) * prices.alone.of(each) + share * prices.together.of(each)
    seconds = seconds * _scaled(prices.answered, prices.together, each, steps.back / senders)
    return seconds + np.maximum(steps.far / senders - 1, 0) * prices.together.seconds[0]


def _scaled(other: Price, usual: Price, nbytes: np.ndarray, part: np.ndarray) -> np.ndarray:
    """By how much it takes longer if a part of the bytes goes at another price; 1 where nothing goes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(1 + part / nbytes * (other.of(nbytes) / usual.of(nbytes) - 1), nan=1, posinf=1)


@cache
def counts(key: str, nodes: Nodes, params: tuple[tuple[str, Any], ...]) -> np.ndarray:
    """The tally of each step, shape (steps, 9), in parts of the vector in place of blocks."""
    size = sum(map(len, nodes))
    speaking = [node for i, node in enumerate(nodes) if not i or sum(map(len, nodes[: i + 1])) <= MANY]
    plans = {rank: schedule(key, rank, size, **dict(params)) for node in speaking for rank in node}
    blocks = next(iter(plans.values())).blocks
    made: dict[int, set[int]] = {rank: set() for rank in plans}
    found = []
    for each in zip(*(plan.steps for plan in plans.values()), strict=True):
        step = dict(zip(plans, each, strict=True))
        found.append(tally(step, speaking, made))
        for rank, messages in step.items():
            made[rank].update(b for m in messages if isinstance(m, Recv) for b in m.blocks)
    return np.array(found, float).reshape(-1, len(BLOCKS)) / np.where(BLOCKS, blocks, 1)


def tally(step: Mapping[int, Step], nodes: Sequence[tuple[int, ...]], made: Mapping[int, set[int]]) -> Tally:
    """Of one step, in which a rank has computed the blocks in `made`."""
    most = np.zeros(len(BLOCKS))
    for node in nodes:
        leaving, answered = np.zeros((2, 2)), 0
        for rank in node:
            sends, recvs = ([m for m in step[rank] if isinstance(m, kind)] for kind in (Send, Recv))
            near, far = (
                [[m for m in way if (m.peer in node) is near] for way in (sends, recvs)] for near in (True, False)
            )
            here = [_blocks(way) for way in near]
            leaving += [[_peers(way), _blocks(way)] for way in far]
            answered += _answered(*far)
            of_rank = Tally(
                peers=max(map(_peers, near)),
                near=max(map(len, near)),
                here=max(here),
                given=sum(b not in made[rank] for m in near[0] for b in m.blocks),
                both=min(here),
                added=sum(len(m.blocks) for m in step[rank] if isinstance(m, Recv) and m.add),
            )
            most = np.maximum(most, of_rank)
        messages, there = leaving.max(0)
        most = np.maximum(most, Tally(far=messages, there=there, back=answered))
    return Tally(*most)


def _blocks(messages: Messages) -> int:
    return sum(len(m.blocks) for m in messages)


def _peers(messages: Messages) -> int:
    return len({m.peer for m in messages})


def _answered(sends: Messages, recvs: Messages) -> int:
    """Blocks sent to peers that send as many."""
    sent, received = ({m.peer: len(m.blocks) for m in way} for way in (sends, recvs))
    return sum(min(blocks, received.get(peer, 0)) for peer, blocks in sent.items())

"""What the cost model predicts, with a price for messages inside nodes and another for those between them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from allreduce.algorithms import parse, schedule
from allreduce.choice import Nodes
from allreduce.costs import segmented
from allreduce.schedules import Recv, Send, Step

__all__ = ["Price", "Prices", "predict", "tally"]

#: So many ranks, or those of one node, speak for all.
MANY = 32


class Price(NamedTuple):
    """What messages of one step cost: seconds at some numbers of bytes, between which lie straight lines.

    Lines, for MPI sends short messages and long ones in different ways.
    """

    nbytes: tuple[float, ...] = (0.0, 1.0)
    seconds: tuple[float, ...] = (0.0, 0.0)

    def of(self, messages: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """Seconds of steps; more messages than one take their time, too. Arrays of shape (steps,)."""
        rate = (self.seconds[-1] - self.seconds[-2]) / (self.nbytes[-1] - self.nbytes[-2])
        one = np.interp(nbytes, *self) + np.maximum(nbytes - self.nbytes[-1], 0) * rate
        return np.where(messages > 0, one + (messages - 1) * self.seconds[0], 0)

    def __str__(self) -> str:
        return ", ".join(f"{n:.0f} B {s * 1e6:.1f} us" for n, s in zip(*self, strict=True))


class Prices(NamedTuple):
    """Of messages of a rank inside its node, of those of all ranks of a node to others, and of a byte added.

    `both` is how much of its time a message between nodes takes again, if its receiver sends as much at the same time:
    TCP may take 1, for both share a connection.
    """

    inside: Price = Price()
    between: Price = Price()
    added: float = 0.0
    both: float = 0.0

    def __str__(self) -> str:
        between = f"; between nodes {self.between}, {self.both:.0%} more both ways" if any(self.between.seconds) else ""
        return f"inside a node {self.inside}{between}; {self.added * 1e9:.3f} ns a byte added"


def predict(name: str, nodes: Nodes, nbytes: int, prices: Prices) -> float:
    """Seconds by the model, for the parameters that the engine takes."""
    size = sum(map(len, nodes))
    key, params = parse(name, size)
    if key.startswith("hierarchical") and "nodes" not in params and len(nodes) > 1:
        params["nodes"] = nodes
    params = segmented(key, size, nbytes, params)
    steps = counts(key, nodes, tuple(params.items())) * [1, nbytes, 1, nbytes, nbytes, nbytes]
    near, here, far, there, back, added = steps.T
    inside, between = prices.inside.of(near, here), prices.between.of(far, there + prices.both * back)
    return float(np.sum(np.maximum(inside, between) + prices.added * added))  # memory and links work at once


@cache
def counts(key: str, nodes: Nodes, params: tuple[tuple[str, Any], ...]) -> np.ndarray:
    """What `tally` gives for each step, shape (steps, 6), in parts of the vector in place of blocks."""
    size = sum(map(len, nodes))
    speaking = [node for i, node in enumerate(nodes) if not i or sum(map(len, nodes[: i + 1])) <= MANY]
    plans = {rank: schedule(key, rank, size, **dict(params)) for node in speaking for rank in node}
    steps = (dict(zip(plans, each, strict=True)) for each in zip(*(p.steps for p in plans.values()), strict=True))
    blocks = next(iter(plans.values())).blocks
    tallies = np.array([tally(step, speaking) for step in steps]).reshape(-1, 6)
    return tallies / [1, blocks, 1, blocks, blocks, blocks]


def tally(step: Mapping[int, Step], nodes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Of one step, the most of any rank: messages and blocks inside its node, messages to others, blocks of its node
    to others, those that are answered by as many, and blocks added. Of what is sent and received the more counts."""
    most = np.zeros(6)
    for node in nodes:
        leaving, answered = np.zeros(2), 0
        for rank in node:
            moved = np.array([_moved([m for m in step[rank] if isinstance(m, kind)], node) for kind in (Send, Recv)])
            leaving += moved[:, 3]
            answered += _answered([m for m in step[rank] if m.peer not in node])
            added = sum(len(m.blocks) for m in step[rank] if isinstance(m, Recv) and m.add)
            most = np.maximum(most, [*moved.max(0)[:3], leaving.max(), answered, added])
    return most


def _moved(messages: list[Send | Recv], node: tuple[int, ...]) -> list[int]:
    """Peers and blocks inside a node, and on others; messages to one peer in one step travel as one."""
    inside = [m for m in messages if m.peer in node]
    others = [m for m in messages if m.peer not in node]
    return [n for each in (inside, others) for n in (len({m.peer for m in each}), sum(len(m.blocks) for m in each))]


def _answered(messages: list[Send | Recv]) -> int:
    """Blocks sent to peers that send as many."""
    sent, received = ({m.peer: len(m.blocks) for m in messages if isinstance(m, kind)} for kind in (Send, Recv))
    return sum(min(blocks, received.get(peer, 0)) for peer, blocks in sent.items())

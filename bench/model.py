"""What the cost model predicts, with a price for messages inside nodes and another for those between them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from allreduce.algorithms import parse, schedule
from allreduce.choice import Nodes
from allreduce.costs import segmented
from allreduce.schedules import Recv, Send, Step

__all__ = ["Constants", "bill", "predict", "tally"]

#: So many ranks, or those of one node, speak for all.
MANY = 32


class Constants(NamedTuple):
    """Prices in seconds. Ranks of a node share its link: bytes between nodes are those of all of them."""

    message: float = 0.0  # inside a node
    byte: float = 0.0
    message_between: float = 0.0  # of one rank to another node
    byte_between: float = 0.0  # from or to one node
    added: float = 0.0  # a byte

    def __str__(self) -> str:
        message, byte, far, wire, added = (1e6 * self.message, *(1e9 * x for x in self[1:]))
        between = f", between nodes {far / 1e3:.2f} us, {wire:.3f} ns a byte" if far or wire else ""
        return f"{message:.2f} us a message, {byte:.3f} ns a byte{between}; {added:.3f} ns a byte added"


def predict(name: str, nodes: Nodes, nbytes: int, constants: Constants) -> float:
    """Seconds by the model, for the parameters that the engine takes."""
    size = sum(map(len, nodes))
    key, params = parse(name, size)
    if key.startswith("hierarchical") and "nodes" not in params and len(nodes) > 1:
        params["nodes"] = nodes
    params = segmented(key, size, nbytes, params)
    return float(bill(counts(key, nodes, tuple(params.items())), nbytes) @ np.array(constants))


def bill(counted: np.ndarray, nbytes: int) -> np.ndarray:
    """How often each of the constants is to be paid for a vector, or a message, of so many bytes."""
    return counted * np.array([1, nbytes, 1, nbytes, nbytes])


@cache
def counts(key: str, nodes: Nodes, params: tuple[tuple[str, Any], ...]) -> np.ndarray:
    """What `tally` gives for all steps together, in parts of the vector in place of blocks."""
    size = sum(map(len, nodes))
    speaking = [node for i, node in enumerate(nodes) if not i or sum(map(len, nodes[: i + 1])) <= MANY]
    plans = {rank: schedule(key, rank, size, **dict(params)) for node in speaking for rank in node}
    steps = (dict(zip(plans, each, strict=True)) for each in zip(*(p.steps for p in plans.values()), strict=True))
    blocks = next(iter(plans.values())).blocks
    return sum((tally(step, speaking) for step in steps), np.zeros(5)) / [1, blocks, 1, blocks, blocks]


def tally(step: Mapping[int, Step], nodes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Of one step, the most of any rank: messages and blocks inside its node, messages to others, blocks of its node
    to others, and blocks added. Of what is sent and what is received the more counts."""
    most = np.zeros(5)
    for node in nodes:
        leaving = np.zeros(2)
        for rank in node:
            moved = np.array([_moved([m for m in step[rank] if isinstance(m, kind)], node) for kind in (Send, Recv)])
            leaving += moved[:, 3]
            added = sum(len(m.blocks) for m in step[rank] if isinstance(m, Recv) and m.add)
            most = np.maximum(most, [*moved.max(0)[:3], leaving.max(), added])
    return most


def _moved(messages: list[Send | Recv], node: tuple[int, ...]) -> list[int]:
    """Peers and blocks inside a node, and on others; messages to one peer in one step travel as one."""
    inside = [m for m in messages if m.peer in node]
    others = [m for m in messages if m.peer not in node]
    return [n for each in (inside, others) for n in (len({m.peer for m in each}), sum(len(m.blocks) for m in each))]

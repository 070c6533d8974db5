"""An all-reduce with a codec as the rules say it, block by block on all ranks: what executors must give, bit for bit.

It shares the schedules and the codec's own `encode` and `decode` with them, and nothing else.
"""

from functools import reduce
from itertools import pairwise

import ml_dtypes
import numpy as np

from allreduce.algorithms import TABLE, halves
from allreduce.schedules import Recv, Send, owned
from compress import Context

HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Term:
    """A value, the lowest rank that is in it, and how far codec and rounding may have moved it."""

    def __init__(self, value, lowest, error=None):
        self.value, self.lowest = value, lowest
        self.error = np.zeros(value.size) if error is None else error

    def __add__(self, other):
        """The sum, rounded to the dtype; there is one NaN."""
        dtype = self.value.dtype
        wide = np.dtype("f") if dtype in HALF else dtype
        with np.errstate(all="ignore"):
            value = (self.value.astype(wide) + other.value.astype(wide)).astype(dtype)
        value[np.isnan(value)] = np.nan
        rounding = float(ml_dtypes.finfo(dtype).eps) * np.abs(value.astype(float))
        return Term(value, min(self.lowest, other.lowest), self.error + other.error + rounding)

    def through(self, codec, at):
        """What it decodes to after a hop."""
        code = codec.encode(self.value, at=at)
        with np.errstate(all="ignore"):
            value = codec.decode(code, np.empty_like(self.value))
            return Term(value, self.lowest, self.error + codec.bound(self.value))


def edges_of(codec, count, blocks):
    """Where blocks begin: at nearly equal numbers of the codec's blocks."""
    units = -(-count // codec.block)
    return [min(units * b // blocks * codec.block, count) for b in range(blocks + 1)]


def simulate(name, values, codec, number=0, op="sum", collective="allreduce", root=0, **params):
    """The result of every rank, each an array, and the bound of its error; for operation `number`."""
    size, count = values.shape
    parts = [halves(name, rank, size, collective, root, **params) for rank in range(size)]
    edges = edges_of(codec, count, parts[0][0].blocks)
    held = [[Term(row[a:b].copy(), rank) for a, b in pairwise(edges)] for rank, row in enumerate(values)]
    steps = len(parts[0][0].steps)

    def hop(term, rank, block, t):
        return term.through(codec, Context(number % 2**28 * 2**12 + t % 2**12, edges[block], rank, size))

    for t in range(steps):
        sent = [{} for _ in range(size)]
        for rank, (half, _) in enumerate(parts):
            for block in {b for m in half.steps[t] if isinstance(m, Send) for b in m.blocks}:
                term = held[rank][block]  # in an exchange several ranks send one sum, in the name of one
                speaker = term.lowest if TABLE[name].owner == "all" else rank
                sent[rank][block] = hop(term, speaker, block, t)
        for rank, (half, _) in enumerate(parts):
            terms = {}
            for m in half.steps[t]:
                if isinstance(m, Recv):
                    assert m.add
                    for block in m.blocks:
                        own = sent[rank].get(block, held[rank][block])
                        terms.setdefault(block, {rank: own})[m.peer] = sent[m.peer][block]
            for block, found in terms.items():
                held[rank][block] = reduce(Term.__add__, (found[r] for r in sorted(found)))
    result, error = np.empty_like(values[0]), np.zeros(count)
    for block, (a, b) in enumerate(pairwise(edges)):
        ends = []
        for rank, (half, back) in enumerate(parts):
            if holds(name, half, back, block):
                end = held[rank][block]
                if op == "avg" and size > 1:
                    end = divided(end, size)
                ends.append(hop(end, 0, block, steps) if back.steps else end)
        assert len({end.value.tobytes() for end in ends}) == 1, f"{name}: holders of block {block} differ"
        result[a:b], error[a:b] = ends[0].value, ends[0].error
    return result, error


def divided(term, size):
    dtype = term.value.dtype
    wide = term.value.astype("f") if dtype in HALF else term.value
    value = (wide / wide.dtype.type(size)).astype(dtype)
    return Term(value, 0, term.error / size + float(ml_dtypes.finfo(dtype).eps) * np.abs(value.astype(float)))


def holds(name, half, back, block):
    """Whether a rank has a block when its reduce half is over."""
    if TABLE[name].owner == "all":
        return not any(block in m.blocks for step in back.steps for m in step if isinstance(m, Recv))
    return any(block in run for run in owned(half))

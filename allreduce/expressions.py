"""What the proof puts in the place of numbers: contributions, and hashes of the expressions that numbers would be."""

from typing import NamedTuple

import numpy as np

__all__ = ["Values", "assign", "combine", "copied", "finish", "hop", "own", "start"]


class Values(NamedTuple):
    """What ranks hold: one row per rank, one column per block."""

    counts: np.ndarray  # (rank, block, source): how often source's contribution is in
    hashes: np.ndarray  # (rank, block): of the expression
    first: np.ndarray  # (rank, block): lowest contribution, of an expression in rank order ...
    last: np.ndarray  # ... and one past the highest; -1 where out of order
    coded: np.ndarray  # (rank, block): hash of the expression with a codec
    final: np.ndarray  # (rank, block): whether it is what a code decodes to that is forwarded unchanged

    def part(self, rank: int, blocks: range) -> "Values":
        return Values(*(field[rank, blocks.start : blocks.stop] for field in self))

    def copy(self) -> "Values":
        return Values(*(field.copy() for field in self))


def mix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A hash of a + b that is the same for b + a, as the sum itself is."""
    x = (a + b) * np.uint64(0x9E3779B97F4A7C15) ^ (a * b + np.uint64(0x632BE59BD9B4E019))
    return (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


def hop(values: Values, t: int) -> Values:
    """What values become when they are encoded and decoded in step t: random numbers differ between steps."""
    return values._replace(coded=mix(values.coded, ~values.coded * np.uint64(2 * t + 3)))


def copied(values: Values, t: int) -> Values:
    """What a rank gets that overwrites: the sender's code, if it has one."""
    encoded = np.where(values.final, values.coded, hop(values, t).coded)
    return values._replace(coded=encoded, final=np.ones_like(values.final))


def own(values: Values, sent: np.ndarray, t: int) -> Values:
    """What a rank adds of its own in step t: of blocks that it sends what its message decodes to, rule (b)."""
    return values._replace(coded=np.where(sent, hop(values, t).coded, values.coded)) if sent.any() else values


def finish(held: Values, rank: int, blocks: range, t: int) -> None:
    """Replace finished blocks by what their code decodes to, rule (c)."""
    assign(held.part(rank, blocks), copied(held.part(rank, blocks), t))


def combine(a: Values, b: Values) -> Values:
    """The sum of a and b, a coming first."""
    adjacent = (a.last == b.first) & (a.last >= 0)
    return Values(
        a.counts + b.counts, mix(a.hashes, b.hashes), np.where(adjacent, a.first, -1), np.where(adjacent, b.last, -1),
        mix(a.coded, b.coded), np.zeros_like(a.final),
    )  # fmt: skip


def start(size: int, blocks: int) -> Values:
    """Every rank holds its own contribution."""
    counts = np.zeros((size, blocks, size), np.int16)
    counts[range(size), :, range(size)] = 1
    ranks = np.repeat(np.arange(size)[:, None], blocks, 1)
    hashes = (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95)
    return Values(counts, hashes, ranks, ranks + 1, hashes.copy(), np.zeros((size, blocks), bool))


def assign(target: Values, values: Values) -> None:
    for old, new in zip(target, values, strict=True):
        old[...] = new

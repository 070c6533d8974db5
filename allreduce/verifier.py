"""The proof: play a schedule on all ranks without MPI, and count what arrives.

Numbers are replaced by how often each rank's contribution has been added, per rank and block. At the end every
count must be exactly one: a mere "has it arrived" would miss double counting. Beside the counts travels a hash of
the expression, that is of which values were combined with which in what order, because ranks that add the same
values in another order end with other bits.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from .algorithms import TABLE, parse, schedule
from .costs import Counted, counted
from .schedules import Recv, Schedule, Send, owned, sums

__all__ = ["ScheduleError", "play", "verify"]


class ScheduleError(ValueError):
    """A schedule that does not do what it should; names rank, step and message."""


class Values(NamedTuple):
    """What ranks hold: one row per rank, one column per block."""

    counts: np.ndarray  # (rank, block, source): how often source's contribution is in
    hashes: np.ndarray  # (rank, block): of the expression
    first: np.ndarray  # (rank, block): lowest contribution, of an expression in rank order ...
    last: np.ndarray  # ... and one past the highest; -1 where out of order

    def part(self, rank: int, blocks: range) -> "Values":
        return Values(*(field[rank, blocks.start : blocks.stop] for field in self))

    def copy(self) -> "Values":
        return Values(*(field.copy() for field in self))


def mix(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A hash of a + b that is the same for b + a, as the sum itself is."""
    x = (a + b) * np.uint64(0x9E3779B97F4A7C15) ^ (a * b + np.uint64(0x632BE59BD9B4E019))
    return (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


def combine(a: Values, b: Values) -> Values:
    """The sum of a and b, a coming first."""
    adjacent = (a.last == b.first) & (a.last >= 0)
    return Values(
        a.counts + b.counts, mix(a.hashes, b.hashes), np.where(adjacent, a.first, -1), np.where(adjacent, b.last, -1)
    )


def start(size: int, blocks: int) -> Values:
    """Every rank holds its own contribution."""
    counts = np.zeros((size, blocks, size), np.int16)
    counts[range(size), :, range(size)] = 1
    ranks = np.repeat(np.arange(size)[:, None], blocks, 1)
    hashes = (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95)
    return Values(counts, hashes, ranks, ranks + 1)


def play(schedules: Sequence[Schedule], held: Values, watch: Callable[[int], None] = lambda t: None) -> None:
    """Run the schedules of all ranks in place; `watch` is called after every step.

    Raises
    ------
    ScheduleError
        Steps out of line, a message without its counterpart, or a block both received over and used in a step.
    """
    lengths = {len(s.steps) for s in schedules}
    if len(lengths) != 1 or len({s.blocks for s in schedules}) != 1:
        raise ScheduleError(f"ranks differ in steps or blocks: {[(s.blocks, len(s.steps)) for s in schedules]}")
    for t in range(lengths.pop()):
        mail: dict[tuple[int, int], list[tuple[range, Values]]] = {}
        for rank, s in enumerate(schedules):
            for m in s.steps[t]:
                if isinstance(m, Send):
                    letter = (m.blocks, held.part(rank, m.blocks).copy())
                    mail.setdefault((rank, m.peer), []).append(letter)
        for rank, s in enumerate(schedules):
            _check_hazards(rank, t, s)
            received = [(m, _fetch(mail, rank, t, m)) for m in s.steps[t] if isinstance(m, Recv)]
            _apply(rank, received, held)
        for (rank, peer), letters in mail.items():
            if letters:
                raise ScheduleError(f"step {t}: rank {rank} sends {letters[0][0]} to {peer}, which does not receive it")
        watch(t)


def _check_hazards(rank: int, t: int, s: Schedule) -> None:
    used: set[int] = set()
    for m in s.steps[t]:
        if not 0 <= m.blocks.start < m.blocks.stop <= s.blocks or m.blocks.step != 1:
            raise ScheduleError(f"step {t}: rank {rank} posts {m}, outside the {s.blocks} blocks of the buffer")
    for m in sorted(s.steps[t], key=lambda m: isinstance(m, Recv) and not m.add):
        if isinstance(m, Recv) and not m.add:
            if used.intersection(m.blocks):
                raise ScheduleError(f"step {t}: rank {rank} overwrites blocks it uses in this step by {m}")
            used.update(m.blocks)
        else:
            used.update(m.blocks)


def _fetch(mail: dict, rank: int, t: int, m: Recv) -> Values:
    letters = mail.get((m.peer, rank))
    if not letters:
        raise ScheduleError(f"step {t}: rank {rank} waits for {m}, which is never sent")
    blocks, values = letters.pop(0)
    if blocks != m.blocks:
        raise ScheduleError(f"step {t}: rank {rank} expects {m} but gets {blocks}")
    return values


def _apply(rank: int, received: list[tuple[Recv, Values]], held: Values) -> None:
    """Overwrite, or add in ascending rank order with what we hold."""
    for m, values in received:
        if not m.add:
            _set(held.part(rank, m.blocks), values)
    adds = [(m, values) for m, values in received if m.add]
    for blocks, which in sums([m for m, _ in adds]).items():
        terms = [(rank, held.part(rank, blocks))]
        for i in which:
            m, values = adds[i]
            first = blocks.start - m.blocks.start
            terms.append((m.peer, Values(*(field[first : first + len(blocks)] for field in values))))
        ordered = (values for _, values in sorted(terms, key=lambda term: term[0]))
        _set(held.part(rank, blocks), reduce(combine, ordered))


def _set(target: Values, values: Values) -> None:
    for old, new in zip(target, values, strict=True):
        old[...] = new


def verify(name: str, size: int, collective: str = "allreduce", root: int = 0, **params: Any) -> Counted:
    """Prove an algorithm for one number of ranks.

    Every contribution arrives exactly once where it should, all ranks end with the same expression, hence the
    same bits, and the facts in the table (owner, order, symmetry) hold.

    Parameters
    ----------
    name, collective, root, **params
        As in `schedule`.
    size : int
        Number of ranks.

    Returns
    -------
    Counted
        Steps, messages, and bytes sent and added as fractions of the buffer.

    Raises
    ------
    ScheduleError
        Naming rank, step and message.
    ValueError
        As `schedule`.

    Examples
    --------
    >>> verify("ring", 4)
    Counted(steps=6, messages=6, sent=Fraction(3, 2), added=Fraction(3, 4))
    """
    key, params = parse(name, size, collective, **params)
    schedules = [schedule(key, rank, size, collective, root, **params) for rank in range(size)]
    if TABLE[key].owner != "root":
        root = 0
    where = _owners(key, size, root, params)
    held = start(size, schedules[0].blocks)
    if collective in ("allgather", "bcast"):  # begin with what a reduce half would leave
        held.counts[...] = 0
        held.counts[where, range(len(where))] = 1
    play(schedules, held)
    everywhere = collective in ("allreduce", "allgather", "bcast")
    for block, owner in enumerate(where):
        ends = range(size) if everywhere else [owner]
        for rank in ends:
            if (held.counts[rank, block] != 1).any():
                counts = held.counts[rank, block]
                raise ScheduleError(f"{key}: rank {rank} ends with contributions {counts} of block {block}")
            if held.hashes[rank, block] != held.hashes[ends[0], block]:
                raise ScheduleError(f"{key}: ranks {ends[0]} and {rank} add block {block} in different orders")
            in_order = (held.first[rank, block], held.last[rank, block]) == (0, size)
            if TABLE[key].ordered and not root and collective not in ("allgather", "bcast") and not in_order:
                raise ScheduleError(f"{key}: rank {rank} adds block {block} out of rank order")
    if TABLE[key].symmetric and not params.get("orders") and len({counted([s]) for s in schedules}) != 1:
        raise ScheduleError(f"{key}: said to be symmetric, but ranks differ in what they do")
    return counted(schedules)


def _owners(key: str, size: int, root: int, params: dict[str, Any]) -> list[int]:
    """The owner of every block after the reduce half, checked against the table."""
    if TABLE[key].owner == "all":
        return [0] * schedule(key, 0, size, **params).blocks
    half = TABLE[key].function
    owners: dict[int, int] = {}
    for rank in range(size):
        s = half(rank, size, **params)
        for block in (b for run in owned(s) for b in run):
            if block in owners:
                raise ScheduleError(f"{key}: block {block} rests on ranks {owners[block]} and {rank}")
            owners[block] = rank
    found = [owners.get(block, -1) for block in range(s.blocks)]
    shares = [b * size // s.blocks for b in range(s.blocks)]
    said = {"rank": shares, "root": [0] * s.blocks}.get(TABLE[key].owner, found)
    if found != said or -1 in found:
        raise ScheduleError(f"{key}: the table says blocks rest on {said}, they rest on {found}")
    return [(owner + root) % size for owner in found]

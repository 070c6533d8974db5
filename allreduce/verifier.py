"""The proof: play a schedule on all ranks without MPI, and count what arrives.

Numbers are replaced by how often each rank's contribution has been added, per rank and block. At the end every
count must be exactly one: a mere "has it arrived" would miss double counting. Beside the counts travels a hash of
the expression, that is of which values were combined with which in what order, because ranks that add the same
values in another order end with other bits. A second hash is that of the expression with a codec, where every hop
makes another value of what it sends; the three rules of `execute.coded` must keep that equal on all ranks, too.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from .algorithms import TABLE, halves, parse, schedule
from .costs import Counted, counted
from .expressions import Values, assign, combine, copied, finish, hop, own, start
from .schedules import Recv, Schedule, Send, Step, mirror, owned, sums, then

__all__ = ["ScheduleError", "play", "verify"]


class ScheduleError(ValueError):
    """A schedule that does not do what it should; names rank, step and message."""


def play(
    schedules: Sequence[Schedule], held: Values, watch: Callable[[int], None] = lambda t: None, begin: int = 0
) -> None:
    """Run the schedules of all ranks in place; `watch` is called after every step, and steps count from `begin`.

    Raises
    ------
    ScheduleError
        Steps out of line, a message without its counterpart, or a block both received over and used in a step.
    """
    lengths = {len(s.steps) for s in schedules}
    if len(lengths) != 1 or len({s.blocks for s in schedules}) != 1:
        raise ScheduleError(f"ranks differ in steps or blocks: {[(s.blocks, len(s.steps)) for s in schedules]}")
    for t in range(begin, begin + lengths.pop()):
        mail: dict[tuple[int, int], list[tuple[range, Values]]] = {}
        for rank, s in enumerate(schedules):
            for m in s.steps[t - begin]:
                if isinstance(m, Send):
                    letter = (m.blocks, held.part(rank, m.blocks).copy())
                    mail.setdefault((rank, m.peer), []).append(letter)
        for rank, s in enumerate(schedules):
            step = s.steps[t - begin]
            _check_hazards(rank, t, step, s.blocks)
            received = [(m, _fetch(mail, rank, t, m)) for m in step if isinstance(m, Recv)]
            sent = np.zeros(s.blocks, bool)
            sent[[block for m in step if isinstance(m, Send) for block in m.blocks]] = True
            _apply(rank, received, held, sent, t)
        for (rank, peer), letters in mail.items():
            if letters:
                raise ScheduleError(f"step {t}: rank {rank} sends {letters[0][0]} to {peer}, which does not receive it")
        watch(t)


def _check_hazards(rank: int, t: int, step: Step, blocks: int) -> None:
    used: set[int] = set()
    for m in step:
        if not 0 <= m.blocks.start < m.blocks.stop <= blocks or m.blocks.step != 1:
            raise ScheduleError(f"step {t}: rank {rank} posts {m}, outside the {blocks} blocks of the buffer")
    for m in sorted(step, key=lambda m: isinstance(m, Recv) and not m.add):
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


def _apply(rank: int, received: list[tuple[Recv, Values]], held: Values, sent: np.ndarray, t: int) -> None:
    """Overwrite, or add in ascending rank order with what we hold."""
    for m, values in received:
        if not m.add:
            assign(held.part(rank, m.blocks), copied(values, t))
    adds = [(m, hop(values, t)) for m, values in received if m.add]
    for blocks, which in sums([m for m, _ in adds]).items():
        terms = [(rank, own(held.part(rank, blocks), sent[blocks.start : blocks.stop], t))]
        for i in which:
            m, values = adds[i]
            first = blocks.start - m.blocks.start
            terms.append((m.peer, Values(*(field[first : first + len(blocks)] for field in values))))
        ordered = (values for _, values in sorted(terms, key=lambda term: term[0]))
        assign(held.part(rank, blocks), reduce(combine, ordered))


def verify(name: str, size: int, collective: str = "allreduce", root: int = 0, **params: Any) -> Counted:
    """Prove an algorithm for one number of ranks.

    Every contribution arrives exactly once where it should, all ranks end with the same expression, hence the
    same bits, with a codec as well, and the facts in the table (owner, order, symmetry) hold.

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
    parts = [halves(key, rank, size, collective, root, **params) for rank in range(size)]
    schedules = [then(*both) for both in parts]
    if TABLE[key].owner != "root":
        root = 0
    where = _owners(key, size, root, params)
    held = start(size, schedules[0].blocks)
    if collective in ("allgather", "bcast"):  # begin with what a reduce half would leave
        held.counts[...] = 0
        held.counts[where, range(len(where))] = 1
    _play_halves(parts, held)
    everywhere = collective in ("allreduce", "allgather", "bcast")
    for block, owner in enumerate(where):
        ends = range(size) if everywhere else [owner]
        for rank in ends:
            if (held.counts[rank, block] != 1).any():
                counts = held.counts[rank, block]
                raise ScheduleError(f"{key}: rank {rank} ends with contributions {counts} of block {block}")
            if held.hashes[rank, block] != held.hashes[ends[0], block]:
                raise ScheduleError(f"{key}: ranks {ends[0]} and {rank} add block {block} in different orders")
            if held.coded[rank, block] != held.coded[ends[0], block]:
                raise ScheduleError(f"{key}: ranks {ends[0]} and {rank} differ in block {block} with a codec")
            in_order = (held.first[rank, block], held.last[rank, block]) == (0, size)
            if TABLE[key].ordered and not root and collective not in ("allgather", "bcast") and not in_order:
                raise ScheduleError(f"{key}: rank {rank} adds block {block} out of rank order")
    if TABLE[key].symmetric and not params.get("orders") and len({counted([s]) for s in schedules}) != 1:
        raise ScheduleError(f"{key}: said to be symmetric, but ranks differ in what they do")
    return counted(schedules)


def _play_halves(parts: Sequence[tuple[Schedule, Schedule]], held: Values) -> None:
    """The reduce half, rule (c) for what rests after it, and the copy half."""
    first, copies = [half for half, _ in parts], [half for _, half in parts]
    play(first, held)
    t = len(first[0].steps)
    for rank, half in enumerate(copies):
        for run in owned(mirror(half)) if half.steps else ():
            finish(held, rank, run, t)
    play(copies, held, begin=t)


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

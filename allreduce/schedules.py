"""Schedules: what a rank sends and receives, step by step, and the transforms that build one from another.

Words. A *block* is one of the nearly equal parts a schedule cuts the buffer into. A *step* is a set of messages
posted together, all done before the next step; steps are aligned, so a message is received in the step it is
sent in. A *peer* is the rank at the other end. A *half* is a schedule after which every block rests, fully
reduced, on one rank: its *owner*.

A send reads the values from before its step; receives apply after it. Adds to one block in one step combine the
own and the received values in ascending rank order, so that ranks doing the same sum get the same bits.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import lcm
from typing import NamedTuple

__all__ = [
    "Recv", "Schedule", "Send", "Step",
    "beside", "cut", "fold", "folded", "idle", "mirror", "owned", "padded", "pipelined", "ranges", "refine",
    "relabel", "share", "sums", "then", "unfolded", "within",
]  # fmt: skip


class Send(NamedTuple):
    """Send these blocks to a peer."""

    peer: int
    blocks: range


class Recv(NamedTuple):
    """Receive these blocks from a peer; add them to what we hold, or overwrite it."""

    peer: int
    blocks: range
    add: bool


Step = tuple[Send | Recv, ...]


class Schedule(NamedTuple):
    """All steps of one rank, on a buffer cut into so many blocks."""

    blocks: int
    steps: tuple[Step, ...]


def cut(count: int, parts: int, index: int) -> int:
    """Where part `index` begins when `count` items are cut into nearly equal parts; cuts nest under `refine`."""
    return count * index // parts


def share(count: int, parts: int, index: int) -> range:
    """The items of part `index`."""
    return range(cut(count, parts, index), cut(count, parts, index + 1))


def ranges(blocks: Iterable[int]) -> list[range]:
    """The fewest ranges that list these blocks in this order."""
    found: list[range] = []
    for block in blocks:
        if found and found[-1].stop == block:
            found[-1] = range(found[-1].start, block + 1)
        else:
            found.append(range(block, block + 1))
    return found


def sums(adds: Sequence[Recv]) -> dict[range, list[int]]:
    """What is added to which blocks, by position in `adds`; sets that overlap in part are taken block by block."""
    found: dict[range, list[int]] = {}
    sets = sorted({m.blocks for m in adds}, key=lambda blocks: blocks.start)
    apart = all(a.stop <= b.start for a, b in pairwise(sets))
    for i, m in enumerate(adds):
        for blocks in [m.blocks] if apart else [range(b, b + 1) for b in m.blocks]:
            found.setdefault(blocks, []).append(i)
    return found


def owned(half: Schedule) -> list[range]:
    """The blocks that rest on this rank after a half: those that it never gave away."""
    given = {block for step in half.steps for m in step if isinstance(m, Send) for block in m.blocks}
    return ranges(block for block in range(half.blocks) if block not in given)


def _each(schedule: Schedule, blocks: int, change: Callable[[Send | Recv], Iterable[Send | Recv]]) -> Schedule:
    return Schedule(blocks, tuple(tuple(new for m in step for new in change(m)) for step in schedule.steps))


def mirror(schedule: Schedule) -> Schedule:
    """The same messages backwards: turns a reduce-scatter into its all-gather, a reduce into its broadcast."""
    back = _each(
        schedule,
        schedule.blocks,
        lambda m: [Recv(m.peer, m.blocks, add=False) if isinstance(m, Send) else Send(m.peer, m.blocks)],
    )
    return back._replace(steps=back.steps[::-1])


def refine(schedule: Schedule, factor: int) -> Schedule:
    """Cut every block into `factor` parts."""
    if factor == 1:
        return schedule
    return _each(
        schedule,
        schedule.blocks * factor,
        lambda m: [m._replace(blocks=range(m.blocks.start * factor, m.blocks.stop * factor))],
    )


def then(*parts: Schedule) -> Schedule:
    """One schedule after the other, on blocks fine enough for all."""
    blocks = lcm(*(part.blocks for part in parts))
    return Schedule(blocks, sum((refine(part, blocks // part.blocks).steps for part in parts), ()))


def within(schedule: Schedule, peers: Callable[[int], int], blocks: range, of: int) -> Schedule:
    """Run a schedule among a sub-group, whose member i is rank peers(i), on a slice of a buffer of `of` blocks."""
    fine = refine(schedule, len(blocks) // schedule.blocks)
    return _each(
        fine,
        of,
        lambda m: [
            m._replace(
                peer=peers(m.peer),
                blocks=range(m.blocks.start + blocks.start, m.blocks.stop + blocks.start),
            )
        ],
    )


def padded(schedule: Schedule, steps: int) -> Schedule:
    """Idle at the end until `steps` steps are done, to stay aligned with ranks that have more to do."""
    return schedule._replace(steps=schedule.steps + ((),) * (steps - len(schedule.steps)))


def idle(schedule: Schedule) -> Schedule:
    """As long as this schedule, without its messages."""
    return schedule._replace(steps=((),) * len(schedule.steps))


def beside(*parts: Schedule) -> Schedule:
    """Several schedules at once, each on its own share of the buffer."""
    fine = lcm(*(part.blocks for part in parts))
    length = max(len(part.steps) for part in parts)
    placed = [
        padded(within(part, lambda peer: peer, range(i * fine, (i + 1) * fine), fine * len(parts)), length)
        for i, part in enumerate(parts)
    ]
    return Schedule(
        fine * len(parts), tuple(sum(steps, ()) for steps in zip(*(part.steps for part in placed), strict=True))
    )


def pipelined(schedule: Schedule, segments: int) -> Schedule:
    """Cut the buffer into segments that follow each other through the schedule, one step apart."""
    blocks = schedule.blocks * segments
    length = len(schedule.steps) + segments - 1 if schedule.steps else 0
    steps: list[Step] = [()] * length
    for segment in range(segments):
        slice_ = range(segment * schedule.blocks, (segment + 1) * schedule.blocks)
        for t, step in enumerate(within(schedule, lambda peer: peer, slice_, blocks).steps):
            steps[segment + t] += step
    return Schedule(blocks, tuple(steps))


def relabel(schedule: Schedule, blocks: Sequence[int]) -> Schedule:
    """Let block b be called blocks[b]; a message that falls apart becomes several."""
    return _each(
        schedule,
        schedule.blocks,
        lambda m: [m._replace(blocks=run) for run in ranges(blocks[b] for b in m.blocks)],
    )


def fold(rank: int, size: int, members: int) -> Schedule:
    """Cut the ranks into `members` groups of neighbours; each group's first rank, its leader, adds up the rest."""
    if members == size:
        return Schedule(1, ())
    group = share(size, members, ((rank + 1) * members - 1) // size)
    leader, all_ = group[0], range(1)
    if rank == leader:
        return Schedule(1, (tuple(Recv(other, all_, add=True) for other in group[1:]),))
    return Schedule(1, ((Send(leader, all_),),))


def folded(core: Callable[[int, int], Schedule], rank: int, size: int, members: int) -> Schedule:
    """Let an algorithm that only takes `members` ranks take any: fold, then run it among the leaders."""
    group = ((rank + 1) * members - 1) // size
    inner = core(group, members)
    if rank != cut(size, members, group):
        inner = idle(inner)
    leaders = within(inner, lambda i: cut(size, members, i), range(inner.blocks), inner.blocks)
    return then(fold(rank, size, members), leaders)


def unfolded(whole: Schedule, first: Schedule) -> tuple[Schedule, Schedule]:
    """Part an all-reduce where copying begins: after the last add of rank 0, whose schedule is `first`."""
    end = max((t + 1 for t, step in enumerate(first.steps) for m in step if isinstance(m, Recv) and m.add), default=0)
    return whole._replace(steps=whole.steps[:end]), whole._replace(steps=whole.steps[end:])

"""All ranks of an all-reduce in one process, played by the schedule: the reference for what travels and what comes out.

The rules that give all ranks the same bits, with a codec as without:

- The adds of one step to one block combine own and received values in ascending rank order.
- Who sends and adds a block in one step uses decode(encode(own value)), as everybody else does.
- Random numbers are drawn as the encoding rank, anew in every step of the schedule; of several ranks that hold the same
  sum, all draw as the lowest: partners of a recursive doubling must go on with the same value.
- Before a finished block is copied to ranks that lack it, all that hold it replace it by decode(encode(block)), drawn
  as rank 0; copies are forwarded as the bytes that came.
- Of several ranks that hold the same sum, or the same finished block, the lowest answers for what its code loses.
"""

import threading
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from allreduce.algorithms import halves, schedule
from allreduce.execute.table import HEAD, MOST_OPERATIONS, OPERATION
from allreduce.schedules import Recv, Send, cut

from .codec import Codec
from .context import Context

__all__ = ["edges", "run", "simulate", "traffic"]


class Coded(NamedTuple):
    """A message, with room for its length if that varies, and what it decodes to."""

    message: np.ndarray
    values: np.ndarray


#: What travels, and whose contributions are in it, by sender, receiver and block.
Mail = dict[tuple[int, int, int], tuple[Coded, int]]


def edges(count: int, blocks: int, block: int) -> list[int]:
    """Where the blocks of a schedule begin, and the end: whole blocks of a codec, shared out as evenly as can be."""
    return [min(count, cut(-(-count // block), blocks, b) * block) for b in range(blocks + 1)]


def simulate(
    algorithm: str,
    arrays: Sequence[np.ndarray],
    codec: Codec | None = None,
    number: int = 0,
    op: np.ufunc = np.add,
    lost: Sequence[np.ndarray] | None = None,
    average: bool = False,
    **facts: Any,
) -> list[np.ndarray]:
    """All-reduce one array per rank.

    Parameters
    ----------
    algorithm : str
        As in `allreduce.schedule`.
    arrays : sequence of ndarray
        Of one shape and dtype; left as they are.
    codec : Codec, optional
        What every message is encoded with; without one, values travel as they are.
    number : int
        Of the operation, for random numbers.
    op : numpy.ufunc
        What combines two arrays, where there is no codec.
    lost : sequence of ndarray, optional
        One per rank, to which is added what its encodings lose.
    average : bool
        Divide finished sums by the number of ranks.
    **facts
        Of the schedule, such as ``segments=4``, or ``collective="reduce", root=1``.

    Returns
    -------
    list of ndarray
        What each rank ends with: the same bits on all; of a reduce, the root's counts.

    >>> from compress import get
    >>> ranks = [np.array([3, -7], np.float32), np.array([1, 2], np.float32)]
    >>> simulate("direct", ranks)[0], simulate("direct", ranks, get("int4:block=8"))[1]
    (array([ 4., -5.], dtype=float32), array([ 4.2890625, -5.0039062], dtype=float32))
    """
    return _Simulation(algorithm, arrays, codec, number, op, lost, average, **facts).run()


def traffic(algorithm: str, arrays: Sequence[np.ndarray], codec: Codec | None = None) -> list[int]:
    """Bytes that each rank sends in such an all-reduce.

    >>> traffic("ring", [np.zeros(60, np.float32)] * 3)
    [320, 320, 320]
    """
    simulation = _Simulation(algorithm, arrays, codec)
    simulation.run()
    return simulation.sent


class _Simulation:
    """What every rank holds of every block, between steps.

    Attributes
    ----------
    held : list of list of ndarray
        Values, by rank and block.
    sources : list of list of int
        Whose contributions are in them, a bit per rank.
    copies : list of dict of int to Coded
        By rank and block, what a finished block travels as.
    sent : list of int
        Bytes, by rank.
    """

    def __init__(
        self,
        algorithm: str,
        arrays: Sequence[np.ndarray],
        codec: Codec | None = None,
        number: int = 0,
        op: np.ufunc = np.add,
        lost: Sequence[np.ndarray] | None = None,
        average: bool = False,
        **facts: Any,
    ) -> None:
        size, like = len(arrays), arrays[0]
        self.lost = None if lost is None else [array.reshape(-1) for array in lost]
        self.sent = [0] * size
        self.codec, self.number, self.op, self.shape, self.ranks = codec, number, op, like.shape, range(size)
        self.divisor = size if average else 1
        schedules = [schedule(algorithm, rank, size, **facts) for rank in self.ranks]
        self.steps = [each.steps for each in schedules]
        self.half = len(halves(algorithm, 0, size, **facts)[0].steps)
        self.edges = edges(like.size, schedules[0].blocks, codec.block if codec else 1)
        pieces = list(zip(self.edges, self.edges[1:]))
        self.held = [[array.reshape(-1)[a:b].copy() for a, b in pieces] for array in arrays]
        self.sources = [[1 << rank for _ in pieces] for rank in self.ranks]
        self.copies: list[dict[int, Coded]] = [{} for _ in self.ranks]

    def run(self) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            for t, step in enumerate(zip(*self.steps)):
                copied = (m.blocks for messages in step for m in messages if isinstance(m, Recv) and not m.add)
                self.settle({b for blocks in copied for b in blocks})
                mail = self.post(t, step)
                for rank, messages in enumerate(step):
                    self.receive(rank, [m for m in messages if isinstance(m, Recv)], mail)
            parts = [[self.finished(rank, b) for b in range(len(self.edges) - 1)] for rank in self.ranks]
        return [np.concatenate(blocks).reshape(self.shape) for blocks in parts]

    def settle(self, blocks: set[int]) -> None:
        """Let all that hold these blocks finished agree on what will be copied, the first time that one is."""
        for b in blocks.difference(*self.copies):
            finished = [rank for rank in self.ranks if self.sources[rank][b] == (1 << len(self.ranks)) - 1]
            for rank in finished:
                self.held[rank][b] = self.finished(rank, b)
                self.copies[rank][b] = self.encode(b, rank, self.half, drawn_as=0, answers=finished[0])
                self.held[rank][b] = self.copies[rank][b].values

    def finished(self, rank: int, b: int) -> np.ndarray:
        """The average, if that is wanted; copies of it are as they are to be."""
        values = self.held[rank][b]
        settled = self.divisor == 1 or b in self.copies[rank]
        return values if settled else values / values.dtype.type(self.divisor)

    def post(self, t: int, step: Sequence[Sequence[Send | Recv]]) -> Mail:
        """All that is sent in a step, and also, as if sent to oneself, what a sender uses instead of its own value."""
        mail: Mail = {}
        for rank, messages in enumerate(step):
            for m in messages:
                for b in m.blocks if isinstance(m, Send) else ():
                    if (rank, rank, b) not in mail:
                        mail[rank, rank, b] = self.coded(t, rank, b), self.sources[rank][b]
                    mail[rank, m.peer, b] = mail[rank, rank, b]
                    self.sent[rank] += mail[rank, rank, b][0].message.nbytes
        return mail

    def receive(self, rank: int, messages: list[Recv], mail: Mail) -> None:
        terms: dict[int, dict[int, np.ndarray]] = {}
        for m in messages:
            for b in m.blocks:
                coded, sources = mail[m.peer, rank, b]
                if m.add:
                    terms.setdefault(b, {})[m.peer] = coded.values
                    self.sources[rank][b] |= sources
                else:
                    self.held[rank][b], self.sources[rank][b] = coded.values, sources
                    self.copies[rank][b] = coded
        for b, values in terms.items():
            own = mail.get((rank, rank, b))
            values[rank] = own[0].values if own else self.held[rank][b]
            total = reduce(self.op, [values[r] for r in sorted(values)])
            # the bits of a NaN would depend on the order of operands
            self.held[rank][b] = np.where(total == total, total, np.array(np.nan).astype(total.dtype))

    def coded(self, t: int, rank: int, b: int) -> Coded:
        """What a rank sends of a block."""
        if b in self.copies[rank]:
            return self.copies[rank][b]
        alike = next(r for r in self.ranks if self.sources[r][b] == self.sources[rank][b])
        return self.encode(b, rank, t, drawn_as=alike, answers=alike)

    def encode(self, b: int, rank: int, t: int, drawn_as: int, answers: int) -> Coded:
        values = self.held[rank][b]
        if not self.codec:
            return Coded(values, values)
        step = self.number % MOST_OPERATIONS * OPERATION + t % OPERATION
        coded = self.travel(values, Context(step, self.edges[b], drawn_as, len(self.ranks)))
        if self.lost is not None and answers == rank:
            self.lost[rank][self.edges[b] : self.edges[b + 1]] += values - coded.values
        return coded

    def travel(self, values: np.ndarray, at: Context) -> Coded:
        """Messages of the parts of a block, one after the other, and what they decode to."""
        assert self.codec is not None
        decoded, messages = np.empty_like(values), [np.empty(0, np.uint8)]
        for first, n in self.codec.parts(values.size, values.size):
            message = self.codec.encode(values[first : first + n], at=at._replace(offset=at.offset + first))
            self.codec.decode(message, decoded[first : first + n])
            messages.append(message if self.codec.exact_size else np.append(np.zeros(HEAD, np.uint8), message))
        return Coded(np.concatenate(messages), decoded)


def run(size: int, work: Callable[[int, Any], Any], algorithm: str = "", number: int = 0) -> list[Any]:
    """What work(rank, allreduce) returns on each rank; ranks are threads, `allreduce` is that of a method.

    For random numbers, operations are counted from `number` on.
    """
    barrier, given, results = threading.Barrier(size), [np.empty(0)] * size, [None] * size
    losts: list[Any] = [None] * size
    totals: list[np.ndarray] = []
    errors: list[Exception] = []
    numbers = count(number)
    ops = {"sum": np.add, "max": np.maximum}

    def rank_of(rank: int) -> None:
        def allreduce(
            x: np.ndarray,
            op: str = "sum",
            codec: Codec | None = None,
            lost: np.ndarray | None = None,
            residual: np.ndarray | None = None,
            prefer: str = "auto",
            **others: Any,
        ) -> np.ndarray:
            given[rank], losts[rank] = x if residual is None else x + residual, np.zeros_like(x)
            if barrier.wait() == 0:
                chosen = algorithm or prefer.replace("auto", "one_shot")
                totals[:] = simulate(chosen, given, codec, next(numbers), ops[op], losts)
            barrier.wait()
            if lost is not None:
                lost[...] = losts[rank]
            return totals[rank].copy()

        try:
            results[rank] = work(rank, allreduce)
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return results

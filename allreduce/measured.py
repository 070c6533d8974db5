"""What messages and codecs cost here, measured once: rank 0's numbers, on all ranks."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from compress.codec import Codec

from .choice import SHIPPED, Choice, Coder, Link, Nodes, choose, choose_coded, pays, ways
from .costs import GAMMA, estimate
from .execute.channel import Channel
from .execute.once import once
from .execute.plan import Order
from .execute.wire import kernels_of

__all__ = ["Prices"]

#: A short and a long all-reduce, which tell what a message and what a byte costs.
PROBES = (("recursive_doubling", 8), ("ring", 1 << 18))
ROUNDS = 4
#: Seconds that the long one should take, and bytes that it has at most.
A_WHILE, MOST = 0.02, 1 << 22
#: Values that a codec is tried on, and so few that only their number of steps counts.
SAMPLE, FEW = 1 << 17, 64
#: Nothing is free: seconds.
LEAST = 1e-12


class Prices:
    """What collectives cost on one communicator with and without a codec, measured when that is first asked for.

    Parameters
    ----------
    channel : Channel
    sharing : callable
        Gives the ranks that share a link.
    """

    def __init__(self, channel: Channel, sharing: Callable[[], Nodes]) -> None:
        self.channel, self.sharing = channel, sharing
        self.coders: dict[tuple[Codec, np.dtype], Coder] = {}

    @once
    def link(self) -> Link:
        """What messages cost; collective on first use.

        The long all-reduce is made longer until it takes a while: the first bytes of a burst are no measure of the
        rest.
        """
        if self.channel.size == 1:
            return SHIPPED
        (short, few), (long, many) = PROBES
        seconds = [self._timed(short, few), self._timed(long, many)]
        while seconds[1] < A_WHILE and many < MOST:
            many *= 4
            seconds[1] = self._timed(long, many)
        probes = (short, few), (long, many)
        prices = [
            [estimate(name, self.channel.size, nbytes, *unit) for unit in np.eye(2, 3)] for name, nbytes in probes
        ]
        alpha, beta = np.maximum(np.linalg.solve(prices, seconds), LEAST).tolist()
        return Link(alpha, beta, GAMMA)

    def _timed(self, name: str, nbytes: int) -> float:
        """Seconds of an all-reduce by messages, the same number on all ranks."""
        seconds = np.array([self.seconds(name, nbytes)])
        self.channel.bcast(seconds)
        return float(seconds[0])

    def seconds(self, name: str, nbytes: int) -> float:
        """Of an all-reduce by messages, on this rank."""
        data = np.zeros(nbytes // 8)
        order = Order("allreduce", name, data.size, data.dtype)
        return best(lambda: self.channel.run(order, data))

    def coder(self, codec: Codec, dtype: np.dtype) -> Coder:
        """What a codec costs; collective on first use."""
        if (codec, dtype) not in self.coders:
            self.coders[codec, dtype] = self._coder(codec, dtype)
        return self.coders[codec, dtype]

    def _coder(self, codec: Codec, dtype: np.dtype) -> Coder:
        rng = np.random.default_rng(0)
        values = np.where(rng.random(SAMPLE) < codec.share, rng.standard_normal(SAMPLE), 0).astype(dtype)
        message, out, exact = codec.encode(values), np.zeros_like(values), values.astype(np.float64)
        lost = np.sum((codec.decode(message, out) - exact) ** 2) / max(float(exact @ exact), LEAST)
        seconds = self.speeds(codec, values, message, out)
        numbers = np.array([*seconds, message.size, lost * SAMPLE]) / SAMPLE
        self.channel.bcast(numbers)
        return Coder(*numbers.tolist())._replace(step=self.step(codec, dtype))

    def step(self, codec: Codec, dtype: np.dtype) -> float:
        """Seconds that a step of an all-reduce takes longer with a codec, however few its values; collective."""
        name, size = PROBES[0][0], self.channel.size
        if size == 1 or kernels_of(codec, dtype) is not None:
            return 0.0
        few = np.zeros(FEW, dtype)
        plain = Order("allreduce", name, few.size, dtype)
        seconds = [best(partial(self.channel.run, order, few)) for order in (plain, replace(plain, codec=codec))]
        found = np.array([max(seconds[1] - seconds[0], 0.0) / estimate(name, size, 0, 1, 0, 0)])
        self.channel.bcast(found)
        return float(found[0])

    def speeds(self, codec: Codec, values: np.ndarray, message: np.ndarray, out: np.ndarray) -> list[float]:
        """Seconds to encode, to decode, and to decode and add."""
        return [
            best(lambda: codec.encode(values)),
            best(lambda: codec.decode(message, out)),
            best(lambda: codec.decode(message, out, add=True)),
        ]

    def compare(
        self, collective: str, codec: Codec, dtype: np.dtype, count: int, prefer: str = "auto"
    ) -> tuple[Choice, tuple[Choice, ...]]:
        """The best way without a codec, and all with it, or that which is preferred; collective."""
        size, nodes = self.channel.size, self.sharing()
        plain = choose(collective, size, count * dtype.itemsize, False, nodes, self.link)
        return plain, ways(collective, size, count, codec, self.coder(codec, dtype), nodes, self.link, prefer)

    def place(
        self,
        collective: str,
        codec: Codec,
        dtype: np.dtype,
        count: int,
        fed_back: bool = False,
        prefer: str = "auto",
    ) -> tuple[str, Codec | None]:
        """The algorithm and the codec, or none where that does not pay; collective."""
        plain, found = self.compare(collective, codec, dtype, count, prefer)
        coded = choose_coded(found, fed_back, bool(self.sharing()))
        return (coded.name, codec) if pays(coded, plain) else (plain.name, None)


def best(call: Callable[[], object]) -> float:
    """The shortest time, after one for nothing."""
    times = []
    for _ in range(1 + ROUNDS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times[1:])

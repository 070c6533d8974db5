"""What messages and codecs cost here, measured once: rank 0's numbers, on all ranks."""

import time
from collections.abc import Callable

import numpy as np

from compress.codec import Codec

from .choice import SHIPPED, Choice, Coder, Link, Nodes, choose, choose_coded
from .costs import GAMMA, estimate
from .execute.channel import NODE, Channel
from .execute.once import once
from .execute.plan import Order

__all__ = ["Prices"]

#: A short and a long all-reduce, which tell what a message and what a byte costs.
PROBES = (("recursive_doubling", 8), ("ring", 1 << 18))
ROUNDS = 4
#: Values that a codec is tried on.
SAMPLE = 1 << 15
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
        """What messages cost; collective on first use."""
        return link(self.channel)

    def coder(self, codec: Codec, dtype: np.dtype) -> Coder:
        """What a codec costs; collective on first use."""
        if (codec, dtype) not in self.coders:
            self.coders[codec, dtype] = coder(self.channel, codec, dtype)
        return self.coders[codec, dtype]

    def compare(
        self, collective: str, codec: Codec, dtype: np.dtype, count: int, lost: bool = False
    ) -> tuple[Choice, Choice]:
        """The best way without and with a codec; `lost`: what it loses on any hop will be sent later."""
        size, nodes = self.channel.size, self.sharing()
        plain = choose(collective, size, count * dtype.itemsize, False, nodes, self.link)
        return plain, choose_coded(collective, size, count, codec, self.coder(codec, dtype), nodes, self.link, lost)

    def place(
        self, collective: str, codec: Codec, dtype: np.dtype, count: int, lost: bool = False
    ) -> tuple[str, Codec | None]:
        """The algorithm and the codec, or "auto" and none where that does not pay."""
        plain, coded = self.compare(collective, codec, dtype, count, lost)
        return (coded.name, codec) if coded.seconds < plain.seconds else ("auto", None)

    def explain(self, values: np.ndarray, codec: Codec, by_memory: bool) -> str:
        """What is taken for an all-reduce of these values, and why."""
        plain, coded = self.compare("allreduce", codec, values.dtype, values.size)
        taken = f"{coded.name} with {codec}" if coded.seconds < plain.seconds else "no codec: it does not pay"
        if by_memory:
            taken = f"no codec: shared memory is faster, algorithm {NODE}"
        encode, decode, add = (1e9 * seconds for seconds in self.coder(codec, values.dtype))
        alpha, beta = 1e6 * self.link.alpha, 1e9 * self.link.beta
        return f"""\
{values.size} x {values.dtype} on {self.channel.size} ranks; {alpha:.1f} us a message, {beta:.2f} ns a byte
without a codec  {1e6 * plain.seconds:10.1f} us by messages, {plain.name}
{codec!s:16} {1e6 * coded.seconds:10.1f} us, {coded.name}; {codec.nbytes(values.size)} bytes for {values.nbytes}
                 ns a value: {encode:.2f} to encode, {decode:.2f} to decode, {add:.2f} to decode and add
auto takes       {taken}"""


def link(channel: Channel) -> Link:
    """Of the messages of a communicator; collective."""
    if channel.size == 1:
        return SHIPPED
    seconds = []
    for name, nbytes in PROBES:
        data = np.zeros(nbytes // 8)
        order = Order("allreduce", name, data.size, data.dtype)
        seconds.append(best(lambda: channel.run(order, data)))  # noqa: B023
    prices = [[estimate(name, channel.size, nbytes, *unit) for unit in np.eye(2, 3)] for name, nbytes in PROBES]
    numbers = np.maximum(np.linalg.solve(prices, seconds), LEAST)
    channel.bcast(numbers)
    alpha, beta = numbers.tolist()
    return Link(alpha, beta, GAMMA)


def coder(channel: Channel, codec: Codec, dtype: np.dtype) -> Coder:
    """Of a codec on values of a dtype; collective."""
    values = np.random.default_rng(0).standard_normal(SAMPLE).astype(dtype)
    message, out = codec.encode(values), np.zeros_like(values)
    numbers = np.array(
        [
            best(lambda: codec.encode(values)),
            best(lambda: codec.decode(message, out)),
            best(lambda: codec.decode(message, out, add=True)),
        ]
    )
    channel.bcast(numbers)
    encode, decode, add = (numbers / SAMPLE).tolist()
    return Coder(encode, decode, add)


def best(call: Callable[[], object]) -> float:
    """The shortest time, after one for nothing."""
    times = []
    for _ in range(1 + ROUNDS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times[1:])

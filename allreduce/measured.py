"""What messages and codecs cost here, measured once: rank 0's numbers, on all ranks."""

import time
from collections.abc import Callable

import numpy as np

from compress.codec import Codec

from .choice import SHIPPED, Coder, Link
from .costs import GAMMA, estimate
from .execute.channel import Channel
from .execute.plan import Order

__all__ = ["coder", "link"]

#: A short and a long all-reduce, which tell what a message and what a byte costs.
PROBES = (("recursive_doubling", 8), ("ring", 1 << 18))
ROUNDS = 4
#: Values that a codec is tried on.
SAMPLE = 1 << 15
#: Nothing is free: seconds.
LEAST = 1e-12


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

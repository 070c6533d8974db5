"""Tables with codecs, played on all ranks in one process, against what the rules say."""

from itertools import product

import numpy as np
import pytest
from rules import simulate
from test_lowering import Player, order_of, play, shortened

import compress
from allreduce.algorithms import TABLE
from allreduce.execute.table import HEAD

F = np.dtype(np.float32)
#: Cut anywhere, cut at blocks, drawn at random, never cut, and of a length that depends on the data.
CODECS = ["float16", "int4:block=8", "int3:block=16,rounding=stochastic", "topk:ratio=0.3", "threshold:least=0.5"]


class CodedPlayer(Player):
    def sizes(self, kernel, count):
        codec, dtype = self.order.codec, self.order.accumulate or self.order.dtype
        values, message = count * dtype.itemsize, codec.nbytes(count)
        if kernel.address:
            fields = codec.kernels(dtype)._asdict() if codec.exact_size else {}
            name = next((name for name, known in fields.items() if known == kernel), None)
        else:
            name, message = kernel.call.__name__, HEAD + message
        sizes = {"encode": (message, values, 0), "decode": (values, message, 0), "add": (values, values, message)}
        return sizes[name] if name else super().sizes(kernel, count)


def data(size, count, dtype=F, seed=0):
    return np.random.default_rng([size, count, seed]).standard_normal((size, count)).astype(dtype)


def check(name, size, count, codec, in_place=False, dtype=F, op="sum"):
    """An all-reduce: the bits that the rules say, on every rank, and the input as it was."""
    codec, values = compress.get(codec), data(size, count, dtype)
    sends = [row.copy() for row in values]
    recvs = sends if in_place else [np.full(count, 7, dtype) for _ in sends]
    order = order_of(name, size, count, dtype=dtype, op=op, codec=codec)
    players = play(order, sends, recvs, reverse=in_place, player=CodedPlayer)
    wanted, _ = simulate(name, values, codec, op=op)
    for rank in range(size):
        assert recvs[rank].tobytes() == wanted.tobytes(), f"{name} {codec} {count}: rank {rank} of {size}"
        assert in_place or sends[rank].tobytes() == values[rank].tobytes(), f"rank {rank} changed its sendbuf"
    return players


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", TABLE)
def test_every_algorithm_codec_and_length(name, codec, monkeypatch):
    block = compress.get(codec).block
    for i, (size, count) in enumerate(product(range(1, 9), (0, 1, block - 1, block, block + 1, 101))):
        check(name, size, count, codec, in_place=i % 2 == 0)
    shortened(monkeypatch)
    for size in range(1, 9):
        check(name, size, 211, codec, in_place=size % 2 == 0)

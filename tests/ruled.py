"""An all-reduce with a codec as the rules say it, and how far from the sum its result may be."""

import ml_dtypes
import numpy as np

from compress.simulate import simulate


class Watched:
    """A codec that adds up, for every value, what it may be off; of equals that encode the same sum, one counts."""

    def __init__(self, codec, n):
        self.codec, self.block, self.exact_size = codec, codec.block, codec.exact_size
        self.decode, self.parts = codec.decode, codec.parts
        self.allowed, self.seen = np.zeros(n), set()

    def encode(self, x, at):
        if (at, x.size) not in self.seen:
            self.allowed[at.offset : at.offset + x.size] += self.codec.bound(x)
        self.seen.add((at, x.size))
        return self.codec.encode(x, at=at)


def ruled(name, values, codec, number=0, op="sum", **facts):
    """The result of every rank, and the bound of its error: what all encodings and the rounding of sums may lose."""
    size, count = np.shape(values)
    watched = Watched(codec, count)
    results = simulate(name, values, watched, number, average=op == "avg", **facts)
    if facts.get("collective") != "reduce":
        assert len({result.tobytes() for result in results}) == 1, f"{name}: ranks differ"
    with np.errstate(all="ignore"):
        most = np.abs(values).sum(axis=0, dtype=float) + watched.allowed
    rounding = size * float(ml_dtypes.finfo(values[0].dtype).eps) * most
    return results[facts.get("root", 0)], watched.allowed + rounding

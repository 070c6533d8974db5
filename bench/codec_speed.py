"""How fast codecs are on one core, beside a copy in the same run, and the bandwidth below which they pay."""

import time
from collections.abc import Callable

import numpy as np

import compress
from compress.codec import Codec
from compress.method import Method

from .codecs import DEFAULT

__all__ = ["NBYTES", "Speed", "measure", "speeds"]

ROUNDS = 7
#: Of values, if nothing else is asked for.
NBYTES = 64 << 20


class Speed:
    """Median times of one codec, in seconds.

    Attributes
    ----------
    copy, encode, decode, add : float
        `np.copyto`, and the codec's; add is decode + add.
    saved : int
        Bytes that a message is shorter than the values.
    """

    def __init__(self, times: dict[str, float], saved: int) -> None:
        self.copy, self.encode, self.decode, self.add = (times[k] for k in ("copy", "encode", "decode", "add"))
        self.saved = saved

    @property
    def break_even(self) -> float:
        """Bytes per second of a link above which sending the values as they are is faster."""
        return max(self.saved, 0) / (self.encode + self.add)


def measure(codec: Codec, x: np.ndarray, rounds: int = ROUNDS) -> Speed:
    """Time a codec; in every round each operation once, one after the other."""
    other, room = np.ones_like(x), np.ones(codec.nbytes(x.size), np.uint8)
    message = codec.encode(x, out=room)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: np.copyto(other, x),
        "encode": lambda: codec.encode(x, out=room),
        "decode": lambda: codec.decode(message, other),
        "add": lambda: codec.decode(message, other, add=True),
    }
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - begin)
    return Speed({name: float(np.median(times[1:])) for name, times in samples.items()}, x.nbytes - message.size)


def speeds(names: list[str] | None, nbytes: int = NBYTES) -> None:
    """Print a table."""
    x = np.random.default_rng(0).standard_normal(nbytes // 4, dtype=np.float32)
    print(f"# {x.nbytes} bytes of float32, one core, medians of {ROUNDS}; in times of np.copyto in the same run")
    print("# pays below: bytes saved over time to encode, decode and add")
    print(f"{'codec':24}{'bits':>7}{'copy(ms)':>10}{'encode':>8}{'decode':>8}{'add':>8}{'pays below (Gbit/s)':>21}")
    for codec in map(compress.get, names or DEFAULT):
        if not isinstance(codec, Method):
            s = measure(codec, x)
            bits = 32 * (1 - s.saved / x.nbytes)
            ratios = "".join(f"{t / s.copy:8.2f}" for t in (s.encode, s.decode, s.add))
            print(f"{codec!s:24}{bits:7.2f}{s.copy * 1e3:10.1f}{ratios}{s.break_even * 8e-9:21.1f}", flush=True)

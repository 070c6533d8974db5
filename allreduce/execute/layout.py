"""Where things are in a rank's part of the window: control words, slots for short vectors, areas for long ones."""

from pathlib import Path
from typing import NamedTuple

from .table import LINE, aligned

__all__ = [
    "AREA", "AREAS", "CACHE", "CONTROL", "HELLO_WORDS", "LONG", "OF_HOST", "SLOT", "SLOTS", "Areas", "area_bytes",
]  # fmt: skip

#: The control words: a flag, and where the rank's arrays lie.
CONTROL, HELLO_WORDS = 256, 64
#: Slots, each with a flag, are used in rotation.
SLOTS, SLOT = 8, (1 << 18) + (1 << 16)
#: Segments of long vectors have at most so many bytes, and use so many areas in turn, from here on.
AREA, AREAS = 1 << 19, 3
LONG = CONTROL + SLOTS * SLOT


class Areas(NamedTuple):
    """Where the first area begins in a rank's part, and the bytes of a segment."""

    start: int
    nbytes: int

    def at(self, number: int, size: int) -> int:
        """Where the area begins that is used at a turn."""
        return self.start + number % AREAS * area_bytes(size, self.nbytes)


OF_HOST = Areas(LONG, AREA)


def area_bytes(size: int, nbytes: int = AREA) -> int:
    """Of an area that holds one block per rank, each beginning a cache line."""
    return aligned(nbytes) + 2 * LINE * size


def last_cache() -> int:
    """Bytes of the cache that the cores of a node share; 32 MB where Linux does not tell."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) << {"K": 10, "M": 20}[size[-1]] for size in sizes if size[-1:] in "KM"), default=1 << 25)


CACHE = last_cache()

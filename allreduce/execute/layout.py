"""Where things are in a rank's part of the window: control words, slots for short vectors, areas for long ones."""

from pathlib import Path

from .table import LINE, aligned

__all__ = ["AREA", "AREAS", "CACHE", "CONTROL", "HELLO_WORDS", "LONG", "SLOT", "SLOTS", "area_bytes"]

#: The control words: a flag, and where the rank's arrays lie.
CONTROL, HELLO_WORDS = 256, 64
#: Slots, each with a flag, are used in rotation.
SLOTS, SLOT = 8, (1 << 18) + (1 << 16)
#: Segments of long vectors have at most so many bytes, and use so many areas in turn, from here on.
AREA, AREAS = 1 << 19, 3
LONG = CONTROL + SLOTS * SLOT


def area_bytes(size: int) -> int:
    """Of an area that holds one block per rank, each beginning a cache line."""
    return aligned(AREA) + 2 * LINE * size


def last_cache() -> int:
    """Bytes of the cache that the cores of a node share; 32 MB where Linux does not tell."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) << {"K": 10, "M": 20}[size[-1]] for size in sizes if size[-1:] in "KM"), default=1 << 25)


CACHE = last_cache()

"""Where things are in a rank's part of the window: control words, slots for short vectors, areas for long ones."""

from .table import LINE, aligned

__all__ = ["AREA", "AREAS", "CONTROL", "HELLO_WORDS", "LONG", "SLOT", "SLOTS", "area_bytes"]

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

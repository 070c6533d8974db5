"""Groups of different widths."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from allreduce.execute.machine import bits_of_float, float_from_bits

from . import doors
from .allocation import CLASSES, GROUP, LEVELS, ROOM, ROOTS, WIDTHS, allot, classify, depth, spacing_of
from .blocks import Blockwise
from .memory import at8, at16, at32, inline, scratch
from .packing import pack, packed, unpack
from .pairs import load, narrow, store, widen
from .values import INFINITE, LARGEST, NAN_SCALE, peak, scale, scale_up

__all__ = ["Dynamic"]

BLOCK = 1024
GROUPS = BLOCK // GROUP
#: Bytes of scratch memory: numbers of the groups, and of the depths.
MEMORY = 11 * GROUPS + 4 * ROOM
#: Blocks without a larger value decode to zeros.
LEAST = np.float32(2.0**-100)


@dataclass(frozen=True)
class Dynamic(Blockwise):
    """Groups of 16 values get a scale, and as many bytes as lower the squared error most; none if they are small.

    A block of 1024 has one scale, and 3 bits per group say how many steps below it that of the group lies. How the
    bytes are shared out follows from these, so that it need not be sent. Levels lie closer towards zero, which is
    exact: of L on either side number q is q(q + 2L) / 3L^2 of the scale. Values that exceed it by up to about half of
    what levels are apart are cut off, for a smaller scale is worth that. In as many bytes as ``int5`` the mean squared
    error is half of that on Laplacian noise, and a sixth on gradients, where magnitudes differ. A block that holds NaN
    or infinity decodes to NaN, one without a value above 2**-100 to zeros.

    Message: per block its scale in 2 bytes, 9 significant bits rounded up; how far apart the scales are, in 16ths of
    an octave, in a byte; the classes of the groups, 3 bits each; then per group the lower bytes of 8 pairs of 5..16
    bits, or what there is of them, and the rest; and zeros.

    Parameters
    ----------
    bits : float
        Of a value, everything counted, 3..8, in 16ths; the last of short blocks takes a little more.

    See: DynamiQ, arXiv 2602.08923, 2026, for the idea.

    >>> x = np.array([0.1, -0.7, 0.35, 0.0], np.float32)
    >>> Dynamic(bits=5).decode(Dynamic(bits=5).encode(x), np.empty(4, np.float32))
    array([ 0.10283854, -0.7011718 ,  0.36460936,  0.        ], dtype=float32)
    """

    bits: float = 5.0

    block = BLOCK

    def __post_init__(self) -> None:
        doors.sixteenths(self, "bits", 3, 8)

    @property
    def params(self) -> tuple[int, ...]:
        return (int(16 * self.bits),)

    def record(self, n: int) -> int:
        groups = -(-n // GROUP)
        return int(2 * self.bits * groups) + max(3 + packed(3, groups) - groups // 2, 0)

    def errors(self, x: np.ndarray) -> np.ndarray:
        flat, bound = x.reshape(-1), np.empty(x.size)
        for first in range(0, x.size, BLOCK):
            block = slice(first, first + BLOCK)
            bound[block] = self._errors(flat[block])
        return bound.reshape(x.shape)

    def _errors(self, x: np.ndarray) -> np.ndarray:
        """Of one block: half of where neighbouring levels differ most, near each value."""
        groups, top = -(-x.size // GROUP), x.max()
        if top < LEAST:
            return x
        filled = np.zeros((groups, GROUP))
        filled.reshape(-1)[: x.size] = x
        step = 2.0 ** (np.floor(np.log2(top)) - 8)
        top = min(np.ceil(top / step) * step, 2.0**128 - 2.0**119)
        depths, classes, grades = np.empty(groups, np.int32), np.empty(groups, np.uint8), np.empty(groups, np.int32)
        fitting = (1 - 2.0 ** -int(self.bits)) * filled.max(axis=1) / top
        for g, ratio in enumerate(fitting.astype(np.float32)):
            depths[g] = depth(ratio.view(np.uint32))
        spacing, spare = spacing_of(depths, groups, np.empty(ROOM, np.int32)), np.empty((2, CLASSES + 1), np.int32)
        classify(depths, groups, spacing, classes)
        budget = self.record(x.size) - 3 - packed(3, groups)
        allot(classes, groups, spacing, budget, spare[0], spare[1], grades)
        scales = (top * 2.0 ** (-spacing * classes.astype(float) / 16))[:, None]
        levels = np.maximum(LEVELS[grades], 1)[:, None]
        near = np.sqrt(1 + 3 * np.minimum(filled / scales, 1))
        allowed = (2 * near + 1 / levels) / (6 * levels) * scales + filled * 2.0**-18
        allowed = np.maximum(allowed, filled - scales * (1 - 2.0**-20))
        return np.where((grades == 0)[:, None], filled, allowed).reshape(-1)[: x.size]


def encode_block(params: Any, x: Any, n: int, out: int, key: Any, codes: Any, words: Any, work: Any) -> None:
    memory = scratch(MEMORY)
    depths, classes = at32(memory, GROUPS), at8(memory + 4 * GROUPS, GROUPS)
    groups, top = (n + GROUP - 1) // GROUP, peak(x, n)
    bits = scale_up(float_from_bits(top), LARGEST) if float_from_bits(top) >= LEAST else np.uint32(0)
    bits = NAN_SCALE if top >= INFINITE else bits
    sound = np.uint32(0) < bits < NAN_SCALE
    unit = scale(bits) if sound else np.float32(1)
    for i in range(groups * GROUP):
        work[i] = x[i] if i < n and sound else np.float32(0)
    fitting = np.float32(1) - float_from_bits(np.uint32(np.uint32(127 - params[0] // 16) << np.uint32(23)))
    for g in range(groups):
        depths[g] = depth(bits_of_float(fitting * float_from_bits(peak(work[g * GROUP :], GROUP)) / unit))
    spacing = spacing_of(depths, groups, at32(memory + 11 * GROUPS, ROOM))
    classify(depths, groups, spacing, classes)
    at16(out, 1)[0], at8(out + 2, 1)[0] = np.uint16(bits), np.uint8(spacing)
    for g in range(groups):
        codes[g] = classes[g]
    pack(3, words, groups, out + 3)
    place, end = extent(out, params[0], groups)
    grades = shared_out(memory, groups, spacing, end - place)
    for g in range(groups):
        width = WIDTHS[grades[g]]
        if width > 0:
            narrow(work[g * GROUP :], scale_of(unit, classes[g], spacing), LEVELS[grades[g]], codes)
            store(place, end, width, words)
        place += width
    rest = at8(place, end - place)
    for i in range(end - place):
        rest[i] = np.uint8(0)


def decode_block(params: Any, message: int, n: int, values: Any, codes: Any, words: Any) -> None:
    memory = scratch(MEMORY)
    groups, classes = (n + GROUP - 1) // GROUP, at8(memory + 4 * GROUPS, GROUPS)
    unit, spacing = scale(at16(message, 1)[0]), np.int64(at8(message + 2, 1)[0])
    unpack(3, message + 3, groups, words)
    for g in range(groups):
        classes[g] = codes[g]
    place, end = extent(message, params[0], groups)
    grades = shared_out(memory, groups, spacing, end - place)
    for g in range(groups):
        width, part = WIDTHS[grades[g]], values[g * GROUP :]
        if width > 0:
            load(place, end, width, words)
            widen(codes, scale_of(unit, classes[g], spacing), LEVELS[grades[g]], part)
        else:
            for i in range(GROUP):
                part[i] = unit * np.float32(0)
        place += width


@inline
def extent(message: int, sixteenths: int, groups: int) -> Any:
    """Where the groups of a block begin, and where its record ends."""
    head = 3 + 3 * ((groups + 7) // 8)
    return message + head, message + sixteenths * groups // 8 + max(head - groups // 2, 0)


@inline
def shared_out(memory: int, groups: int, spacing: int, budget: int) -> Any:
    """What the groups get, from their classes, which lie in the scratch memory, as it will."""
    classes, grades = at8(memory + 4 * GROUPS, GROUPS), at32(memory + 5 * GROUPS, GROUPS)
    counts, levels = at32(memory + 9 * GROUPS, CLASSES + 1), at32(memory + 10 * GROUPS, CLASSES + 1)
    allot(classes, groups, spacing, budget, counts, levels, grades)
    return grades


@inline
def scale_of(unit: Any, number: int, spacing: int) -> Any:
    """The scale of a class."""
    below = np.int64(number) * spacing
    power = float_from_bits(np.uint32(np.uint32(127 - below // 16) << np.uint32(23)))
    return unit * ROOTS[below % 16] * power

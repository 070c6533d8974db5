"""The pictures of a page, with what is said about them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from . import figures
from .looks import WIDTH, Drawing, draw, length
from .maps import scaling, stragglers, tradeoff, winners
from .records import Row
from .relations import foretold

__all__ = ["Picture", "maps", "pictures"]


class Picture(NamedTuple):
    """A drawing and what it shows."""

    title: str
    words: str
    drawing: Drawing


def maps(rows: list[Row], looks: dict[str, Any]) -> Iterator[Picture]:
    """Of all numbers of ranks together."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in (row for row in rows if not row.codec):
        groups.setdefault((row.mpi, row.dtype, row.op, row.place, row.cache, row.call), []).append(row)
    for (mpi, dtype, op, place, cache, call), same in sorted(groups.items()):
        where = f"{mpi}, {dtype} {op}, {'in' if place == 'in' else 'out of'} place, {cache} caches"
        where += f", {call}" if call != "blocking" else ""
        ranks, sizes = {row.ranks for row in same}, sorted({row.nbytes for row in same})
        words = "The number is its time over that of MPI's own; grey where MPI's own is the fastest."
        shape = max(WIDTH, 0.75 * len(sizes)), 1.3 + 0.75 * len(ranks)
        drawn = draw(where, winners, same, looks, size=shape)
        yield Picture(f"Fastest by size and number of ranks: {where}", words, drawn)
        for nbytes in sizes[:: len(sizes) - 1 or 1] if len(ranks) > 1 else []:
            each = [row for row in same if row.nbytes == nbytes]
            drawn = draw(f"{nbytes} {where}", scaling, each, looks)
            yield Picture(f"Scaling, {length(nbytes)}: {where}", "Bands: confidence intervals.", drawn)


def pictures(rows: list[Row], looks: dict[str, Any], salt: str) -> Iterator[Picture]:
    """Of one setting."""
    exact = [row for row in rows if not row.codec]
    yield Picture("Time", "Bands: confidence intervals.", draw(f"time {salt}", figures.time, exact, looks))
    if rows[0].ranks > 1:
        yield Picture("Bus bandwidth", "More is better.", draw(f"bus {salt}", figures.bandwidth, exact, looks))
    if any(row.algorithm == "native" for row in exact):
        words = "Above the dashed line ours is faster; compared round by round."
        yield Picture("Speed-up", words, draw(f"speed {salt}", figures.speedup, exact, looks))
    if modelled := [row for row in exact if row.predicted]:
        drawn = draw(f"model {salt}", figures.predicted, modelled, looks)
        yield Picture("Predicted against measured", f"Grey: within 25 %. All: {foretold(modelled)}.", drawn)
    drawn = draw(f"spikes {salt}", figures.spikes, exact, looks)
    yield Picture("Spikes", "How much longer one repetition in a hundred takes than the median; 1 is steady.", drawn)
    if rows[0].ranks > 1:
        words = "Of all sizes. A rank that is far above the dashed line holds up the others."
        yield Picture("Stragglers", words, draw(f"last {salt}", stragglers, exact, looks))
    coded = sorted({row.nbytes for row in rows if row.codec and row.ranks > 1})
    for nbytes in coded[-1:]:
        words = "Lower left is better: less error, less time. The area of a mark is the bytes that travel."
        same = [row for row in rows if row.nbytes == nbytes]
        drawn = draw(f"codecs {salt}", tradeoff, same, looks, size=(WIDTH, 4.8))
        yield Picture(f"What codecs cost and save, {length(nbytes)}", words, drawn)

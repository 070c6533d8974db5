"""Two sweeps side by side."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .factors import factor
from .journal import collect
from .launches import differences, environments
from .records import Row, key
from .relations import rivals
from .statistics import Summary, quotients, samples_of
from .styles import fitted

__all__ = ["Change", "changes", "compare", "repeat"]

#: Two sweeps of the same agree if intervals are no wider than this part of the median, both ways, and so many overlap.
WIDE, OVERLAPPING = 0.05, 0.95


class Change(NamedTuple):
    """One cell, then and now, and by what factor it takes longer."""

    old: Row
    new: Row
    factor: Summary

    def verdict(self, threshold: float) -> str:
        """slower or faster, if the whole interval is by more than the threshold; else a dash."""
        low, high = self.factor.low, self.factor.high
        return "slower" if low > 1 + threshold else "faster" if high < 1 - threshold else "-"

    @property
    def widest(self) -> float:
        """Half of the wider interval, as a part of its median."""
        return max(self.old.time.half, self.new.time.half)

    @property
    def overlaps(self) -> bool:
        """Whether both intervals have a time in common."""
        return self.old.time.low <= self.new.time.high and self.new.time.low <= self.old.time.high

    def line(self, threshold: float) -> str:
        """One line of a table."""
        row, old, new = self.new, self.old.time.median * 1e6, self.new.time.median * 1e6
        names = f"{fitted(row.algorithm, 24)} {fitted(row.codec or '-', 15)}"
        what = f"{row.nbytes:9d}  {row.ranks:5d}  {row.dtype:8} {row.op:4}  {names}"
        ratio = "{:7.3f}  {:.3f} to {:.3f}".format(*self.factor) + f"  {self.verdict(threshold)}"
        return f"{what} {row.place:5} {row.call:11} {old:10.2f} {new:10.2f}  {ratio}"


def changes(old: Iterable[Row], new: Iterable[Row], against: str | None = None) -> list[Change]:
    """Of the cells that both have, the slowest first; other versions of MPI are compared, too.

    `against`: of times over those of this algorithm in the same rounds, for what slows the machine slows both.
    """
    before, after = (by_cell(rows, against) for rows in (old, new))
    pairs = [(before[cell], after[cell]) for cell in after if cell in before]
    found = [Change(was, row, factor(samples, base)) for (was, base), (row, samples) in pairs]
    return sorted(found, key=lambda change: -change.factor.median)


def by_cell(rows: Iterable[Row], against: str | None) -> dict[tuple[Any, ...], tuple[Row, np.ndarray]]:
    """The rows and what to judge them by, where there is something."""
    rows = list(rows)
    base = {rivals(row): row.samples for row in rows if row.algorithm == against and not row.codec}
    launches = [quotients(row.samples, base.get(rivals(row), ())) if against else row.samples for row in rows]
    judged = [(row, samples_of(each)) for row, each in zip(rows, launches, strict=True)]
    return {_cell(row): (row, samples) for row, samples in judged if samples.size}


def compare(old: Path, new: Path, threshold: float, against: str | None = None) -> int:
    """Print the changes, the worst first; returns 1 if anything became slower or is wrong."""
    (others, before), (more, after) = collect([old]), collect([new])
    for difference in differences(*environments(others + more)):
        print(f"# differs: {difference}")
    found = changes(before, after, against)
    if not found:
        raise ValueError(f"{old} and {new} have no cell in common{f' with {against} beside it' if against else ''}")
    what = f"{'size(B)':>9}  {'ranks':>5}  {'type':8} {'op':4}  {'algorithm':24} {'codec':15} {'place':5} {'call':11}"
    print(f"{what} {'old(us)':>10} {'new(us)':>10}  new/old  interval")
    for change in found:
        print(change.line(threshold))
    slower, wrong = sum(c.verdict(threshold) == "slower" for c in found), sum(row.wrong for row in after)
    lone = len({*map(_cell, before), *map(_cell, after)}) - len(found)
    print(f"# {len(found)} cells, {slower} slower by more than {threshold:.0%}; {lone} not compared"
          f"{f'; {wrong} WRONG ELEMENTS' if wrong else ''}")  # fmt: skip
    return int(bool(slower or wrong))


def repeat(old: Path, new: Path) -> int:
    """Print how well two sweeps of the same agree; returns 1 if their intervals are too wide, or too few overlap."""
    found = changes(collect([old])[1], collect([new])[1])
    if not found:
        raise ValueError(f"{old} and {new} have no cell in common")
    print(f"{'size(B)':>9}  {'algorithm':24} {'first(us)':>10} {'±':>6}  {'second(us)':>10} {'±':>6}")
    for change in sorted(found, key=lambda change: (change.new.nbytes, change.new.algorithm)):
        times = "  ".join(f"{r.time.median * 1e6:10.2f} {r.time.half:6.1%}" for r in (change.old, change.new))
        words = ["wide"] * (change.widest > WIDE) + ["apart"] * (not change.overlaps)
        print(f"{change.new.nbytes:9d}  {fitted(change.new.algorithm, 24)} {times}  {' '.join(words)}".rstrip())
    wide, overlap = sum(change.widest > WIDE for change in found), sum(change.overlaps for change in found)
    print(f"# {len(found)} cells, {len(found) - wide} known to {WIDE:.0%}, and intervals of {overlap} overlap")
    return int(wide > 0 or overlap < OVERLAPPING * len(found))


def _cell(row: Row) -> tuple[Any, ...]:
    return key(row)[1:]

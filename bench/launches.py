"""Several launches of one sweep, and two sweeps side by side."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .journal import collect
from .records import Row, key
from .styles import fitted

__all__ = ["Change", "changes", "compare", "distinct", "environments", "join", "repeat"]

#: Launches of one sweep must have these in common.
COMMON = ("mpi", "ranks", "processor", "cores", "kernel", "numpy", "numba", "revision")
#: Two sweeps of the same agree if intervals are no wider than this part of the median, both ways, and so many overlap.
WIDE, OVERLAPPING = 0.05, 0.95


def join(paths: list[Path], out: Path) -> int:
    """Write the launches in these files as one file; ValueError if they differ in more than being another launch."""
    others, rows = collect(paths)
    launches = environments(others)
    if not launches:
        raise ValueError("no launch in these files")
    if found := _differences(*launches):
        raise ValueError("not launches of one sweep: " + "; ".join(found))
    with out.open("x") as file:
        for record in (*launches, *(row.record() for row in rows)):
            file.write(json.dumps(record) + "\n")
    print(f"{len(rows)} rows, {min(len(r.samples) for r in rows)} to {max(len(r.samples) for r in rows)} launches each")
    return 0


class Change(NamedTuple):
    """One cell, then and now: its time over what it was, with an interval from those of both."""

    old: Row
    new: Row
    ratio: float
    low: float
    high: float

    def verdict(self, threshold: float) -> str:
        """slower or faster, if the whole interval is by more than the threshold; else a dash."""
        return "slower" if self.low > 1 + threshold else "faster" if self.high < 1 - threshold else "-"

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
        ratio = f"{self.ratio:7.3f}  {self.low:.3f} to {self.high:.3f}  {self.verdict(threshold)}"
        return f"{what} {row.place:5} {row.call:11} {old:10.2f} {new:10.2f}  {ratio}"


def changes(old: Iterable[Row], new: Iterable[Row]) -> list[Change]:
    """Of the cells that both have; other versions of MPI are compared, too."""
    before = {_cell(row): row for row in old if row.valid.size}
    found = []
    for row in new:
        was = before.get(_cell(row))
        if was and row.valid.size:
            a, b = was.time, row.time
            found.append(Change(was, row, b.median / a.median, b.low / a.high, b.high / a.low))
    return sorted(found, key=lambda change: -change.ratio)


def compare(old: Path, new: Path, threshold: float) -> int:
    """Print the changes, the worst first; returns 1 if anything became slower or is wrong."""
    (others, before), (more, after) = collect([old]), collect([new])
    for difference in _differences(*environments(others + more)):
        print(f"# differs: {difference}")
    found = changes(before, after)
    if not found:
        raise ValueError(f"{old} and {new} have no cell in common")
    what = f"{'size(B)':>9}  {'ranks':>5}  {'type':8} {'op':4}  {'algorithm':24} {'codec':15} {'place':5} {'call':11}"
    print(f"{what} {'old(us)':>10} {'new(us)':>10}  new/old  interval")
    for change in found:
        print(change.line(threshold))
    slower, wrong = sum(c.verdict(threshold) == "slower" for c in found), sum(row.wrong for row in after)
    lone = len({*map(_cell, before)} ^ {*map(_cell, after)})
    print(f"# {len(found)} cells, {slower} slower by more than {threshold:.0%}; {lone} in one file only"
          f"{f'; {wrong} WRONG ELEMENTS' if wrong else ''}")  # fmt: skip
    return int(bool(slower or wrong))


def repeat(old: Path, new: Path) -> int:
    """Print how well two sweeps of the same agree; returns 1 if their intervals are too wide, or too few overlap."""
    found = changes(*(collect([path])[1] for path in (old, new)))
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


def environments(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every launch once, whatever files it stands in."""
    found = [record for record in records if record["record"] == "environment"]
    return [record for i, record in enumerate(found) if record not in found[:i]]


def _differences(*launches: dict[str, Any]) -> list[str]:
    """What they should have in common and have not, variables of MPI and its transports among it."""
    facts = [{name: launch.get(name) for name in COMMON} for launch in launches]
    variables = [launch.get("variables", {}) for launch in launches]
    return [*_apart(facts, "{}", None), *_apart(variables, "variable {}", "not set")]


def _apart(launches: list[dict[str, Any]], title: str, missing: Any) -> list[str]:
    """The names whose values are not the same in all launches, with these values."""
    found = {name: {str(launch.get(name, missing)) for launch in launches} for launch in launches for name in launch}
    return [f"{title.format(name)}: {', '.join(sorted(values))}" for name, values in found.items() if len(values) > 1]


def distinct(environments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launches that differ in more than when they were, each with how many were like it."""
    passing = ("record", "time", "load", "masks", "arguments", "link")
    found: dict[str, dict[str, Any]] = {}
    for facts in environments:
        lasting = {name: value for name, value in facts.items() if name not in passing}
        found.setdefault(str(lasting), {"launches": 0, **lasting})["launches"] += 1
    return list(found.values())

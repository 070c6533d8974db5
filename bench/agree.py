"""Our times of MPI's own all-reduce beside those that Intel's benchmark, and OSU's way, measure of the same library."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from .journal import load
from .records import BARE

__all__ = ["agree", "read"]

#: How far two may be apart: a share of the other's, or so many seconds if that is more, as a call from Python costs.
SHARE, CALL = 0.1, 0.4e-6
#: With whom ours are compared, and measured in which way; in which other, where that was not done.
OTHERS = {"IMB": ("back to back", "one by one"), "OSU": ("one by one", "back to back")}


def agree(paths: Iterable[Path]) -> int:
    """Print medians over launches side by side; 1 if any of ours is further from another's than it may be.

    Intel's benchmark calls back to back, and OSU's after a barrier each time, which takes longer: caches must pass data
    on, and ranks leave a barrier one after the other. Ours can do either, and is held against each in its own way,
    where it was measured in that.

    Parameters
    ----------
    paths : iterable of pathlib.Path
        What IMB-MPI1 Allreduce has printed, in files `*.txt`, and sweeps' `*.jsonl`: those that count by the mean over
        ranks are measured as OSU does. `scripts/agree` makes them. As in ours, of Intel's the slowest rank counts.
    """
    times: dict[int, dict[str, list[float]]] = {}
    for path in paths:
        for who, nbytes, seconds in read(path):
            times.setdefault(nbytes, {}).setdefault(who, []).append(seconds)
    whole = {n: {who: float(np.median(t)) for who, t in found.items()} for n, found in sorted(times.items())}
    whole = {n: found for n, found in whole.items() if {*OTHERS} < {*found}}
    if not whole:
        raise ValueError("no size was measured by Intel's, in OSU's way and in ours; scripts/agree does")
    print(f"{'size(B)':>9}  {'IMB(us)':>10}  {'ours(us)':>10}  {'as OSU(us)':>10}  {'ours(us)':>10}")
    apart = 0
    for nbytes, found in whole.items():
        pairs = [(who, found[who], found[way if way in found else other]) for who, (way, other) in OTHERS.items()]
        off = [who for who, theirs, ours in pairs if abs(ours - theirs) > max(SHARE * theirs, CALL)]
        apart += bool(off)
        numbers = "  ".join(f"{1e6 * seconds:10.2f}" for _, *both in pairs for seconds in both)
        print(f"{nbytes:9d}  {numbers}{'  apart: ' if off else ''}{' '.join(off)}")
    print(f"# {len(whole) - apart} of {len(whole)} sizes agree")
    return int(apart > 0)


def read(path: Path) -> list[tuple[str, int, float]]:
    """Who has measured which bytes, or in which way we have, and the seconds."""
    if path.suffix == ".txt":
        lines = [line.split() for line in path.read_text().splitlines()]
        cells = [words for words in lines if len(words) == 5 and words[0].isdigit() and words[1].isdigit()]
        return [("IMB", int(nbytes), 1e-6 * float(longest)) for nbytes, _, _, longest, _ in cells]
    rows = [row for row in load([path])[1] if row.algorithm == BARE and row.valid.size]
    return [
        ("OSU", row.nbytes, float(row.valid.mean()))
        if row.across == "mean"
        else ("one by one" if row.batch == 1 else "back to back", row.nbytes, row.time.median)
        for row in rows
    ]

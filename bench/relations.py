"""What rows have to do with each other: rivals in one round, and launches of one cell."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from .records import IDENTITY, Row, key, ours
from .statistics import paired

__all__ = ["CLOSE", "foretold", "merge", "ratios", "rivals"]

#: From this size on a prediction is thought to be worth its name, and so close it should be.
LONG, CLOSE = 1 << 16, 0.25


def ratios(rows: list[Row]) -> list[Row]:
    """The rows with their time over that of MPI's own, measured in the same rounds, and what computing hid of them."""
    native = {rivals(row): row for row in rows if row.algorithm == "native"}
    alone = {_together(row): row for row in rows if row.call == "nonblocking"}
    found = []
    for row in rows:
        base, lone = native.get(rivals(row)), alone.get(_together(row))
        ratio = paired(row.samples, base.samples) if base else None
        found.append(
            replace(
                row,
                ratio=ratio.median if ratio and ratio.median > 0 else None,
                overlap=_overlap(row, lone) if lone and row.call == "overlapped" else None,
            )
        )
    return found


def _overlap(row: Row, lone: Row) -> float:
    """The part of a call that computing hid: OSU's measure, within 0 and 1."""
    return float(np.clip(1 - (row.time.median - row.work) / lone.time.median, 0, 1))


def _together(row: Row) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in IDENTITY if name != "call")


def rivals(row: Row) -> tuple[Any, ...]:
    """What it has in common with the rows that its time can be held against."""
    return tuple(getattr(row, name) for name in IDENTITY if name not in ("algorithm", "codec"))


def merge(rows: Iterable[Row]) -> list[Row]:
    """One row per cell, with the launches of all."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return ratios([_joined(same) for same in groups.values()])


def _joined(rows: list[Row]) -> Row:
    """Of one cell; a launch that stands in several files counts once."""
    found: list[Row] = []
    for row in rows:
        if not any(launch in other.samples for other in found for launch in row.samples):
            found.append(row)
    return replace(
        found[0],
        marks=sorted({mark for row in found for mark in row.marks}),
        wrong=sum(row.wrong for row in found),
        complete=all(row.complete for row in found),
        samples=[launch for row in found for launch in row.samples],
        slowest=[launch for row in found for launch in row.slowest],
    )


def foretold(rows: Iterable[Row]) -> str:
    """How good the predictions are, in words; empty if there are none."""
    exact = [row for row in rows if ours(row.algorithm) and not row.codec and row.call == "blocking"]
    judged = [row for row in exact if row.predicted and row.nbytes >= LONG]
    if not judged:
        return ""
    close = sum(abs(row.predicted / row.time.median - 1) <= CLOSE for row in judged if row.predicted)
    vague = sum(row.time.half > CLOSE for row in judged)
    unknown = ", ".join(sorted({row.algorithm for row in exact if row.predicted is None}))
    return (
        f"predicted within {CLOSE:.0%}: {close} of {len(judged)} cells from 64 KiB up"
        + (f", of which {vague} are not known so well themselves" if vague else "")
        + (f"; what goes through shared memory is not predicted: {unknown}" if unknown else "")
    )

"""What should hold of a library, and where it does not: each a finding about MPI's own, or about `auto`."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from .records import COMPOSED, IDENTITY, Row, ours
from .relations import rivals

__all__ = ["violations"]

#: By how much it must be broken to be worth a line.
SLACK = 1.05


def violations(rows: Iterable[Row]) -> list[str]:
    """A sentence for each guideline that is broken, beyond the intervals of both.

    MPI's own all-reduce should not take longer than two other collectives that do the same, nor than for a greater
    size (Traeff, Gropp and Thakur, TPDS 2010); `auto` not longer than the best of ours.
    """
    groups: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        if not row.codec and row.valid.size:
            groups.setdefault(rivals(row), {})[row.algorithm] = row
    found = [sentence for group in groups.values() for sentence in _within(group)]
    natives = [group["native"] for group in groups.values() if "native" in group]
    return found + [_sentence(a, b) for a, b in _neighbours(natives) if _longer(a, b)]


def _within(group: dict[str, Row]) -> Iterator[str]:
    """Among the rows of one size."""
    named = [row for name, row in group.items() if ours(name) and name != "auto"]
    pairs = [(group.get("native"), group.get(name)) for name in COMPOSED]
    pairs += [(group.get("auto"), min(named, key=lambda row: row.time.median))] if named else []
    for row, other in pairs:
        if row and other and _longer(row, other):
            yield _sentence(row, other)


def _neighbours(rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """The next greater size of the same measurement follows each."""
    setting = [name for name in IDENTITY if name not in ("nbytes", "count")]
    ordered = sorted(rows, key=lambda row: (*(str(getattr(row, name)) for name in setting), row.nbytes))
    for row, greater in pairwise(ordered):
        if all(getattr(row, name) == getattr(greater, name) for name in setting):
            yield row, greater


def _longer(row: Row, other: Row) -> bool:
    return row.time.low > SLACK * other.time.high


def _sentence(row: Row, other: Row) -> str:
    which = f"{other.algorithm}" if row.nbytes == other.nbytes else f"for {other.nbytes} B"
    place = " in place" if row.place == "in" else ""
    return (
        f"{row.algorithm}, {row.nbytes} B of {row.dtype}{place}, {row.ranks} ranks: {row.time.median * 1e6:.2f} us, "
        f"longer than {which}: {other.time.median * 1e6:.2f} us"
    )

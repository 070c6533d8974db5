"""Shared memory beside several MPIs: one table from the sweeps that `scripts/peers` has run."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from .journal import records

__all__ = ["table"]


def table(paths: Iterable[Path]) -> str:
    """Markdown: a row per size and a column per MPI, ratios of our time to the library's own.

    Reads the sweeps' JSON Lines, of which there may be several per library: medians of the ratios are taken over
    launches. A cell shows the same input in every repetition / an input rewritten before each.
    """
    ratios: dict[tuple[tuple[str, str], int, bool], list[float]] = {}
    machines = set()
    for path in paths:
        found = list(records(path))
        facts = next((r for r in found if r["record"] == "environment"), None)
        if facts is None:
            raise ValueError(f"{path} does not say where it was measured; `bench sweep --json` does")
        machines.add(f"{facts['processor']}, {facts['cores']} cores, Linux {facts['kernel']}, {facts['ranks']} ranks")
        rows = [r for r in found if r["record"] == "row"]
        times = {(r["nbytes"], r["algorithm"]): r["median"] for r in rows}
        for row in rows:
            for base in ("native", "gloo", "copy"):
                if row["algorithm"] == "node" and (row["nbytes"], base) in times:
                    value = row["ratio"] if base == "native" else row["median"] / times[row["nbytes"], base]
                    key = _column(base, facts), row["nbytes"], facts["rewrite"]
                    ratios.setdefault(key, []).append(value)
    if not ratios:
        raise ValueError("no file has rows of node beside native, gloo or copy; scripts/peers makes such")
    return _markdown(ratios, machines)


def _column(base: str, facts: dict[str, Any]) -> tuple[str, str]:
    """The heading of what is compared with, after a letter that sorts it."""
    return {
        "native": ("a", facts["mpi"]),
        "gloo": ("b", f"gloo of PyTorch {facts['torch']}"),
        "copy": ("c", f"a plain copy, {facts['buffers']} buffers"),
    }[base]


def _markdown(ratios: dict[tuple[tuple[str, str], int, bool], list[float]], machines: set[str]) -> str:
    names = sorted({name for name, _, _ in ratios})
    sizes = sorted({size for _, size, _ in ratios})
    lines = [f"Machine: {'; '.join(sorted(machines))}.", ""]
    lines.append("| bytes | " + " | ".join(name for _, name in names) + " |")
    lines.append("|---:|" + "---|" * len(names))
    for size in sizes:
        cells = []
        for name in names:
            habits = [ratios.get((name, size, rewrite)) for rewrite in (False, True)]
            cells.append(" / ".join(f"{median(values):.2f}" if values else "-" for values in habits))
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)

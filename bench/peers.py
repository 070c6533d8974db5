"""Shared memory beside several MPIs: one table from the sweeps that `scripts/peers` has run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["table"]


def table(paths: Iterable[Path]) -> str:
    """Markdown: a row per size and a column per MPI, ratios of our time to the library's own.

    Reads the sweeps' JSON Lines, of which there may be several per library: medians of the ratios are taken over
    launches. A cell shows the same input in every repetition / an input rewritten before each.
    """
    ratios: dict[tuple[str, int, bool, str], list[float]] = {}
    machines = set()
    for path in paths:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        facts = next(r for r in records if r["record"] == "environment")
        machines.add(f"{facts['processor']}, {facts['cores']} cores, Linux {facts['kernel']}, {facts['ranks']} ranks")
        rows = [r for r in records if r["record"] == "row"]
        times = {(r["nbytes"], r["algorithm"]): r["median"] for r in rows}
        for row in rows:
            against = {"node": "native", "copy": "copy"}
            for kind, base in against.items():
                if row["algorithm"] == "node" and (row["nbytes"], base) in times:
                    value = row["ratio"] if base == "native" else row["median"] / times[row["nbytes"], "copy"]
                    name = facts["mpi"] if kind == "node" else f"a plain copy ({facts['buffers']} buffers)"
                    ratios.setdefault((name, row["nbytes"], facts["rewrite"], kind), []).append(value)
    return _markdown(ratios, machines)


def _markdown(ratios: dict[tuple[str, int, bool, str], list[float]], machines: set[str]) -> str:
    names = sorted({(kind == "copy", name) for name, _, _, kind in ratios})
    sizes = sorted({size for _, size, _, _ in ratios})
    lines = [f"Machine: {'; '.join(sorted(machines))}.", ""]
    lines.append("| bytes | " + " | ".join(name for _, name in names) + " |")
    lines.append("|---:|" + "---|" * len(names))
    for size in sizes:
        cells = []
        for copy, name in names:
            kind = "copy" if copy else "node"
            habits = [ratios.get((name, size, rewrite, kind)) for rewrite in (False, True)]
            cells.append(" / ".join(f"{_median(values):.2f}" if values else "-" for values in habits))
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _median(values: list[float]) -> Any:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

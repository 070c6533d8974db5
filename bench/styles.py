"""Rows as text: our table, the columns of OSU's osu_allreduce and of nccl-tests' all_reduce_perf, and CSV."""

import csv
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import numpy as np

from .records import IDENTITY, Row

__all__ = ["HABITS", "HEAD", "STYLES", "fitted", "line"]

#: As these tools measure: the mean over ranks and calls; one every call for itself, the other in both places.
HABITS: dict[str, dict[str, Any]] = {
    "osu": {"across": "mean", "batch": 1, "start": "barrier", "warm_up": 200},
    "nccl-tests": {"across": "mean", "place": ["out", "in"]},
}
HEAD = (
    "  size(B)  algorithm                codec           place  calls    time(us)          interval             p99"
    "  algbw(GB/s)  busbw(GB/s)  model(us)  /native  #wrong"
)
OSU_TYPES = {"float32": "MPI_FLOAT", "float64": "MPI_DOUBLE", "int32": "MPI_INT", "int8": "MPI_CHAR"}
NCCL_TYPES = {"float32": "float", "float64": "double", "float16": "half"}
SUMMARY = ("batch", "median", "low", "high", "confidence", "mean", "p99", "late", "algbw", "busbw", "predicted")
REST = ("ratio", "work", "overlap", "wire", "error", "wrong", "complete", "marks")


def line(row: Row) -> str:
    """One line under HEAD."""
    model = "-" if row.predicted is None else f"{row.predicted * 1e6:.2f}"
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    time, p99 = row.time, np.quantile(row.valid, 0.99) if row.valid.size else np.nan
    return (
        f"{row.nbytes:9d}  {fitted(row.algorithm, 24)} {fitted(row.codec or '-', 15)} {row.place:5} {row.batch:6d}"
        f"  {time.median * 1e6:10.2f}  {time.low * 1e6:9.2f} {time.high * 1e6:9.2f}"
        f" {p99 * 1e6:10.2f}  {row.algbw:11.3f}  {row.busbw:11.3f} {model:>10} {ratio:>8} {row.wrong:7d}"
        f"{'' if row.overlap is None else f'  {row.overlap:.0%} hidden'}  {' '.join(row.marks)}".rstrip()
    )


def fitted(name: str, width: int) -> str:
    """A name in a column, without its middle if it is too long.

    >>> fitted("native:k_reduce_scatter_allgather", 24), fitted("ring", 6)
    ('native:k_reduce..lgather', 'ring  ')
    """
    half = (width - 2) // 3
    return name.ljust(width) if len(name) <= width else f"{name[: width - 2 - half]}..{name[len(name) - half :]}"


def table(rows: list[Row]) -> str:
    """Every row, the fastest of each size first."""
    parts = []
    for facts, same in _split(rows, ("mpi", "ranks", "dtype", "op", "call")):
        parts += [f"# {facts['mpi']}, ranks: {facts['ranks']}, {facts['dtype']} {facts['op']}, {facts['call']}", HEAD]
        parts += map(line, sorted(same, key=lambda row: (row.nbytes, row.time.median)))
    return "\n".join(parts)


def osu(rows: list[Row]) -> str:
    """One table of osu_allreduce per algorithm."""
    parts = []
    for facts, same in _split(rows, ("mpi", "ranks", "dtype", "op", "algorithm", "codec", "place", "call")):
        parts.append(f"# MPI Allreduce Latency Test in the columns of OSU: {_title(facts)}")
        parts.append(f"# Datatype: {OSU_TYPES.get(facts['dtype'], facts['dtype'])}.")
        parts.append(f"{'# Size':10}{'Avg Latency(us)':>18}")
        parts += [f"{row.nbytes:<10d}{row.valid.mean() * 1e6:18.2f}" for row in _ascending(same) if row.valid.size]
    return "\n".join(parts)


def nccl(rows: list[Row]) -> str:
    """One table of all_reduce_perf per algorithm."""
    parts = []
    for facts, same in _split(rows, ("mpi", "ranks", "dtype", "op", "algorithm", "codec", "call")):
        parts.append(f"# all-reduce in the columns of nccl-tests: {_title(facts)}\n#")
        head = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
        parts.append(f"{head}           out-of-place                       in-place          ")
        for units in (
            ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2),
            ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2),
        ):
            widths = (10, 12, 8, 6, 6, *(7, 6, 6, 6) * 2)
            parts.append("# " + "  ".join(f"{u:>{w}}" for u, w in zip(units, widths, strict=True)) + " ")
        kind = NCCL_TYPES.get(facts["dtype"], facts["dtype"])
        places = {(row.nbytes, row.place): row for row in same}
        for nbytes, count in sorted({(row.nbytes, row.count) for row in same}):
            bodies = "".join(_body(places.get((nbytes, place))) for place in ("out", "in"))
            parts.append(f"{nbytes:12d}  {count:12d}  {kind:>8}  {facts['op']:>6}  {-1:6d}{bodies}")
        wrong = sum(row.wrong for row in same)
        rates = [row.nbytes / row.valid.mean() * _bus(row) / 1e9 for row in same if row.valid.size]
        parts.append(f"# {'Out of bounds values':20} : {wrong} {'FAILED' if wrong else 'OK'}")
        parts.append(f"# {'Avg bus bandwidth':20} : {np.mean(rates) if rates else 0:g} \n#")
    return "\n".join(parts)


def _body(row: Row | None) -> str:
    if row is None or not row.valid.size:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    seconds = float(row.valid.mean())
    rate = row.nbytes / seconds / 1e9
    return f"  {_short(seconds * 1e6, 7)}  {_short(rate, 6)}  {_short(rate * _bus(row), 6)}  {row.wrong:6g}"


def _bus(row: Row) -> float:
    return 2 * (row.ranks - 1) / row.ranks


def _short(value: float, width: int) -> str:
    """Two decimals where they fit, else one, none, or an exponent."""
    digits = len(str(int(value))) if value >= 1 else 0
    places = 2 if digits < width - 2 else 1 if digits < width - 1 else 0
    return f"{value:{width}.{places}f}" if digits <= width else f"{value:{width}.{1 if width >= 7 else 0}e}"


def as_csv(rows: list[Row]) -> str:
    """What a cell is and its numbers, without the repetitions; times in seconds, bandwidths in GB/s."""
    text = StringIO()
    writer = csv.DictWriter(text, [*IDENTITY, *SUMMARY, *REST], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=lambda row: (row.dtype, row.op, row.nbytes, row.algorithm)):
        writer.writerow(row.record() | {"marks": " ".join(row.marks)})
    return text.getvalue().rstrip("\n")


def _split(rows: list[Row], names: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """The rows that agree in these, in order of appearance of what they agree in, sorted."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    for values in sorted(groups, key=str):
        yield dict(zip(names, values, strict=True)), groups[values]


def _ascending(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.nbytes)


def _title(facts: dict[str, Any]) -> str:
    codec = f" with {facts['codec']}" if facts["codec"] else ""
    place = ", in place" if facts.get("place") == "in" else ""
    call = "" if facts["call"] == "blocking" else f", {facts['call']}"
    return f"{facts['algorithm']}{codec}{place}{call}, {facts['ranks']} ranks, {facts['mpi']}"


STYLES: dict[str, Callable[[list[Row]], str]] = {"table": table, "osu": osu, "nccl-tests": nccl, "csv": as_csv}

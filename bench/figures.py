"""Lines over the size of the vector."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .looks import FAINT, legend, length, plain, seconds
from .records import Row, ours
from .statistics import Summary, paired

__all__ = ["bandwidth", "by_algorithm", "predicted", "speedup", "spikes", "time"]


def time(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Median time against size; bands are confidence intervals."""
    _lines(axes, rows, looks, lambda row: row.time)
    axes.set(yscale="log", ylabel="time of one all-reduce")
    seconds(axes.yaxis)


def bandwidth(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Bus bandwidth against size."""

    def rate(row: Row) -> Summary:
        median, low, high, confidence = row.time
        return Summary(row.busbw, row.busbw * median / high, row.busbw * median / low, confidence)

    _lines(axes, [row for row in rows if row.algorithm != "copy"], looks, rate)
    axes.set(ylim=(0, None), ylabel="bus bandwidth (GB/s)")


def speedup(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Time of MPI's own over ours, of the repetitions of one round; above 1 we are faster."""
    native = {row.nbytes: row for row in rows if row.algorithm == "native"}
    compared = [row for row in rows if ours(row.algorithm) and row.nbytes in native]
    _lines(axes, compared, looks, lambda row: paired(native[row.nbytes].samples, row.samples))
    axes.axhline(1, color="black", linestyle="--", linewidth=1)
    axes.set(yscale="log", ylabel="speed-up against MPI's own (×)")
    plain(axes)


def spikes(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """How much longer the slowest of a hundred repetitions takes than the median."""

    def excess(row: Row) -> Summary:
        ratio = float(np.quantile(row.valid, 0.99)) / row.time.median
        return Summary(ratio, ratio, ratio, 1.0)

    _lines(axes, rows, looks, excess)
    axes.set(yscale="log", ylabel="99th percentile over median (×)")
    plain(axes)


def predicted(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Predicted over measured time; what lies in the grey band is predicted within 25 %."""

    def share(row: Row) -> Summary:
        median, low, high, confidence = row.time
        guess = row.predicted or np.nan
        return Summary(guess / median, guess / high, guess / low, confidence)

    axes.axhspan(0.75, 1.25, color="#dddddd", linewidth=0)
    _lines(axes, rows, looks, share)
    axes.set(yscale="log", ylabel="predicted over measured time (×)")
    plain(axes)


def _lines(axes: Any, rows: list[Row], looks: dict[str, Any], value: Callable[[Row], Summary]) -> None:
    for name, same in by_algorithm(rows):
        sizes, found = [row.nbytes for row in same], [value(row) for row in same]
        look = {"markersize": 4, "linewidth": 1.4, **looks[name]}
        axes.plot(sizes, [s.median for s in found], label=name, zorder=2 if looks[name] is FAINT else 3, **look)
        if looks[name] is not FAINT:
            low, high = [s.low for s in found], [s.high for s in found]
            axes.fill_between(sizes, low, high, color=look["color"], alpha=0.18, linewidth=0)
            if len(sizes) == 1:  # of which a band is not to be seen
                axes.vlines(sizes, low, high, color=look["color"], linewidth=1)
    axes.set_xscale("log", base=2)
    ticks = _sizes(rows)[:: -(-len(_sizes(rows)) // 12)]
    axes.set_xticks(ticks, [length(n) for n in ticks], rotation=30, ha="right")
    axes.set_xlabel("size of the vector on every rank")
    axes.minorticks_off()
    legend(axes)


def by_algorithm(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Sizes ascend."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.nbytes):
        groups.setdefault(row.algorithm, []).append(row)
    return sorted(groups.items())


def _sizes(rows: Iterable[Row]) -> list[int]:
    return sorted({row.nbytes for row in rows})

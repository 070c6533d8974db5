"""Pictures of rows, each as the text of an SVG; readable in print and by the colour-blind."""

from collections.abc import Callable, Iterable
from io import StringIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator

from .records import BASELINES, Row, rivals
from .statistics import Summary, paired

__all__ = ["bandwidth", "by_algorithm", "draw", "emphasized", "legend", "length", "predicted", "speedup", "time"]

#: Okabe and Ito's colours, told apart whatever one's eyes; each has a marker of its own for print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00")
MARKERS = "osD^vPX"
NATIVE = {"color": "black", "marker": "*", "linestyle": "--"}
FAINT = {"color": "#bbbbbb", "marker": "", "linewidth": 0.8}
LOOK: Any = {"font.size": 9, "svg.fonttype": "none", "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}  # fmt: skip


def length(nbytes: float, _: Any = None) -> str:
    """A number of bytes as people say it.

    >>> length(4), length(65536), length(3 << 19)
    ('4 B', '64 KiB', '1.5 MiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:g} {unit}"
        nbytes /= 1024
    return f"{nbytes:g} GiB"


def draw(name: str, paint: Callable[..., None], *data: Any, size: tuple[float, float] = (7.4, 3.8)) -> str:
    """Let a function paint on axes, and return the SVG; `name` makes its identifiers unique on a page."""
    with matplotlib.rc_context(LOOK | {"svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure.add_subplot(), *data)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def emphasized(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """A look for each algorithm on a page: of its own for those that win somewhere, or nearly; pale for others."""
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if row.algorithm not in BASELINES and not row.codec:
            groups.setdefault(rivals(row), {})[row.algorithm] = row.time.median
    behind: dict[str, list[float]] = {}
    for times in groups.values():
        for name, seconds in times.items():
            behind.setdefault(name, []).append(np.log(seconds / min(times.values())))
    ranking = sorted(behind, key=lambda name: (min(behind[name]) > 0, np.mean(behind[name])))
    looks = {n: {"color": c, "marker": m} for n, c, m in zip(ranking, COLORS, MARKERS, strict=False)}
    return {**dict.fromkeys(BASELINES, FAINT), "native": NATIVE, **dict.fromkeys(ranking, FAINT), **looks}


def time(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Median time against size; bands are confidence intervals."""
    _lines(axes, rows, looks, lambda row: row.time)
    axes.set(yscale="log", ylabel="time of one all-reduce")
    axes.yaxis.set_major_formatter(EngFormatter("s"))


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
    ours = [row for row in rows if row.algorithm not in BASELINES and row.nbytes in native]
    _lines(axes, ours, looks, lambda row: paired(native[row.nbytes].samples, row.samples))
    axes.axhline(1, color="black", linestyle="--", linewidth=1)
    axes.set(yscale="log", ylabel="speed-up against MPI's own (×)")
    _plain(axes)


def predicted(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Predicted over measured time; what lies in the grey band is predicted within 25 %."""

    def share(row: Row) -> Summary:
        median, low, high, confidence = row.time
        guess = row.predicted or np.nan
        return Summary(guess / median, guess / high, guess / low, confidence)

    axes.axhspan(0.75, 1.25, color="#dddddd", linewidth=0)
    _lines(axes, rows, looks, share)
    axes.set(yscale="log", ylabel="predicted over measured time (×)")
    _plain(axes)


def _lines(axes: Any, rows: list[Row], looks: dict[str, Any], value: Callable[[Row], Summary]) -> None:
    for name, same in by_algorithm(rows):
        sizes, found = [row.nbytes for row in same], [value(row) for row in same]
        look = {"markersize": 4, "linewidth": 1.4, **looks[name]}
        axes.plot(sizes, [s.median for s in found], label=name, zorder=2 if looks[name] is FAINT else 3, **look)
        if looks[name] is not FAINT:
            low, high = [s.low for s in found], [s.high for s in found]
            axes.fill_between(sizes, low, high, color=look["color"], alpha=0.18, linewidth=0)
    axes.set_xscale("log", base=2)
    ticks = _sizes(rows)[:: -(-len(_sizes(rows)) // 12)]
    axes.set_xticks(ticks, [length(n) for n in ticks], rotation=30, ha="right")
    axes.set_xlabel("size of the vector on every rank")
    axes.minorticks_off()
    legend(axes)


def _plain(axes: Any) -> None:
    """A logarithmic axis with ordinary numbers, around 1."""
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.5), max(high, 2))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda x, _: ""))


def legend(axes: Any) -> None:
    """Beside the picture; those that are pale share a line."""
    handles, labels = axes.get_legend_handles_labels()
    pale = [h.get_color() == FAINT["color"] for h in handles]
    kept = [(h, name) for h, name, faint in zip(handles, labels, pale, strict=True) if not faint]
    if any(pale):
        kept.append((handles[pale.index(True)], f"{sum(pale)} others"))
    axes.legend(*zip(*kept, strict=True), loc="upper left", bbox_to_anchor=(1, 1), handlelength=2.6) if kept else None


def by_algorithm(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Sizes ascend."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.nbytes):
        groups.setdefault(row.algorithm, []).append(row)
    return sorted(groups.items())


def _sizes(rows: Iterable[Row]) -> list[int]:
    return sorted({row.nbytes for row in rows})

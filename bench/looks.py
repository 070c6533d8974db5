"""How pictures look: colours, markers and axes that can be read in print and by the colour-blind."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

from .records import Row, ours
from .relations import rivals

__all__ = [
    "COLORS", "FAINT", "WIDTH", "Drawing", "below", "draw", "emphasized", "legend", "length", "plain", "seconds",
]  # fmt: skip

#: Okabe and Ito's colours, told apart whatever one's eyes; each has a marker of its own for print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00")
MARKERS = "osD^vPX"
NATIVE = {"color": "black", "marker": "*", "linestyle": "--"}
FAINT = {"color": "#bbbbbb", "marker": "", "linewidth": 0.8}
LOOK: Any = {
    "font.size": 10, "legend.fontsize": 9, "legend.frameon": False, "svg.fonttype": "none",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
}  # fmt: skip
#: Inches: so narrow that letters are still letters on a phone.
WIDTH = 5.6


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


class Drawing(NamedTuple):
    """What was painted; `name` makes its identifiers unique on a page."""

    name: str
    figure: Figure

    @property
    def inches(self) -> float:
        """Its width."""
        return float(self.figure.get_figwidth())

    @property
    def svg(self) -> str:
        """The element."""
        text = StringIO()
        self._write(text, "svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()[text.getvalue().index("<svg") :]

    def save(self, path: Path) -> None:
        """Files of this name that end with .svg and .png."""
        path.with_suffix(".svg").write_text(self.svg)
        self._write(path.with_suffix(".png"), "png", dpi=200)

    def _write(self, out: StringIO | Path, kind: str, **how: Any) -> None:
        with matplotlib.rc_context(LOOK | {"svg.hashsalt": self.name}):
            self.figure.savefig(out, format=kind, **how)


def draw(name: str, paint: Callable[..., None], *data: Any, size: tuple[float, float] = (WIDTH, 4.2)) -> Drawing:
    """Let a function paint on axes."""
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure.add_subplot(), *data)
    return Drawing(name, figure)


def emphasized(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """A look for each algorithm on a page: of its own for those that win somewhere, or nearly; pale for others."""
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if ours(row.algorithm) and not row.codec:
            groups.setdefault(rivals(row), {})[row.algorithm] = row.time.median
    behind: dict[str, list[float]] = {}
    for times in groups.values():
        for name, seconds in times.items():
            behind.setdefault(name, []).append(np.log(seconds / min(times.values())))
    ranking = sorted(behind, key=lambda name: (min(behind[name]) > 0, np.mean(behind[name])))
    looks = {n: {"color": c, "marker": m} for n, c, m in zip(ranking, COLORS, MARKERS, strict=False)}
    others = (row.algorithm for row in rows if not ours(row.algorithm))
    return {**dict.fromkeys(others, FAINT), "native": NATIVE, **dict.fromkeys(ranking, FAINT), **looks}


def seconds(axis: Any) -> None:
    """A logarithmic axis of times, with units."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1,) if high > 1000 * low else (1, 2, 5)))
    axis.set_major_formatter(EngFormatter("s"))
    axis.set_minor_formatter(NullFormatter())


def plain(axes: Any) -> None:
    """A logarithmic axis with ordinary numbers, around 1."""
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.5), max(high, 2))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend(axes: Any) -> None:
    """Below the picture; those that are pale share an entry."""
    handles, labels = axes.get_legend_handles_labels()
    pale = [h.get_color() == FAINT["color"] for h in handles]
    kept = [(h, name) for h, name, faint in zip(handles, labels, pale, strict=True) if not faint]
    if any(pale):
        kept.append((handles[pale.index(True)], f"{sum(pale)} others"))
    if kept:
        below(axes, *zip(*kept, strict=True))


def below(axes: Any, *entries: Any) -> None:
    """A legend of these handles and names, or of all."""
    where = {"loc": "outside lower center", "ncols": 3, "handlelength": 2.2, "columnspacing": 1.2}
    axes.figure.legend(*(entries or axes.get_legend_handles_labels()), **where)

"""Pictures that are no lines over sizes: who wins where, who comes last, and what codecs cost and save."""

from collections.abc import Iterable
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from .figures import by_algorithm
from .looks import COLORS, FAINT, below, legend, length, seconds
from .records import BASELINES, NATIVE, Row, family

__all__ = ["scaling", "stragglers", "tradeoff", "winners"]


def winners(axes: Any, rows: Iterable[Row], looks: dict[str, dict[str, Any]]) -> None:
    """The fastest algorithm at each size and number of ranks, with its time over that of MPI's own."""
    best: dict[tuple[int, int], Row] = {}
    for row in rows:
        at = row.ranks, row.nbytes
        if family(row.algorithm) not in BASELINES[1:] and (at not in best or row.time.median < best[at].time.median):
            best[at] = row
    ranks, sizes = sorted({p for p, _ in best}), sorted({n for _, n in best})
    image, letters = np.ones((len(ranks), len(sizes), 3)), 6.5 if len(sizes) > 6 else 8
    for (p, n), row in best.items():
        y, x = ranks.index(p), sizes.index(n)
        look = FAINT if family(row.algorithm) == NATIVE else looks[row.algorithm]
        image[y, x] = 0.55 * np.asarray(to_rgb(str(look["color"])), float) + 0.45  # pale: black words stand on it
        ratio = "" if row.ratio is None else f"\n{row.ratio:.2f}"
        name = row.algorithm.replace("_", "\n").replace(":", ":\n")
        axes.text(x, y, name + ratio, ha="center", va="center", size=letters)
    axes.imshow(image, aspect="auto", origin="lower")
    axes.set_xticks(range(len(sizes)), [length(n) for n in sizes], rotation=30, ha="right")
    axes.set_yticks(range(len(ranks)), [str(p) for p in ranks])
    axes.set(xlabel="size of the vector on every rank", ylabel="ranks")
    axes.grid(False)


def scaling(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Time of one size against the number of ranks; bands are confidence intervals."""
    for name, same in by_algorithm(rows):
        same = sorted(same, key=lambda row: row.ranks)
        ranks, look = [row.ranks for row in same], {"markersize": 4, "linewidth": 1.4, **looks[name]}
        axes.plot(ranks, [row.time.median for row in same], label=name, **look)
        if looks[name] is not FAINT:
            low, high = [row.time.low for row in same], [row.time.high for row in same]
            axes.fill_between(ranks, low, high, color=look["color"], alpha=0.18, linewidth=0)
    axes.set_xscale("log", base=2)
    every = sorted({row.ranks for row in rows})
    axes.set_xticks(every, [str(p) for p in every])
    axes.set(yscale="log", xlabel="ranks", ylabel="time of one all-reduce")
    seconds(axes.yaxis)
    legend(axes)


def tradeoff(axes: Any, rows: Iterable[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Error against time of one size, for the algorithms that have a look of their own; the colour is the codec.

    A marker's area is the bytes that travel. Lines are MPI's own and our fastest without a codec.
    """
    shown = [row for row in rows if looks[row.algorithm] is not FAINT]
    coded, exact = [row for row in shown if row.codec], [row for row in shown if not row.codec]
    colors = dict(zip(sorted({row.codec for row in coded if row.codec}), cycle(COLORS)))
    least = min((row.error for row in coded if row.error), default=1e-8) / 10  # where those without error stand
    for row in coded:
        look = {"color": colors[row.codec or ""], "marker": looks[row.algorithm]["marker"], "alpha": 0.8}
        area = 20 + 180 * row.wire / row.nbytes
        axes.scatter(row.time.median, max(row.error or 0, least), s=area, linewidth=0, **look)
    for codec, color in colors.items():
        axes.plot([], [], "o", color=color, label=codec)
    for name in sorted({row.algorithm for row in coded}):
        axes.plot([], [], looks[name]["marker"], color="#888888", label=name)
    lines = sorted(exact, key=lambda row: row.time.median)[:1] + [row for row in exact if row.algorithm == "native"]
    for row in {row.algorithm: row for row in lines}.values():
        axes.axvline(row.time.median, color="#888888", linestyle="--", linewidth=0.8)
        axes.annotate(f"{row.algorithm}, no codec", (row.time.median, 0.02), rotation=90, size=7, color="#555555",
                      xycoords=("data", "axes fraction"), ha="right")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="time of one all-reduce")
    axes.set_ylabel("squared error of the sum over its squares")
    axes.set_ylim(axes.get_ylim()[0] / 2, axes.get_ylim()[1] * 2)
    seconds(axes.xaxis)
    below(axes)


def stragglers(axes: Any, rows: list[Row], looks: dict[str, dict[str, Any]]) -> None:
    """How often each rank was the last; the dashed line is an equal share."""
    for name, same in by_algorithm(row for row in rows if looks[row.algorithm] is not FAINT):
        last = np.concatenate([launch for row in same for launch in row.slowest])
        shares = np.bincount(last.astype(int), minlength=rows[0].ranks) / len(last)
        axes.plot(range(len(shares)), 100 * shares, label=name, **looks[name] | {"linestyle": ""})
    axes.axhline(100 / rows[0].ranks, color="black", linestyle="--", linewidth=1)
    axes.set(ylim=(0, None), xlabel="rank", ylabel="of the repetitions it was the last in (%)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend(axes)

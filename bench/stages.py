"""The stages that a codec's all-reduce is made of."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from matplotlib.ticker import EngFormatter, MaxNLocator

from .looks import COLORS, WIDTH, below, draw, length
from .pictures import Picture

__all__ = ["Stages", "pictures_of"]


class Stages(NamedTuple):
    """A line of `bench codecs --wire`; seconds. `plain` is the best all-reduce without a codec.

    `encode`, `wire` and `decode` are what each would take alone, None where that is not known.
    """

    ranks: int
    nbytes: int
    codec: str
    algorithm: str
    plain: float
    seconds: float
    encode: float | None
    wire: float | None
    decode: float | None


def pictures_of(records: Iterable[Mapping[str, Any]]) -> Iterator[Picture]:
    """One for each number of ranks and bytes; ValueError for what this version has not written."""
    groups: dict[tuple[int, int], list[Stages]] = {}
    for record in records:
        try:
            stages = Stages(*(record[name] for name in Stages._fields))
        except KeyError as error:
            raise ValueError(f"stages of a codec without {error}: not written by this version") from None
        groups.setdefault((stages.ranks, stages.nbytes), []).append(stages)
    for (ranks, nbytes), same in sorted(groups.items()):
        title = f"Stages of codecs, {length(nbytes)} on {ranks} ranks"
        words = "What each stage takes alone, and what all took (black), for they overlap; dashed: without a codec."
        yield Picture(title, words, draw(title, _bars, same, size=(WIDTH, 1.8 + 0.34 * len(same))))


def _bars(axes: Any, rows: list[Stages]) -> None:
    names = [f"{row.codec}, {row.algorithm}" for row in rows]
    left = [0.0] * len(rows)
    for name, color in zip(("encode", "wire", "decode"), COLORS):
        each = [getattr(row, name) or 0.0 for row in rows]
        axes.barh(names, each, left=left, color=color, label=name, height=0.6)
        left = [a + b for a, b in zip(left, each, strict=True)]
    axes.plot([row.seconds for row in rows], names, "k|", markersize=14, markeredgewidth=2, label="measured")
    axes.axvline(rows[0].plain, color="black", linestyle="--", linewidth=1, label="no codec")
    axes.set(xlim=(0, None), xlabel="time of one all-reduce")
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.invert_yaxis()
    below(axes)

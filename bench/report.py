"""One page of pictures and numbers, that needs nothing but itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .journal import collect
from .launches import distinct
from .records import IDENTITY, Row

__all__ = ["page", "write"]

#: What all rows in a section of the page have in common.
SETTING = tuple(name for name in IDENTITY if name not in ("nbytes", "count", "algorithm", "codec"))
#: From this size on, a prediction is thought to be worth its name.
LONG, CLOSE = 1 << 16, 0.25
MEANING = {
    "oversubscribed": "there were more ranks than cores. Results are right, times mean little.",
    "unpinned": "ranks could move between each other's cores. Times vary more than they must.",
}


class Picture(NamedTuple):
    """An SVG and what it shows."""

    title: str
    words: str
    svg: str


class Section(NamedTuple):
    """What was measured in one setting."""

    title: str
    pictures: list[Picture]
    rows: list[Row]


def write(paths: list[Path], out: Path) -> None:
    """Make a page of sweeps' files; ValueError if there is nothing in them, or the packages for it are missing."""
    others, rows = collect(paths)
    rows = [row for row in rows if row.valid.size]
    if not rows:
        raise ValueError("nothing is measured in these files")
    try:
        text = page([record for record in others if record["record"] == "environment"], rows)
    except ModuleNotFoundError as error:
        raise ValueError(f"report needs {error.name}: pip install allreduce[report]") from None
    out.write_text(text)


def page(environments: list[dict[str, Any]], rows: list[Row]) -> str:
    """The HTML."""
    import jinja2

    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.nbytes, row.time.median)):
        settings.setdefault(tuple(getattr(row, name) for name in SETTING), []).append(row)
    keys = sorted(settings, key=str)
    shared = {name for i, name in enumerate(SETTING) if len({key[i] for key in keys}) == 1}
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("report.html").render(
        title=", ".join(dict.fromkeys(row.mpi for row in rows)),
        rows=rows,
        repetitions=sum(row.valid.size for row in rows),
        launches=max(len(environments), 1),
        replicated=any(len(row.samples) > 1 for row in rows),
        wrong=sum(row.wrong for row in rows),
        marks=sorted({mark for row in rows for mark in row.marks} & MEANING.keys()),
        meaning=MEANING,
        unfinished=sum(not row.complete for row in rows),
        maps=list(maps(rows)),
        sections=[
            Section(title(settings[k][0], shared), list(pictures(settings[k], str(k))), settings[k]) for k in keys
        ],
        machines=distinct(environments),
    )


def section(rows: list[Row], shared: set[str], salt: str) -> Section:
    """Of rows in one setting."""
    return Section(title(rows[0], shared), list(pictures(rows, salt)), rows)


def title(row: Row, shared: set[str]) -> str:
    """What tells a section from the others, and what it needs anyway."""
    words = {
        "mpi": row.mpi, "ranks": f"{row.ranks} ranks", "nodes": f"{row.nodes} node{'s' * (row.nodes > 1)}",
        "dtype": row.dtype, "op": row.op, "accumulate": f"summed in {row.accumulate}" if row.accumulate else "",
        "place": "in place" if row.place == "in" else "out of place", "buffers": f"{row.buffers} buffers",
        "cache": f"{row.cache} caches", "start": f"started by {row.start}", "across": f"{row.across} over ranks",
    }  # fmt: skip
    always = {"ranks", "dtype", "op"}
    return ", ".join(word for name, word in words.items() if word and (name in always or name not in shared))


def maps(rows: list[Row]) -> Iterator[Picture]:
    """Of all numbers of ranks together."""
    from .figures import draw
    from .maps import winners

    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in (row for row in rows if not row.codec):
        groups.setdefault((row.mpi, row.dtype, row.op, row.place, row.cache), []).append(row)
    for (mpi, dtype, op, place, cache), same in sorted(groups.items()):
        height = 1.3 + 0.75 * len({row.ranks for row in same})
        words = "The number is its time over that of MPI's own; grey where MPI's own is the fastest."
        where = f"{mpi}, {dtype} {op}, {'in' if place == 'in' else 'out of'} place, {cache} caches"
        svg = draw(f"winners {where}", winners, same, size=(max(7.4, 0.75 * len({r.nbytes for r in same})), height))
        yield Picture(f"Fastest by size and number of ranks: {where}", words, svg)


def pictures(rows: list[Row], salt: str) -> Iterator[Picture]:
    """Of one setting."""
    from . import figures
    from .figures import draw
    from .maps import stragglers, tradeoff

    exact = [row for row in rows if not row.codec]
    looks = figures.emphasized(exact)
    yield Picture("Time", "Bands: confidence intervals.", draw(f"time {salt}", figures.time, exact, looks))
    if rows[0].ranks > 1:
        yield Picture("Bus bandwidth", "More is better.", draw(f"bus {salt}", figures.bandwidth, exact, looks))
    if any(row.algorithm == "native" for row in exact):
        words = "Above the dashed line ours is faster; compared round by round."
        yield Picture("Speed-up", words, draw(f"speed {salt}", figures.speedup, exact, looks))
    if modelled := [row for row in exact if row.predicted]:
        svg = draw(f"model {salt}", figures.predicted, modelled, looks)
        yield Picture("Predicted against measured", accuracy(modelled), svg)
    if rows[0].ranks > 1:
        words = "Of all sizes. A rank that is far above the dashed line holds up the others."
        yield Picture("Stragglers", words, draw(f"last {salt}", stragglers, exact, looks))
    coded = sorted({row.nbytes for row in rows if row.codec})
    for nbytes in coded[-1:]:
        words = "Lower left is better: less error, less time. The area of a mark is the bytes that travel."
        same = [row for row in rows if row.nbytes == nbytes]
        svg = draw(f"codecs {salt}", tradeoff, same, size=(7.4, 4.6))
        yield Picture(f"What codecs cost and save, {figures.length(nbytes)}", words, svg)


def accuracy(rows: list[Row]) -> str:
    """How good predictions are, in words."""
    far = np.array([abs((row.predicted or 0) / row.time.median - 1) for row in rows if row.nbytes >= LONG])
    if not far.size:
        return "The grey band is within 25 %."
    return f"Within 25 % (the grey band) are {np.mean(far <= CLOSE):.0%} of the {far.size} cells from 64 KiB up."

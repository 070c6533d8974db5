"""One page of pictures and numbers, that needs nothing but itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .guidelines import violations
from .journal import collect
from .launches import distinct, environments
from .records import IDENTITY, Row

if TYPE_CHECKING:
    from .pictures import Picture  # matplotlib is not everywhere

__all__ = ["page", "write"]

#: What all rows in a section of the page have in common.
SETTING = tuple(name for name in IDENTITY if name not in ("nbytes", "count", "algorithm", "codec"))
MEANING = {
    "oversubscribed": "there were more ranks than cores. Results are right, times mean little.",
    "one-device": "ranks share a device. Results are right, times mean little.",
    "unpinned": "ranks could move between each other's cores. Times vary more than they must.",
}


class Section(NamedTuple):
    """What was measured in one setting."""

    title: str
    pictures: "list[Picture]"
    rows: list[Row]


def write(files: list[Path], out: Path, pictures: Path | None = None) -> None:
    """Make a page of sweeps' files, and of its pictures files in a folder, if that is given.

    ValueError if nothing is measured in the files, or the packages for it are missing.
    """
    others, rows = collect(files)
    rows, stages = [row for row in rows if row.valid.size], [each for each in others if each["record"] == "codec"]
    if not rows and not stages:
        raise ValueError("nothing is measured in these files")
    try:
        heads, parts = drawn(rows, stages)
        text = page(environments(others), rows, heads, parts)
    except ModuleNotFoundError as error:
        raise ValueError(f"report needs {error.name}: pip install allreduce[report]") from None
    out.write_text(text)
    if pictures:
        pictures.mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate([*heads, *(each for part in parts for each in part.pictures)], 1):
            picture.drawing.save(pictures / f"{number:02}.svg")


def drawn(rows: list[Row], stages: list[dict[str, Any]]) -> "tuple[list[Picture], list[Section]]":
    """The pictures of all, and those of each setting."""
    from .looks import emphasized
    from .pictures import maps, pictures
    from .stages import pictures_of

    looks = emphasized(rows)
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.nbytes, row.time.median)):
        settings.setdefault(tuple(getattr(row, name) for name in SETTING), []).append(row)
    shared = {name for i, name in enumerate(SETTING) if len({key[i] for key in settings}) == 1}
    return [*maps(rows, looks), *pictures_of(stages)], [
        Section(title(same[0], shared), list(pictures(same, looks, str(k))), same)
        for k, same in sorted(settings.items(), key=lambda item: (*item[0][:2], str(item)))  # by MPI, then by ranks
    ]


def page(launches: list[dict[str, Any]], rows: list[Row], heads: "list[Picture]", sections: list[Section]) -> str:
    """The HTML."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("report.html").render(
        title=", ".join(dict.fromkeys(facts["mpi"] for facts in [*launches, *map(vars, rows)])),
        rows=rows,
        repetitions=sum(row.valid.size for row in rows),
        launches=max(len(launches), 1),
        replicated=any(len(row.samples) > 1 for row in rows),
        wrong=sum(row.wrong for row in rows),
        marks=sorted({mark for row in rows for mark in row.marks} & MEANING.keys()),
        meaning=MEANING,
        unfinished=sum(not row.complete for row in rows),
        broken=violations(rows),
        maps=heads,
        sections=sections,
        machines=distinct(launches),
        said=said,
    )


def said(name: str, value: Any) -> str:
    """A fact about a machine, in words; several on a line each.

    >>> said("pinned", False), said("caches", {"L1": 49152}), said("hosts", {"a": 2, "b": 2})
    ('no', 'L1: 48 KiB', 'a: 2\\nb: 2')
    """
    from .looks import length

    if isinstance(value, dict):
        return "\n".join(f"{k}: {length(v) if name == 'caches' else said(k, v)}" for k, v in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def title(row: Row, shared: set[str]) -> str:
    """What tells a section from the others, and what it needs anyway."""
    words = {
        "mpi": row.mpi, "ranks": several(row.ranks, "rank"), "nodes": several(row.nodes, "node"),
        "dtype": row.dtype, "op": row.op, "accumulate": f"summed in {row.accumulate}" if row.accumulate else "",
        "place": "in place" if row.place == "in" else "out of place", "buffers": f"{row.buffers} buffers",
        "cache": f"{row.cache} caches", "start": f"started by {row.start}", "across": f"{row.across} over ranks",
        "call": row.call,
    }  # fmt: skip
    always = {"ranks", "dtype", "op"}
    return ", ".join(word for name, word in words.items() if word and (name in always or name not in shared))


def several(number: int, word: str) -> str:
    """1 rank, 2 ranks."""
    return f"{number} {word}{'s' * (number > 1)}"

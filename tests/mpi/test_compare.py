"""Two sweeps, really run: of two algorithms the one is found that takes a fifth longer than before."""

import time
from pathlib import Path

import pytest
from mpi4py import MPI

import allreduce
from bench.__main__ import main
from bench.model import Prices

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
#: A call takes so long asleep, as if by a slow link, which other load of the machine lengthens less than computing.
SECONDS, SLOWER = 0.02, 1.2
#: Of both in turn. The more the machine does beside, the more it takes to know.
LAUNCHES = range(6, 41)
OPTIONS = ["--sizes", "64", "--seconds", "0.001", "--batch", "1", "--algorithms", "ring", "direct", "one_shot"]


@pytest.fixture
def slowed(monkeypatch):
    """Factors by which calls of ours take longer than they do, by algorithm."""
    right, factors = allreduce.allreduce, {}

    def slow(*arrays, **wishes):
        begin = time.perf_counter()
        time.sleep(SECONDS)
        right(*arrays, **wishes)
        more = factors.get(wishes["algorithm"], 1) - 1
        time.sleep(more * (time.perf_counter() - begin))

    monkeypatch.setattr(allreduce, "allreduce", slow)
    monkeypatch.setattr("bench.team.prices_of", lambda *_: Prices())
    monkeypatch.setattr("bench.rounds.FEWEST", 5)
    return factors


def slower(folder, launches, capfd):
    """What is said to be slower after so many launches, on all ranks."""
    found = []
    if COMM.rank == 0:
        for name in ("old", "new"):
            files = [str(folder / f"{name}-{launch}.jsonl") for launch in range(launches)]
            assert main(["merge", *files, "--out", str(folder / f"{name}-of-{launches}")]) == 0
        files = [str(folder / f"{name}-of-{launches}") for name in ("old", "new")]
        capfd.readouterr()
        code = main(["compare", *files, "--against", "one_shot"])
        found = [line.split()[4] for line in capfd.readouterr().out.splitlines() if line.endswith("slower")]
        assert code == bool(found)
    return COMM.bcast(found)


def test_a_planted_fifth_is_found_and_nothing_else(tmp_path, slowed, capfd):
    folder, found = Path(COMM.bcast(str(tmp_path))), []
    for launch in range(LAUNCHES.stop):
        for name, factor in (("old", 1), ("new", SLOWER)):
            slowed["ring"] = factor
            ranks = str(min(COMM.size, 2))
            assert main(["sweep", *OPTIONS, "--ranks", ranks, "--json", str(folder / f"{name}-{launch}.jsonl")]) == 0
        if launch + 1 in LAUNCHES and "ring" in (found := slower(folder, launch + 1, capfd)):
            break
    assert found == ["ring"]

"""Two sweeps of several launches, really run: what became slower by a fifth is found, and what did not is not."""

import time
from pathlib import Path

import pytest
from mpi4py import MPI

import allreduce
from bench.__main__ import main
from bench.model import Prices

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
RANKS = min(COMM.size, 2)
LAUNCHES = 15
SLOWER = 1.2
#: What else the machine does may hide a fifth, or look like one, but hardly so often.
ATTEMPTS = 3
OPTIONS = ["--sizes", "1M", "--seconds", "0.01", "--algorithms", "ring", "direct", "--ranks", str(RANKS)]


def test_a_planted_slow_down_is_found_and_nothing_else(tmp_path, monkeypatch, capfd):
    right, slowed = allreduce.allreduce, {}

    def slow(*arrays, **wishes):
        begin = time.perf_counter()
        right(*arrays, **wishes)
        end = begin + (time.perf_counter() - begin) * slowed.get(wishes["algorithm"], 1)
        while time.perf_counter() < end:
            pass

    def verdict(folder):
        """The exit code and what is said to be slower, on all ranks."""
        for launch in range(LAUNCHES):  # of both in turn: what else the machine does comes over both alike
            for name, factor in (("old", 1), ("new", SLOWER)):
                slowed["ring"] = factor
                assert main(["sweep", *OPTIONS, "--json", str(folder / f"{name}-{launch}")]) == 0
        found = None
        if COMM.rank == 0:
            for name in ("old", "new"):
                files = [str(folder / f"{name}-{launch}") for launch in range(LAUNCHES)]
                assert main(["merge", *files, "--out", str(folder / name)]) == 0
            capfd.readouterr()
            code = main(["compare", str(folder / "old"), str(folder / "new")])
            found = code, [line.split()[4] for line in capfd.readouterr().out.splitlines() if line.endswith("slower")]
        return COMM.bcast(found)

    monkeypatch.setattr(allreduce, "allreduce", slow)
    monkeypatch.setattr("bench.team.prices_of", lambda *_: Prices())
    found = []
    while (1, ["ring"]) not in found and len(found) < ATTEMPTS:
        folder = Path(COMM.bcast(str(tmp_path / str(len(found)))))
        if COMM.rank == 0:
            folder.mkdir()
        COMM.Barrier()
        found.append(verdict(folder))
    assert (1, ["ring"]) in found, found

"""Two sweeps of several launches, really run: what became slower is found, and what did not is not."""

import time
from pathlib import Path

import pytest
from mpi4py import MPI

import allreduce
from bench.__main__ import main
from bench.model import Prices

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
LAUNCHES = 7
#: A call of both takes so long asleep, as if by a slow link, and later one of them three times as long: what other load
#: of the machine adds may be as much as a call. That a fifth is found tells tests/test_driver.py.
SECONDS, SLOWER = 0.02, 3


def test_a_planted_slow_down_is_found_and_nothing_else(tmp_path, monkeypatch, capfd):
    right, slowed = allreduce.allreduce, {}

    def slow(*arrays, **wishes):
        time.sleep(SECONDS * slowed.get(wishes["algorithm"], 1))
        right(*arrays, **wishes)

    monkeypatch.setattr(allreduce, "allreduce", slow)
    monkeypatch.setattr("bench.team.prices_of", lambda *_: Prices())
    monkeypatch.setattr("bench.rounds.FEWEST", 5)
    folder = Path(COMM.bcast(str(tmp_path)))
    options = ["--sizes", "64", "--seconds", "0.001", "--batch", "1", "--algorithms", "ring", "direct"]
    for launch in range(LAUNCHES):  # of both in turn: what else the machine does comes over both alike
        for name, factor in (("old", 1), ("new", SLOWER)):
            slowed["ring"] = factor
            assert main(["sweep", *options, "--json", str(folder / f"{name}-{launch}.jsonl")]) == 0
    if COMM.rank == 0:
        for name in ("old", "new"):
            files = [str(folder / f"{name}-{launch}.jsonl") for launch in range(LAUNCHES)]
            assert main(["merge", *files, "--out", str(folder / name)]) == 0
        capfd.readouterr()
        assert main(["compare", str(folder / "old"), str(folder / "new")]) == 1
        slower = [line.split()[4] for line in capfd.readouterr().out.splitlines() if line.endswith("slower")]
        assert slower == ["ring"]
        assert main(["compare", str(folder / "old"), str(folder / "old")]) == 0

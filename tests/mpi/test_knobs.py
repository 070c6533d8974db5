"""MPI's own algorithms: the library takes the one that it is told, and each is a row."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from bench.__main__ import main
from bench.bare import Bare, repeated
from bench.journal import load
from bench.knobs import Knob, algorithms, native
from bench.model import Prices

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
INTEL = MPI.Get_library_version().startswith("Intel")
SHORT = ["--min", "64", "--max", "4K", "--factor", "64", "--seconds", "0.001"]


def bits(comm):
    """Of a sum whose roundings tell in what order it was made."""
    values = np.random.default_rng(COMM.rank).standard_normal(1000)
    total = np.empty_like(values)
    comm.Allreduce(values, total)
    return total.tobytes()


def test_mpi_takes_the_algorithm_that_it_is_told():
    knob, before = Knob(COMM), bits(COMM)
    found = set()
    for name in algorithms():
        comm = knob.comm(name)
        knob.turn(name)
        found.add(bits(comm))
    knob.turn("native")
    assert bits(COMM) == before
    assert len(found) > 1 or COMM.size < 4 or not algorithms()
    assert bool(algorithms()) == (not INTEL)


def test_algorithms_of_mpi_are_rows(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("bench.team.prices_of", lambda *_: Prices())  # spares the time to fit them
    path = COMM.bcast(str(tmp_path / "rows.jsonl"))
    options = ["--algorithms", "natives", "ring", "--place", "out", "in", "--call", "blocking", "nonblocking"]
    assert main(["sweep", *SHORT, *options, "--json", path]) == 0
    assert main(["sweep", *SHORT, "--algorithms", "native:rign"]) == 2
    COMM.Barrier()
    if COMM.rank == 0:
        _, rows = load([Path(path)])
        found = {(row.algorithm, row.call) for row in rows}
        calls = ("blocking", "nonblocking")
        assert found == {*product(("ring", "native"), calls), *product(algorithms(), calls[:1])}
        assert all(row.wrong == 0 and row.predicted is None for row in rows if row.algorithm != "ring")
        assert "no algorithm 'native:rign' in this MPI; have " in capfd.readouterr().err


def test_mpi_s_own_in_a_compiled_loop_is_right(tmp_path, capfd, monkeypatch):
    """Of all that are asked for, a batch in one loop; calls that it has not are said to be left out."""
    monkeypatch.setattr("bench.team.prices_of", lambda *_: Prices())
    loops = []
    monkeypatch.setattr("bench.bare.repeated", lambda *facts: loops.append(facts[-1]) or repeated(*facts))
    path = COMM.bcast(str(tmp_path / "rows.jsonl"))
    kinds = ["--op", "sum", "max", "--dtype", "float64", "int32", "bfloat16", "--place", "out", "in"]
    calls = ["--call", "blocking", "nonblocking", "persistent"]
    assert main(["sweep", *SHORT, "--algorithms", "native:bare", *kinds, *calls, "--json", path]) == 0
    assert main(["sweep", *SHORT, "--algorithms", "native:bare", "ring", "--call", "nonblocking"]) == 0
    COMM.Barrier()
    if COMM.rank == 0:
        rows = [row for row in load([Path(path)])[1] if row.algorithm == "native:bare"]
        found = {(row.op, row.dtype, row.place, row.call) for row in rows}
        assert found == {*product(("sum", "max"), ("float64", "int32"), ("out",), ("blocking",))}
        assert all(row.wrong == 0 and row.valid.size >= 11 for row in rows)
        assert {row.batch for row in rows} <= {*loops}
        assert capfd.readouterr().out.count("# no native:bare: not with such") == 1


def test_the_compiled_loop_calls_so_often_and_says_what_fails(monkeypatch):
    send, recv = np.arange(5.0), np.zeros(5)
    bare, places = Bare(COMM, "sum", send.dtype, 5), (send.ctypes.data, recv.ctypes.data)
    bare(*places, 3)
    assert np.array_equal(recv, COMM.size * send)
    calls = []
    monkeypatch.setattr("bench.bare.repeated", lambda *facts: calls.append(facts[-1]) or 5)
    with pytest.raises(RuntimeError, match="MPI_Allreduce returned 5"):
        bare(*places, 7)
    assert calls == [7]
    monkeypatch.setattr("bench.bare.library", lambda: None)
    with pytest.raises(ValueError, match="native:bare"):
        Bare(COMM, "sum", send.dtype, 5)


def test_intel_s_library_names_what_it_was_told_at_its_start(monkeypatch):
    monkeypatch.setenv("I_MPI_ADJUST_ALLREDUCE", "2")
    assert native.__wrapped__() == ("native:2" if INTEL else "native")

"""The sweep, really run: right rows, a file, and an exit code that tells of wrong results."""

import json
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import allreduce
from bench.__main__ import main

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
SHORT = ["--min", "64", "--max", "4K", "--factor", "64", "--seconds", "0.001"]


@pytest.fixture
def path(tmp_path):
    """One file name for all ranks."""
    return COMM.bcast(str(tmp_path / "rows.jsonl"))


def test_a_sweep_is_right_and_written_down(path, capfd):
    assert main(["sweep", *SHORT, "--algorithms", "ring", "auto", "copy", "--json", path]) == 0
    printed = capfd.readouterr().out
    COMM.Barrier()
    if COMM.rank == 0:
        records = [json.loads(line) for line in Path(path).read_text().splitlines()]
        rows = [r for r in records if r["record"] == "row"]
        assert {(r["nbytes"], r["algorithm"]) for r in rows} == {
            (n, a) for n in (64, 4096) for a in ("ring", "auto", "copy", "native")
        }
        assert all(r["wrong"] == 0 and len(r["samples"]) >= 11 and r["ranks"] == COMM.size for r in rows)
        assert "all correct" in printed and "ring" in printed
    else:
        assert printed == ""


def test_gloo_is_there_or_asked_for(capfd):
    """It is PyTorch's, which need not be installed."""
    there = find_spec("torch") is not None
    assert main(["sweep", *SHORT, "--algorithms", "node", "gloo"]) == (0 if there else 2)
    if COMM.rank == 0 and not there:
        assert "pip install torch" in capfd.readouterr().err


@pytest.mark.parametrize("more", [["--dtype", "bfloat16", "--accumulate", "float32"], ["--op", "avg", "--rewrite"]])
def test_other_types_and_operations(more):
    assert main(["sweep", *SHORT, "--algorithms", "ring", *more]) == 0


def test_codecs_are_measured_beside_what_is_exact(path, capfd):
    codecs = ["int8", "sign", "topk:ratio=0.1", "lossless"]
    names = ["ring", "recursive_doubling", "auto", "copy"]
    assert main(["sweep", *SHORT, "--algorithms", *names, "--codec", *codecs, "--json", path]) == 0
    COMM.Barrier()
    if COMM.rank == 0:
        rows = [r for line in Path(path).read_text().splitlines() if (r := json.loads(line))["record"] == "row"]
        found = {(r["algorithm"], r["codec"]) for r in rows}
        assert found == {*product(names[:3], [None, *codecs]), ("copy", None), ("native", None)}
        best = capfd.readouterr().out.partition("best of ours")[2]
        assert not any(codec in best for codec in codecs)


def test_real_values(tmp_path):
    file = COMM.bcast(str(tmp_path / "values.npy"))
    if COMM.rank == 0:
        np.save(file, np.random.default_rng(0).standard_normal(300).astype("f4"))
    COMM.Barrier()
    assert main(["sweep", *SHORT, "--algorithms", "recursive_doubling", "--data", file, "--codec", "int4"]) == 0


def test_a_wrong_result_on_one_rank_is_counted(monkeypatch):
    right = allreduce.allreduce

    def wrong(send, recv, **wishes):
        right(send, recv, **wishes)
        if COMM.rank == COMM.size - 1 and recv.size > 100:
            recv[7] += 1

    monkeypatch.setattr(allreduce, "allreduce", wrong)
    assert main(["sweep", *SHORT, "--algorithms", "ring"]) == 1


def test_unusable_arguments(tmp_path, capfd):
    assert main(["sweep", *SHORT, "--algorithms", "rign"]) == 2
    assert main(["sweep", *SHORT, "--dtype", "float33"]) == 2
    assert main(["sweep", *SHORT, "--op", "min", "--dtype", "complex64"]) == 2
    for codec, more in (("in8", ()), ("int8", ("--dtype", "int32")), ("int8", ("--op", "max")), ("thc", ())):
        assert main(["sweep", *SHORT, "--codec", codec, *more]) == 2


WIRE = ["codecs", "int8", "feedback(topk:ratio=0.1)", "--wire", "--bytes", "64K"]


@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_what_codecs_gain(algorithm, capfd):
    assert main([*WIRE, "--algorithm", algorithm]) == 0
    printed = capfd.readouterr().out
    if COMM.rank == 0:
        rows = [line.split() for line in printed.splitlines() if line[:1] != "#"]
        assert rows[0][:2] == ["codec", "by"] and [row[0] for row in rows[1:]] == WIRE[1:3]
        assert all(row[-1] == "0" for row in rows[1:])
        if algorithm == "ring" and COMM.size > 1:
            assert rows[1][1] == "ring" and float(rows[1][5]) == pytest.approx(4 * 256 / 264, rel=0.02)
    else:
        assert printed == ""


def test_a_codec_that_is_wrong_is_found(monkeypatch, capfd):
    def wrong(send, recv, comm, **wishes):
        allreduce.allreduce(send, recv, comm=comm, **wishes)
        recv[7] += 1000 * (comm.rank == 0)

    monkeypatch.setattr("bench.codec_wire.allreduce", wrong)
    assert main(WIRE) == 1

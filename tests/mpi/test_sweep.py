"""The sweep, really run: right rows, a file, and an exit code that tells of wrong results."""

import json
import signal
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import allreduce
from bench.__main__ import main
from bench.clock import Clock
from bench.journal import load, records
from bench.model import Prices
from bench.records import key
from bench.requests import can_persist
from bench.rounds import Rounds

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
SHORT = ["--min", "64", "--max", "4K", "--factor", "64", "--seconds", "0.001"]


@pytest.fixture
def path(tmp_path):
    """One file name for all ranks."""
    return COMM.bcast(str(tmp_path / "rows.jsonl"))


def test_a_sweep_is_right_and_written_down(path, capfd):
    assert main(["sweep", *SHORT, "--algorithms", "ring", "auto", "copy", "guidelines", "--json", path]) == 0
    printed = capfd.readouterr().out
    COMM.Barrier()
    if COMM.rank == 0:
        found = [json.loads(line) for line in Path(path).read_text().splitlines()]
        rows = [r for r in found if r["record"] == "row"]
        assert {(r["nbytes"], r["algorithm"]) for r in rows} == {
            (n, a)
            for n in (64, 4096)
            for a in ("ring", "auto", "copy", "native", "reduce+bcast", "reduce_scatter+allgather")
        }
        assert all(r["wrong"] == 0 and len(r["samples"][0]) >= 11 and r["ranks"] == COMM.size for r in rows)
        assert [r["nbytes"] for r in found if r["record"] == "prices"] in ([64, 4096], [4096, 64])
        assert all((r["predicted"] or 0) > 0 for r in rows if r["algorithm"] == "ring" and COMM.size > 1)
        assert all(r["complete"] and 0 <= min(r["slowest"][0]) <= max(r["slowest"][0]) < COMM.size for r in rows)
        assert "all correct" in printed and "ring" in printed
    else:
        assert printed == ""


def test_gloo_is_there_or_asked_for(capfd, path):
    """It is PyTorch's, which need not be installed."""
    there = find_spec("torch") is not None
    assert main(["sweep", *SHORT, "--algorithms", "node", "gloo"]) == (0 if there else 2)
    assert main(["sweep", *SHORT, "--algorithms", "gloo", "--op", "avg"]) == 2
    assert main(["sweep", *SHORT, "--algorithms", "gloo", "--dtype", "bfloat16"]) == 2
    assert main(["sweep", *SHORT, "--algorithms", "ring", "torch", "--json", path]) == 0
    COMM.Barrier()
    if COMM.rank == 0:
        assert {row.algorithm for row in load([Path(path)])[1]} == {"ring", "native"} | ({"gloo"} if there else set())
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


@pytest.fixture
def no_model(monkeypatch):
    """Spares the time to fit it."""
    monkeypatch.setattr("bench.team.prices_of", lambda *_: Prices())


@pytest.mark.usefixtures("no_model")
def test_a_rank_counted_twice_and_another_left_out_is_counted(monkeypatch, path, capfd):
    """All ranks have the same bits, and the total of a checksum over ranks may be right: the elements are not."""
    right = allreduce.allreduce

    def wrong(send, recv, **wishes):
        lost, twice = send.copy(), send.copy()
        COMM.Bcast(lost, 0)
        COMM.Bcast(twice, COMM.size - 1)
        right(send, recv, **wishes)
        recv += twice - lost if COMM.size > 1 else twice

    monkeypatch.setattr(allreduce, "allreduce", wrong)
    assert main(["sweep", *SHORT, "--algorithms", "ring", "--json", path]) == 1
    COMM.Barrier()
    if COMM.rank == 0:
        _, rows = load([Path(path)])
        assert all((row.wrong > row.count) == (row.algorithm == "ring") for row in rows)
        assert "WRONG ELEMENTS" in capfd.readouterr().out


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("start", ["barrier", "window"])
def test_in_place_from_cold_caches(path, start, monkeypatch):
    monkeypatch.setattr("bench.environment.caches", lambda: {"L1": 1 << 15})
    monkeypatch.setattr("bench.rounds.PATIENT", 1)  # with more ranks than cores all starts are late
    options = ["--sizes", "64", "--seconds", "0.001", "--place", "out", "in", "--cold", "--start", start]
    assert main(["sweep", *options, "--algorithms", "ring", "copy", "--json", path]) == 0
    COMM.Barrier()
    if COMM.rank == 0:
        _, rows = load([Path(path)])
        assert {(row.algorithm, row.place) for row in rows} == {
            ("copy", "out"), *product(("ring", "native"), ("out", "in"))
        }  # fmt: skip
        assert {(row.start, row.cache, row.wrong) for row in rows} == {(start, "cold", 0)}


@pytest.mark.usefixtures("no_model")
def test_what_is_measured_is_not_measured_again(path, capfd):
    options = ["--algorithms", "ring", "--dtype", "float32", "int32", "--json", path]
    assert main(["sweep", *SHORT, *options]) == 0
    assert main(["sweep", *SHORT, *options]) == 2  # on all ranks: nobody waits
    assert "--resume" in capfd.readouterr().err or COMM.rank
    COMM.Barrier()
    if COMM.rank == 0:
        before = load([Path(path)])[1]
        lines = Path(path).read_text().splitlines(keepends=True)
        kept = [line for line in lines if '"nbytes": 4096, "count": 1024, "algorithm": "native"' not in line]
        assert len(kept) < len(lines)
        Path(path).write_text("".join(kept))
    assert main(["sweep", *SHORT, *options, "--resume", "--style", "csv"]) == 0
    if COMM.rank == 0:
        after = load([Path(path)])[1]
        same = {key(row): row.samples for row in before if row.nbytes == 64}
        assert {key(row) for row in after} == {key(row) for row in before}
        assert {key(row): row.samples for row in after if row.nbytes == 64} == same
        assert capfd.readouterr().out.count("ring") == 4


@pytest.mark.usefixtures("no_model")
def test_an_interrupted_sweep_keeps_what_it_has(path, monkeypatch):
    right, calls = allreduce.allreduce, []

    def interrupted(*arrays, **wishes):
        calls.append(1)
        if len(calls) > 200 and COMM.rank == COMM.size - 1:
            signal.raise_signal(signal.SIGINT)
            calls.clear()
        right(*arrays, **wishes)

    monkeypatch.setattr(allreduce, "allreduce", interrupted)
    options = ["--sizes", "4K", "8K", "16K", "--seconds", "9", "--precision", "0"]
    assert main(["sweep", *options, "--algorithms", "ring", "--json", path]) == 130
    COMM.Barrier()
    if COMM.rank == 0:
        _, rows = load([Path(path)])
        assert {row.nbytes for row in rows} != {4096, 8192, 16384}
        assert any(not row.complete and row.valid.size > 11 and row.wrong == 0 for row in rows)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("style", ["osu", "nccl-tests"])
def test_columns_of_other_tools(style, capfd):
    assert main(["sweep", *SHORT, "--algorithms", "ring", "--style", style]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines() if line[0] != "#"]
    width = {"osu": 2, "nccl-tests": 13}[style]
    if COMM.rank == 0:
        assert [(row[0], len(row)) for row in rows] == [("64", width), ("4096", width)] * 2


@pytest.mark.usefixtures("no_model")
def test_calls_that_return_early(path):
    kinds = ["nonblocking", "overlapped", "persistent"]
    options = ["--algorithms", "ring", "auto", "node", "--seconds", "0.001", "--place", "out", "in", "--call", *kinds]
    assert main(["sweep", "--sizes", "64", *options, "--json", path]) == 0
    native = {"nonblocking", "overlapped", *(["persistent"] if can_persist(COMM) else [])}
    COMM.Barrier()
    if COMM.rank == 0:
        _, rows = load([Path(path)])
        found = {(row.algorithm, row.call, row.place) for row in rows}
        assert found == {*product(("ring", "auto"), kinds, ("out", "in")), *product(["native"], native, ("out", "in"))}
        for row in rows:
            assert row.wrong == 0 and (row.overlap is not None) == (row.call == "overlapped")
            assert (row.work > 0) == (row.call == "overlapped") and min(row.valid) >= row.work
            assert row.overlap is None or 0 <= row.overlap <= 1


@pytest.mark.usefixtures("no_model")
def test_fewer_ranks_measure_while_the_others_wait(path):
    """And every algorithm where it can do with that number."""
    ranks = sorted({1, (COMM.size + 1) // 2, COMM.size})
    grid = f"torus:grid=1x{COMM.size}"
    options = ["--sizes", "4K", "--seconds", "0.001", "--ranks", *map(str, ranks), "--buffers", "shared"]
    assert main(["sweep", *options, "--algorithms", "ring", "node", grid, "--json", path]) == 0
    assert main(["sweep", *options, "--algorithms", f"torus:grid=1x{COMM.size + 1}"]) == 2
    assert main(["sweep", *options, "--ranks", str(COMM.size + 1)]) == 2
    COMM.Barrier()
    if COMM.rank == 0:
        _, rows = load([Path(path)])
        assert {(row.ranks, row.algorithm) for row in rows} == {
            *product(ranks, ("ring", "node", "native")), (COMM.size, grid)
        }  # fmt: skip
        assert all(max(row.slowest[0]) < row.ranks and row.wrong == 0 for row in rows)


def test_ranks_agree_on_the_time():
    clock = Clock(COMM)
    for _ in range(3):
        clock.sync()
    before = np.array([clock.now()])
    COMM.Bcast(before)
    after = clock.now()
    assert before[0] - 1e-4 - clock.error <= after < before[0] + 30
    assert clock.local(after) == pytest.approx(after - clock.offset, abs=1e-6)


@pytest.mark.usefixtures("no_model")
def test_batches_are_as_long_as_asked_for(path, monkeypatch):
    """And in place no longer than there is room for, each call having a buffer of its own."""
    monkeypatch.setattr("bench.cells.ROOM", 64 << 10)
    for place, most in (("out", {4: 5, 16384: 5, 65536: 1}), ("in", {4: 5, 16384: 4, 65536: 1})):
        options = ["--sizes", *map(str, most), "--seconds", "0.001", "--place", place, "--batch", "5"]
        file = f"{path}.{place}"
        with monkeypatch.context() as patch:
            patch.setattr("bench.timing.BATCH_SECONDS", 60)  # however slow this machine is
            assert main(["sweep", *options, "--batched", "16K", "--algorithms", "ring", "--json", file]) == 0
        COMM.Barrier()
        if COMM.rank == 0:
            rows = load([Path(file)])[1]
            assert {(row.nbytes, row.batch, row.wrong) for row in rows} == {(n, calls, 0) for n, calls in most.items()}


@pytest.mark.usefixtures("no_model")
def test_what_warms_up_counts_for_nothing(path, monkeypatch):
    """Its rounds are as many as asked for, of short vectors: whatever was slow in them is in no row."""
    rounds = []

    class Slow(Rounds):
        def go_on(self, seconds, wrong):
            rounds.append(self)
            return super().go_on(seconds + 1000 * (rounds.count(self) <= 3), wrong)

    monkeypatch.setattr("bench.team.Rounds", Slow)
    monkeypatch.setattr("bench.cells.WARM", 1 << 16)
    sizes, options = ["--sizes", "64", "32K"], ["--seconds", "9000", "--precision", "100%", "--algorithms", "ring"]
    assert main(["sweep", *sizes, *options, "--warm-up", "3", "--json", path]) == 0
    COMM.Barrier()
    if COMM.rank == 0:
        slow = {(row.nbytes, int((row.valid > 900).sum()), row.valid.size) for row in load([Path(path)])[1]}
        assert {facts[:2] for facts in slow} == {(64, 0), (32768, 1)} and all(facts[2] >= 11 for facts in slow)


def test_unusable_arguments(tmp_path, capfd):
    assert main(["sweep", *SHORT, "--algorithms", "native", "--dtype", "bfloat16"]) == 2
    assert main(["sweep", *SHORT, "--algorithms", "native", "--dtype", "bool", "--op", "max"]) == 2
    assert COMM.rank or capfd.readouterr().err.count("nothing that is asked for can be measured") == 2
    assert main(["sweep", *SHORT, "--algorithms", "rign"]) == 2
    assert main(["sweep", *SHORT, "--dtype", "float33"]) == 2
    assert main(["sweep", *SHORT, "--op", "min", "--dtype", "complex64"]) == 2
    assert main(["sweep", *SHORT, "--json", f"{tmp_path}/no/such/folder"]) == 2
    for codec, more in (("in8", ()), ("int8", ("--dtype", "int32")), ("int8", ("--op", "max")), ("thc", ())):
        assert main(["sweep", *SHORT, "--codec", codec, *more]) == 2


WIRE = ["codecs", "int8", "feedback(topk:ratio=0.1)", "--wire", "--bytes", "64K"]


@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_what_codecs_gain(algorithm, capfd, path):
    assert main([*WIRE, "--algorithm", algorithm, "--json", path]) == 0
    assert main([*WIRE, "--algorithm", algorithm, "--json", path]) == 2  # it is there, on all ranks
    printed = capfd.readouterr().out
    if COMM.rank == 0:
        rows = [line.split() for line in printed.splitlines() if line[:1] != "#"]
        written = [each for each in records(Path(path)) if each["record"] == "codec"]
        assert [each["codec"] for each in written] == WIRE[1:3]
        assert all(each["wrong"] == 0 < each["seconds"] for each in written)
        assert rows[0][:2] == ["codec", "by"] and [row[0] for row in rows[1:]] == WIRE[1:3]
        assert all(row[-1] == "0" for row in rows[1:])
        if algorithm == "ring" and COMM.size > 1:
            assert min(written[0][name] for name in ("encode", "wire", "decode")) > 0
            assert rows[1][1] == "ring" and float(rows[1][5]) == pytest.approx(4 * 256 / 264, rel=0.02)
    else:
        assert printed == ""


def test_a_codec_that_is_wrong_is_found(monkeypatch, capfd):
    def wrong(send, recv, comm, **wishes):
        allreduce.allreduce(send, recv, comm=comm, **wishes)
        recv[7] += 1000 * (comm.rank == 0)

    monkeypatch.setattr("bench.codec_wire.allreduce", wrong)
    assert main(WIRE) == 1

"""What the benchmark driver does with its measurements: statistics, files, comparisons and columns; no launcher."""

import doctest
import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.arguments import arguments
from bench.clock import line
from bench.comparison import changes
from bench.factors import factor, of_two
from bench.guidelines import violations
from bench.journal import Journal, collect, load
from bench.machine import caches, pinned
from bench.records import Row, key
from bench.relations import ratios
from bench.rounds import ACROSS, FEWEST, MOST, Limits
from bench.statistics import half_width, interval, paired, summarize
from bench.styles import STYLES, fitted

ROOT = Path(__file__).parent.parent
FACTS = {"record": "environment", "mpi": "An MPI", "ranks": 4, "processor": "A CPU", "cores": 4, "hosts": {"a": 4}}


def row(nbytes=64, algorithm="ring", seconds=(1e-6, 2e-6, 3e-6), **more):
    known = dict(
        mpi="An MPI", ranks=4, nodes=1, dtype="float32", op="sum", accumulate=None, nbytes=nbytes, count=nbytes // 4,
        algorithm=algorithm, codec=None, place="out", call="blocking", buffers="private", cache="warm",
        start="barrier", across="max", batch=1, marks=[], predicted=None, wire=nbytes, error=None, wrong=0,
        complete=True,        samples=[list(seconds)], slowest=[[0] * len(seconds)],
    )  # fmt: skip
    return Row(**known | more)


def written(path, rows, **facts):
    records = [FACTS | facts, *(r.record() for r in rows)]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


@pytest.mark.parametrize("n", [1, 2, 5, 6, 11, 100, 301])
def test_the_interval_has_the_confidence_that_it_claims_and_none_narrower_has_enough(n):
    left_out, confidence = interval(n)
    exact = [1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n for k in range((n + 1) // 2)]
    assert confidence == pytest.approx(exact[left_out])
    assert confidence >= 0.95 or left_out == 0
    assert left_out + 1 >= len(exact) or exact[left_out + 1] < 0.95


def test_several_launches_are_as_many_samples_as_launches():
    launches = [[float(m)] * 50 for m in (1, 2, 3, 4, 5)]
    assert summarize(launches) == (3, 1, 5, 0.9375)
    assert summarize([[1.0, None, 3.0], [None]]) == (2, 1, 3, 0.5)
    assert np.isnan(summarize([[None]]).median)
    assert paired([[2.0, None, 9.0]], [[1.0, 1.0, 3.0]]) == (2.5, 2, 3, 0.5)


def test_the_half_width_is_that_of_the_interval():
    rng = np.random.default_rng(0)
    samples = rng.lognormal(size=(40, 3))
    samples[rng.random(samples.shape) < 0.2] = np.nan
    samples[:, 2] = np.nan
    widths = half_width(samples)
    for column in range(2):
        found = summarize([[None if np.isnan(x) else x for x in samples[:, column]]])
        assert widths[column] == pytest.approx((found.high - found.low) / 2 / found.median, rel=0.2)
    assert widths[2] == np.inf


def test_when_it_is_enough():
    steady, rng = np.full((FEWEST, 2), 1e-3), np.random.default_rng(0)
    wild = rng.exponential(1e-3, (50, 2))
    assert Limits(1, 0.02).reached(steady, 1)
    assert not Limits(1, 0.02).reached(steady[1:], 1)
    assert not Limits(1, 0.02).reached(wild, 1)
    assert Limits(1, 0.02).reached(wild, 100)  # the time is over
    assert Limits(1e9, 0).reached(rng.exponential(1.0, (MOST, 1)), 1)
    late = np.where(rng.random((2 * FEWEST, 2)) < 0.8, np.nan, 1e-3)
    assert not Limits(1e-9, 0.02).reached(late, 1)
    assert Limits(1e-9, 0.02).reached(np.tile(late, (2, 1)), 1)


def test_which_rank_counts():
    times = np.array([[1.0, 5], [2, 4], [6, 3]])
    assert {name: f(times).tolist() for name, f in ACROSS.items()} == {
        "max": [6, 5], "min": [1, 3], "mean": [3, 4], "rank0": [1, 5]
    }  # fmt: skip


def test_a_drifting_clock_is_followed():
    rng = np.random.default_rng(0)
    when = np.sort(rng.uniform(0, 60, 30)) + 1e5
    points = np.column_stack([when, 3 + 2e-5 * (when - 1e5) + rng.normal(0, 1e-7, 30), np.ones(30)])
    offset, drift, last = line(points)
    for later in (last, last + 10):
        assert offset + drift * (later - last) == pytest.approx(3 + 2e-5 * (later - 1e5), abs=1e-6)
    assert line(points[:1]) == (points[0, 1], 0, points[0, 0])


def test_a_journal_keeps_what_is_finished_and_renews_what_is_not(tmp_path):
    path = tmp_path / "a.jsonl"
    journal = Journal(path, resume=False)
    journal.write([FACTS])
    journal.write([replace(row(64), complete=False).record()], final=False)
    assert [r.complete for r in load([path])[1]] == [False]  # killed now, this is what is left
    journal.write([row(64).record()])
    journal.write([replace(row(4096, seconds=(1, 2)), complete=False).record()], final=False)
    journal.close()
    with path.open("a") as file:
        file.write('{"record": "row", "nby')
    with pytest.raises(FileExistsError):
        Journal(path, resume=False)

    again = Journal(path, resume=True)
    assert {key(r) for r in again.rows if r.complete} == {key(row(64))}
    again.write([row(4096).record()])
    again.close()
    others, rows = load([path])
    assert len(others) == 1 and [(r.nbytes, r.complete, len(r.samples[0])) for r in rows] == [
        (64, True, 3), (4096, True, 3)
    ]  # fmt: skip
    assert rows[0] == row(64)


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    for text in ("12\n", '{"a": 1}\n', "{\n{}\n", '{"record": "row", "nbytes": 3}\n'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"a\.jsonl"):
            load([path])


def test_launches_are_joined(tmp_path, capsys):
    files = []
    for i in (1, 2, 3):
        rows = [row(64, seconds=[i * 1e-6] * 9), row(64, "native", [i * 2e-6] * 9, wrong=1)]
        files.append(written(tmp_path / f"{i}.jsonl", rows, time=i))
    out = tmp_path / "all.jsonl"
    assert main(["merge", *map(str, files), "--out", str(out)]) == 0
    others, rows = collect([out])
    assert len(others) == 3 and [len(r.samples) for r in rows] == [3, 3]
    assert rows[0].time == pytest.approx((2e-6, 1e-6, 3e-6, 0.75)) and rows[0].ratio == pytest.approx(0.5)
    again = collect([out, *files])[1]
    assert [r.samples for r in again] == [r.samples for r in rows]  # a launch in two files counts once
    assert rows[1].wrong == 3 and main(["show", str(out)]) == 1
    assert main(["merge", str(files[0]), "--out", str(out)]) == 2  # it is there
    other = written(tmp_path / "4.jsonl", [row()], processor="Another CPU")
    assert main(["merge", str(files[0]), str(other), "--out", str(tmp_path / "b")]) == 2
    assert "processor: A CPU, Another CPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"UCX_TLS": "tcp"}, "variable UCX_TLS: not set, tcp"),
        ({"OMPI_MCA_pml": "ucx"}, "variable OMPI_MCA_pml: ob1, ucx"),
        ({"FI_PROVIDER": "tcp", "I_MPI_ADJUST_ALLREDUCE": "2"}, "variable I_MPI_ADJUST_ALLREDUCE: 2, not set"),
    ],
)
def test_launches_with_other_variables_are_not_joined(tmp_path, capsys, variables, said):
    usual = {"OMPI_MCA_pml": "ob1"}
    files = [written(tmp_path / f"{i}", [row()], time=i, variables=usual) for i in (1, 2)]
    other = written(tmp_path / "3", [row()], time=3, variables=usual | variables)
    assert main(["merge", *map(str, files), "--out", str(tmp_path / "same")]) == 0
    assert main(["merge", str(files[0]), str(other), "--out", str(tmp_path / "all")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "all").exists()
    assert main(["compare", str(files[0]), str(other)]) == 0
    assert f"# differs: {said}" in capsys.readouterr().out


def launches(rng, path, slow=1.0):
    """Five launches of three algorithms that differ by half a percent between launches, and one planted change."""
    rows = []
    for name in ("ring", "direct", "native"):
        means = 1e-5 * (slow if name == "ring" else 1) * rng.normal(1, 0.005, 5)
        samples = [(mean * rng.lognormal(0, 0.05, 50)).tolist() for mean in means]
        rows.append(row(4096, name, samples=samples, slowest=[[0] * 50] * 5))
    return written(path, rows)


def test_what_became_slower_is_found_and_nothing_else(tmp_path, capsys):
    rng = np.random.default_rng(0)
    old, same = launches(rng, tmp_path / "old"), launches(rng, tmp_path / "same")
    slow, fast = launches(rng, tmp_path / "slow", 1.2), launches(rng, tmp_path / "fast", 0.8)
    assert main(["compare", str(old), str(same)]) == 0
    assert main(["compare", str(old), str(fast)]) == 0
    capsys.readouterr()
    assert main(["compare", str(old), str(slow)]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "slower" in line]
    assert len(lines) == 2 and "ring" in lines[0] and lines[1].startswith("# 3 cells, 1 slower")
    assert main(["compare", str(old), str(slow), "--threshold", "30%"]) == 0
    verdicts = {c.new.algorithm: c.verdict(0.05) for c in changes(*(collect([p])[1] for p in (old, fast)))}
    assert verdicts == {"ring": "faster", "direct": "-", "native": "-"}
    wrong = written(tmp_path / "wrong", [row(4096, wrong=2)])
    assert main(["compare", str(old), str(wrong)]) == 1
    assert main(["compare", str(old), str(written(tmp_path / "none", [row(8)]))]) == 2


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 4), (5, 5), (7, 4)])
def test_pairs_turned_round_are_counted(n, m):
    """By looking at all arrangements."""
    ranks = np.array([c for c in combinations(range(n + m), n)])
    turned = ranks.sum(1) - n * (n - 1) // 2
    left_out, confidence = of_two(n, m)
    assert confidence == pytest.approx(max(1 - 2 * np.mean(turned <= left_out), 0))
    assert confidence >= 0.95 or left_out == 0
    assert 2 * np.mean(turned <= left_out + 1) > 0.05


@pytest.mark.parametrize(("n", "m"), [(5, 5), (9, 7), (40, 60)])
def test_the_factor_lies_in_its_interval_as_often_as_claimed(n, m):
    rng = np.random.default_rng(n)
    found = [factor(1.2 * rng.lognormal(0, 0.2, n), rng.lognormal(0, 0.2, m)) for _ in range(2000)]
    assert np.median([each.median for each in found]) == pytest.approx(1.2, rel=0.02)
    assert np.mean([each.low <= 1.2 <= each.high for each in found]) == pytest.approx(found[0].confidence, abs=0.015)


def test_what_slows_the_whole_machine_is_told_from_what_slows_one_algorithm(tmp_path, capsys):
    rng, files = np.random.default_rng(1), []
    for slow in (1, 1.2):
        load = rng.lognormal(0, 0.5, (9, 1)) * rng.lognormal(0, 0.5, (9, 40))  # of a launch, of a round
        rows = []
        for name, more in (("ring", slow), ("direct", 1), ("native", 1)):
            samples = (1e-5 * more * load * rng.lognormal(0, 0.1, load.shape)).tolist()
            rows.append(row(4096, name, samples=samples, slowest=[[0] * 40] * 9))
        files.append(str(written(tmp_path / str(slow), rows)))
    said = []
    for against in ([], ["--against", "native"]):
        code = main(["compare", *files, *against])
        said.append((code, [line.split()[4] for line in capsys.readouterr().out.splitlines() if "slower" in line[-9:]]))
    assert said == [(0, []), (1, ["ring"])]
    assert main(["compare", *files, "--against", "swing"]) == 2
    assert "no cell in common with swing beside it" in capsys.readouterr().err


def test_two_sweeps_agree_or_not(tmp_path, capsys):
    def sweep(name, *spans):
        """Of 20 algorithms: the first as they are given, the others known to 1 %."""
        spans = [*spans, *[(0.99, 1.01)] * 20][:20]
        samples = [[[low * 1e-5], [1e-5], [high * 1e-5]] for low, high in spans]
        rows = [row(64, f"native:{i}", samples=each, slowest=[[0]] * 3) for i, each in enumerate(samples)]
        return str(written(tmp_path / name, rows))

    one, wide = sweep("one"), sweep("wide", (0.9, 1.1))
    assert main(["repeat", one, one]) == 0
    assert "# 20 cells, 20 known to 5%, and intervals of 20 overlap" in capsys.readouterr().out
    assert main(["repeat", one, wide]) == 1
    assert "wide" in capsys.readouterr().out
    for number, code in ((1, 0), (2, 1)):
        apart = [row(64, f"native:{i}", [seconds] * 9) for i, seconds in zip(range(number), (2e-5, 5e-6))]
        rest = [row(64, f"native:{i}", [1e-5] * 9) for i in range(number, 20)]
        assert main(["repeat", one, str(written(tmp_path / f"{number}", apart + rest))]) == code
        assert sum(line.endswith("apart") for line in capsys.readouterr().out.splitlines()) == number


def test_the_columns_of_osu():
    rows = [row(n, a, seconds=[1e-6, 2e-6]) for n in (1048576, 4) for a in ("ring", "native")]
    text = STYLES["osu"](rows)
    assert "# Size       Avg Latency(us)\n4                       1.50\n1048576                 1.50" in text
    assert text.count("# Datatype: MPI_FLOAT.") == 2


def test_the_columns_of_nccl_tests():
    text = STYLES["nccl-tests"]([row(33554432, seconds=[0.0032]), row(33554432, seconds=[0.0031], place="in", wrong=3)])
    head, units, cells = text.splitlines()[3:6]
    numbers = "    time   algbw   busbw  #wrong"
    assert head == f"#       size         count      type   redop    root {numbers} {numbers} "
    assert units.split() == ["#", "(B)", "(elements)", *["(us)", "(GB/s)", "(GB/s)"] * 2]
    numbers = "  3200.00   10.49   15.73       0  3100.00   10.82   16.24       3"
    assert cells == f"    33554432       8388608     float     sum      -1{numbers}"
    assert "# Out of bounds values : 3 FAILED" in text and "# Avg bus bandwidth    : 15.9823" in text
    assert "N/A" in STYLES["nccl-tests"]([row()])


def test_comma_separated_values_and_the_table():
    lines = STYLES["csv"]([row(64, seconds=(1e-6, None, 3e-6), marks=["unpinned"])]).splitlines()
    cells = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert len(lines) == 2 and cells["median"] == "2e-06" and cells["late"] == "1" and cells["marks"] == "unpinned"
    text = STYLES["table"](ratios([row(64, "ring"), row(64, "native", (2e-6, 4e-6, 6e-6)), row(8, "ring", (None,))]))
    assert [line.split()[:2] for line in text.splitlines()[2:]] == [["8", "ring"], ["64", "ring"], ["64", "native"]]
    assert " 0.50 " in text


def test_long_names_keep_the_columns():
    names = ["ring", "native:k_reduce_scatter_allgather", "native:reduce_scatter_allgatherv"]
    rows = [row(64, name, codec=codec) for name in names for codec in (None, "feedback(topk:ratio=0.01)")]
    lines = STYLES["table"](rows).splitlines()[2:]
    assert {line.index(" out ") for line in lines} == {51}
    assert len({line[:51] for line in lines}) == 6 and any("native:k_reduce..lgather" in line for line in lines)
    assert fitted("native:segmented_ring", 24) == "native:segmented_ring   "


def test_what_computing_hid_of_a_call():
    lone = row(64, call="nonblocking", seconds=[10e-6] * 3)
    for total, hidden in ((12e-6, 1.0), (17e-6, 0.5), (25e-6, 0.0)):
        both = ratios([lone, row(64, call="overlapped", seconds=[total] * 3, work=12e-6)])
        assert [r.overlap for r in both] == [None, pytest.approx(hidden)]
    assert f"{hidden:.0%} hidden" in STYLES["table"](both)


def test_broken_guidelines_are_named():
    steady = {"native": 3e-6, "reduce+bcast": 2e-6, "reduce_scatter+allgather": 4e-6, "ring": 1e-6, "auto": 2e-6}
    rows = [row(64, name, [seconds] * 9) for name, seconds in steady.items()]
    rows += [row(4096, "native", [1e-6] * 9), row(4096, "native", [9e-6] * 9, place="in"), row(4096, "auto", [1e-6])]
    assert [found.partition(", 4 ranks: ")[::2] for found in violations(rows)] == [
        ("native, 64 B of float32", "3.00 us, longer than reduce+bcast: 2.00 us"),
        ("auto, 64 B of float32", "2.00 us, longer than ring: 1.00 us"),
        ("native, 64 B of float32", "3.00 us, longer than for 4096 B: 1.00 us"),
    ]
    unsure = [row(64, "native", [1e-6, 3e-6, 5e-6]), row(64, "reduce+bcast", [1e-6, 2e-6, 5e-6])]
    assert violations(unsure) == []


def test_a_plan_is_read_like_the_command_line_and_overridden_by_it(tmp_path, capsys):
    plan = tmp_path / "plan.toml"
    plan.write_text('algorithms = ["ring", "torus:grid=2x4"]\nmax = "64K"\nseconds = 0.5\ncold = true\nop = "max"\n')
    given = arguments(["sweep", "--plan", str(plan), "--op", "sum", "avg", "--no-cold"])
    assert given == {
        "command": "sweep", "algorithms": ["ring", "torus:grid=2x4"], "max": 1 << 16, "seconds": 0.5, "cold": False,
        "op": ["sum", "avg"],
    }  # fmt: skip
    for text, message in (("a = ", "Invalid"), ("[a]\nb = 1", "words and numbers")):
        plan.write_text(text)
        with pytest.raises(ValueError, match=message):
            arguments(["sweep", "--plan", str(plan)])
    for text in ("speed = 1", 'max = "ten"'):
        plan.write_text(text)
        with pytest.raises(ValueError, match="--help"):
            arguments(["sweep", "--plan", str(plan)])


EXAMPLES = [
    "statistics", "factors", "clock", "machine", "environment", "records", "places", "looks", "styles", "report",
]  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name):
    assert doctest.testmod(import_module(f"bench.{name}")).failed == 0


def test_what_the_machine_says(tmp_path):
    for i, (kind, level, size) in enumerate([("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 3, "32M")]):
        (tmp_path / f"index{i}").mkdir()
        for name, value in (("type", kind), ("level", level), ("size", size)):
            (tmp_path / f"index{i}" / name).write_text(f"{value}\n")
    assert caches(tmp_path) == {"L1": 48 << 10, "L3": 32 << 20}
    assert pinned([("a", frozenset({0})), ("b", frozenset({0}))])
    assert not pinned([("a", frozenset({0, 1})), ("a", frozenset({1, 2}))])


def test_to_ask_mpi_for_its_algorithms_leaves_its_level_of_threads():
    """Below the one that mpi4py asks for every call of ours takes the long way."""
    code = (
        "from mpi4py import MPI; from bench.knobs import algorithms; before = MPI.Query_thread(); algorithms();"
        "assert MPI.Query_thread() == before"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)

"""The benchmark's arithmetic, without a launcher."""

import json

import numpy as np
import pytest
from rules import simulate

import compress
from allreduce.algorithms import TABLE
from bench.__main__ import main, size
from bench.inputs import Case, exact, lossy, real
from bench.peers import table
from bench.statistics import fit, summarize
from bench.sweep import Sweep


def test_sizes_are_read_as_people_write_them():
    assert [size(text) for text in ("4", "64K", "16M", "1g")] == [4, 1 << 16, 1 << 24, 1 << 30]
    for text in ("", "0", "-4", "4.5", "K", "ten"):
        with pytest.raises(Exception, match="expected a size"):
            size(text)


def test_the_interval_holds_the_median_of_what_is_sampled():
    rng, hits = np.random.default_rng(1), 0
    for _ in range(400):
        found = summarize(rng.exponential(size=51))
        hits += found.low <= np.log(2) <= found.high
    assert 0.92 < hits / 400 <= 1.0


def test_the_model_is_found_again_and_is_never_negative():
    rng = np.random.default_rng(2)
    features = np.column_stack([np.ones(20), 2.0 ** np.arange(20), 2.0 ** rng.permutation(20)])
    assert np.allclose(fit(features, features @ [3e-6, 1e-9, 2e-10]), [3e-6, 1e-9, 2e-10], rtol=1e-3)
    assert (fit(features, features @ [3e-6, 1e-9, 0] - 1e-9 * features[:, 2] * 0.3 + 1e-6) >= 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint64", "float64"])
@pytest.mark.parametrize("op", ["sum", "avg", "prod", "min", "max"])
def test_every_fault_in_a_result_is_seen(dtype, op):
    import ml_dtypes

    kind, ranks, count = np.dtype(getattr(ml_dtypes, dtype, dtype)), 4, 3000
    cases = [exact(kind, op, count, rank, ranks, 0) for rank in range(ranks)]
    assert all(case.wrong(cases[0].expected) == 0 for case in cases)
    if op == "sum":
        total = cases[0].expected
        for double in cases:
            twice = (total.astype(float) + double.send.astype(float)).astype(kind)
            assert cases[0].wrong(twice) > count // 2
        assert cases[0].wrong(exact(kind, op, count, 0, ranks, 1).expected) > count // 2  # a stale result


@pytest.mark.parametrize("text", ["int8", "int4", "float16", "sign", "topk:ratio=0.1", "threshold:least=9", "bounded"])
def test_what_a_codec_may_lose_is_no_fault_and_a_lost_contribution_is_one(text):
    codec, ranks, count = compress.get(text), 4, 3000
    cases = [exact(np.dtype("f4"), "sum", count, rank, ranks, 0) for rank in range(ranks)]
    sends, bounded = np.stack([case.send for case in cases]), lossy(cases[0], codec, np.dtype("f4"), ranks)
    for name in TABLE:
        result, _ = simulate(name, sends, codec)
        assert bounded.wrong(result) == 0, name
        if text in ("int8", "float16", "bounded"):
            assert bounded.wrong(result - sends[1]) > count // 2, name


def test_real_values_have_a_bound():
    values = np.random.default_rng(3).standard_normal(500)
    case = real(values, np.dtype("f4"), "sum", 1000, 0, 4, 0)
    assert isinstance(case, Case) and case.wrong(case.expected.astype("f4")) == 0
    assert case.wrong((case.expected * 1.001).astype("f4")) > 900
    assert case.wrong(np.full(1000, np.nan, "f4")) == 1000
    with pytest.raises(ValueError, match="sum and avg"):
        real(values, np.dtype("f4"), "max", 1000, 0, 4, 0)


def test_sizes_of_a_sweep():
    facts = {"algorithms": ["ring"], "dtype": "float32", "op": "sum"}
    assert Sweep(min=4, max=100, factor=4, **facts).sizes() == [4, 16, 64]
    with pytest.raises(ValueError, match="min <= max"):
        Sweep(min=8, max=4, factor=4, **facts).sizes()
    names = ["ring,direct", "torus:grid=2x2"]
    assert Sweep(4, 8, 2, names, "float32", "sum").names(4) == ["ring", "direct", "torus:grid=2x2"]
    with pytest.raises(ValueError, match="rign"):
        Sweep(4, 8, 2, ["rign"], "float32", "sum").names(4)


def test_the_table_of_peers(tmp_path, capsys):
    facts = {"mpi": "An MPI 1.0", "processor": "A CPU", "cores": 2, "kernel": "6", "ranks": 2, "buffers": "private"}
    rows = [("node", 2e-6, 0.5), ("native", 4e-6, 1.0), ("copy", 1e-6, 0.25)]
    for rewrite in (False, True):
        records = [{"record": "environment", "rewrite": rewrite, **facts}]
        records += [{"record": "row", "nbytes": 64, "algorithm": a, "median": m, "ratio": r} for a, m, r in rows]
        (tmp_path / f"{rewrite}.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert "| 64 | 0.50 / 0.50 | 2.00 / 2.00 |" in table(tmp_path.glob("*.jsonl"))
    assert main(["peers", *map(str, tmp_path.glob("*.jsonl"))]) == 0
    assert "An MPI 1.0" in capsys.readouterr().out

"""The benchmark's arithmetic, without a launcher."""

import json
import sys

import numpy as np
import pytest

import compress
from allreduce.algorithms import TABLE
from allreduce.costs import cost, segmented
from bench.__main__ import main
from bench.arguments import size
from bench.codec_speed import measure
from bench.codecs import EXPECTED, SCHEDULES, Table, inputs, vnmse
from bench.environment import settings
from bench.inputs import Case, exact, lossy, real
from bench.links import every_other, shifts
from bench.model import Price, Prices, predict
from bench.peers import table
from bench.plan import Sweep
from bench.statistics import summarize
from compress.simulate import simulate


def test_sizes_are_read_as_people_write_them():
    assert [size(text) for text in ("4", "64K", "16M", "1g")] == [4, 1 << 16, 1 << 24, 1 << 30]
    for text in ("", "0", "-4", "4.5", "K", "ten"):
        with pytest.raises(Exception, match="expected a size"):
            size(text)


def test_the_interval_holds_the_median_of_what_is_sampled():
    rng, hits = np.random.default_rng(1), 0
    for _ in range(400):
        found = summarize([rng.exponential(size=51)])
        hits += found.low <= np.log(2) <= found.high
    assert 0.92 < hits / 400 <= 1.0


def line(message, byte):
    """The price of a message and of its bytes."""
    return Price((0.0, 100.0, 1e4), (message, message + 100 * byte, message + 1e4 * byte))


def inside(price, added=0.0):
    """Prices that do not know where the bytes are."""
    return Prices(made=price, given=price, lone=price, added=line(0, added))


def test_a_price_of_one_length_is_that_of_all():
    """As of a vector of one element, which cannot be cut."""
    assert Price((4.0,), (2e-6,)).of(np.array([0, 4, 8])).tolist() == [0, 2e-6, 2e-6]
    assert np.allclose(Price((4.0, 8.0), (2e-6, 3e-6)).of(np.array([0, 2, 6, 12])), [0, 2e-6, 2.5e-6, 4e-6])


@pytest.mark.parametrize("name", TABLE)
def test_inside_one_node_the_model_is_the_cost_of_the_schedule(name):
    """Of messages that are packed if there are several to one peer."""
    params = segmented(name, 6, 1 << 12, {})
    expected = cost(name, 6, 1 << 12, alpha=1e-6, beta=1e-9, gamma=1e-10, **params)
    prices = inside(line(1e-6, 1e-9), 1e-10)._replace(together=line(7, 7), alone=line(7, 7), answered=line(7, 7))
    assert predict(name, (tuple(range(6)),), 1 << 12, prices) == pytest.approx(expected)


def test_what_messages_in_memory_cost_depends_on_what_they_hold():
    one, two = ((0,), (1,)), ((0, 1),)
    prices = Prices(made=line(0, 1), given=line(0, 3), lone=line(0, 0.5), added=line(0, 10))
    for name, seconds in (
        ("one_shot", 8 * 3 + 80),  # both send what they were given, and add
        ("ring", 4 * 3 + 40 + 4),  # then each half that was made
        ("star", 8 * 3 * 0.5 + 80 + 8 * 0.5),  # one way, and back
    ):
        assert predict(name, two, 8, prices) == pytest.approx(seconds)
        assert predict(name, one, 8, prices) == pytest.approx(80 if name != "ring" else 40)  # no messages inside
    short, long = (predict("two_way_ring", two, n, inside(line(1, 0))) for n in (1 << 10, 1 << 20))
    assert (short, long) == (2, 4)  # messages to one peer travel as one if they are short


def test_ranks_of_a_node_share_its_link():
    nodes = ((0, 1), (2, 3), (4, 5), (6, 7))
    wire = Prices(alone=line(0, 1), together=line(0, 2), answered=line(0, 2))
    messages = Prices(*[line(0, 0)] * 3, *[line(1, 0)] * 3)
    for name, nbytes, count in (("ring", 14, 14), ("rabenseifner", 24, 4), ("hierarchical", 12, 4)):
        assert predict(name, nodes, 8, wire) == pytest.approx(nbytes)
        assert predict(name, nodes, 8, messages) == pytest.approx(count)
    twice = wire._replace(answered=line(0, 4))  # rabenseifner sends to whom it receives from, and ring to another
    assert [predict(name, nodes, 8, twice) for name in ("ring", "rabenseifner")] == pytest.approx([14, 48])


def test_who_exchanges_messages_to_find_prices():
    for uneven in (((0, 1), (2, 3), (4, 5)), ((0, 1, 2), (3,)), ((0, 1, 2),), ((0,), (1,))):
        found = shifts(uneven)
        assert all(sorted(shift) == sorted(shift.values()) for shift in found.values())
        crossing = [sum((a in node) > (b in node) for a, b in found["line"].items()) for node in uneven]
        assert crossing == [int(len(uneven) > 1)] * len(uneven)
        assert all((a in node) == (b in node) for a, b in found["inside"].items() for node in uneven)
    assert shifts(((0, 1), (2, 3), (4, 5)))["between"] == {0: 2, 2: 4, 4: 1, 1: 3, 3: 5, 5: 0}
    assert shifts(((0, 1), (2, 3), (4,)))["pairs"] == {0: 2, 1: 3, 2: 0, 3: 1}
    assert every_other(((0, 1, 2), (3, 4))) == {0: 1, 3: 4}


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
        result = simulate(name, sends, codec)[0]
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
    assert Sweep(["ring"], min=4, max=100, factor=4).lengths() == [4, 16, 64]
    assert Sweep(["ring"], sizes=[64, 4, 64]).lengths() == [64, 4]
    with pytest.raises(ValueError, match="min <= max"):
        Sweep(["ring"], min=8, max=4).lengths()
    assert Sweep(["ring,direct", "torus:grid=2x2"]).names(4) == ["ring", "direct", "torus:grid=2x2"]
    with pytest.raises(ValueError, match="rign"):
        Sweep(["rign"]).names(4)
    groups = Sweep(["ring"], sizes=[3, 4, 8], dtype=["float32", "bfloat16"], op=["sum", "max"]).groups()
    assert len(groups) == 2 * 2 * 3 - 2  # 3 and 4 bytes are one float32
    with pytest.raises(ValueError, match="precision"):
        Sweep(["ring"], precision=-1).groups()


def test_the_environment_is_what_a_user_has_set():
    set_by_user = {"OMPI_MCA_pml": "ob1", "I_MPI_PIN": "off", "UCX_TLS": "tcp"}
    invented = ("OMPI_COMM_WORLD_RANK", "OMPI_MCA_num_procs", "I_MPI_INFO_NP", "I_MPI_PIN_INFO", "PMI_RANK", "HOME")
    assert settings(set_by_user | dict.fromkeys(invented, "1")) == set_by_user


def test_the_table_of_peers(tmp_path, capsys):
    facts = {"mpi": "An MPI 1.0", "processor": "A CPU", "cores": 2, "kernel": "6", "ranks": 2, "buffers": "private"}
    facts["torch"] = "2.0"
    rows = [("node", 2e-6, 0.5), ("native", 4e-6, 1.0), ("copy", 1e-6, 0.25), ("gloo", 2e-5, 5)]
    for rewrite in (False, True):
        records = [{"record": "environment", "rewrite": rewrite, **facts}]
        records += [{"record": "row", "nbytes": 64, "algorithm": a, "median": m, "ratio": r} for a, m, r in rows]
        (tmp_path / f"{rewrite}.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert "| 64 | 0.50 / 0.50 | 0.10 / 0.10 | 2.00 / 2.00 |" in table(tmp_path.glob("*.jsonl"))
    assert main(["peers", *map(str, tmp_path.glob("*.jsonl"))]) == 0
    assert "An MPI 1.0" in capsys.readouterr().out
    (tmp_path / "False.jsonl").write_text(json.dumps(records[0]))
    with pytest.raises(ValueError, match="no file has rows of node"):
        table([tmp_path / "False.jsonl"])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("text", EXPECTED)
def test_errors_grow_with_the_depth_of_the_schedule(text, schedule):
    for ranks, expected in EXPECTED[text][schedule].items():
        arrays = list(np.random.default_rng(0).standard_normal((ranks, 1 << 14), dtype=np.float32))
        assert vnmse(text, SCHEDULES[schedule], arrays) == pytest.approx(expected, rel=0.1)


def test_a_shared_grid_errs_alike_in_every_schedule():
    arrays = list(np.random.default_rng(0).standard_normal((4, 2000), dtype=np.float32))
    assert vnmse("thc:width=8", "ring", arrays) == vnmse("thc:width=8", "direct", arrays) > 1e-6
    assert vnmse("lossless", "ring", arrays) < 1e-12


def test_the_table_of_codecs(capsys):
    Table(["int8", "thc", "feedback(sign)"], [2, 4], count=3000).show()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("# ") for line in lines) == 3 + 4 + 1
    assert next(line for line in lines if line.startswith("int8")).split()[1] == "8.26"
    assert all(len(line.split()) == 2 + 2 for line in lines if line.startswith("thc"))
    rows = np.arange(6.0).reshape(2, 3)
    assert [row.tolist() for row in inputs(rows, 3)] == [[0, 1, 2], [3, 4, 5], [2, 0, 1]]


def test_codecs_without_names_are_one_of_each(capsys):
    from bench.codecs import DEFAULT

    assert main(["codecs", "--ranks", "2", "--count", "64", "--data"]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert {text for text in DEFAULT if "sparse" not in text} <= shown


def test_what_is_not_installed_is_said_in_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert main(["codecs", "lossless", "--data", "--ranks", "2", "--count", "100"]) == 2
    assert capsys.readouterr().err == "bench: the codec lossless needs zstandard: pip install zstandard\n"


def test_what_pays_is_bytes_saved_over_time():
    import compress

    speed = measure(compress.get("int8"), np.ones(1 << 16, np.float32), rounds=3)
    assert speed.saved == (1 << 18) - compress.get("int8").nbytes(1 << 16)
    assert speed.break_even == pytest.approx(speed.saved / (speed.encode + speed.add))
    assert min(speed.copy, speed.encode, speed.decode, speed.add) > 0

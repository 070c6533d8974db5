"""bench train: every way runs, splits give the losses of one process, and what differs is found out."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, Verdict, everyone_has

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'allreduce[training]'")

from bench.train import Train, mesh_of
from bench.training import replicas
from bench.training.race import Entry, slowest, timed
from bench.training.results import compared
from bench.training.ways import Way

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE not in (1, 2, 4, 8), reason="slow, and what lies below is tested on any number of ranks"),
]
SHORT = {"width": 16, "depth": 6, "batch": 8, "steps": 4, "every": 4, "probe": 2}


def trained(path, **wishes):
    """The exit code on all ranks, and the ways in the file by their names, on rank 0."""
    file = path / "out.jsonl" if RANK == 0 else None
    wrong = Train(json=str(file), **SHORT | wishes).run()
    records = [json.loads(line) for line in file.read_text().splitlines()] if file else []
    return wrong, {r["way"]: r for r in records if r["record"] == "training"}


@pytest.mark.parametrize("model", ["mlp", "cnn", "gpt"])
@pytest.mark.parametrize("parallel", ["tensor", "pipeline", "hybrid"])
def test_splits_have_the_losses_of_one_process(tmp_path, parallel, model):
    wrong, ways = trained(tmp_path, parallel=parallel, model=model)
    with Verdict() as verdict:
        verdict.check(wrong == 0, "wrong")
        if RANK == 0:
            one, ours = ways["one process"], ways[parallel]
            verdict.check(len(ours["losses"]) == SHORT["steps"], ours["losses"])
            verdict.check(np.allclose(ours["losses"], one["losses"], rtol=1e-4), ours["losses"], one["losses"])
            verdict.check(np.isclose(ours["test_loss"], one["test_loss"], rtol=1e-4), "test")
            verdict.check(np.isclose(ours["accuracy"], one["accuracy"], atol=0.002), "accuracy")
            verdict.check(ours["steps"]["alone"] > 0 and ours["same"], ours["steps"])


@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_replicas_beside_gloo(tmp_path, model):
    """Without a codec the losses are gloo's, with int8 near; gloo's bytes are those of an all-reduce."""
    wrong, ways = trained(tmp_path, model=model, codec=["int8"], algorithm="direct")
    with Verdict() as verdict:
        verdict.check(wrong == 0, "wrong")
        if RANK == 0:
            names = {"gloo", "gloo fp16", "gloo powersgd", "allreduce", "allreduce int8"}
            verdict.check(set(ways) == names, ways)
            gloo, ours, int8 = (ways[name]["losses"] for name in ("gloo", "allreduce", "allreduce int8"))
            verdict.check(np.allclose(ours, gloo, rtol=1e-5, atol=0), ours, gloo)
            verdict.check(np.allclose(int8, gloo, rtol=0.01), int8, gloo)
            verdict.check(SIZE == 1 or int8 != gloo, "int8 was not used")
            ratio = ways["gloo fp16"]["sent"] / ways["gloo"]["sent"] if SIZE > 1 else 0.5
            verdict.check(0.45 < ratio < 0.6, "bytes sent of float16", ratio)


def test_a_hybrid_averages_with_a_codec(tmp_path):
    wrong, ways = trained(tmp_path, parallel="hybrid", codec=["feedback(int8)"], algorithm="direct")
    with Verdict() as verdict:
        verdict.check(wrong == 0, "wrong")
        if RANK == 0:
            plain, coded = (ways[name]["losses"] for name in ("hybrid", "hybrid feedback(int8)"))
            verdict.check(np.allclose(coded, plain, rtol=0.01), plain, coded)
            verdict.check((coded == plain) == (mesh_of("hybrid", SIZE)[0] == 1), "int8 was not used")


def test_what_was_measured_outlives_the_run(tmp_path, monkeypatch):
    def end(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.training.contest.probe", end)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, parallel="tensor", every=2)
    with Verdict() as verdict:
        if RANK == 0:
            kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
            steps = {r["way"]: len(r["losses"]) for r in kept if r["record"] == "training"}
            verdict.check(steps == {"one process": 4, "tensor": 4}, kept)


class Fake(Way):
    """A way that has run."""

    def __init__(self, name):
        self.name, self.steps = name, {}


def test_steps_of_the_last_rank_sum_to_all_its_time():
    """Though another is last in every step: ranks are late in turn."""
    ends = [1.0 + (0.5 if RANK == 0 else 0), 2.0 + (0.5 if RANK == SIZE - 1 else 0), 4.0 + RANK]
    last = [1.5, 2.5, 3.0 + SIZE]
    everyone_has("" if np.allclose(slowest(ends), np.diff([0, *last])) and slowest([]) == [] else slowest(ends))


def test_steps_are_timed_from_the_start_of_the_first():
    task = SimpleNamespace(inputs=np.zeros(1), targets=np.zeros(1))
    ends, losses = timed(lambda *_: time.sleep(0.01) or 1.0, slice(None), task, np.zeros((3, 1), int))
    right = losses == [1, 1, 1] and ends == sorted(ends) and all(np.array(ends) >= [0.01, 0.02, 0.03])
    everyone_has("" if right else f"{ends} {losses}")


@pytest.mark.parametrize("codec, one", [(None, False), ("int8", False), ("feedback(int8)", True), ("powersgd", True)])
def test_methods_have_one_bucket(monkeypatch, codec, one):
    monkeypatch.setattr(replicas, "Replica", lambda *given: SimpleNamespace(bucket=given[4]))
    bucket = replicas.ours(codec, None, None, 1000).bucket
    everyone_has("" if bucket == (replicas.ONE_BUCKET if one else 1000) else f"{bucket}")


def entry(name, losses, same=True):
    made = Entry(Fake(name))
    made.losses, made.same = losses, same
    return made


def test_what_differs_is_found_out():
    gloo = entry("gloo", [2.0, 1.0])
    assert compared([gloo, entry("allreduce", [2.0, 1.000001])])[1] is False
    for other in (entry("allreduce", [2.0, 1.0001]), entry("allreduce", [2.0, float("nan")]),
                  entry("allreduce", [2.0, 1.0], same=False)):  # fmt: skip
        told, wrong = compared([gloo, other])
        assert wrong and any("WRONG" in line and "allreduce" in line for line in told)


@pytest.mark.parametrize("wishes, words", [
    ({"codec": ["int99"]}, "unknown codec"),
    ({"algorithm": "rign"}, "unknown algorithm"),
    ({"parallel": "hybrid", "mesh": (3, 5, 1)}, "is not"),
    ({"mesh": (1, 1, 1)}, "for --parallel hybrid"),
    ({"batch": 2, "microbatches": 3}, "microbatches"),
    ({"model": "gpt", "width": 18}, "4 heads"),
    ({"steps": 2}, "3 or more"),
])  # fmt: skip
def test_errors_at_the_door(wishes, words):
    with pytest.raises(ValueError, match=words):
        Train(**wishes).check()
    MPI.COMM_WORLD.Barrier()


def test_a_replica_has_no_sample_twice_in_a_step():
    with pytest.raises(ValueError, match="--batch 5000: there are 1197 samples"):
        Train(batch=5000, steps=3).run()
    MPI.COMM_WORLD.Barrier()

"""The script for a real GPU, on the fake one: what it would say there."""

import importlib.util
from pathlib import Path

import cpu
import pytest
from mpi4py import MPI
from witness import RANK, SIZE

import compress

pytestmark = [
    pytest.mark.mpi, cpu.needs_compiler, pytest.mark.skipif(SIZE > 3, reason="slow on the CPU: up to 3 ranks"),
]  # fmt: skip
SPEC = importlib.util.spec_from_file_location("gpu_check", Path(__file__).parents[2] / "scripts" / "gpu_check.py")
gpu_check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gpu_check)


@pytest.fixture
def short(monkeypatch):
    """A few codecs and algorithms of everything."""
    few = [compress.get(text) for text in ("int8", "topk", "bounded")]
    assert set(few) < set(gpu_check.codecs())
    everything = {"LONG": 1 << 14, "COUNT": 1003, "SIZES": (1 << 10,), "LIMIT": 1000, "codecs": lambda: few}
    for name, value in everything.items():
        monkeypatch.setattr(gpu_check, name, value)
    monkeypatch.setattr(gpu_check, "seconds", lambda cuda, call, calls=10: (call(), 1e-3)[1])
    monkeypatch.setattr("allreduce.algorithms", lambda: ["ring", "recursive_doubling"])


def test_what_it_says(fake, short, capsys, monkeypatch):
    assert gpu_check.check(MPI.COMM_WORLD) == 0
    said = capsys.readouterr().out.splitlines()
    assert bool(said) == (RANK == 0)
    wanted = ["PASS  copy", "PASS  sum of float32", "PASS  int8 of float32", "PASS  hop of int8"] if SIZE == 1 else [
        "PASS  staged ring", "PASS  staged ring int8", "PASS  staged ring feedback(topk:ratio=0.01)",
        "PASS  staged ring powersgd", "PASS  staged ring thc", "PASS  staged ring no codec, 1024 bytes",
    ]  # fmt: skip
    for line in wanted if RANK == 0 else []:
        assert any(text.startswith(line) for text in said), said
    assert not any(text.startswith("FAIL") for text in said)


def test_what_is_wrong_fails_on_all_ranks(fake, short, capsys, monkeypatch):
    """One rank that reads something else is enough."""
    if RANK == SIZE - 1:
        monkeypatch.setattr(gpu_check.OnDevice, "bytes", lambda self: b"")
    assert gpu_check.check(MPI.COMM_WORLD) == 1
    said = capsys.readouterr().out
    assert RANK or "FAIL" in said.splitlines()[-1]

"""What is found out before MPI begins, or in a process of its own."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from allreduce import binding
from allreduce.execute import aware

TEXT = """
import allreduce, sys
try:
    allreduce.bind_device()
except RuntimeError as error:
    print(error)
print("mpi4py.MPI" in sys.modules)
"""


def test_without_a_device_there_is_one_clear_error():
    done = subprocess.run([sys.executable, "-c", TEXT], capture_output=True, text=True, check=True)
    said, begun = done.stdout.splitlines()
    assert "need CuPy: pip install" in said or "finds no CUDA device" in said
    assert begun == "False"


@pytest.mark.parametrize("variables, number", [
    ({}, 0), ({"OMPI_COMM_WORLD_LOCAL_RANK": "5", "SLURM_LOCALID": "0"}, 1), ({"SLURM_LOCALID": "3"}, 3),
    ({"MPI_LOCALRANKID": "2", "PMI_RANK": "9"}, 2),
])  # fmt: skip
def test_devices_by_the_launchers_numbers(variables, number, monkeypatch):
    used = []
    runtime = SimpleNamespace(getDeviceCount=lambda: 4)
    device = SimpleNamespace(Device=lambda n: SimpleNamespace(use=lambda: used.append(n)), runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(is_available=lambda: True, cuda=device))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    for name in binding.LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert binding.bind_device() == number
    assert used == [number]
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(RuntimeError, match="comes too late"):
        binding.bind_device()


@pytest.mark.parametrize("text, answer", [
    ("print('arrived')", True), ("print('no')", False), ("import os; os.kill(os.getpid(), 11)", False),
    ("print('arrived'); raise SystemExit(1)", False), ("import time; time.sleep(60)", False),
])  # fmt: skip
def test_a_trial_may_crash_or_hang(text, answer):
    assert aware.tried(text, seconds=3) is answer


def test_an_answer_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    count = tmp_path / "count"
    text = f"open({str(count)!r}, 'a').write('x'); print('arrived')"
    assert aware.kept(text)
    assert aware.kept(text)
    assert count.read_text() == "x"
    monkeypatch.setenv("UCX_TLS", "tcp")
    assert aware.kept(text)
    assert count.read_text() == "xx"
    assert aware.kept("print('no')") is False

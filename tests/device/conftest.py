"""Tests of what runs on a GPU, without one."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "compress")]


@pytest.fixture
def on_cpu(monkeypatch):
    """Kernels run on the CPU, on addresses of NumPy arrays."""
    import cpu

    from allreduce.execute import device_kernels

    monkeypatch.setattr(device_kernels, "module", cpu.module)

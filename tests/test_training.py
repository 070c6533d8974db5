"""What PyTorch is needed for, and how a job ends in which one rank failed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = str(Path(sys.executable).parent)
ENV = os.environ | {
    "PATH": f"{FOLDER}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip

NO_TORCH = """
import sys
sys.modules["torch"] = None
import allreduce
assert "ddp_hook" in dir(allreduce) and "ddp_hook" not in allreduce.__all__
try:
    allreduce.ddp_hook
except ModuleNotFoundError as error:
    print(error)
"""
FAILING = """
import torch
import torch.distributed as dist
import allreduce.torch_backend
dist.init_process_group("allreduce")
if dist.get_rank() == 1:
    raise OSError("the disk is full")
dist.all_reduce(torch.ones(4))
"""


def run(*command, limit=60):
    return subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)


def test_says_that_pytorch_is_needed():
    done = run(sys.executable, "-c", NO_TORCH)
    assert done.stdout == "allreduce.ddp_hook needs PyTorch: pip install torch\n", done.stderr


def test_does_not_load_pytorch():
    done = run(sys.executable, "-c", "import sys, allreduce; allreduce.allreduce; print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_an_exception_on_one_rank_ends_all():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
    mpiexec = shutil.which("mpiexec", path=ENV["PATH"]) or pytest.skip("needs mpiexec")
    done = run(mpiexec, "-n", "2", sys.executable, "-c", FAILING)
    assert done.returncode != 0
    assert "OSError: the disk is full" in done.stderr

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
RANK_1 = """
import datetime, sys
import torch
import torch.distributed as dist
import allreduce.torch_backend
dist.init_process_group("allreduce", timeout=datetime.timedelta(seconds=2))
dist.all_reduce(torch.ones(4))
if dist.get_rank() == 1:
    {}
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


@pytest.mark.parametrize(
    "ending, words",
    [
        ("raise OSError('the disk is full')", "OSError: the disk is full"),
        ("sys.exit()", "CollectiveTimeout: allreduce by"),
    ],
    ids=["exception", "early exit"],
)
def test_the_end_of_one_rank_is_that_of_all(ending, words):
    """At once, with what went wrong; or, after one that left without a word, when the others have waited enough."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
    mpiexec = shutil.which("mpiexec", path=ENV["PATH"]) or pytest.skip("needs mpiexec")
    done = run(mpiexec, "-n", "2", sys.executable, "-c", RANK_1.format(ending))
    assert done.returncode != 0
    assert words in done.stderr

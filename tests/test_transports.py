"""What MPI is told of the way between nodes, and how fast that is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_cluster import Run, needs_hosts
from test_fabric import node  # noqa: F401

from bench.fabric import line_rate
from bench.transports import TRANSPORTS, VARIABLES, Link, choose, fabric_of, told

ROOT = Path(__file__).parent.parent
TINY = ["-m", "bench", "sweep", "--sizes", "64", "--seconds", "0.001", "--algorithms", "ring"]


def test_what_is_told(tmp_path):
    """To every library, for none is loaded yet."""
    variables = {"FI_PROVIDER": "verbs", "HOME": "/"}
    choose("tcp", variables, tmp_path)
    assert variables == {"HOME": "/", **VARIABLES["tcp"]}
    assert told("tcp", "MPICH") == {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    assert told("shm", "Intel MPI") == {"I_MPI_FABRICS": "shm"} and told("shm", "MPICH") == {}
    assert told("tcp", "Some other MPI") == VARIABLES["tcp"]


def test_rdma_is_what_the_adapters_make_it(node):  # noqa: F811
    assert fabric_of("rdma", node) == "infiniband"
    (node / "sys/class/cxi/cxi0").mkdir(parents=True)
    assert fabric_of("rdma", node) == "slingshot"
    with pytest.raises(ValueError, match="no adapters for it"):
        choose("rdma", {}, node / "nothing")
    assert {fabric_of(name, node) for name in TRANSPORTS} <= set(VARIABLES)


def test_the_fastest_adapter_that_is_up(node):  # noqa: F811
    assert line_rate("infiniband", node) == ("mlx5_0, port 1", 400e9)
    (node / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    assert line_rate("infiniband", node) is None
    for name, speed, state in (("eth0", "25000", "up"), ("eth1", "-1", "up"), ("hsn0", "200000", "down")):
        (node / "sys/class/net" / name).mkdir(parents=True)
        (node / "sys/class/net" / name / "speed").write_text(speed)
        (node / "sys/class/net" / name / "operstate").write_text(state)
    assert line_rate("tcp", node) == ("eth0", 25e9)
    assert line_rate("slingshot", node) is None and line_rate("shm", node) is None


def test_bandwidth_in_words():
    assert "23.00 Gbit/s from rank 0 to rank 2, on another node; 92% of the 25 Gbit/s of eth0" in str(
        Link(2, 23e9, "eth0", 25e9)
    )
    assert str(Link(2, 23e9, None, None)).endswith("line rate not known")
    assert "no message leaves it" in str(Link(None, None, "eth0", 25e9))


def test_a_sweep_says_so_before_mpi_begins():
    """A variable that comes too late would be recorded, but not heard: of one that MPI refuses it must not live."""
    words = [sys.executable, *TINY, "--transport"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*words, "shm"], env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "# transport shm: " in done.stdout
    broken = (
        "import bench.transports as t; t.VARIABLES['shm'] = {'OMPI_MCA_pml': 'x', 'MPIR_CVAR_CH4_NETMOD': 'x',"
        " 'I_MPI_FABRICS': 'ofi', 'I_MPI_OFI_PROVIDER': 'x'}; from bench.__main__ import main; main()"
    )
    late = subprocess.run([sys.executable, "-c", broken, *TINY[2:], "--transport", "shm"], env=variables,
                          capture_output=True, timeout=120)  # fmt: skip
    assert late.returncode != 0


@needs_hosts
def test_bandwidth_between_hosts():
    said = Run("--rate", "200mbit", "--", sys.executable, *TINY, "--transport", "tcp").output()
    assert 0.1 < float(re.search(r"([\d.]+) Gbit/s from rank 0 to rank 1", said)[1]) < 0.2


@needs_hosts
def test_shared_memory_does_not_reach_other_hosts():
    run = Run("--", "sh", "-c", f"{sys.executable} {' '.join(TINY)} --transport shm 2>&1; exit 0")
    assert re.search("shm does not reach all ranks|this MPI offers no choice|Fatal error in \\w*Init", run.output())

"""What the numbers depend on, recorded with them."""

import os
import platform
import socket
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numba
import numpy as np
from mpi4py import MPI

__all__ = ["environment"]

PREFIXES = ("OMPI_", "PMIX_MCA_", "PRTE_MCA_", "MPICH_", "MPIR_CVAR_", "I_MPI_", "UCX_", "FI_", "SLURM_")


def environment(comm: MPI.Intracomm) -> dict[str, Any]:
    """The machine, the libraries and the placement of ranks; collective."""
    names = np.zeros((comm.size, 64), np.uint8)
    name = socket.gethostname().encode()[:64]
    names[comm.rank, : len(name)] = list(name)
    comm.Allgather(names[comm.rank].copy(), names)
    hosts = [bytes(row).rstrip(b"\0").decode() for row in names]
    busiest = max(hosts.count(host) for host in set(hosts))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "ranks": comm.size,
        "hosts": {host: hosts.count(host) for host in dict.fromkeys(hosts)},
        "cores": cores,
        "oversubscribed": busiest > cores,
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].partition(",")[0].split()),
        "processor": _processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "revision": _revision(),
        "variables": {k: v for k, v in sorted(os.environ.items()) if k.startswith(PREFIXES)},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _revision() -> str:
    here = Path(__file__).parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"

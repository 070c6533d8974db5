"""What the numbers depend on, recorded with them."""

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numba
import numpy as np
from mpi4py import MPI

import allreduce
from allreduce.engine import engine_of
from allreduce.execute.channel import cores
from allreduce.execute.loop import advance
from allreduce.execute.mpi_abi import library
from allreduce.execute.table import SINGLE, STREAMING

__all__ = ["describe", "environment"]

USERS = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_", "MPICH_", "MPIR_CVAR_", "I_MPI_", "UCX_", "FI_", "ALLREDUCE_")
#: What Open MPI and Intel MPI set for every rank.
LAUNCHERS = (
    "OMPI_MCA_PREFIXES", "OMPI_MCA_cpu_type", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs",
    "I_MPI_INFO_", "I_MPI_INTERNAL_", "I_MPI_HYDRA_TOPOLIB", "I_MPI_HYDRA_UUID", "I_MPI_PIN_INFO", "I_MPI_PIN_MAPPING",
    "I_MPI_BIND_WIN_ALLOCATE", "I_MPI_RETURN_WIN_MEM_NUMA", "FI_PROVIDER_PATH",
)  # fmt: skip


def environment(comm: MPI.Intracomm) -> dict[str, Any]:
    """The machine, the libraries and the placement of ranks; collective."""
    names = np.zeros((comm.size, 64), np.uint8)
    name = socket.gethostname().encode()[:64]
    names[comm.rank, : len(name)] = list(name)
    comm.Allgather(names[comm.rank].copy(), names)
    hosts = [bytes(row).rstrip(b"\0").decode() for row in names]
    busiest = max(hosts.count(host) for host in set(hosts))
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "ranks": comm.size,
        "hosts": {host: hosts.count(host) for host in dict.fromkeys(hosts)},
        "cores": (usable := cores(comm)),
        "oversubscribed": busiest > usable,
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].partition(",")[0].replace("Version:", "").split()),
        "processor": _processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "torch": _version("torch"),
        "revision": _revision(),
        "variables": settings(os.environ),
    }


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that a user has set."""
    return {k: v for k, v in sorted(variables.items()) if k.startswith(USERS) and not k.startswith(LAUNCHERS)}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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


def describe() -> None:
    """Print on rank 0 what was detected and what it means, with the cost of the first calls; collective."""
    comm = MPI.COMM_WORLD
    facts = environment(comm)
    importing = _seconds_to_import()
    data = np.ones(1, np.float32)
    comm.Barrier()
    times = []
    for algorithm in ("ring", "ring", "auto", "auto"):
        begin = time.perf_counter()
        allreduce.allreduce(data, algorithm=algorithm)
        times.append(time.perf_counter() - begin)
    channel = engine_of(None).channel
    if comm.rank:
        return
    compiled = library() is not None
    print(f"MPI            {facts['mpi']}")
    print(f"ranks          {facts['ranks']}: " + ", ".join(f"{n} on {host}" for host, n in facts["hosts"].items()))
    print(f"processor      {facts['processor']}, {facts['cores']} cores, Linux {facts['kernel']}")
    print(f"loop           {'compiled, calls MPI by address' if compiled else 'Python: slower, see ALLREDUCE_LOOP'}")
    shared = channel.together and compiled
    print(f"auto           {'shared memory, for all ranks are on one node' if shared else 'messages'}")
    if shared:
        mode = channel.counters[4]
        print(f"publishing     {'streaming' if mode & STREAMING else 'ordinary'} stores, by the time of 64 KB"
              f"{'; two ranks in one shot' if mode & SINGLE and channel.size == 2 else ''}")  # fmt: skip
    print("devices        host memory only")
    print(f"import         {importing:.2f} s without MPI")
    print(f"first call     {times[0]:.2f} s by messages, then {times[1] * 1e6:.1f} us; compiled code is kept in")
    print(f"               {advance.stats.cache_path}")
    print(f"first auto     {times[2]:.2f} s, then {times[3] * 1e6:.1f} us")
    if facts["oversubscribed"]:
        print("warning        more ranks than cores: results are right, times mean nothing")
    for name, value in facts["variables"].items():
        print(f"variable       {name}={value}")


def _seconds_to_import() -> float:
    code = "import time; t = time.perf_counter(); import allreduce; allreduce.verify; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)

"""What the numbers depend on, recorded with them."""

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
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
from allreduce.execute.table import FAR

from .devices import devices
from .fabric import fabric
from .machine import caches, driver, launcher, pinned, processor, revision, version

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
    hosts = _everyones(comm, socket.gethostname(), 64)
    masks = _everyones(comm, _cores(), 256)
    counts = {host: hosts.count(host) for host in dict.fromkeys(hosts)}
    own_cores = pinned([(host, _listed(mask)) for host, mask in zip(hosts, masks, strict=True)])
    usable = cores(comm)
    oversubscribed = max(counts.values()) > usable
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "arguments": sys.argv[1:],
        "ranks": comm.size,
        "hosts": counts,
        "cores": usable,
        "masks": masks,
        "pinned": own_cores,
        "oversubscribed": oversubscribed,
        "marks": ["oversubscribed"] * oversubscribed + ["unpinned"] * (not own_cores),
        "load": list(os.getloadavg()),
        "launcher": launcher(),
        "mpi": " ".join(MPI.Get_library_version().split("\n")[0].partition(",")[0].replace("Version:", "").split()),
        "processor": processor(),
        "caches": caches(),
        "driver": driver(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "torch": version("torch"),
        "revision": revision(),
        "variables": settings(os.environ),
    }


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that a user has set."""
    return {k: v for k, v in sorted(variables.items()) if k.startswith(USERS) and not k.startswith(LAUNCHERS)}


def _everyones(comm: MPI.Intracomm, text: str, width: int) -> list[str]:
    """The texts of all ranks, cut to a width in bytes; collective."""
    mine, all_of_them = np.zeros(width, np.uint8), np.empty((comm.size, width), np.uint8)
    encoded = text.encode()[:width]
    mine[: len(encoded)] = list(encoded)
    comm.Allgather(mine, all_of_them)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in all_of_them]


def _cores() -> str:
    """The cores that this rank may use, as Linux writes them: 0-3,8."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("Cpus_allowed_list"))
    except (OSError, StopIteration):
        return f"0-{(os.cpu_count() or 1) - 1}"


def _listed(text: str) -> frozenset[int]:
    """The numbers of such a list.

    >>> sorted(_listed("0-2,8"))
    [0, 1, 2, 8]
    """
    pairs = [(part.split("-")[0], part.split("-")[-1]) for part in text.split(",") if part[:1].isdigit()]
    return frozenset(core for low, high in pairs for core in range(int(low), int(high) + 1))


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
    channel, on_devices = engine_of(None).channel, devices(engine_of(None), facts["driver"])
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
        how = "past the caches, cores are far apart" if channel.counters[4] == FAR else "as usual, cores are near"
        print(f"publishing     {how}; by the time of 256 KB")
    print(f"started by     {facts['launcher']}; allowed cores: " + "; ".join(facts["masks"]))
    print("caches         " + ", ".join(f"{name} {size >> 10} KiB" for name, size in facts["caches"].items()))
    print("network        " + "\n               ".join(fabric()))
    print("devices        " + "\n               ".join(on_devices))
    print(f"import         {importing:.2f} s without MPI")
    print(f"first call     {times[0]:.2f} s by messages, then {times[1] * 1e6:.1f} us; compiled code is kept in")
    print(f"               {advance.stats.cache_path}")
    print(f"first auto     {times[2]:.2f} s, then {times[3] * 1e6:.1f} us")
    if facts["oversubscribed"]:
        print("warning        more ranks than cores: results are right, times mean nothing")
    elif not facts["pinned"]:
        print("warning        ranks may move between each other's cores: times vary more than they must")
    for name, value in facts["variables"].items():
        print(f"variable       {name}={value}")


def _seconds_to_import() -> float:
    code = "import time; t = time.perf_counter(); import allreduce; allreduce.verify; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)

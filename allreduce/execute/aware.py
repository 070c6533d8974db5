"""Whether MPI can take messages from a device's memory: found out in a process of its own, which may crash.

An MPI that cannot reads the address as its own and ends the process; what it says of itself is not always true. The
answer is kept per machine, MPI and settings, in the user's cache.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from platform import node

import numpy as np
from mpi4py import MPI

__all__ = ["VARIABLE", "is_aware", "kept", "tried", "without_launcher"]

#: Set it to 1 or 0, and nothing is tried.
VARIABLE = "ALLREDUCE_GPU_AWARE"
SECONDS = 60
#: A message to oneself, short and long.
TRIAL = """
import cupy
from mpi4py import MPI
for count in (16, 1 << 22):
    x, y = cupy.arange(count, dtype="f"), cupy.zeros(count, "f")
    cupy.cuda.Device().synchronize()
    from_, to = ([MPI.memory.fromaddress(a.data.ptr, a.nbytes), MPI.BYTE] for a in (x, y))
    MPI.Request.Waitall([MPI.COMM_SELF.Irecv(to, 0), MPI.COMM_SELF.Isend(from_, 0)])
    assert (x == y).all()
print("arrived")
"""
#: What launchers tell their processes, and what users tell an MPI.
OF_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "PALS_", "MPI_LOCAL", "SLURM_", "HYDRA_", "HYDI_", "MPIEXEC_")
OF_USERS = ("OMPI_MCA_", "UCX_", "FI_", "MPIR_CVAR_", "MPICH_", "I_MPI_")


def is_aware(comm: MPI.Intracomm) -> bool:
    """Whether MPI takes messages from devices on all nodes; collective. One rank of each node tries.

    Raises
    ------
    ValueError
        ALLREDUCE_GPU_AWARE is set to something else than 0 or 1.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE}={wish!r}; have 0, 1")
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = wish == "1" or (not wish and (local.rank > 0 or kept(TRIAL)))
    local.Free()
    everyone = np.array([mine], np.uint8)
    comm.Allreduce(MPI.IN_PLACE, everyone, MPI.MIN)
    return bool(everyone[0])


def kept(trial: str) -> bool:
    """What a trial told, now or before."""
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(OF_USERS)]
    facts = [trial, node(), MPI.Get_library_version(), sys.prefix, os.environ.get("LD_LIBRARY_PATH"), *settings]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allreduce"
    path = folder / f"gpu-aware-{sha256(repr(facts).encode()).hexdigest()[:16]}"
    try:
        return path.read_text() == "1"
    except OSError:
        pass
    answer = tried(trial)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(str(int(answer)))
        new.replace(path)
    except OSError:  # a full disk, say: then it is tried again
        pass
    return answer


def tried(trial: str, seconds: float = SECONDS) -> bool:
    """Whether a process of its own, which no launcher knows, comes to the end of a text."""
    command = [sys.executable, "-c", trial]
    try:
        done = subprocess.run(
            command, env=without_launcher(os.environ), capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.endswith(b"arrived\n")


def without_launcher(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that begins MPI alone."""
    return {k: v for k, v in variables.items() if not k.startswith(OF_LAUNCHERS) or k.startswith(OF_USERS)}

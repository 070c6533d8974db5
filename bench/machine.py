"""What Linux says about this machine and this process; nothing is asked of MPI."""

import os
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

__all__ = ["caches", "driver", "launcher", "pinned", "processor", "revision", "version"]

#: Variables that only a launcher sets, and what it is called.
LAUNCHERS = {
    "SLURM_STEP_ID": "srun", "OMPI_COMM_WORLD_RANK": "mpirun of Open MPI", "MPI_LOCALRANKID": "mpiexec (hydra)",
    "PMI_RANK": "mpiexec (PMI)",
}  # fmt: skip


def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def caches(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Bytes of the first core's caches for data, by level: `{"L1": 32768, "L2": 524288}`."""
    found = {}
    for index in sorted(root.glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and (match := re.fullmatch(r"(\d+)([KM]?)", size)):
            found[f"L{level}"] = int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]
    return found


def driver() -> str | None:
    """The version of NVIDIA's kernel driver, where there is one."""
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0].partition(":")[2].strip()
    except (OSError, IndexError):
        return None


def launcher() -> str:
    """What started the ranks."""
    return next((name for variable, name in LAUNCHERS.items() if variable in os.environ), "none")


@cache
def revision() -> str:
    """Of this source, with "-dirty" if it was changed."""
    here = Path(__file__).parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def pinned(masks: list[tuple[str, frozenset[int]]]) -> bool:
    """Whether every rank has cores of its own, given the host and the allowed cores of all.

    >>> pinned([("a", frozenset({0})), ("a", frozenset({1})), ("b", frozenset({0, 1}))])
    True
    >>> pinned([("a", frozenset({0, 1})), ("a", frozenset({0, 1}))])
    False
    """
    taken: set[tuple[str, int]] = set()
    for host, cores in masks:
        own = {(host, core) for core in cores}
        if own & taken:
            return False
        taken |= own
    return True

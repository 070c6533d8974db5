"""One device for each rank: chosen before MPI begins, by what the launcher tells its processes."""

import os
import sys
from collections.abc import Mapping

from .execute.cuda import cuda, import_cupy

__all__ = ["LOCAL_RANKS", "bind_device", "local_rank"]

#: Where Open MPI, hydra (MPICH, Intel MPI), MVAPICH, PALS and Slurm tell the number of a process on its node; Slurm's
#: is last, for in a job's script it is 0, also for what mpiexec starts from there.
LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID", "SLURM_LOCALID",
)  # fmt: skip


def local_rank(variables: Mapping[str, str] = os.environ) -> int:
    """The number of this process on its node; 0 without a launcher.

    >>> local_rank({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "2"})
    2
    """
    return next((int(variables[name]) for name in LOCAL_RANKS if variables.get(name, "").isdigit()), 0)


def bind_device() -> int:
    """Make one device current: the one whose number is this process's on its node, modulo those that it sees.

    To be called before MPI begins, that is, before anything of mpi4py.MPI is imported: some MPIs open the current
    device then. Where the launcher shows every process one device only, that is taken.

    Returns
    -------
    int
        The device's number.

    Raises
    ------
    RuntimeError
        No CuPy, or no device; or mpi4py.MPI is imported.

    Examples
    --------
    ::

        import allreduce
        allreduce.bind_device()
        from mpi4py import MPI
    """
    cupy = import_cupy()
    if "mpi4py.MPI" in sys.modules:
        raise RuntimeError("bind_device() comes too late: mpi4py.MPI is imported already, and MPI has begun")
    number = local_rank() % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    cuda.cache_clear()
    return number

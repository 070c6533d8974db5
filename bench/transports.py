"""The way that messages go between nodes: chosen before MPI begins, by what each library listens to."""

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .fabric import line_rate

if TYPE_CHECKING:
    from mpi4py import MPI  # what is set must be set before MPI is loaded

__all__ = ["TRANSPORTS", "VARIABLES", "Link", "choose", "link", "told"]

#: What tells MPI libraries to take a way; each goes by its own and ignores the others'.
VARIABLES: dict[str, dict[str, str]] = {
    "tcp": {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm,tcp",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
    },
    "infiniband": {
        "OMPI_MCA_pml": "ucx",
        "MPIR_CVAR_CH4_NETMOD": "ucx",
        "I_MPI_OFI_PROVIDER": "mlx",
    },
    "slingshot": {
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        "PMIX_MCA_psec": "native",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "cxi",
    },
    "shm": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm", "I_MPI_FABRICS": "shm"},
}
#: What a sweep can ask for; rdma is that of the adapters which are there.
TRANSPORTS = ("tcp", "rdma", "shm")
#: How the variables of a library begin.
BEGINNINGS = {"Open MPI": ("OMPI_", "PMIX_"), "MPICH": ("MPIR_", "FI_"), "Intel MPI": ("I_MPI_", "FI_")}


class Link(NamedTuple):
    """From rank 0 to the first rank of another node, if there is one.

    Attributes
    ----------
    peer : int or None
    bandwidth : float or None
        Bits a second, measured.
    adapter, rate : str, float; None if not known
        What they go by, and its bits a second.
    """

    peer: int | None
    bandwidth: float | None
    adapter: str | None
    rate: float | None

    def __str__(self) -> str:
        if self.bandwidth is None:
            return "point to point: all ranks are on one node, no message leaves it"
        line = f"point to point: {self.bandwidth / 1e9:.2f} Gbit/s from rank 0 to rank {self.peer}, on another node"
        if not self.rate:
            return f"{line}; line rate not known"
        return f"{line}; {self.bandwidth / self.rate:.0%} of the {self.rate / 1e9:g} Gbit/s of {self.adapter}"


def choose(transport: str, variables: MutableMapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Say so to whichever MPI library will be loaded.

    Raises
    ------
    ValueError
        rdma without adapters for it.
    """
    variables.update(VARIABLES[fabric_of(transport, root)])


def fabric_of(transport: str, root: Path = Path("/")) -> str:
    """What rdma means on this machine; ValueError if nothing."""
    if transport != "rdma":
        return transport
    for fabric, place in (("slingshot", "cxi"), ("infiniband", "infiniband")):
        if any((root / "sys/class" / place).glob("*")):
            return fabric
    raise ValueError("--transport rdma: no adapters for it, neither in /sys/class/infiniband nor in /sys/class/cxi")


def told(transport: str, vendor: str) -> dict[str, str]:
    """What was said to this library, of those that mpi4py knows."""
    listens = BEGINNINGS.get(vendor, ("",))
    return {name: value for name, value in VARIABLES[fabric_of(transport)].items() if name.startswith(listens)}


def link(transport: str, comm: "MPI.Intracomm") -> Link:
    """What it came to; collective."""
    from .links import bandwidth

    return Link(*bandwidth(comm), *(line_rate(fabric_of(transport)) or (None, None)))

"""What the rows of a sweep are made of, on the host or on a device: names of algorithms, and memory."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

from allreduce.engine import engine_of
from allreduce.routes import BY_IPC

from .devices import missing
from .knobs import native
from .memory import DeviceMemory, HostMemory
from .plan import Sweep
from .records import family, ours

__all__ = ["Place", "by_routes", "place_of"]


class Place(NamedTuple):
    """Where the same ranks measure.

    Attributes
    ----------
    names : list of str
        The algorithms, those of others included, and a device's with their routes.
    memory : HostMemory
    missing : dict
        What was asked for and cannot be had, and why.
    marks : list of str
        What makes times doubtful.
    """

    names: list[str]
    memory: HostMemory
    missing: dict[str, str]
    marks: list[str]


def place_of(sweep: Sweep, comm: MPI.Intracomm, facts: dict[str, Any]) -> Place:
    """Of these ranks; collective."""
    names, most = sweep.names(comm.size, sweep.teams(MPI.COMM_WORLD.size)), max([*sweep.lengths(), 16])
    if sweep.device == "cuda":
        return _on_device(sweep, comm, names, most)
    flush = 2 * max(facts["caches"].values(), default=1 << 25) if sweep.cold else 0
    names = list(dict.fromkeys([*names, native()]))
    return Place(names, HostMemory(sweep.buffers == "shared", most, flush, comm), {}, [])


def _on_device(sweep: Sweep, comm: MPI.Intracomm, names: list[str], most: int) -> Place:
    engine = engine_of(comm)
    device, lacks = engine.channel.device, missing(engine, sweep.route)
    found = by_routes(dict.fromkeys([*names, "nccl", native()]), sweep.route, lacks)
    marks = ["one-device"] * bool(device.shared)
    return Place(found, DeviceMemory(device.cuda, most, sweep.cold), lacks, marks)


def by_routes(names: Iterable[str], routes: Sequence[str], missing: Iterable[str]) -> list[str]:
    """The names with each route that is there, without one where it is chosen.

    >>> by_routes(["ring", "direct", "nccl", "native"], ["auto", "staged", "ipc"], ["nccl"])
    ['ring', 'ring@staged', 'direct', 'direct@staged', 'direct@ipc', 'native']
    """
    found = []
    for name in (name for name in names if family(name) not in missing):
        there = [route for route in routes if route not in missing and (route != "ipc" or name in ("auto", *BY_IPC))]
        found += [f"{name}@{route}".removesuffix("@auto") for route in there] if ours(name) else [name]
    return found

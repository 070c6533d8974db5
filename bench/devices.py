"""What is known of CUDA devices, and the way that arrays on them go."""

from collections.abc import Iterable, Sequence

import numpy as np
from mpi4py import MPI

import compress
from allreduce.engine import Engine
from allreduce.execute.aware import VARIABLE, is_aware, kept
from allreduce.execute.device_codes import of_device
from allreduce.execute.device_kernels import name_of
from allreduce.execute.plan import DEVICE, Order
from allreduce.routes import placed

from . import nccl
from .plan import Group
from .preflight import gathered

__all__ = ["agree", "check", "devices", "missing"]

SIZES = (1 << 10, 1 << 26)
#: Whether MPI can reduce there: a process alone has nobody to reduce with, but may ask for the same step.
REDUCTION = """
import cupy
from mpi4py import MPI
x, y = cupy.arange(1 << 20, dtype="f"), cupy.ones(1 << 20, "f")
cupy.cuda.Device().synchronize()
from_, to = ([MPI.memory.fromaddress(a.data.ptr, a.nbytes), MPI.FLOAT] for a in (x, y))
MPI.SUM.Reduce_local(from_, to)
assert (y == x + 1).all()
MPI.COMM_SELF.Allreduce(from_, to)
assert (y == x).all()
print("arrived")
"""


def agree(comm: MPI.Intracomm, wrong: str) -> None:
    """ValueError on all ranks if any has found something wrong; collective."""
    reasons = [each["wrong"] for each in gathered(comm, {"wrong": wrong})]
    if wrong := next(filter(None, reasons), ""):
        raise ValueError(f"--device cuda: {wrong}")


def check(groups: Iterable[Group], codecs: Iterable[str]) -> None:
    """TypeError for what has no kernels."""
    for dtype in {group.dtype for group in groups}:
        name_of(dtype)
        for text in codecs:
            of_device(compress.get(text), dtype, 1)


def missing(engine: Engine, routes: Sequence[str]) -> dict[str, str]:
    """Which rows of a sweep cannot be had on these devices, and why, the same on all ranks; collective."""
    channel, aware = engine.channel, is_aware(engine.channel.comm)
    everyone, found = tuple(range(channel.size)), {}
    if not (aware and reduces(channel.comm)):
        found["native"] = "this MPI does not reduce arrays on a device"
    if channel.device.shared:
        found["nccl"] = "ranks have one device together"
    elif not nccl.whose(channel.comm):
        found["nccl"] = "neither CuPy nor PyTorch has it here"
    if "aware" in routes and not aware:
        found["aware"] = f"this MPI takes no messages from devices; {VARIABLE}=1 says that it does"
    if "ipc" in routes and not (channel.together and channel.device.neighbours(everyone, DEVICE.areas)):
        found["ipc"] = "not all ranks can map each other's memory"
    return found


def reduces(comm: MPI.Intracomm) -> bool:
    """Whether MPI reduces there on all nodes, of each of which one rank tries; collective."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = local.rank > 0 or kept(REDUCTION)
    local.Free()
    return nccl.everywhere(comm, mine)


def devices(engine: Engine, driver: str | None) -> list[str]:
    """A line on the devices and, if they can be used, on the route of a short and of a long array; collective."""
    try:
        device = engine.channel.device
    except RuntimeError as error:
        return [f"host memory only{', NVIDIA driver ' + driver if driver else ''}: {error}"]
    groups = "; ".join("ranks " + ", ".join(map(str, group)) for group in device.shared)
    lines = [f"CUDA, NVIDIA driver {driver}; {groups + ' have one together' if groups else 'one for each rank'}"]
    for nbytes in SIZES:
        order = placed(engine, Order("allreduce", "ring", nbytes // 4, np.dtype(np.float32)), "auto", False, True)
        lines.append(f"{nbytes} bytes by {'ipc' if order.inside else order.route}; see ALLREDUCE_ROUTE")
    return lines

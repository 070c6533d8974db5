"""Running a plan on a CUDA device: the Python interpreter of the table, on device memory.

All kernels and copies of a channel are asked of one stream, so they follow each other; the caller's streams are waited
for before, and wait for us after. Nothing is waited for on the host but messages.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .carriers import Aware, Staged
from .loop import DONE
from .neighbours import Neighbours, neighbours
from .operation import Interpreted, Scratch
from .table import HEAD, SEND

if TYPE_CHECKING:
    from .bound import Plan
    from .channel import Channel
    from .layout import Areas

__all__ = ["CARRIERS", "Device", "Launched"]

#: How messages travel, by name.
CARRIERS: dict[str, Any] = {"aware": Aware, "staged": Staged}
#: Lists of addresses that a device keeps.
MOST_LISTS = 256

#: A buffer and an offset in it.
Place = tuple[int, int]


class DeviceScratch(Scratch):
    """Scratch memory on a device, and what carries the messages of those who use it, one after the other.

    Of operations in flight beside each other every one has its own: they may post messages in another order on every
    rank, and would wait for each other's pinned buffers.
    """

    def __init__(self, device: "Device") -> None:
        super().__init__()
        self.cuda = device.cuda
        self.carriers = {name: make(device.cuda, device.work, device.channel.comm) for name, make in CARRIERS.items()}

    def allocate(self, nbytes: int) -> None:
        self.free()
        self.address = self.cuda.malloc(nbytes)

    def free(self) -> None:
        """Give it back; CUDA waits until nothing on the device uses it."""
        if self.address:
            self.cuda.free(self.address)
        self.nbytes = self.address = 0

    def close(self) -> None:
        """Give all memory back."""
        self.free()
        for carrier in self.carriers.values():
            carrier.free()


class Device:
    """What all operations of a channel share on a device; collective."""

    def __init__(self, channel: "Channel", cuda: Any) -> None:
        self.channel, self.cuda = channel, cuda
        self.work = cuda.stream()
        self.scratches: list[DeviceScratch] = []
        self.scratch = self.new_scratch()
        self.groups: dict[tuple[int, ...], Neighbours | None] = {}
        self.lists: dict[tuple[int, ...], int] = {}
        #: bytes of an array from which MPI itself takes messages from the device, once that is known
        self.direct_from: int | None = None
        #: groups of ranks whose device is one
        self.shared = together(channel, cuda.name)
        if self.shared and channel.rank == 0:
            groups = "; ".join(", ".join(map(str, group)) for group in self.shared)
            warnings.warn(
                f"ranks have one device together: {groups}; allreduce.bind_device() before MPI begins gives each rank "
                "another, as long as there are some",
                RuntimeWarning,
                stacklevel=2,
            )

    def new_scratch(self) -> DeviceScratch:
        self.scratches.append(DeviceScratch(self))
        return self.scratches[-1]

    def neighbours(self, members: tuple[int, ...], areas: "Areas") -> "Neighbours | None":
        """Ranks that map each other's memory, if they can; collective over them on first use."""
        if members not in self.groups:
            node = self.channel.inside(members)
            self.groups[members] = neighbours(self.cuda, self.work, node, areas.nbytes)
        return self.groups[members]

    def listed(self, addresses: tuple[int, ...]) -> int:
        """Where these numbers are on the device."""
        if addresses not in self.lists:
            if len(self.lists) == MOST_LISTS:
                self.forget()
            self.lists[addresses] = self.cuda.malloc(8 * len(addresses))
            self.cuda.upload(self.lists[addresses], np.array(addresses, np.int64))
        return self.lists[addresses]

    def forget(self) -> None:
        """Give the lists back; CUDA waits until nothing on the device uses them."""
        for address in self.lists.values():
            self.cuda.free(address)
        self.lists.clear()

    def close(self, orderly: bool) -> None:
        """Give all memory back, but not if messages may still come in; collective if `orderly`."""
        if orderly:
            self.cuda.synchronize()
            for group in self.groups.values():
                if group is not None:
                    group.close()
            for scratch in self.scratches:
                scratch.close()
            self.forget()


def together(channel: "Channel", name: bytes) -> list[list[int]]:
    """Groups of ranks whose devices have the same name, of 16 bytes; collective."""
    names = np.empty((channel.size, 16), np.uint8)
    channel.comm.Allgather(np.frombuffer(name, np.uint8), names)
    ranks: dict[bytes, list[int]] = {}
    for rank, other in enumerate(names):
        ranks.setdefault(other.tobytes(), []).append(rank)
    return [group for group in ranks.values() if len(group) > 1]


class DeviceMemory:
    """A device's memory, for one run of a table; parameters and methods are those of a `HostMemory`."""

    def __init__(self, plan: "Plan", bases: tuple[int, ...], tag: int, number: int, carrier: Any) -> None:
        self.device: Device = plan.channel.device
        self.carrier = carrier
        self.near: Any = plan.near
        self.kernels, self.tag, self.number = plan.table.kernels, tag, number
        self.bases = bases
        if self.near:  # flags have no addresses, parts are the second group
            self.bases += (*[0] * self.near.size, *self.near.parts)

    def at(self, buffer: int, offset: int) -> int:
        return self.bases[buffer] + offset

    def post(self, kind: int, peer: int, buffer: int, offset: int, nbytes: int, varies: int) -> Any:
        address = self.at(buffer, offset)
        if varies and kind == SEND:
            nbytes = varies + int.from_bytes(self.device.cuda.read(address, HEAD), "little")
        return self.carrier.post(kind, peer, address, nbytes, self.tag)

    def arrived(self, messages: list[Any]) -> bool:
        return self.carrier.arrived(messages)

    def copy(self, to: Place, from_: Place, nbytes: int) -> None:
        target, origin = self.at(*to), self.at(*from_)
        if target != origin:
            self.device.cuda.copy(target, origin, nbytes, self.device.work)

    def apply(self, kernel: int, out: Place, a: Place, b: Place, count: int, number: int) -> None:
        self.kernels[kernel].call(self.at(*out), self.at(*a), self.at(*b), count, self.number + number)

    def signal(self) -> None:
        self.near.signal()

    def met(self) -> bool:
        return self.near.met()

    def fuse(self, kernel: int, out: Place, own: Place, others: Place, count: int, also: Place) -> None:
        """out = also = the sum of our own values and those of the others, in rank order."""
        first, offset = others
        parts = [self.at(first + q, offset) for q in range(self.near.size)]
        parts[self.near.rank] = self.at(*own)
        where = self.device.listed(tuple(parts))
        self.kernels[kernel].call(self.at(*out), where, len(parts), count, self.at(*also))


class Launched(Interpreted):
    """Run by the Python interpreter on a device."""

    def __init__(self, plan: "Plan", scratch: Scratch) -> None:
        self.device: Device = plan.channel.device
        self.streams: list[Any] = []
        super().__init__(plan, scratch)

    def start(self, arrays: tuple[Any, ...]) -> None:
        self.streams = list(dict.fromkeys(stream for array in arrays for stream in array.streams()))
        super().start(arrays)
        cuda = self.device.cuda
        with cuda.on(self.device.work):
            for stream in self.streams:
                cuda.wait(self.device.work, cuda.record(stream))

    def memory(self, bases: tuple[int, ...], tag: int, number: int) -> DeviceMemory:
        assert isinstance(self.scratch, DeviceScratch)
        return DeviceMemory(self.plan, bases, tag, number, self.scratch.carriers[self.plan.order.route])

    def advance(self, patient: bool) -> int:
        cuda, work = self.device.cuda, self.device.work
        with cuda.on(work):
            code = super().advance(patient)
            if code == DONE:
                end = cuda.record(work)
                for stream in self.streams:
                    cuda.wait(stream, end)
                self.streams = []
        return code

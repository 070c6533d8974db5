"""A ring written down directly, without a schedule: the independent witness, and the yardstick for the executor.

`mpiexec -n 4 python tests/mpi/direct_ring.py` times it beside the executor's ring, the same messages in both.
"""

import time
from itertools import pairwise

import numpy as np
from mpi4py import MPI


def direct_ring(comm, send, recv):
    """All-reduce by a ring: p-1 steps of adding a block from the left, p-1 steps of passing sums on."""
    size, rank = comm.size, comm.rank
    left, right = (rank - 1) % size, (rank + 1) % size
    cuts = [send.size * b // size for b in range(size + 1)]
    blocks = [recv[a:b] for a, b in pairwise(cuts)]
    box = np.empty_like(blocks[-1])
    np.copyto(recv, send)
    for k in range(1, size):
        out, into = blocks[(rank - k) % size], blocks[(rank - k - 1) % size]
        comm.Sendrecv(out, right, recvbuf=box[: into.size], source=left)
        np.add(into, box[: into.size], out=into)
    for k in range(size - 1):
        comm.Sendrecv(blocks[(rank - k) % size], right, recvbuf=blocks[(rank - k - 1) % size], source=left)


def main():
    """Print what the executor adds to, or saves on, the direct ring."""
    import allreduce

    comm = MPI.COMM_WORLD
    ways = {
        "direct": lambda x, y: direct_ring(comm, x, y),
        "executor": lambda x, y: allreduce.allreduce(x, y, algorithm="ring"),
    }
    if comm.rank == 0:
        print("bytes      direct(us)  executor(us)  ratio")
    for count in (1, 256, 1 << 14, 1 << 18, 1 << 22):
        x, y = np.ones(count, np.float32), np.empty(count, np.float32)
        samples = {name: [] for name in ways}
        for _ in range(51 if count < 1 << 20 else 11):
            for name, way in ways.items():
                comm.Barrier()
                begin = time.perf_counter()
                way(x, y)
                samples[name].append(time.perf_counter() - begin)
        slowest = np.array([samples["direct"], samples["executor"]])
        comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
        if comm.rank == 0:
            direct, executor = np.median(slowest, axis=1) * 1e6
            print(f"{x.nbytes:9d}  {direct:10.1f}  {executor:12.1f}  {np.median(slowest[1] / slowest[0]):5.2f}")


if __name__ == "__main__":
    main()

"""The executor's ring against one written down directly: the same bits."""

import numpy as np
import pytest
from direct_ring import direct_ring
from mpi4py import MPI

import allreduce

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("count", [0, 1, COMM.size - 1, COMM.size + 1, 1009, 70_001])
def test_same_bits_as_the_direct_ring(dtype, count):
    send = (np.random.default_rng(COMM.rank).standard_normal(count) * 100).astype(dtype)
    direct, ours = np.empty_like(send), np.empty_like(send)
    direct_ring(COMM, send, direct)
    allreduce.allreduce(send, ours, algorithm="ring")
    assert COMM.allreduce(direct.tobytes() == ours.tobytes(), MPI.LAND)

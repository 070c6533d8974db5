"""What runs kernels on the CPU finds the faults of kernels."""

import cpu
import numpy as np
import pytest
from memory import guarded

pytestmark = cpu.needs_compiler
SOURCE = """
__shared__ float room[64];
extern "C" __global__ void turned(float* x, const float* a) {
    room[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = room[63 - threadIdx.x];
}
extern "C" __global__ void hasty(float* x, const float* a) {
    room[threadIdx.x] = a[threadIdx.x];
    x[threadIdx.x] = room[63 - threadIdx.x];
}
extern "C" __global__ void warps(unsigned* x) {
    unsigned lane = threadIdx.x % 32, odd = __ballot_sync(~0u, lane & 1);
    x[threadIdx.x] = odd + __shfl_xor_sync(~0u, lane, 3) + 100 * __shfl_sync(~0u, threadIdx.x, 5);
}
extern "C" __global__ void parted(float* x) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void alone(float* x) { if (threadIdx.x < 40) __syncthreads(); }
extern "C" __global__ void gone(float* x) { if (threadIdx.x < 40) __ballot_sync(~0u, 1); }
extern "C" __global__ void some(float* x) { __ballot_sync(0xFFFF, 1); }
extern "C" __global__ void beyond(float* x) { x[threadIdx.x + 1] = 0; }
extern "C" __global__ void beyond_shared(float* x) { room[threadIdx.x + 1] = x[0]; }
extern "C" __global__ void aslant(float* x) { *(uint4*)((char*)x + 4) = uint4{0, 0, 0, 0}; }
extern "C" __global__ void shifted(float* x) { ((int*)x)[threadIdx.x] = 1 << threadIdx.x; }
"""


def run(name, *arrays, times=4):
    function = cpu.module(SOURCE).get_function(name)
    for _ in range(times):  # in every order
        function((1,), (64,), [x.ctypes.data for x in arrays])
        yield arrays[0].copy()


def test_shared_memory_and_barriers():
    a = np.arange(64, dtype=np.float32)
    assert all((x == a[::-1]).all() for x in run("turned", np.zeros_like(a), a))


def test_warp_operations():
    lane = np.arange(64) % 32
    right = 0xAAAAAAAA + (lane ^ 3) + 100 * (np.arange(64) // 32 * 32 + 5)
    assert all((x == right).all() for x in run("warps", np.zeros(64, np.uint32)))


def test_a_missing_barrier_gives_a_wrong_result():
    a = np.arange(64, dtype=np.float32)
    assert not all((x == a[::-1]).all() for x in run("hasty", np.zeros_like(a), a))


@pytest.mark.parametrize("name, fault", [
    ("parted", "at different lines"), ("alone", "not all threads reach"), ("gone", "not all threads reach"),
    ("some", "some lanes only"), ("beyond", "bad address"), ("beyond_shared", "undefined"), ("aslant", "undefined"),
    ("shifted", "undefined"),
])  # fmt: skip
def test_faults_are_found(name, fault):
    with pytest.raises(cpu.KernelError, match=f"{name}: block 0, thread .*{fault}"):
        list(run(name, guarded(np.zeros(64, np.float32))))

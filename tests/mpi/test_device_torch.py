"""Tensors on a device in PyTorch's place: a stand-in for them on the fake, since without a GPU there are none."""

import threading
from contextlib import contextmanager

import cpu
import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, Verdict, exact, reduced

import allreduce

torch = pytest.importorskip("torch")

from allreduce.averaging import Averager  # noqa: E402

pytestmark = [pytest.mark.mpi, cpu.needs_compiler]
F = np.dtype("f")


class Tensor:
    """What is asked of a tensor of torch.cuda."""

    is_cpu, is_cuda, device, layout, dtype = False, True, "cuda:0", torch.strided, "torch.float32"

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def detach(self):
        return self

    contiguous = detach

    def is_contiguous(self):
        return True

    def stride(self):
        return (1,)

    def data_ptr(self):
        return self.array.address


Tensor.__module__ = "torch"


@pytest.fixture
def stream(fake, monkeypatch):
    """What torch.cuda calls current in this thread; in every other it is another one."""
    here = threading.local()
    own, default = fake.stream(), fake.stream()
    own.cuda_stream, default.cuda_stream = own.handle, default.handle
    here.stream = own

    @contextmanager
    def current(stream):
        before, here.stream = getattr(here, "stream", default), stream
        yield
        here.stream = before

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: getattr(here, "stream", default))
    monkeypatch.setattr(torch.cuda, "stream", current)
    return own


def test_the_current_stream_of_pytorch_is_minded(fake, stream, comm):
    data = exact(F, "sum", 100)
    with Verdict() as verdict:
        tensor = Tensor(fake.put(data[RANK], stream))
        verdict.check(allreduce.allreduce(tensor, tensor, comm=comm) is tensor)
        verdict.equal(fake.get(tensor.array, stream), reduced(data, "sum"))


@pytest.mark.parametrize("overlap", [False, True])
def test_means_follow_the_stream_of_whoever_asks(fake, stream, overlap):
    data, averager = exact(F, "avg", 100), Averager(None, MPI.COMM_WORLD, overlap=overlap)
    with Verdict() as verdict:
        tensor = Tensor(fake.put(data[RANK], stream))
        averager.mean(tensor, {}).wait()
        verdict.equal(fake.get(tensor.array, stream), reduced(data, "avg"))
    averager.close()


def test_what_needs_host_memory_says_so(fake, stream):
    averager = Averager("feedback(int8)", MPI.COMM_WORLD, overlap=False)
    tensor = Tensor(fake.put(np.ones(4, F), stream))
    with pytest.raises(TypeError, match=r"feedback\(int8\) is for gradients in host memory"):
        averager.mean(tensor, {"weight": tensor})
    averager.close()

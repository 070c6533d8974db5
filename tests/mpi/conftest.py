"""What the tests under the launcher share."""

import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, modules_with

import allreduce
import compress.kernels_device.methods  # noqa: F401
from allreduce import routes
from allreduce.engine import engine_of
from allreduce.execute import aware, cuda, device_kernels, mpi_abi, plan
from allreduce.execute.device import CARRIERS
from allreduce.execute.layout import Areas

sys.path.append(str(Path(__file__).parents[1] / "device"))
#: On a device: pieces of messages, and segments of memory that ranks map.
PIECE, AREA = 256, 1024


@pytest.fixture
def python_loop(monkeypatch):
    """Communicators made from now on run the Python interpreter of the table."""
    for module in modules_with("library", mpi_abi.library):
        monkeypatch.setattr(module, "library", lambda: None)


@pytest.fixture
def comm():
    """A Communicator of one test's own."""
    with allreduce.Communicator(MPI.COMM_WORLD) as comm:
        yield comm


@pytest.fixture(params=routes.ROUTES)
def route(request, monkeypatch):
    """How messages go between devices."""
    if request.param == "ipc" and not engine_of(MPI.COMM_WORLD).channel.together:
        pytest.skip("ranks on several nodes")
    monkeypatch.setenv("ALLREDUCE_ROUTE", request.param)
    return request.param


@pytest.fixture
def fake(request, monkeypatch):
    """What is CUDA from now on."""
    from fake import Fake
    from watched import Watched

    from compress import on_device
    from compress.kernels_device import lookup

    straight = "route" in request.fixturenames and request.getfixturevalue("route") == "aware"
    fake = Fake(RANK, straight, seed=len(request.node.name))
    for module in modules_with("cuda", cuda.cuda):
        monkeypatch.setattr(module, "cuda", lambda: fake)
    monkeypatch.setattr(device_kernels, "module", fake.module)
    for module in (lookup, on_device):
        monkeypatch.setattr(module, "coding", fake.coding)
    for name, carrier in CARRIERS.items():

        def watched(cuda, work, comm, carrier=carrier):
            return carrier(cuda, work, Watched(comm, fake))

        monkeypatch.setitem(CARRIERS, name, watched)
    monkeypatch.setenv(aware.VARIABLE, "0")
    monkeypatch.setattr(plan, "DEVICE", plan.DEVICE._replace(areas=Areas(0, AREA), segment=PIECE))
    return fake


@pytest.fixture(scope="module")
def gloo():
    """PyTorch's default group is ours; yields one of gloo's."""
    import torch
    import torch.distributed as dist

    import allreduce.torch_backend  # noqa: F401
    from bench.gloo import end_group

    torch.set_num_threads(1)
    end_group()  # that of a sweep with gloo
    dist.init_process_group("allreduce")
    yield dist.new_group(backend="gloo")
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def together(request):
    """Start and end every test on all ranks at once, so that a report names the test that hangs."""
    MPI.COMM_WORLD.Barrier()
    np.seterr(all="ignore")
    yield

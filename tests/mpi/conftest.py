"""What the tests under the launcher share."""

import numpy as np
import pytest
from mpi4py import MPI
from witness import modules_with

import allreduce
from allreduce.execute import mpi_abi


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


@pytest.fixture(autouse=True)
def together(request):
    """Start and end every test on all ranks at once, so that a report names the test that hangs."""
    MPI.COMM_WORLD.Barrier()
    np.seterr(all="ignore")
    yield

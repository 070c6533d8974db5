"""The fake device finds what is touched too early."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from clocks import Array, OrderError
from fake import Fake

X = np.arange(8, dtype=np.float32)


@pytest.fixture
def fake():
    return Fake(0)


def copied(fake, from_, stream):
    to = Array(fake, from_.shape, from_.dtype)
    fake.copy(to.address, from_.address, from_.nbytes, stream)
    return to


def test_order_by_events(fake):
    one, other = fake.stream(), fake.stream()
    x = fake.put(X, one)
    fake.wait(other, fake.record(one))
    y = copied(fake, x, other)
    fake.wait(one, fake.record(other))
    assert (fake.get(y, one) == X).all()


def test_what_is_too_early(fake):
    one, other = fake.stream(), fake.stream()
    x = fake.put(X, one)
    with pytest.raises(OrderError, match="read without waiting for who wrote it"):
        copied(fake, x, other)
    with pytest.raises(OrderError, match="read before it is written"):
        copied(fake, Array(fake, X.shape, X.dtype), one)
    early = fake.record(one)
    y, z = copied(fake, x, one), fake.put(X, other)
    fake.wait(other, early)
    with pytest.raises(OrderError, match="written without waiting for who reads it"):
        fake.copy(x.address, z.address, X.nbytes, other)
    with pytest.raises(OrderError, match="written without waiting for who wrote it"):
        fake.copy(y.address, z.address, X.nbytes, other)


def test_the_host_knows_what_it_has_asked(fake):
    x, room = fake.put(X), fake.pinned(X.nbytes)
    fake.copy(room, x.address, X.nbytes, fake.active)
    event = fake.record(fake.active)
    with pytest.raises(OrderError, match="without waiting"):
        fake.free_pinned(room)
    while not fake.done(event):
        pass
    fake.free_pinned(room)


def test_device_memory_is_locked():
    """Who touches it ends the process; so would a copy by NumPy."""
    text = "from fake import Fake; import ctypes; fake = Fake(0); ctypes.string_at(fake.malloc(8), 8)"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", text], env=os.environ | {"PYTHONPATH": paths}, capture_output=True)
    assert done.returncode == -signal.SIGSEGV


def test_events_know_when(fake):
    """What a stream waits for takes its time, too; who asks has waited."""
    one, other, (first, last) = fake.stream(), fake.stream(), (fake.timed_event() for _ in range(2))
    fake.record(one, first)
    fake.busy(other, 1000)
    fake.wait(one, fake.record(other))
    fake.record(one, last)
    with pytest.raises(OrderError, match="before the host has waited"):
        fake.seconds(first, last)
    fake.synchronize()
    assert 1000 <= fake.seconds(first, last) < 1100
    with pytest.raises(OrderError, match="before the host has waited"):
        fake.seconds(last, fake.timed_event())

"""What we ask of CuPy, as far as that can be known without a device: by a stand-in that keeps its rules."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from allreduce.execute import cuda


class Place(threading.local):
    """Which device is current in a thread; 0 in a new one, as in CUDA."""

    number = 0


@pytest.fixture
def place(monkeypatch):
    """CuPy's devices: each remembers, for all threads, what was current before it was entered."""
    here = Place()

    class Device:
        def __init__(self, number=None):
            self.id, self.before = here.number if number is None else number, []

        def __enter__(self):
            self.before.append(here.number)
            here.number = self.id

        def __exit__(self, *_):
            here.number = self.before.pop()

    api = SimpleNamespace(Device=Device, runtime=SimpleNamespace(), get_current_stream=lambda number: ("of", number))
    monkeypatch.setattr(cuda, "import_cupy", lambda: SimpleNamespace(cuda=api, empty=lambda *_: here.number))
    return here


def test_each_thread_comes_back_to_its_own_device(place):
    """A thread of ours begins on device 0, and may be inside when another enters or leaves."""
    place.number = 3
    device, inside, left = cuda.Cuda(), threading.Event(), threading.Event()
    found = []

    def elsewhere():
        with device.on(nullcontext()):
            inside.set()
            left.wait(10)
            found.append(place.number)
        found.append(place.number)

    thread = threading.Thread(target=elsewhere)
    with device.on(nullcontext()):
        thread.start()
        inside.wait(10)
    assert place.number == 3
    left.set()
    thread.join()
    assert found == [3, 0]


def test_arrays_and_streams_are_of_our_device(place):
    place.number = 2
    device = cuda.Cuda()
    place.number = 1
    assert device.number == 2 and device.current() == ("of", 2)
    assert device.empty((1,), None, "C") == 2 and place.number == 1

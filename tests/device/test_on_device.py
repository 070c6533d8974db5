"""Codecs given arrays on a device, which a stand-in for CuPy plays: what cannot be read by NumPy is not."""

import ctypes
import sys
from types import SimpleNamespace

import cpu
import numpy as np
import pytest
from data import bits, gradients
from memory import guarded

import compress
from compress import Context

pytestmark = [cpu.needs_compiler, pytest.mark.usefixtures("on_cpu")]
AT = Context(step=2, offset=512, rank=1, size=2)
CURRENT = 77


class Array:
    """An array on the device."""

    __array_ufunc__ = None

    def __init__(self, values, **face):
        self.values = values
        typestr = "<V2" if values.dtype.name == "bfloat16" else values.dtype.str
        self.__cuda_array_interface__ = {
            "shape": values.shape, "typestr": typestr, "data": (values.ctypes.data if values.size else 0, False),
            "strides": None, "version": 3, "stream": CURRENT, **face,
        }  # fmt: skip

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion")

    def __getitem__(self, part):
        return Array(self.values[part])


@pytest.fixture(autouse=True)
def waited(monkeypatch):
    """Plays CuPy; the streams that are waited for."""
    waited = []

    def copy(to, from_, nbytes, kind, stream):
        assert (kind, stream) == (2, CURRENT)
        ctypes.memmove(to, from_, nbytes)

    runtime = SimpleNamespace(memcpyAsync=copy, memcpyDeviceToHost=2, streamSynchronize=waited.append)
    stream = SimpleNamespace(ptr=CURRENT, synchronize=lambda: waited.append(CURRENT))
    cupy = SimpleNamespace(
        is_available=lambda: True,
        empty=lambda n, dtype: Array(guarded(np.full(-(-n // 8) * 8, 0xA5, dtype))[:n]),
        cuda=SimpleNamespace(runtime=runtime, get_current_stream=lambda: stream),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    yield waited


@pytest.mark.parametrize(
    "text", ["int4", "topk:ratio=0.1", "threshold:least=1", "blocktopk:ratio=0.2", "randomk:ratio=0.1", "bounded"]
)
@pytest.mark.parametrize("shape", [(5000,), (3, 7, 40), ()], ids=str)
def test_messages_are_those_of_the_host(text, shape):
    codec, x = compress.get(text), gradients(int(np.prod(shape)))["gaussian"].reshape(shape)
    right = codec.encode(x, at=AT)
    message = codec.encode(Array(x), at=AT)
    assert message.values.tobytes() == right.tobytes()
    room = Array(np.full(codec.nbytes(x.size) + 8, 9, np.uint8))
    part = codec.encode(Array(x), room, AT)
    assert part.values.tobytes() == right.tobytes() and (room.values[codec.nbytes(x.size) :] == 9).all()
    for add in (False, True):
        start = gradients(x.size, seed=1)["gaussian"].reshape(shape)
        wanted, out = codec.decode(right, start.copy(), add), Array(start.copy())
        assert codec.decode(message, out, add) is out
        assert np.array_equal(bits(out.values), bits(wanted))


def test_bfloat16_has_no_name_there():
    x, codec = gradients(300)["gaussian"].astype("bfloat16"), compress.get("int8")
    assert codec.encode(Array(x)).values.tobytes() == codec.encode(x).tobytes()


def test_what_another_stream_does_is_waited_for(waited):
    x, codec = gradients(300)["gaussian"], compress.get("int8")
    codec.encode(Array(x))
    assert waited == []
    codec.encode(Array(x, stream=5))
    assert waited == [5]


@pytest.mark.parametrize("text", ["elias", "lossless", "sparse"])
def test_codecs_without_kernels_say_which_have_some(text):
    codec, x = compress.get(text), np.zeros(8, np.float32)
    for call in (lambda: codec.encode(Array(x)), lambda: codec.decode(Array(np.zeros(3, np.uint8)), Array(x))):
        with pytest.raises(TypeError, match=rf"{text}.* has no kernels for a CUDA device; have float16, .*randomk"):
            call()


def test_what_does_not_fit_is_refused():
    codec, x = compress.get("topk:ratio=0.5"), np.zeros(8, np.float32)
    message = Array(codec.encode(x))
    for error, match, call in (
        (TypeError, "cannot encode dtype int32", lambda: codec.encode(Array(x.view(np.int32)))),
        (TypeError, "cannot decode to dtype int32", lambda: codec.decode(message, Array(x.view(np.int32)))),
        (TypeError, "array of uint8, not of float32", lambda: codec.decode(Array(x), Array(x))),
        (TypeError, "on one device or on the host", lambda: codec.decode(message.values, Array(x))),
        (ValueError, "has 32 bytes, not 28", lambda: codec.decode(message[:28], Array(x))),
        (ValueError, "does not fit 8 of", lambda: compress.get("threshold").decode(message[:28], Array(x))),
        (ValueError, "begins at a multiple of 8", lambda: codec.decode(Array(np.zeros(40, np.uint8)[1:33]), Array(x))),
        (ValueError, "takes 32 bytes .* not 24", lambda: codec.encode(Array(x), message[:24])),
        (ValueError, "is contiguous, not", lambda: codec.encode(Array(x, strides=(8,)))),
        (ValueError, "read-only", lambda: codec.decode(message, Array(x, data=(x.ctypes.data, True)))),
    ):
        with pytest.raises(error, match=match):
            call()


def test_without_a_device_there_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match="need CuPy: pip install"):
        compress.get("int8").encode(Array(np.zeros(8, np.float32)))

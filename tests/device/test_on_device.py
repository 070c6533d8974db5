"""Codecs given arrays on a device, which is a fake: what only a stream may read nobody else reads."""

import sys

import cpu
import numpy as np
import pytest
from clocks import Array, OrderError
from data import bits, gradients
from fake import Fake

import compress
from allreduce.execute import cuda, device_arrays, device_kernels, device_memory
from compress import Context, on_device
from compress.kernels_device import lookup

pytestmark = cpu.needs_compiler
AT = Context(step=2, offset=512, rank=1, size=2)


@pytest.fixture
def fake(monkeypatch):
    fake = Fake(0)
    for module in (cuda, device_arrays, device_memory, on_device):
        monkeypatch.setattr(module, "cuda", lambda: fake)
    monkeypatch.setattr(device_kernels, "module", fake.module)
    for module in (lookup, on_device):
        monkeypatch.setattr(module, "coding", fake.coding)
    return fake


@pytest.mark.parametrize(
    "text", ["int4", "topk:ratio=0.1", "threshold:least=1", "blocktopk:ratio=0.2", "randomk:ratio=0.1", "bounded"]
)
@pytest.mark.parametrize("shape", [(5000,), (3, 7, 40), ()], ids=str)
def test_messages_are_those_of_the_host(fake, text, shape):
    codec, x = compress.get(text), gradients(int(np.prod(shape)))["gaussian"].reshape(shape)
    right = codec.encode(x, at=AT)
    message = codec.encode(fake.put(x), at=AT)
    assert fake.get(message).tobytes() == right.tobytes()
    room = fake.put(np.full(codec.nbytes(x.size) + 8, 9, np.uint8))
    part = codec.encode(fake.put(x), room, AT)
    assert fake.get(part).tobytes() == right.tobytes() and (fake.get(room)[codec.nbytes(x.size) :] == 9).all()
    for add in (False, True):
        start = gradients(x.size, seed=1)["gaussian"].reshape(shape)
        wanted, out = codec.decode(right, start.copy(), add), fake.put(start)
        assert codec.decode(message, out, add) is out
        assert np.array_equal(bits(fake.get(out)), bits(wanted))


def test_bfloat16_has_no_name_there(fake):
    x, codec = gradients(300)["gaussian"].astype("bfloat16"), compress.get("int8")
    assert fake.get(codec.encode(fake.put(x))).tobytes() == codec.encode(x).tobytes()


def test_what_other_streams_do_comes_before_and_after(fake, monkeypatch):
    x, codec, one = gradients(300)["gaussian"], compress.get("int8"), fake.stream()
    room = fake.put(np.zeros(codec.nbytes(300), np.uint8), one, stream=one.handle)
    codec.encode(fake.put(x, one, stream=one.handle), room)
    assert fake.get(room, one).tobytes() == codec.encode(x).tobytes()
    monkeypatch.setattr(device_arrays.OnDevice, "streams", lambda self: [])
    with pytest.raises(OrderError, match="read without waiting"):
        codec.encode(fake.put(x, one, stream=one.handle))


@pytest.mark.parametrize("text", ["elias", "lossless", "sparse"])
def test_codecs_without_kernels_say_which_have_some(fake, text):
    codec, x = compress.get(text), np.zeros(8, np.float32)
    message = fake.put(np.zeros(3, np.uint8))
    for call in (lambda: codec.encode(fake.put(x)), lambda: codec.decode(message, fake.put(x))):
        with pytest.raises(TypeError, match=rf"{text}.* has no kernels for a CUDA device; have float16, .*randomk"):
            call()


def test_what_to_take_for_a_code_that_is_read_bit_by_bit(fake):
    with pytest.raises(TypeError, match="for elias take qsgd, which rounds alike, to a fixed width"):
        compress.get("elias").encode(fake.put(np.zeros(8, np.float32)))


def test_what_does_not_fit_is_refused(fake):
    codec, x = compress.get("topk:ratio=0.5"), np.zeros(8, np.float32)
    message, whole, array = codec.encode(x), fake.put(np.zeros(40, np.uint8)), fake.put(x)
    integers = fake.put(x.view(np.int32))
    for error, match, call in (
        (TypeError, "cannot encode dtype int32", lambda: codec.encode(integers)),
        (TypeError, "cannot decode to dtype int32", lambda: codec.decode(whole[:32], integers)),
        (TypeError, "array of uint8, not of float32", lambda: codec.decode(array, array)),
        (TypeError, "on one device or on the host", lambda: codec.decode(message, array)),
        (ValueError, "has 32 bytes, not 28", lambda: codec.decode(whole[:28], array)),
        (ValueError, "does not fit 8 of", lambda: compress.get("threshold").decode(whole[:28], array)),
        (ValueError, "begins at a multiple of 8", lambda: codec.decode(whole[1:33], array)),
        (ValueError, "takes 32 bytes .* not 24", lambda: codec.encode(array, whole[:24])),
        (ValueError, "not contiguous", lambda: codec.encode(fake.put(x, strides=(8,)))),
        (ValueError, "read-only", lambda: codec.decode(whole[:32], fake.put(x, read_only=True))),
    ):
        with pytest.raises(error, match=match):
            call()


def test_without_a_device_there_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda.cuda.cache_clear()

    class Somewhere:
        __cuda_array_interface__ = {"shape": (8,), "typestr": "<f4", "data": (16, False), "version": 3}  # noqa: RUF012

    with pytest.raises(RuntimeError, match="need CuPy: pip install"):
        compress.get("int8").encode(Somewhere())


def test_parts_are_the_same_memory(fake):
    whole = fake.put(np.arange(8, dtype=np.uint8))
    assert fake.get(whole[2:4]).tolist() == [2, 3]
    assert isinstance(whole, Array)

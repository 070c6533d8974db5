"""Without CuPy, or without a GPU: one clear error, when a kernel is called and not before."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import compress
from allreduce.execute import device_kernels
from allreduce.execute.device_reductions import reduction
from compress.kernels_device.blocks import block_kernels

F = np.dtype(np.float32)


@pytest.fixture(params=["no CuPy", "no GPU", "a GPU"])
def cupy(request, monkeypatch):
    """What is imported as CuPy."""
    launched = []

    def raw_module(code, options):
        def kernel(grid, block, arguments):
            launched.append((grid, block, arguments))

        return SimpleNamespace(get_function=lambda name: kernel)

    there = request.param == "a GPU"
    found = SimpleNamespace(
        is_available=lambda: there, RawModule=raw_module, __version__="14.2.0", launched=launched, there=there
    )
    device_kernels.module.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None if request.param == "no CuPy" else found)
    yield found
    device_kernels.module.cache_clear()


def test_what_is_called_and_what_is_said(cupy):
    kernel, _ = reduction(F, "sum")
    encode = block_kernels(compress.get("int8"), F).encode
    assert kernel.address == encode.address == 0, "the compiled loop must not call it"
    if sys.modules["cupy"] is None:
        with pytest.raises(RuntimeError, match="need CuPy: pip install"):
            kernel.call(0, 16, 32, 5, 0)
    elif not cupy.there:
        with pytest.raises(RuntimeError, match=r"CuPy 14.2.0 finds no CUDA device"):
            encode.call(0, 16, 0, 5, 0)
    else:
        kernel.call(0, 16, 32, 1025, 0)
        encode.call(0, 16, 7, 2049, 9)
        kernel.call(0, 16, 32, 0, 0)
        assert cupy.launched == [((2,), (256,), (0, 16, 32, 1025)), ((2,), (256,), (0, 16, 7, 2049, 9))]


def test_codecs_without_kernels_are_named():
    with pytest.raises(TypeError, match=r"elias.* has no kernels for a CUDA device; have cast, "):
        block_kernels(compress.get("elias"), F)

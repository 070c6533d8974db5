"""Every kernel, compiled for every architecture: without warnings, and without running out of registers.

    pytest -rP tests/device/test_device_compiles.py        shows what each kernel needs
"""

import numpy as np
import nvrtc
import pytest
from test_reductions import HALF

import compress
from allreduce.execute import device_reductions
from compress.kernels_device import blocks, selection

#: Volta, Ampere, Hopper, Blackwell; CUDA 13 has dropped the first.
ARCHITECTURES = (70, 80, 90, 100)

needs_nvrtc = pytest.mark.skipif(not nvrtc.library(), reason="no NVRTC: pip install nvidia-cuda-nvrtc-cu12")
F = np.dtype(np.float32)
#: One of each kind; integers of other sizes take as long again to compile.
REDUCTIONS = [np.dtype(np.int8), F, *HALF, np.dtype(np.complex64)]
CODECS = ["int8", "terngrad", "qsgd:block=8192", "fp8", "float16", "sign", "natural", "eden:block=8192"]
SOURCES = {
    **{f"reductions of {dtype}": device_reductions.source_of(dtype) for dtype in REDUCTIONS},
    "cast to float16": device_reductions.source_of_cast(HALF[0], F),
    **{text: blocks.source_of(compress.get(text), F) for text in CODECS},
    "selection": selection.source_of(F),
    "int4 of bfloat16": blocks.source_of(compress.get("int4"), HALF[1]),
}


@needs_nvrtc
@pytest.mark.parametrize("name", SOURCES)
def test_compiles(name):
    for architecture in ARCHITECTURES:
        for kernel in nvrtc.compiled(SOURCES[name], architecture):
            print(f"sm_{architecture:<4} {name:24} {kernel}")
            assert kernel.spilled == kernel.stack == 0
            assert kernel.registers <= 64 and kernel.shared <= 48 << 10, "a block of 1024 threads could not start"


@needs_nvrtc
def test_errors_are_found():
    with pytest.raises(AssertionError, match=r"sm_90: (?s:.*)undefined"):
        nvrtc.compiled('extern "C" __global__ void wrong(float* x) { *x = y; }', 90)

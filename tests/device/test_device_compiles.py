"""Every kernel, compiled for every architecture: without warnings, and without running out of registers.

    pytest -rP tests/device/test_device_compiles.py        shows what each kernel needs
"""

import numpy as np
import nvrtc
import pytest
from test_reductions import HALF

import compress
from allreduce.execute import device_reductions
from compress.kernels_device import blocks, blocktopk, bounded, memory, oktopk, powersgd, randomk, selection, thc

#: Volta, Ampere, Hopper, Blackwell; CUDA 13 has dropped the first.
ARCHITECTURES = (70, 80, 90, 100)

needs_nvrtc = pytest.mark.skipif(not nvrtc.library(), reason="no NVRTC: pip install nvidia-cuda-nvrtc-cu12")
F, D = np.dtype(np.float32), np.dtype(np.float64)
#: One of each kind; integers of other sizes take as long again to compile.
REDUCTIONS = [np.dtype(np.int8), F, *HALF, np.dtype(np.complex64)]
#: Every codec, every type of values.
CODECS = {
    "int8": F, "qsgd:block=8192": F, "int4": HALF[1], "fp8": HALF[0], "float16": F, "sign": HALF[1],
    "natural": D, "eden:block=8192": F, "dynamic": F, "spikes": F,
}  # fmt: skip
THC, REMEMBERING = compress.get("thc"), ("feedback", "differences", "dgc")
SOURCES = {
    **{f"reductions of {dtype}": device_reductions.source_of(dtype) for dtype in REDUCTIONS},
    "cast to float16": device_reductions.source_of_cast(HALF[0], F),
    **{f"{text} of {dtype}": blocks.source_of(compress.get(text), dtype) for text, dtype in CODECS.items()},
    "blocktopk of float32": blocktopk.source_of(compress.get("blocktopk"), F),
    "blocktopk:block=8192 of float64": blocktopk.source_of(compress.get("blocktopk:block=8192"), D),
    **{f"bounded of {dtype}": bounded.source_of(dtype) for dtype in (F, D, HALF[0])},
    **{f"oktopk of {dtype}": oktopk.source_of(dtype) for dtype in (F, D)},
    **{f"powersgd of {dtype}": powersgd.source_of(dtype, rank) for dtype, rank in ((F, 2), (HALF[1], 4), (D, 8))},
    **{f"randomk of {dtype}": randomk.source_of(compress.get("randomk"), dtype) for dtype in (F, HALF[0])},
    **{f"thc of {dtype}": thc.source_of(THC, dtype, np.dtype(np.int8)) for dtype in (F, HALF[1])},
    **{f"{name} of {dtype}": memory.source_of(name, dtype) for name in REMEMBERING for dtype in (F, D, HALF[1])},
    **{f"selection of {dtype}": selection.source_of(dtype) for dtype in (F, HALF[0])},
}


@needs_nvrtc
@pytest.mark.parametrize("name", SOURCES)
def test_compiles(name):
    for architecture in ARCHITECTURES:
        for kernel in nvrtc.compiled(SOURCES[name], architecture):
            print(f"sm_{architecture:<4} {name:31} {kernel}")
            assert kernel.spilled == kernel.stack == 0
            assert kernel.shared <= 48 << 10, "more must be asked for"


@needs_nvrtc
def test_errors_are_found():
    with pytest.raises(AssertionError, match=r"sm_90: (?s:.*)undefined"):
        nvrtc.compiled('extern "C" __global__ void wrong(float* x) { *x = y; }', 90)

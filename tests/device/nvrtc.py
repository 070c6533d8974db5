"""Kernels compiled for real GPUs, without one: by NVRTC, from the wheel nvidia-cuda-nvrtc-cu12."""

import ctypes
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from allreduce.execute.device_kernels import OPTIONS


class Needs(NamedTuple):
    """What a kernel needs: registers a thread, bytes of shared memory a block, and of a thread's own memory."""

    kernel: str
    registers: int
    shared: int
    stack: int
    spilled: int

    def __str__(self):
        return f"{self.kernel:14} {self.registers:3} registers, {self.shared:5} bytes shared"


@cache
def library():
    """NVRTC, or None."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for path in Path(folder).glob("cuda_nvrtc/lib/libnvrtc.so.12"):
            return ctypes.CDLL(str(path))
    return None


def compiled(source, architecture):
    """What the kernels of a source text need, after compiling them with the options of the library.

    Raises
    ------
    AssertionError
        With the compiler's errors or warnings.
    """
    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v", "-diag-suppress=177", *OPTIONS]
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), words)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    text = re.sub(r"nvrtc: warning: Architectures prior to .*", "", log.value.decode())
    assert not failed and not re.search(r"\b(warning|error)\b", text), f"sm_{architecture}: {text[:2000]}"
    return [_needs(entry) for entry in text.split("Compiling entry function '")[1:]]


def _needs(entry):
    def number(pattern):
        match = re.search(pattern, entry)
        return int(match[1]) if match else 0

    return Needs(
        entry.partition("'")[0],
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes smem"),
        number(r"(\d+) bytes stack"),
        number(r"(\d+) bytes spill stores"),
    )

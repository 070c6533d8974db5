"""Kernels for a GPU, compiled and run on the CPU: what `cupy.RawModule` is for a GPU."""

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from itertools import cycle
from pathlib import Path

import pytest

from allreduce.execute.cache import _private_directory

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("c++")
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-U_FORTIFY_SOURCE", f"-I{HERE}"]
#: What is undefined ends the kernel; aliasing rules are other ones on a GPU, and so are warnings.
STRICT = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-fno-strict-aliasing", "-w"]

needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C++ compiler (g++) to run kernels on the CPU")


class KernelError(RuntimeError):
    """A fault in a kernel, and where."""


def _library(text, options, mode):
    """Compiled once a machine: ranks and runs use what others have compiled."""
    header = (HERE / "engine.h").read_text()
    name = sha256(repr((text, options, FLAGS, header)).encode()).hexdigest()
    library = Path(_private_directory()) / f"{name}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            new = Path(folder) / "kernels.so"
            command = [COMPILER, *FLAGS, *options, "-x", "c++", "-", "-o", new]
            done = subprocess.run(command, input=text, text=True, capture_output=True)
            assert done.returncode == 0, done.stderr[:4000]
            new.replace(library)
    return ctypes.CDLL(str(library), mode)


@cache
def _engine():
    """Its functions are found by all modules."""
    return _library((HERE / "engine.cpp").read_text(), [], ctypes.RTLD_GLOBAL)


class Module:
    """The kernels of a source text, called as CuPy's are."""

    def __init__(self, source):
        _engine()
        text = subprocess.run([COMPILER, "-E", "-x", "c++", "-"], input=source, text=True, capture_output=True).stdout
        names = re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(", text)
        launchers = "".join(f"LAUNCHER({name})\n" for name in names)
        self.library = _library(f'#include "engine.h"\n{text}\n{launchers}', STRICT, ctypes.RTLD_LOCAL)
        #: Of the order in which threads run: ascending, descending, at random, at random
        self.seeds = cycle(range(4))

    def get_function(self, name):
        launch = self.library[f"launch_{name}"]
        launch.restype = ctypes.c_char_p

        def call(grid, block, args):
            fault = launch((ctypes.c_int64 * len(args))(*args), *grid, *block, next(self.seeds))
            if fault:
                raise KernelError(f"{name}: {fault.decode()}")

        return call


module = cache(Module)

"""The kernels of `reductions`, for arrays on a CUDA device; the same bits."""

from pathlib import Path

import numpy as np

from .cuda import cuda
from .device_kernels import kernel, name_of, source
from .elements import OF_BOOLEANS, OPS, Kernel

__all__ = ["cast", "difference", "divide", "fused", "reduction", "source_of", "source_of_cast", "zeros"]

HERE = Path(__file__)


def reduction(dtype: np.dtype, op: str) -> tuple[Kernel, int]:
    """The kernel of an operation, and how many of its elements one element of the dtype is."""
    dtype, elements = _parts(dtype, op)
    name = f"reduce_{_known('sum' if op == 'avg' else op, dtype)}"
    return kernel(source_of(dtype), name, dtype.itemsize, _all_but_step), elements


def divide(dtype: np.dtype) -> tuple[Kernel, int]:
    """out = a / b where b is the plain number of ranks: true division, of integers rounded down as NumPy's //."""
    dtype, elements = _parts(dtype, "avg")
    return kernel(source_of(dtype), "divide", dtype.itemsize, _all_but_step), elements


def fused(dtype: np.dtype, op: str) -> tuple[Kernel, int]:
    """out = also = the reduction of `size` parts, in order, rounded once; (out, addresses of parts, size, count, also).

    The addresses are on the device, too. Half precision is summed in float32 throughout; an average is divided before
    it is rounded.
    """
    dtype, elements = _parts(dtype, op)
    name = f"fused_{_known(op, dtype)}"
    return kernel(source_of(dtype), name, dtype.itemsize, lambda *arguments: arguments), elements


def cast(to: np.dtype, from_: np.dtype) -> Kernel:
    """out = a in another dtype, rounded to nearest even; b is not used."""
    itemsize = max(to.itemsize, from_.itemsize)
    return kernel(source_of_cast(to, from_), "cast", itemsize, lambda out, a, b, count, step: (out, a, count))


def difference(dtype: np.dtype) -> Kernel:
    """out = a - b, of real numbers."""
    return kernel(source_of(dtype), "difference", dtype.itemsize, _all_but_step)


def zeros(dtype: np.dtype) -> Kernel:
    """out = 0; a and b are not used."""
    return Kernel(0, lambda out, a, b, count, step: cuda().clear(out, count * dtype.itemsize))


def source_of(dtype: np.dtype) -> str:
    """The text of all kernels of a dtype."""
    kinds = f"#define COMPLEX {int(dtype.kind == 'c')}\n#define INTEGER {int(dtype.kind in 'iub')}"
    return source([HERE.with_name("device_reductions.cu")], f"typedef {name_of(dtype)} T;\n{kinds}")


def source_of_cast(to: np.dtype, from_: np.dtype) -> str:
    """The text of a cast."""
    return source([HERE.with_name("device_cast.cu")], f"typedef {name_of(to)} To;\ntypedef {name_of(from_)} From;")


def _all_but_step(*arguments: int) -> tuple[int, ...]:
    return arguments[:-1]


def _parts(dtype: np.dtype, op: str) -> tuple[np.dtype, int]:
    """Sums of complex numbers are those of their parts."""
    if dtype.kind == "c" and op in ("sum", "avg"):
        return np.dtype(f"f{dtype.itemsize // 2}"), 2
    return dtype, 1


def _known(op: str, dtype: np.dtype) -> str:
    """The sum of truths is "any", their product "all"."""
    index = OPS.index(op)
    return OPS[OF_BOOLEANS.get(index, index)] if dtype.kind == "b" else op

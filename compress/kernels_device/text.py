"""The texts that are compiled: constants as C++ writes them, then the files of this folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from allreduce.execute.device_kernels import name_of, source

__all__ = ["largest", "text_of"]

HERE = Path(__file__).parent


def largest(dtype: Any) -> float:
    """The largest finite number of a dtype that is one of float32, too."""
    return min(float(ml_dtypes.finfo(dtype).max), float(np.finfo(np.float32).max))


def text_of(files: tuple[str, ...], dtype: np.dtype, constants: Mapping[str, Any]) -> str:
    """The text of files that know the type of elements, T, its largest number, and constants of any kind."""
    everything = {"T": name_of(dtype), "TOP": largest(dtype), **constants}
    return source([HERE / f"{file}.cu" for file in files], "\n".join(map(_constant, everything, everything.values())))


def _constant(name: str, value: Any) -> str:
    """Text is a type."""
    if isinstance(value, str):
        return f"typedef {value} {name};"
    if isinstance(value, float):
        return f"constexpr float {name} = {_number(value)};"
    if isinstance(value, np.ndarray):
        kind = "int" if value.dtype.kind in "iu" else "float"
        return f"constexpr {kind} {name}[] = {{{', '.join(_number(x) for x in value.tolist())}}};"
    return f"constexpr int {name} = {value};"


def _number(value: float) -> str:
    return f"{value.hex()}f" if isinstance(value, float) else str(value)

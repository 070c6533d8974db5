"""Arrays that go as one vector, and its parts."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

__all__ = ["as_one", "fitting", "flat", "next_to_each_other", "parts_of", "together"]


def together(arrays: dict[str, np.ndarray], allreduce: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
    """The sums of several arrays, which are left as they are, in one all-reduce, which may work in place."""
    if not arrays:
        return {}
    return parts_of(allreduce(np.concatenate([x.reshape(-1) for x in arrays.values()])), arrays)


def parts_of(flat: np.ndarray, like: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parts of a flat array that have the shapes of others, by their keys."""
    pieces = np.split(flat, np.cumsum([x.size for x in like.values()])[:-1]) if like else []
    return {key: piece.reshape(x.shape) for (key, x), piece in zip(like.items(), pieces)}


def flat(array: np.ndarray) -> np.ndarray:
    """Its values in C order; a view, if they lie so."""
    return array.reshape(-1)


def next_to_each_other(arrays: Iterable[np.ndarray]) -> bool:
    """Whether some have values, and these lie in memory one after the other, in C order."""
    some = [array for array in arrays if array.size]
    ends = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in some]
    return bool(some) and all(a.flags.c_contiguous for a in some) and all(a[1] == b[0] for a, b in pairwise(ends))


def as_one(pieces: list[np.ndarray]) -> np.ndarray:
    """Arrays one after the other as one: that of which `parts_of` made them, or else a copy."""
    whole = pieces[0].base
    if isinstance(whole, np.ndarray) and (whole.ndim, whole.dtype) == (1, pieces[0].dtype):
        all_of_it = whole.size == sum(piece.size for piece in pieces)
        if all_of_it and all(piece.base is whole for piece in pieces) and next_to_each_other(pieces):
            return whole
    return np.concatenate([piece.reshape(-1) for piece in pieces])


def fitting(array: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that is in order, or else a new one."""
    good = array is not None and array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
    return array if array is not None and good else np.empty(shape, dtype)

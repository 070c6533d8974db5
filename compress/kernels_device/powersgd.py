"""PowerSGD on a device: residuals and factors stay there.

The bits are not those of the host, where BLAS and LAPACK add in orders of their own. They are the same on all ranks,
whatever their devices. A tensor that is summed as it is has the bits of the host.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from allreduce.execute.cuda import cuda
from allreduce.execute.device_arrays import OnDevice
from allreduce.execute.device_kernels import launcher, name_of
from allreduce.execute.device_memory import lasting, rooms
from allreduce.execute.device_reductions import cast

from ..context import Context
from ..method import AllReduce, working
from .memory import THREADS, Arrayed, Arrays, kept, remembering
from .text import text_of

__all__ = ["launches", "low_rank", "rooms_of", "source_of", "table_of"]

#: As in powersgd.cu.
MOST_THREADS, ROWS, PATCH = 1024, 4, 256
Shapes = Sequence[tuple[int, ...]]


def low_rank(method: Any, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """As `PowerSGD.reduce_together`, in the same two all-reduces."""
    matrices = {key: x for key, x in tensors.items() if method.columns(x)}
    plain = [key for key in tensors if key not in matrices]
    shapes = [tensors[key].shape for key in plain] + [(len(x), method.rank) for x in matrices.values()]
    wide = working(next(iter(tensors.values())))
    with rooms(((sum(map(prod, shapes)),), wide)) as (vector,):
        sums = parts_of(vector, shapes)
        for key, part in zip(plain, sums):
            convert(part, tensors[key])
        if matrices:
            ps = sums[len(plain) :]
            iterate(method, matrices, [outs[key] for key in matrices], ps, lambda: allreduce(vector), allreduce)
        else:
            allreduce(vector)
        for key, part in zip(plain, sums):
            convert(outs[key], part)


def iterate(
    method: Any, tensors: Arrays, outs: Arrayed, ps: Arrayed, sum_ps: Callable[[], Any], allreduce: AllReduce
) -> None:
    """A step of power iteration, of matrices of which `sum_ps` sums P over the ranks."""
    xs, rank = list(tensors.values()), method.rank
    sizes = [(len(x), x.size // len(x)) for x in xs]
    residuals = [kept(method, key, "residual", x) for key, x in tensors.items()]
    with (
        rooms(*(((count,), working(xs[0])) for count in rooms_of(sizes, rank))) as vectors,
        remembering("feedback", xs, residuals, outs) as on,
    ):
        values, *_, total = vectors
        qs = [first_factor(method, key, m) for key, m in zip(tensors, parts_of(values, sizes))]
        facts, blocks = table_of(sizes, rank, vectors, ps, qs, outs)
        with rooms((facts.shape, np.int64)) as (table,):
            cuda().upload(table.ctypes.data, facts)
            run = launches(source_of(xs[0].dtype, rank), blocks, table, len(xs))
            on.run("wanted", values)
            run("multiply")
            sum_ps()
            run("orthonormalise")
            run("multiply_turned")
            run("add_parts")
            allreduce(total)
            run("approximate", on.odd)
            run("keep_factors", on.odd)
            on.run("keep", values, on.odd)


def rooms_of(sizes: Shapes, rank: int) -> list[int]:
    """How long the vectors are in which the parts of all matrices lie: values, sums of patches, own Q and its total."""
    factors = sum(columns for _, columns in sizes) * rank
    patches = sum(-(-rows // PATCH) * columns for rows, columns in sizes) * rank
    return [sum(map(prod, sizes)), patches, factors, factors]


def table_of(
    sizes: Shapes, rank: int, vectors: Arrayed, ps: Arrayed, qs: Arrayed, outs: Arrayed
) -> tuple[np.ndarray, dict[str, int]]:
    """What kernels are told of matrices, shape (matrices, 12), int64, as `Matrix` in powersgd.cu; and their blocks."""
    rows, columns = np.array(sizes, np.int64).T
    patches, factor = -(-rows // PATCH), columns * rank
    tiles = -(-rows // ROWS), patches * -(-columns // 32), -(-factor // THREADS)
    counts = rows * columns, patches * factor, factor, factor
    m, parts, own, total = (x.ctypes.data + x.itemsize * before(count) for x, count in zip(vectors, counts))
    p, q, out = ([array.ctypes.data for array in arrays] for arrays in (ps, qs, outs))
    facts = np.array([m, p, parts, own, total, q, out, rows, columns, *map(before, tiles)], np.int64).T.copy()
    by_rows, by_patches, by_factors = (int(tile.sum()) for tile in tiles)
    return facts, {
        "multiply": by_rows, "orthonormalise": len(sizes), "multiply_turned": by_patches, "add_parts": by_factors,
        "approximate": by_patches, "keep_factors": by_factors,
    }  # fmt: skip


def launches(text: str, blocks: dict[str, int], table: np.ndarray, many: int) -> Callable[..., None]:
    """A function (kernel, *arrays), of the matrices of a table."""

    def run(name: str, *arrays: np.ndarray) -> None:
        threads = MOST_THREADS if name == "orthonormalise" else THREADS
        addresses = [array.ctypes.data for array in (*arrays, table)]
        launcher(text, name, threads)(blocks[name], *addresses, many)

    return run


def before(counts: np.ndarray) -> np.ndarray:
    """Of each, the sum of those before it."""
    return np.cumsum(counts) - counts


def first_factor(method: Any, key: str, m: OnDevice) -> OnDevice:
    """The Q to begin with, which is to be remembered."""
    q = method.start(key, m)
    if not isinstance(q, OnDevice) or q.dtype != m.dtype:
        q = lasting(q.copy().astype(m.dtype))
        method.memory.setdefault(key, {})["q"] = q
    return q


def parts_of(vector: Any, shapes: Shapes) -> list[OnDevice]:
    """The parts of a vector that have these shapes."""
    ends = pairwise(accumulate(map(prod, shapes), initial=0))
    return [vector[first:end].reshape(shape) for (first, end), shape in zip(ends, shapes)]


def convert(out: OnDevice, x: OnDevice) -> None:
    """out = x in the dtype of out."""
    cast(out.dtype, x.dtype).call(out.ctypes.data, x.ctypes.data, 0, x.size, 0)


@cache
def source_of(dtype: np.dtype, rank: int) -> str:
    """The text of all kernels of a dtype and a rank."""
    constants = {"W": name_of(working(np.empty(0, dtype))), "RANK": rank}
    return text_of(("arrays", "memory", "powersgd"), dtype, constants)

"""Which methods can reduce arrays on a device."""

from collections.abc import Callable
from typing import Any

from allreduce.execute.device_arrays import OnDevice

from ..context import Context
from ..method import AllReduce, Method, working
from ..table import TABLE
from .dgc import in_momentum
from .differences import differences
from .feedback import error_feedback, up_a_tree
from .lookup import coding
from .memory import Arrays
from .oktopk import in_regions
from .powersgd import low_rank
from .thc import in_steps

__all__ = ["check", "reduce_together"]


#: By the module of a method.
REDUCTIONS: dict[str, Callable[[Any, Arrays, Arrays, AllReduce, Context], None]] = {
    "dgc": in_momentum,
    "differences": differences,
    "feedback": error_feedback,
    "gtopk": up_a_tree,
    "oktopk": in_regions,
    "powersgd": low_rank,
    "thc": in_steps,
}


def reduce_together(method: Method, tensors: Arrays, outs: Arrays, allreduce: AllReduce, at: Context) -> None:
    """Write the sums of tensors of one dtype, each in C order, by the current stream.

    They have the bits of the host, but for `powersgd`. Parameters are those of `Method.reduce_together`; `outs` may be
    the tensors.
    """
    REDUCTIONS[module_of(method)](method, tensors, outs, allreduce, at)


def check(method: Method, x: OnDevice) -> None:
    """Refuse what cannot be reduced on a device, before anything is sent.

    Raises
    ------
    TypeError
        A method without kernels there, or with a codec that has none, naming those with.
    ValueError
        A tensor in Fortran order.
    """
    if module_of(method) not in REDUCTIONS:
        names = [name for name, entry in TABLE.items() if entry.module in REDUCTIONS]
        raise TypeError(f"{method} is for arrays in host memory; on a CUDA device there are {', '.join(names)}")
    if hasattr(method, "codec"):
        coding(method.codec, working(x))
    if not x.flags.c_contiguous:
        raise ValueError(f"{method} is for arrays in C order on a device, not in Fortran order; pass a copy")


def module_of(method: Method) -> str:
    """Empty for one that is not ours, of which nothing is known."""
    package, _, module = type(method).__module__.rpartition(".")
    return module if package == "compress" else ""

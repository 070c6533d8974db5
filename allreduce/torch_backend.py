"""PyTorch's collectives by ours: `import allreduce.torch_backend; init_process_group("allreduce")`.

Under mpirun or srun nothing else is needed, neither address nor port; unless RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT are all set, as by torchrun, `init_process_group` asks MPI for them, whatever the backend. A collective
with ``async_op=True`` is done by a thread, see `allreduce.progress`, all others by the caller. An exception that
nobody catches ends the job on all ranks, as under ``python -m mpi4py``; for a rank that stays away the others wait
until the timeout of the group, and name it. What is no collective of ours goes through MPI's own.

>>> import torch, torch.distributed as dist
>>> import allreduce.torch_backend
>>> dist.init_process_group("allreduce")
>>> dist.all_reduce(x := torch.ones(3, dtype=torch.bfloat16), dist.ReduceOp.AVG)
>>> x
tensor([1., 1., 1.], dtype=torch.bfloat16)
>>> dist.destroy_process_group()
"""

from typing import Any
from zlib import crc32

import torch.distributed as dist
from mpi4py import MPI

from .communicator import Communicator
from .process_group import ProcessGroup
from .rendezvous import end_together, install

__all__ = ["ProcessGroup"]

#: MPI has at least so many.
TAGS = 1 << 15


def make(options: Any, _: Any = None) -> ProcessGroup:
    """The group that PyTorch asks for; only its members call this."""
    world = MPI.COMM_WORLD
    ranks = options.global_ranks_in_group or list(range(options.group_size))
    if options.group_size > world.size or ranks[options.group_rank] != world.rank:
        raise ValueError(
            f"rank {options.group_rank} of {options.group_size} is not rank {world.rank} of the {world.size} that MPI "
            "knows: start the ranks with mpirun or srun, and leave rank and world_size to it"
        )
    if world.size > 1:
        end_together()
    group = world.group.Incl(ranks)
    comm = world.Create_group(group, crc32(str(options.group_id).encode()) % TAGS)
    group.Free()
    return ProcessGroup(Communicator(comm, timeout=options.timeout.total_seconds()))


install()
dist.Backend.register_backend("allreduce", make, extended_api=True, devices=["cpu", "cuda"])
